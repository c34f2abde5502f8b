"""The GPUs that can be assumed: what vLLM would ask the device, as data with its source."""

import difflib
import re
from dataclasses import dataclass

from kvdoctor.errors import BadRequest
from kvdoctor.launches.sizes import parse_size

GIB = 2**30
MIB = 2**20
DEFAULT_GPU = "h100-80g"

# Opt-in shared memory per block by compute capability, from the tables of CUDA's programming guide (1 KiB of each SM's share is reserved).
_SHARED_MEMORY_BYTES = {
    (7, 5): 64 * 1024,
    (8, 0): 163 * 1024,
    (8, 6): 99 * 1024,
    (8, 9): 99 * 1024,
    (9, 0): 227 * 1024,
    (10, 0): 227 * 1024,
    (10, 3): 227 * 1024,
    (12, 0): 99 * 1024,
    (12, 1): 99 * 1024,
}
_CAPABILITY_AND_MEMORY = re.compile(r"([0-9]{1,2})\.([0-9]):(.+)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A device profile: everything the dry launch answers when vLLM asks about the GPU.

    ``memory_bytes`` is what CUDA reports as total, a little under the marketed figure; it moves by some tens of MiB with the driver.
    ``nvml_memory_bytes`` is the total that the driver's management library (and ``nvidia-smi``) reports, which vLLM asks for its defaults.
    ``shared_memory_bytes`` is the opt-in shared memory per block.
    """

    name: str
    device_name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    nvml_memory_bytes: int
    sm_count: int
    shared_memory_bytes: int
    l2_bytes: int
    source: str


def _gpu(  # noqa: PLR0917 - a row of the table below
    name: str, device_name: str, capability: tuple[int, int], cuda_mib: int, nvml_mib: int, sm_count: int, l2_mib: int, source: str
) -> Gpu:
    return Gpu(
        name=name,
        device_name=device_name,
        compute_capability=capability,
        memory_bytes=cuda_mib * MIB,
        nvml_memory_bytes=nvml_mib * MIB,
        sm_count=sm_count,
        shared_memory_bytes=_SHARED_MEMORY_BYTES[capability],
        l2_bytes=l2_mib * MIB,
        source=source,
    )


# Where a CUDA total comes from. Each was printed by a machine with that GPU and published; vendors' data sheets give the SM counts.
_PROPERTIES = "CUDA total as torch's device properties print it, driver total as nvidia-smi prints it"
_MESSAGE = "CUDA total from PyTorch's out-of-memory message (to 0.01 GiB), driver total as nvidia-smi prints it"
_LLAMA = "CUDA total as llama.cpp prints it at start, driver total as nvidia-smi prints it"

#    name            device name                                       capability  CUDA    driver  SMs  L2
CATALOGUE = (
    _gpu("t4",           "Tesla T4",                                       (7, 5),  15_095,  15_360,  40,   4, _PROPERTIES),
    _gpu("a10g",         "NVIDIA A10G",                                    (8, 6),  22_589,  23_028,  80,   6, _MESSAGE),
    _gpu("l4",           "NVIDIA L4",                                      (8, 9),  22_563,  23_034,  58,  48, _MESSAGE),
    _gpu("l40s",         "NVIDIA L40S",                                    (8, 9),  45_455,  46_068, 142,  96, _MESSAGE),
    _gpu("a100-40g",     "NVIDIA A100-SXM4-40GB",                          (8, 0),  40_438,  40_960, 108,  40, _MESSAGE),
    _gpu("a100-80g",     "NVIDIA A100-SXM4-80GB",                          (8, 0),  81_151,  81_920, 108,  40, _LLAMA),
    _gpu("h100-80g",     "NVIDIA H100 80GB HBM3",                          (9, 0),  81_089,  81_559, 132,  50, _PROPERTIES),
    _gpu("h200",         "NVIDIA H200",                                    (9, 0), 143_156, 143_771, 132,  60, _PROPERTIES),
    _gpu("gh200",        "NVIDIA GH200 480GB",                             (9, 0),  96_768,  97_871, 132,  60, _MESSAGE),
    _gpu("b200",         "NVIDIA B200",                                   (10, 0), 182_642, 183_359, 148, 126, _PROPERTIES),
    _gpu("b300",         "NVIDIA B300 SXM6 AC",                           (10, 3), 274_115, 275_040, 148, 126, _MESSAGE),
    _gpu("rtx-3090",     "NVIDIA GeForce RTX 3090",                        (8, 6),  24_126,  24_576,  82,   6, _LLAMA),
    _gpu("rtx-4090",     "NVIDIA GeForce RTX 4090",                        (8, 9),  24_082,  24_564, 128,  72, _LLAMA),
    _gpu("rtx-5090",     "NVIDIA GeForce RTX 5090",                       (12, 0),  32_109,  32_607, 170,  96, _LLAMA),
    _gpu("rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition",  (12, 0),  97_250,  97_887, 188, 128, _PROPERTIES),
    # The driver's library reports no memory for GB10, which shares the system's: CUDA's total stands for both.
    _gpu("gb10",         "NVIDIA GB10",                                   (12, 1), 124_610, 124_610,  48,  24, _LLAMA.partition(",")[0]),
)  # fmt: skip


# Other names that are in use for one of them, less all that is no letter or digit. What has two sizes (an A100) has none.
_ALIASES = {
    "h100": "h100-80g",
    "h100sxm": "h100-80g",
    "h100sxm5": "h100-80g",
    "h10080gb": "h100-80g",
    "a10080gb": "a100-80g",
    "a10040gb": "a100-40g",
    "h200sxm": "h200",
    "3090": "rtx-3090",
    "4090": "rtx-4090",
    "5090": "rtx-5090",
    "rtxpro6000": "rtx-pro-6000",
    "dgxspark": "gb10",
}


def find_gpu(text: str) -> Gpu:
    """Find the GPU named ``text`` in the catalogue, or make the one that ``CAPABILITY:MEMORY`` describes (``9.0:80GiB``)."""
    wanted = text.strip().lower().replace("_", "-")
    for gpu in CATALOGUE:
        if wanted == gpu.name:
            return gpu
    bare = _bare(wanted)
    for gpu in CATALOGUE:
        if bare and (bare in (_bare(gpu.name), _bare(gpu.device_name)) or gpu.name == _ALIASES.get(bare)):
            return gpu
    described = _CAPABILITY_AND_MEMORY.fullmatch(text.strip())
    if described:
        return _described_gpu((int(described[1]), int(described[2])), parse_size(described[3], "the memory of --gpu"), text.strip())
    names = [gpu.name for gpu in CATALOGUE]
    inside = [name for name in names if wanted and (wanted in name or name in wanted)]
    near = inside or difflib.get_close_matches(wanted, names, n=3, cutoff=0.65)
    guess = f"Did you mean {' or '.join(near)}? " if near else ""
    raise BadRequest(
        f"GPU {text!r} is not in the catalogue",
        hint=f"{guess}`kvdoctor gpus` lists them all; any other is CAPABILITY:MEMORY, like 9.0:80GiB.",
    )


def _bare(name: str) -> str:
    """Give the letters and digits of a GPU's name, less its maker's and the line's."""
    return re.sub(r"nvidia|geforce|tesla|[^a-z0-9]", "", name.lower())


def _described_gpu(capability: tuple[int, int], memory_bytes: int, text: str) -> Gpu:
    lowest, highest = min(_SHARED_MEMORY_BYTES)[0], max(_SHARED_MEMORY_BYTES)[0]
    if not lowest <= capability[0] <= highest:
        raise BadRequest(
            f"GPU {text!r} has a compute capability that the catalogue has nothing near",
            hint=f"It covers {lowest}.x to {highest}.x; write one like 9.0:80GiB.",
        )
    if memory_bytes < GIB:
        raise BadRequest(f"GPU {text!r} has less than 1 GiB of memory", hint="Write the memory with its unit, like 9.0:80GiB.")

    def distance(gpu: Gpu) -> tuple[int, int]:
        major, minor = gpu.compute_capability
        return abs(10 * (major - capability[0]) + minor - capability[1]), abs(gpu.memory_bytes - memory_bytes)

    nearest = min(CATALOGUE, key=distance)
    return Gpu(
        name=text,
        # No product's name: vLLM has rules for some (it gives an A100 smaller batches), and this may be another one.
        device_name=f"NVIDIA GPU of compute capability {capability[0]}.{capability[1]}",
        compute_capability=capability,
        memory_bytes=memory_bytes,
        nvml_memory_bytes=memory_bytes,
        sm_count=nearest.sm_count,
        shared_memory_bytes=nearest.shared_memory_bytes,
        l2_bytes=nearest.l2_bytes,
        source=f"capability and memory as given, the rest from {nearest.name}",
    )
