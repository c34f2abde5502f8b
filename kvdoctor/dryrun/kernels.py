"""Kernels that layers make while they are built and only a running model calls: they compile for the GPU at hand, and map its memory."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

from kvdoctor.dryrun.stand_in import StandIn, StandInAsked

# Kimi-K3's tail of a latent mixture of experts, on Blackwell with TP 8 or 16 (0.32 and later). What it cannot do (other shapes, ubatching,
# sleep mode) vLLM checks before it makes them.
_PACKAGES = frozenset({"vllm.models.kimi_k3.nvidia.ops.cute_dsl.latent_moe_tail"})


class _Kernel(StandIn):
    """A kernel that was made and never compiled."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        """Neither shapes nor buffers decide anything."""

    def __call__(self, *_arguments: object, **_options: object) -> None:
        raise StandInAsked(f"the kernel {type(self).__name__}")


class _Package(types.ModuleType):
    """A package of kernels: a class for every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Kernel,), {})


class _Packages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> Any:
        """The package in whose place a stand-in is imported."""
        del path, target
        return importlib.machinery.ModuleSpec(name, self) if name in _PACKAGES else None

    def create_module(self, spec: Any) -> types.ModuleType:
        """A module of kernels."""
        return _Package(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def install() -> None:
    """Stand in for such packages; before a model is built."""
    sys.meta_path.insert(0, _Packages())
