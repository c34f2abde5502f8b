"""The assumed GPU: what vLLM, torch and Triton are told when they ask about the device.

vLLM's own CUDA platform stays in charge (backend priorities, block sizes, refusals); only its questions to the driver are
answered here, from the :class:`~kvdoctor.launches.gpus.Gpu` that the request names. ``assume`` sets it, once per forked child.
"""

import contextlib
import types
from typing import Any, Self

import torch

from kvdoctor.dryrun import nvml
from kvdoctor.dryrun.stand_in import StandIn, StandInAsked, Untaught
from kvdoctor.launches.gpus import Gpu

# vLLM 0.33's official image is built for CUDA 13; used only where torch has no CUDA version of its own (a CPU build).
OFFICIAL_IMAGE_CUDA_MAJOR = 13


class _Assumed:
    """The device that this process assumes, and how many of them."""

    gpu: Gpu | None = None
    gpu_count = 1


def assume(gpu: Gpu, *, gpu_count: int) -> None:
    """Answer for ``gpu_count`` devices of kind ``gpu`` from here on."""
    _Assumed.gpu, _Assumed.gpu_count = gpu, gpu_count


def assumed_gpu() -> Gpu:
    """The device that stands in.

    Raises :class:`StandInAsked` when vLLM asks while it is being imported: the answer would be shared by requests for other GPUs.
    """
    if _Assumed.gpu is None:
        raise StandInAsked("a question about the device before one was assumed")
    return _Assumed.gpu


def capability_number() -> int:
    """The compute capability as vLLM's kernels count it: 9.0 is 90."""
    major, minor = assumed_gpu().compute_capability
    return major * 10 + minor


def install_platform() -> None:
    """Make vLLM run on its own CUDA platform, told what the device would answer.

    Left to detect it, vLLM 0.33 falls to an unspecified platform without a driver, and plans with other backends and block sizes.
    """
    from vllm import platforms
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    def unanswered(name: str) -> Any:
        def ask(*_arguments: object, **_options: object) -> None:
            raise StandInAsked(f"{name} of the platform")

        return classmethod(ask)

    answers: dict[str, Any] = {
        "get_device_capability": lambda *_a, **_k: DeviceCapability(*assumed_gpu().compute_capability),
        "get_device_name": lambda *_a, **_k: assumed_gpu().device_name,
        "get_device_total_memory": lambda cls, *_a, **_k: nvml.total_memory(cls, assumed_gpu()),
        "num_compute_units": lambda *_a, **_k: assumed_gpu().sm_count,
        # GB10 shares its memory with the CPU (compute capability 12.1; 8.7 and 11.0 are Jetson's).
        "is_integrated_gpu": lambda *_a, **_k: assumed_gpu().compute_capability in {(12, 1), (8, 7), (11, 0)},
        "device_count": lambda *_a, **_k: _Assumed.gpu_count,
        "is_fully_connected": lambda *_a, **_k: True,
        "get_device_numa_node": lambda *_a, **_k: None,
        "get_all_device_numa_nodes": lambda *_a, **_k: None,
        "get_cuda_runtime_major": lambda *_a, **_k: cuda_major(),
        "logical_device_id_to_visible_device_id": lambda _cls, device_id: device_id,
        "is_pin_memory_available": lambda *_a, **_k: False,
        "set_device": lambda *_a, **_k: None,
        "manual_seed_all": lambda *_a, **_k: None,
        "log_warnings": lambda *_a, **_k: None,
        # Communicators open NCCL and shared memory; the base class keeps the group's facts and does neither.
        "get_device_communicator_cls": lambda *_a, **_k: (
            "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
        ),
    }
    members: dict[str, Any] = {name: classmethod(answer) for name, answer in answers.items()}
    for name in ("get_device_uuid", "get_current_memory_usage", "get_all_gpu_pci_bus_ids"):
        members[name] = unanswered(name)
    fallback = CudaPlatformBase.__getattr__

    def from_torch(self: Any, name: str) -> Any:
        # vLLM looks for what its platform lacks in torch.cuda, and answers None where that lacks it too.
        if name.startswith("__") or hasattr(torch.cuda, name):
            return fallback(self, name)
        raise Untaught(f"{name} of the platform")

    platform = type("AssumedCuda", (CudaPlatformBase,), {**members, "__getattr__": from_torch})()
    platforms._current_platform = platforms.current_platform = platform


