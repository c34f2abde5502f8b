"""Releases for tests: those that were fetched before, or any of them when all are asked for."""

import importlib.metadata
import os

import pytest

from kvdoctor.engines.find import find_engine
from kvdoctor.engines.interface import Engine
from kvdoctor.errors import Unassessed

# `.ci/run` fetches two releases; with this set, tests fetch the others.
ALL = "KVDOCTOR_ALL_ENGINES"


def engine_at_hand(release: str) -> Engine:
    """The engine of ``release``; skips the test when it is not at hand."""
    if release == importlib.metadata.version("vllm"):
        return find_engine(None)
    try:
        return find_engine(release, offline=not os.environ.get(ALL))
    except Unassessed as error:
        if os.environ.get(ALL):
            raise
        pytest.skip(f"vLLM {release} is not fetched: kvdoctor engines add {release}, or {ALL}=1 ({error.message})")
