"""Weights that vLLM keeps in the CPU's memory (``--cpu-offload-gb``, ``--offload-group-size``): moved by vLLM's own offloader, on meta.

The offloader decides which parameters go, layer by layer while the model is built. Its copies in the CPU's memory are meta tensors here:
nothing is allocated, and a list of them says which weights are not on the GPU.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kvdoctor.dryrun.repack import quantises_online, storage_key

META = torch.device("meta")


class Offload:
    """The offloader of one worker, and the weights that it has moved."""

    def __init__(self, offloader: Any) -> None:
        self._offloader = offloader
        self._on_cpu: dict[int, torch.Tensor] = {}  # the tensors themselves: a key is good only while its memory lives
        self._not_loaded_yet: set[int] = set()

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` is in the CPU's memory in a real launch."""
        return storage_key(tensor) in self._on_cpu

    def note(self) -> str:
        """How the weights were counted, for the report."""
        moved = sum(tensor.untyped_storage().nbytes() for tensor in self._on_cpu.values())
        return f"{moved / 2**30:.2f} GiB of weights per GPU in the CPU's memory, chosen by vLLM's {type(self._offloader).__name__}"

    def wrap_modules(self, wrap: Any) -> Any:
        """The offloader's ``wrap_modules`` with the CPU's memory on meta."""

        def wrap_on_meta(modules: Iterable[Any], *arguments: Any, **options: Any) -> Any:
            built = list(modules)
            for layer in built:
                late = (module for module in layer.modules() if quantises_online(module))
                self._not_loaded_yet.update(storage_key(tensor) for module in late for tensor in module.parameters(recurse=False))
            with _CpuMeansMeta(self._on_cpu, self._not_loaded_yet):
                return wrap(iter(built), *arguments, **options)

        return wrap_on_meta

    def finish(self) -> None:
        """What the worker does once all is loaded: prefetching takes its buffers on the GPU (``post_init``)."""
        with _nothing_prefetched(), _CpuMeansMeta(self._on_cpu, self._not_loaded_yet):
            self._offloader.post_init()


def install(config: Any) -> Offload | None:
    """Set the offloader that a worker's model runner sets before it loads the model; ``None`` where nothing is offloaded."""
    if getattr(config, "offload_config", None) is None:
        return None
    from vllm.model_executor import offloader
    from vllm.model_executor.offloader import uva

    chosen = offloader.create_offloader(config.offload_config)
    offload = None
    if not isinstance(chosen, offloader.NoopOffloader):
        offload = Offload(chosen)
        chosen.wrap_modules = offload.wrap_modules(chosen.wrap_modules)
        if hasattr(chosen, "uva_offloading"):
            # Without unified addressing the same weights go, and are copied back for each layer; only with it a weight is marked as moved.
            chosen.uva_offloading = True
            uva.get_accelerator_view_from_cpu_tensor = lambda tensor: tensor
    offloader.set_offloader(chosen)
    return offload


class _CpuMeansMeta(TorchFunctionMode):  # type: ignore[misc]  # torch's classes are Any to mypy
    """What the offloader puts into the CPU's memory is made on meta and noted."""

    def __init__(self, on_cpu: dict[int, torch.Tensor], not_loaded_yet: set[int]) -> None:
        super().__init__()
        self._on_cpu, self._not_loaded_yet = on_cpu, not_loaded_yet

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make ``func``'s CPU tensor on meta; vLLM itself has weights on meta that it quantises while loading, and cannot move those."""
        del types
        kwargs = dict(kwargs or {})
        if func in _COPIES and any(self._is_late(value) for value in args):
            raise NotImplementedError("Cannot copy out of meta tensor; no data! (weights that are quantised while loading, and offloaded)")
        if func is torch.Tensor.pin_memory:  # where a release finds that it can, whatever the platform answers (0.27.1)
            return args[0]
        if func is torch.Tensor.to and _is_cpu(kwargs.get("device", args[1] if len(args) > 1 else None)):
            return self._noted(torch.empty_like(args[0]))
        if func is torch.empty_strided and _is_cpu(kwargs.get("device")):
            return self._noted(func(*args, **{**kwargs, "device": META, "pin_memory": False}))
        return func(*args, **kwargs)

    def _is_late(self, value: object) -> bool:
        return isinstance(value, torch.Tensor) and storage_key(value) in self._not_loaded_yet

    def _noted(self, tensor: torch.Tensor) -> torch.Tensor:
        self._on_cpu[storage_key(tensor)] = tensor
        return tensor


_COPIES = frozenset({torch.Tensor.to, torch.Tensor.copy_})


def _is_cpu(device: object) -> bool:
    return device == "cpu" or (isinstance(device, torch.device) and device.type == "cpu")


@contextmanager
def _nothing_prefetched() -> Iterator[None]:
    """The first layers are not copied to the GPU: streams and events stand still here."""
    from vllm.model_executor.offloader import prefetch

    start = prefetch._ModuleOffloader.start_onload_to_static
    prefetch._ModuleOffloader.start_onload_to_static = lambda _self: None
    try:
        yield
    finally:
        prefetch._ModuleOffloader.start_onload_to_static = start
