"""What vLLM's own code makes of a GPU whose memory the driver's management library does not report."""

import sys
import types
from typing import Any

import pytest

from kvdoctor.dryrun import nvml
from kvdoctor.launches.gpus import find_gpu


class NVMLError(Exception):
    pass


def vllm_platforms(*, falls_back: bool) -> types.ModuleType:
    """Make ``vllm.platforms``, with the memory query as releases up to 0.32 have it, or as later ones do."""
    cuda: Any = types.ModuleType("vllm.platforms.cuda")
    cuda.pynvml = types.SimpleNamespace(NVMLError=NVMLError, NVML_ERROR_NOT_SUPPORTED=3)

    class NvmlCudaPlatform:
        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            cuda.pynvml.nvmlInit()
            try:
                return int(cuda.pynvml.nvmlDeviceGetMemoryInfo(cuda.pynvml.nvmlDeviceGetHandleByIndex(device_id)).total)
            except NVMLError:
                if not falls_back:
                    raise
                return int(cuda.cuda_get_device_properties(device_id, ("total_memory",))[0])
            finally:
                cuda.pynvml.nvmlShutdown()

    cuda.NvmlCudaPlatform = NvmlCudaPlatform
    if falls_back:
        cuda.cuda_get_device_properties = lambda *_arguments: ()
    platforms: Any = types.ModuleType("vllm.platforms")
    platforms.cuda = cuda
    return platforms  # type: ignore[no-any-return]


def give(monkeypatch: pytest.MonkeyPatch, platforms: Any) -> None:
    monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)


@pytest.mark.parametrize("gpu", ["gb10", "12.1:120GiB"])
def test_a_release_without_a_fallback_is_told_that_the_query_is_not_supported(monkeypatch: pytest.MonkeyPatch, gpu: str) -> None:
    platforms = vllm_platforms(falls_back=False)
    give(monkeypatch, platforms)
    with pytest.raises(NVMLError):
        nvml.total_memory(object, find_gpu(gpu))
    assert not hasattr(platforms.cuda, "cuda_get_device_properties")
    assert platforms.cuda.pynvml.NVML_ERROR_NOT_SUPPORTED == 3


def test_a_release_with_a_fallback_gets_the_total_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, vllm_platforms(falls_back=True))
    assert nvml.total_memory(object, find_gpu("gb10")) == 124_610 * 2**20


@pytest.mark.parametrize("gpu", ["h100-80g", "rtx-5090"])
def test_every_other_gpu_is_reported(gpu: str) -> None:
    assert nvml.total_memory(object, find_gpu(gpu)) == find_gpu(gpu).nvml_memory_bytes
