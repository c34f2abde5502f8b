"""What the suites share: the option that writes golden reports anew, and the workers."""

import importlib.util
import signal
from collections.abc import Iterator

import pytest

from tests.launches import Launches


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Write the golden reports of tests/golden anew instead of comparing.")


def pytest_configure() -> None:
    # A shell's background job ignores Ctrl-C, and so would every command under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launches]:
    """Dry launches over workers that are shared by the whole run."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("needs vLLM beside kvdoctor: pip install -e '.[vllm]'")
    shared = Launches(tmp_path_factory.mktemp("kvdoctor-cache"))
    yield shared
    shared.close()
