"""Unit tests run without vLLM: importing it, or what comes with it, or reaching the network is an error here."""

import socket
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

HEAVY = ("vllm", "torch", "transformers", "triton")

# The same examples in every run, and nothing written into the checkout.
settings.register_profile("unit", deadline=None, database=None, derandomize=True, max_examples=50)
settings.load_profile("unit")


@pytest.fixture(scope="package", autouse=True)
def no_heavy_imports() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in HEAVY:
            patch.setitem(sys.modules, name, None)
        patch.setattr(socket.socket, "connect", _no_network)
        patch.setattr(socket, "getaddrinfo", _no_network)
        yield


def _no_network(*address: object, **_options: object) -> None:
    pytest.fail(f"a unit test reaches for the network: {address[-1]}")
