"""Stand-ins for vLLM's compiled libraries: the second way, where they are absent or cannot load.

The few capability queries that live in the libraries are answered from the assumed device (the table is read from the libraries of
0.33.0); whatever else is taken from a library, an operator that layers keep a handle on or a name that a package imports, has a name and
nothing else, and says so when it is called.
"""

import importlib.abc
import importlib.machinery
import re
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kvdoctor.dryrun.stand_in import StandInAsked

# Each namespace of operators that layers look into while they are built (``_flashkda_C``: Kimi-K3, 0.32 and later), or that a package
# takes its functions from (``deep_gemm``: 0.32 and later).
_NAMESPACES = (
    "_C",
    "_moe_C",
    "_C_cache_ops",
    "_C_cuda_utils",
    "_C_custom_ar",
    "_vllm_fa2_C",
    "_vllm_fa3_C",
    "_flashmla_C",
    "_flashmla_extension_C",
    "_flashkda_C",
    "_deepselect_C",
    "deep_gemm",
    "deep_select",
    "_qutlass_C",
)

# The capabilities for which each query of the compiled library answers yes: from the first on, below the second.
_CAPABILITY_QUERIES = {
    "cutlass_scaled_mm_supports_fp8": (89, 1000),
    "cutlass_scaled_mm_supports_block_fp8": (90, 1000),
    "cutlass_group_gemm_supported": (90, 120),
    "cutlass_scaled_mm_supports_fp4": (100, 1000),
    "mxfp4_experts_quant_supported": (100, 120),
}

# How many bytes a kernel wants as scratch: asked while layers are built (FlashKDA, 0.32 and later), and no layout depends on it. And
# DeepGEMM's alignment of expert blocks, as its library answers on every GPU (asked while experts are chosen, 0.27 and later).
_NUMBERS = {"get_workspace_size": 0, "get_mk_alignment_for_contiguous_layout": 128}

# What packages around a library call while they are imported (DeepGEMM tells its library where it lives), or at the interpreter's end.
_LIFE_CYCLE = frozenset({"init", "shutdown"})

# How a library's file is named after its module: for any Python (``abi3``), for one, or plainly.
_LIBRARY_SUFFIX = re.compile(r"(?:\.abi3|\.cpython-[^.]+)?\.so")


class _Libraries(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a stand-in in the place of each compiled library of vLLM's wheel.

    A library that a real installation has must count as present (FlashMLA, FlashAttention 3, DeepGEMM decide backends), also where a
    release was unpacked without it: then an empty file of its name stands in the tree. Up to 0.31 DeepGEMM's is there once for each
    Python; the wheel of a release holds them all, so any of them counts.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> Any:
        """The module of a compiled library, by its file's name."""
        del target
        leaf = name.rpartition(".")[2]
        if name.startswith("vllm.") and path and any(_holds_library(Path(folder), leaf) for folder in path):
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        """A module whose every name is there."""
        return _Library(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def _holds_library(folder: Path, leaf: str) -> bool:
    return any(_LIBRARY_SUFFIX.fullmatch(path.name.removeprefix(leaf)) for path in folder.glob(f"{leaf}.*so"))


class _Library(types.ModuleType):
    """A library of which only the name is known: it has what it is asked for, until that is called.

    Packages take names from their libraries while they are imported (``from ._C import set_num_sms``).
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _named(f"{self.__name__}.{name}", name)


class _Operator:
    """An operator known by name only."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return _Operator(f"{self.name}.{overload}")

    def __call__(self, *_arguments: object, **_options: object) -> None:
        raise StandInAsked(f"the operator {self.name}")


def _named(full_name: str, name: str) -> Any:
    """What stands for ``name`` of a library."""
    if name in _LIFE_CYCLE:
        return lambda *_a, **_k: None
    if name in _NUMBERS:
        return lambda *_a, **_k: _NUMBERS[name]
    return _Operator(full_name)


def install_modules() -> None:
    """Stand in for the libraries themselves; before vLLM is imported."""
    sys.meta_path.insert(0, _Libraries())
    _load_no_library_of_vllm()
    fragment = torch.library.Library("_C", "FRAGMENT")
    for name, (first, end) in _CAPABILITY_QUERIES.items():
        if not hasattr(torch.ops._C, name):
            fragment.define(f"{name}(int capability) -> bool")
            fragment.impl(name, lambda capability, first=first, end=end: first <= capability < end, "CompositeExplicitAutograd")
    _FRAGMENTS.append(fragment)


def _load_no_library_of_vllm() -> None:
    """Take a library that vLLM loads by its path (DeepGEMM's operators, 0.32 and later) for loaded: its file may be empty."""
    load = torch.ops.load_library

    def load_others(path: Any) -> None:
        folders = [Path(folder) for folder in getattr(sys.modules.get("vllm"), "__path__", ())]
        if not any(Path(path).is_relative_to(folder) for folder in folders):
            load(path)

    torch.ops.load_library = load_others
    torch.classes.deep_gemm = _Library("deep_gemm")  # a class of the same library


_FRAGMENTS: list[Any] = []  # a fragment takes its definitions with it when it is collected


def install_operators() -> None:
    """Let operators be named; only after ``vllm._custom_ops`` is imported, which registers fakes for those that exist."""
    import vllm._custom_ops  # noqa: F401

    for namespace in _NAMESPACES:
        real = getattr(torch.ops, namespace)

        def lookup(_self: Any, operator: str, real: Any = real, namespace: str = namespace) -> Any:
            try:
                return getattr(real, operator)
            except AttributeError:
                if operator.startswith("__"):
                    raise
                return _named(f"{namespace}::{operator}", operator)

        setattr(torch.ops, namespace, type("_NamedOperators", (type(real),), {"__getattr__": lookup})(namespace))
