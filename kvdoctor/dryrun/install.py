"""Prepare this process for dry launches: the stand-ins in place, then vLLM imported over them."""

import ctypes
import importlib
import importlib.util
import os
from pathlib import Path

from kvdoctor.dryrun import libcuda


class _State:
    loaded = False


def libraries() -> bool:
    """Whether vLLM's own compiled libraries are loaded (else: empty stand-ins)."""
    return _State.loaded


def prepare() -> None:
    """Import everything a launch needs that does not depend on the GPU, once per worker.

    Raises ``ImportError`` when vLLM is not there or is broken.
    """
    _settle_variables()
    own = os.environ.get("KVDOCTOR_LIBRARIES", "own")
    _State.loaded = own == "own" and libcuda.load_stand_in() and _libraries_load()
    if not _State.loaded:
        from kvdoctor.dryrun import extensions

        extensions.install_modules()

    from kvdoctor.dryrun import device, world

    device.install_torch()
    device.install_platform()
    import vllm.engine.arg_utils
    import vllm.v1.engine.core  # noqa: F401

    world.install()


def _settle_variables() -> None:
    """Set what must stand before torch is imported."""
    # Nothing that is compiled is run here, and Dynamo asks the driver: up to 0.27.1 a drafter of a multimodal target embeds a token while
    # it is loaded, through a function that ``torch.compile`` wraps.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    # DeepGEMM asserts while it is imported that there is a CUDA toolkit (up to 0.30); where it lies in vLLM's official image.
    os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")


def prepare_for_device() -> None:
    """Import what asks about the device while it is imported, and what nearly every launch needs: children then share it."""
    import vllm._custom_ops
    import vllm.v1.worker.gpu.attn_utils  # noqa: F401

    from kvdoctor.dryrun import extensions, kernels, model, processor

    if not _State.loaded:
        extensions.install_operators()
    model.install()
    processor.install()
    kernels.install()
    _inspect_in_process()
    _leave_deep_gemm_alone()
    _leave_expert_maps_unread()
    for name in _SHARED_MODULES:
        try:
            importlib.import_module(name)
        except ImportError:  # named so in another release; then the child imports what it needs
            continue


# Imported by nearly every launch on a GPU of today (``get_valid_backends`` looks at all candidates), and slow.
_SHARED_MODULES = (
    "vllm.entrypoints.common.cli_args",
    "vllm.v1.attention.backends.flash_attn",
    "vllm.v1.attention.backends.flashinfer",
    "vllm.v1.attention.backends.triton_attn",
    "vllm.v1.attention.backends.flex_attention",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.kernels.linear",
    "vllm.lora.layers",
    "vllm.compilation.backends",
    "vllm.v1.worker.gpu.spec_decode.speculator",
    "kvdoctor.dryrun.session",
)


def _libraries_load() -> bool:
    """Whether this vLLM's compiled libraries load: a release unpacked without them, or a CPU build of torch, cannot.

    Tried without importing vLLM, which could not be imported a second time with stand-ins (it registers types with torch).
    """
    import torch  # noqa: F401  # the libraries need torch's own, loaded

    package = importlib.util.find_spec("vllm")
    folders = [Path(folder) for folder in (package.submodule_search_locations or ())] if package is not None else []
    libraries = [library for folder in folders for library in sorted(folder.glob("_C*.abi3.so"))]
    try:
        for library in libraries:
            ctypes.CDLL(str(library))
    except OSError:
        return False
    return bool(libraries)


def _inspect_in_process() -> None:
    """Have the registry inspect model classes here: by itself it asks a fresh process, which has none of the stand-ins.

    What it found is not kept either: an answer from a file would leave out what vLLM logs while it looks.
    """
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda inspect: inspect()
    registry._LazyRegisteredModel._load_modelinfo_from_cache = lambda _self, _module_hash: None
    registry._LazyRegisteredModel._save_modelinfo_to_cache = lambda _self, _info, _module_hash: None


def _leave_deep_gemm_alone() -> None:
    """DeepGEMM's library asks the driver when vLLM sets an option of its launches, and fills the log with its panic (0.31 and later)."""
    from vllm.utils import deep_gemm

    if hasattr(deep_gemm, "_apply_pdl"):
        deep_gemm._apply_pdl = lambda *_a, **_k: None


def _leave_expert_maps_unread() -> None:
    """Expert parallelism logs which experts a rank holds, read back from a tensor that holds no data on meta (every release)."""
    from vllm.model_executor.layers.fused_moe import expert_map_manager

    expert_map_manager.ExpertMapManager.get_compressed_map_string = lambda _self: "not read in a dry launch"
