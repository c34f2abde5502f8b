"""Weights as they are once vLLM has loaded them: what it quantises while loading is built at full width and takes half or less afterwards.

vLLM's own ``process_weights_after_loading``, on the meta device. Only where the launch quantises while it loads: the weights of any
other model are counted as built, which public boots confirm (within 0.1 GiB). Of modules that are built alike one is repacked, and what
it saves is counted for each: an expert layer takes half a second. What cannot run here stays as it was built, and the report says so.
"""

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kvdoctor.dryrun import extensions
from kvdoctor.dryrun.stand_in import StandInAsked

_TORCH_NAMESPACES = frozenset({"aten", "prims", "prim"})
_COUNTED = "weights counted as vLLM quantises them while loading (its process_weights_after_loading, run on the meta device)"


def storage_key(tensor: torch.Tensor) -> int:
    """What two tensors have in common when they are views of the same memory."""
    return int(tensor.untyped_storage()._cdata)


def is_online(model: Any) -> bool:
    """Whether a module of ``model`` is quantised while it is loaded: a given quantisation of a checkpoint that has none (or another)."""
    return any(quantises_online(module) for module in model.modules())


@dataclass(frozen=True, kw_only=True)
class Repacked:
    """By how much the repacking changes each model's bytes, and how that was counted."""

    changes: list[int]
    note: str


def run(models: list[Any], model_dtype: torch.dtype) -> Repacked:
    """What repacking makes of ``models`` (``process_weights_after_loading`` in ``model_loader/utils.py``, 0.33).

    A model's own hook after its modules' is left out: it would find most of them as built. Never raises for what a repacking does.
    """
    incomplete: Counter[str] = Counter()
    known = {storage_key(tensor) for model in models for module in model.modules() for tensor in _tensors(module).values()}
    with _kernels_idle(), torch.no_grad():
        changes = [_run_one(model, model_dtype, known, incomplete) for model in models]
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(incomplete.items()))
    return Repacked(changes=changes, note=f"{_COUNTED}; without a GPU not to the end: {kinds}" if kinds else _COUNTED)


def _run_one(model: Any, model_dtype: torch.dtype, known: set[int], incomplete: Counter[str]) -> int:
    examples: dict[Any, _Change] = {}
    total = 0
    for step, module, finish in _steps(model, model_dtype):
        kind = (step, *_kind(module))
        if kind not in examples:
            examples[kind] = _change(module, finish, known)
        change = examples[kind]
        total += change.added_bytes
        if change.counted_as is not None:
            incomplete[f"{type(getattr(module, 'quant_method', module)).__name__} (counted as {change.counted_as})"] += 1
    return total


@dataclass(frozen=True, kw_only=True)
class _Change:
    """What the repacking of one module adds to its bytes; ``counted_as`` what stands for it where it could not run to its end."""

    added_bytes: int
    counted_as: str | None = None


def _change(module: Any, finish: Callable[[], object], known: set[int]) -> _Change:
    """Repack ``module``. ``known`` is the memory that the models already have: a view of it adds nothing."""
    before = _tensors(module)
    held = {storage_key(tensor): tensor.untyped_storage().nbytes() for tensor in before.values()}
    failed = False
    try:
        finish()
    except Exception:  # noqa: BLE001 - a kernel that cannot run here may fail in any way; the count goes on and names the module
        failed = True
    after = _tensors(module)
    holds = {storage_key(tensor): tensor.untyped_storage().nbytes() for tensor in after.values()}
    added = sum(size for key, size in holds.items() if key not in known) - sum(size for key, size in held.items() if key not in holds)
    known.update(holds)
    _KEPT.append(before)
    if not failed or not held:
        return _Change(added_bytes=added)
    # Quantising comes before the packing for a kernel, which changes next to nothing: of two states the later one is nearer.
    if added < 0 and all(name in after and after[name].numel() > 0 for name, tensor in before.items() if tensor.numel() > 0):
        return _Change(added_bytes=added, counted_as="quantised and not packed")
    return _Change(added_bytes=0, counted_as="built")


_KEPT: list[Any] = []  # what was replaced lives on until the process ends: the key of freed memory would be given to new memory


def _tensors(module: Any) -> dict[str, torch.Tensor]:
    """The tensors that ``module`` itself holds: parameters, buffers, and plain attributes (what MLA absorbs, up to 0.31)."""
    held = {**vars(module), **module._parameters, **module._buffers}
    return {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}


def _kind(module: Any) -> tuple[Any, ...]:
    """What modules that are repacked alike have in common."""
    method = getattr(module, "quant_method", None)
    shapes = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in sorted(_tensors(module).items()))
    options = sorted(getattr(method, "__dict__", {}).items())
    settings = tuple((name, value if isinstance(value, (int, str, float)) else type(value)) for name, value in options)
    return type(module), type(method), shapes, settings


