"""One release for real, from the package index that pip is configured for."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.conftest import ROOT

pytestmark = pytest.mark.network

SAMPLE = ROOT / "sample_configs" / "qwen3.5-0.8b" / "config.json"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep the engine in the cache that the whole run shares, where there is one."""
    given = os.environ.get("KVDOCTOR_CACHE_DIR")
    return Path(given) if given else tmp_path_factory.mktemp("cache")


def kvdoctor(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvdoctor", *arguments]
    environment = os.environ | {"KVDOCTOR_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, cwd=cache, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def engine(cache: Path) -> Path:
    result = kvdoctor(cache, "engines", "add", "0.28.0")
    assert result.returncode == 0, result.stderr
    return cache / "engines/vllm-0.28.0"


def test_a_real_release_is_there_whole_and_verified(engine: Path) -> None:
    manifest = json.loads((engine / "manifest.json").read_text())
    assert manifest["vllm"]["index_hash"] is True
    assert manifest["files"] > 4000
    assert 50 * 2**20 < manifest["bytes"] < 250 * 2**20
    libraries = list((engine / "wheel/vllm").glob("*.so"))
    assert "_C_stable_libtorch.abi3.so" in {path.name for path in libraries}
    assert {path.stat().st_size for path in libraries} == {0}


def test_it_is_listed(cache: Path, engine: Path) -> None:
    [row] = [line for line in kvdoctor(cache, "engines", "list").stdout.splitlines() if line.startswith("0.28.0")]
    assert " tested " in row
    assert f"vllm-{engine.name.removeprefix('vllm-')}-cp38-abi3-manylinux" in row


def test_it_plans(cache: Path, engine: Path) -> None:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("a fetched release runs on the packages that come with vLLM: pip install -e '.[vllm]'")
    result = kvdoctor(cache, "inspect", str(SAMPLE), "--vllm", engine.name.removeprefix("vllm-"), "--offline", "--format", "json")
    assert result.returncode in (0, 1), result.stderr
    report = json.loads(result.stdout)
    assert (report["engine"]["vllm_version"], report["engine"]["source"]) == ("0.28.0", "release 0.28.0, fetched")
    assert report["layout"]["scheduler_block_size"] == 544
