"""Engines are fetched with the real pip, from an index of our own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.package_index import PackageIndex

ROOT = Path(__file__).parents[2]

Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "network: fetches from the package index that pip is configured for")


@pytest.fixture
def index(tmp_path: Path) -> PackageIndex:
    return PackageIndex(tmp_path / "index")


@pytest.fixture
def environment(tmp_path: Path, index: PackageIndex) -> dict[str, str]:
    """Nothing of this machine's pip configuration, and a cache of the test's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "KVDOCTOR_"))}
    (tmp_path / "tmp").mkdir()
    return kept | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index.url,
        "PIP_RETRIES": "0",
        "PIP_CACHE_DIR": str(tmp_path / "pip-cache"),
        "KVDOCTOR_CACHE_DIR": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture
def engines(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "engines"


@pytest.fixture
def kvdoctor(environment: dict[str, str], tmp_path: Path) -> Run:
    """Run kvdoctor, away from the checkout."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kvdoctor", *arguments]
        return subprocess.run(command, env=environment | variables, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    return run