def cuda_major() -> int:
    """The CUDA major version of the installed torch, which decides kernels on Blackwell; the official image's for a CPU build."""
    return int(torch.version.cuda.split(".")[0]) if torch.version.cuda else OFFICIAL_IMAGE_CUDA_MAJOR


class _Idle(StandIn):
    """A stream or event: it may be made, waited for and entered, and nothing ever runs on it."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        self.cuda_stream = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        return None

    def wait_stream(self, _other: object) -> None:
        return None

    def record(self, _stream: object = None) -> None:
        return None

    def synchronize(self) -> None:
        return None


class _TritonDriver(StandIn):
    """Triton's active driver: names the target, launches nothing."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", capability_number(), 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")

    def get_current_device(self) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda

    @property
    def utils(self) -> "_TritonUtils":
        return _TritonUtils()


class _TritonUtils(StandIn):
    """What Triton's driver module says of the device: gated delta net picks its tiles by the shared memory (every release)."""

    def get_device_properties(self, _device: int) -> dict[str, int]:
        gpu = assumed_gpu()
        return {"max_shared_mem": gpu.shared_memory_bytes, "multiprocessor_count": gpu.sm_count, "warpSize": 32}


def install_torch() -> None:
    """Answer torch's and Triton's questions about the device.

    Model layers ask ``torch.cuda`` directly (streams, events, properties), and Triton wants an active driver to be imported.
    """
    import triton

    triton.runtime.driver.set_active(_TritonDriver())

    def properties(*_arguments: object) -> types.SimpleNamespace:
        gpu = assumed_gpu()
        major, minor = gpu.compute_capability
        return types.SimpleNamespace(
            name=gpu.device_name,
            major=major,
            minor=minor,
            total_memory=gpu.memory_bytes,
            multi_processor_count=gpu.sm_count,
            L2_cache_size=gpu.l2_bytes,
            shared_memory_per_block_optin=gpu.shared_memory_bytes,
            is_integrated=0,
            warp_size=32,
            gcnArchName="",
        )

    def no_cuda_context() -> None:
        raise StandInAsked("a CUDA context")

    idle = _Idle()
    answers: dict[str, Any] = {
        "Stream": _Idle,
        "Event": _Idle,
        "current_stream": lambda *_a, **_k: idle,
        "default_stream": lambda *_a, **_k: idle,
        "stream": lambda *_a, **_k: idle,
        "current_device": lambda: 0,
        "is_available": lambda: True,
        "device_count": lambda: _Assumed.gpu_count,
        "synchronize": lambda *_a, **_k: None,
        "empty_cache": lambda *_a, **_k: None,
        "set_device": lambda *_a, **_k: None,
        "is_current_stream_capturing": lambda: False,
        "get_device_name": lambda *_a, **_k: assumed_gpu().device_name,
        "get_device_capability": lambda *_a, **_k: assumed_gpu().compute_capability,
        "get_device_properties": properties,
        "_lazy_init": no_cuda_context,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)

    # Layers that are written for any vendor's device ask here (FlashMLA's sparse backend on 0.34, Kimi-K3 on Blackwell since 0.32).
    any_vendors: dict[str, Any] = {
        "current_accelerator": lambda *_a, **_k: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "current_stream": lambda *_a, **_k: idle,
        "device_count": lambda: _Assumed.gpu_count,
        "device_index": lambda *_a, **_k: contextlib.nullcontext(),
        "empty_cache": lambda *_a, **_k: None,
        "is_available": lambda: True,
        "set_device_index": lambda *_a, **_k: None,
        "synchronize": lambda *_a, **_k: None,
    }
    for name, answer in any_vendors.items():
        setattr(torch.accelerator, name, answer)