def quantises_online(module: Any) -> bool:
    """Whether ``module``'s weights are quantised while they are loaded: vLLM builds them on meta itself."""
    method = getattr(module, "quant_method", None)
    # The second: a quantised checkpoint quantised anew (0.32 and later).
    return bool(getattr(method, "uses_meta_device", False)) or getattr(method, "requantization_source", None) is not None


def _steps(model: Any, model_dtype: torch.dtype) -> Iterator[tuple[str, Any, Callable[[], object]]]:
    """Each module and its part of the repacking, in vLLM's order: quantisation methods, then attention."""
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

    for module in list(model.modules()):
        method = getattr(module, "quant_method", None)
        if isinstance(method, QuantizeMethodBase):
            yield "method", module, partial(method.process_weights_after_loading, module)
    for module in list(model.modules()):
        if _is_attention(module):
            yield "attention", module, partial(module.process_weights_after_loading, model_dtype)


def _is_attention(module: Any) -> bool:
    """Attention layers are repacked after all others: by the release's own rule where it has one (0.32 and later)."""
    attention = importlib.import_module("vllm.model_executor.layers.attention")
    rule = getattr(attention, "is_deferred_attention_layer", None)
    if rule is not None:
        return bool(rule(module))
    kinds = tuple(getattr(attention, name) for name in ("Attention", "MLAAttention", "MMEncoderAttention") if hasattr(attention, name))
    return isinstance(module, kinds) and hasattr(module, "process_weights_after_loading")


class _Idle(TorchDispatchMode):  # type: ignore[misc]  # torch's classes are Any to mypy
    """Compiled operators that write into their arguments do nothing; others answer with what their fake makes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run torch's own operators on meta, and of the others only what makes a tensor."""
        del types
        kwargs = kwargs or {}
        if func.namespace not in _TORCH_NAMESPACES and not func._schema.returns:
            return None
        return func(*args, **kwargs)


def _marlin_repacked(_weight: Any, _perm: Any, size_k: int, size_n: int, num_bits: int, *_more: object) -> torch.Tensor:
    """The shape of ``gptq_marlin_repack``'s result, which without vLLM's libraries has no fake either."""
    return torch.empty((size_k // 16, size_n * 16 * num_bits // 32), dtype=torch.int32, device="meta")


# Operators of vLLM's libraries that repacking calls, where an empty library stands in: what they make, in place or as a result.
_OPERATORS: dict[str, Callable[..., Any]] = {
    "_C::static_scaled_fp8_quant": lambda *_a, **_k: None,
    "_C::dynamic_scaled_fp8_quant": lambda *_a, **_k: None,
    "_C::dynamic_per_token_scaled_fp8_quant": lambda *_a, **_k: None,
    "_C::static_scaled_int8_quant": lambda *_a, **_k: None,
    "_C::dynamic_scaled_int8_quant": lambda *_a, **_k: None,
    "_C::gptq_marlin_repack": _marlin_repacked,
}


@contextmanager
def _kernels_idle() -> Iterator[None]:
    """Nothing is launched, compiled or asked of a device while the block runs."""
    with ExitStack() as stack:
        stack.enter_context(_replaced(extensions._Operator, "__call__", _call_operator))
        for owner, name in _launchers():
            stack.enter_context(_replaced(owner, name, lambda *_a, **_k: None))
        for owner, name in _compilers():
            stack.enter_context(_replaced(owner, name, _not_compiled))
        stack.enter_context(_Idle())
        yield


def _call_operator(operator: Any, *arguments: Any, **options: Any) -> Any:
    answer = _OPERATORS.get(operator.name)
    if answer is None:
        raise StandInAsked(f"the operator {operator.name}")
    return answer(*arguments, **options)


def _not_compiled(*_arguments: object, **_options: object) -> None:
    raise StandInAsked("a kernel of FlashInfer, which would be compiled")


def _launchers() -> Iterator[tuple[Any, str]]:
    """How a Triton kernel is launched; all of vLLM's write into their arguments."""
    from triton.runtime import autotuner, jit

    for kind in (jit.JITFunction, autotuner.Autotuner, autotuner.Heuristics):
        yield kind, "run"


def _compilers() -> Iterator[tuple[Any, str]]:
    """FlashInfer compiles a kernel when it is first asked for it, with nvcc and ninja."""
    try:
        from flashinfer.jit import core
    except ImportError:
        return
    yield from ((core.JitSpec, name) for name in ("build", "build_and_load") if hasattr(core.JitSpec, name))


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
