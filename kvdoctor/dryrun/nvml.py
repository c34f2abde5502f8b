"""The driver's management library, as far as vLLM's own code asks it: what it does not report of a GPU, vLLM must cope with itself."""

import types
from typing import Any

from kvdoctor.dryrun.stand_in import StandIn
from kvdoctor.launches.gpus import Gpu

# GB10 shares the system's memory: NVML reports none of its own (``nvidia-smi`` prints [N/A]).
_REPORTS_NO_MEMORY = frozenset({(12, 1)})


class _Nvml(StandIn):
    """The library on a machine with such a GPU."""

    def __init__(self, real: types.ModuleType) -> None:
        self.NVMLError = real.NVMLError
        self._not_supported = real.NVML_ERROR_NOT_SUPPORTED

    def nvmlInit(self) -> None:  # noqa: N802 - the library's names
        """Nothing to open."""

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Nothing to close."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        """A handle for each device."""
        return index

    def nvmlDeviceGetMemoryInfo(self, _handle: int) -> None:  # noqa: N802
        """Not supported."""
        raise self.NVMLError(self._not_supported)


def total_memory(platform: Any, gpu: Gpu) -> int:
    """The device's memory as vLLM's platform answers it from NVML; its own code decides where NVML has no answer.

    Up to 0.32 NVML's error goes on to the caller, who then takes the smallest defaults; later releases ask CUDA (vLLM pull request 57378).
    """
    if gpu.compute_capability not in _REPORTS_NO_MEMORY:
        return gpu.nvml_memory_bytes
    from vllm.platforms import cuda

    real, ask_cuda = cuda.pynvml, vars(cuda).get("cuda_get_device_properties")
    cuda.pynvml = _Nvml(real)
    if ask_cuda is not None:  # it would look in a process of its own
        cuda.cuda_get_device_properties = lambda *_a, **_k: (gpu.memory_bytes,)
    try:
        return int(cuda.NvmlCudaPlatform.get_device_total_memory.__func__(platform))
    finally:
        cuda.pynvml = real
        if ask_cuda is not None:
            cuda.cuda_get_device_properties = ask_cuda
