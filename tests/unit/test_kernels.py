"""Kernels that a layer makes while it is built: made, and never called."""

import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from kvdoctor.dryrun import kernels
from kvdoctor.dryrun.stand_in import StandInAsked

TAIL = "vllm.models.kimi_k3.nvidia.ops.cute_dsl.latent_moe_tail"


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    kernels.install()
    parents = TAIL.split(".")
    for end in range(1, len(parents)):
        parent: Any = types.ModuleType("parent")
        parent.__path__ = []
        monkeypatch.setitem(sys.modules, ".".join(parents[:end]), parent)
    yield
    sys.modules.pop(TAIL, None)


@pytest.mark.usefixtures("packages")
def test_a_kernel_can_be_made_with_anything_and_says_what_it_would_take_to_call_it() -> None:
    package = importlib.import_module(TAIL)
    kernel = package.CollectiveKernel(group=None, rank=0, tp_size=8)
    with pytest.raises(StandInAsked, match="the kernel CollectiveKernel: it needs a real GPU"):
        kernel(1, 2)
    assert not hasattr(package, "__all__")


@pytest.mark.usefixtures("packages")
def test_nothing_else_of_vllm_is_replaced() -> None:
    assert kernels._Packages().find_spec(f"{TAIL}.primitives", None) is None
    assert kernels._Packages().find_spec("vllm.models.kimi_k3.nvidia.ops.cute_dsl", None) is None
