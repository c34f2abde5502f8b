"""The GPUs that can be assumed: what vLLM would ask the device, as data with its source."""

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A device profile: everything the dry launch answers when vLLM asks about the GPU.

    ``memory_bytes`` is what CUDA reports as total, a little under the marketed figure.
    ``shared_memory_bytes`` is the opt-in shared memory per block.
    """

    name: str
    device_name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    sm_count: int
    shared_memory_bytes: int
    l2_bytes: int
    source: str
