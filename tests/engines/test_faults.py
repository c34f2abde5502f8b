"""Whatever goes wrong while an engine is fetched: one clear error, nothing half-made, nothing left running."""

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.conftest import Run
from tests.engines.package_index import PackageIndex, vllm_file, vllm_wheel, with_members


def left_in(engines: Path) -> list[str]:
    return sorted(entry.name for entry in engines.iterdir() if entry.name != ".lock") if engines.exists() else []


def running(folder: Path) -> list[int]:
    """Give the processes that were started with something in ``folder``."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in command:
            pids.append(int(entry.name))
    return pids


def wait_until(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends, "it did not come to pass"
        time.sleep(0.02)


def assert_failed(result: subprocess.CompletedProcess[str], code: int, message: str, engines: Path) -> None:
    """One error of one line, with a hint, and no trace on the disk."""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("kvdoctor: note: ")]
    assert (result.returncode, lines[0], len(lines)) == (code, f"kvdoctor: {message}", 2)
    assert lines[1].startswith("  ")
    assert result.stdout == ""
    assert left_in(engines) == []


def test_a_download_cut_half_way(kvdoctor: Run, index: PackageIndex, engines: Path) -> None:
    index.add(vllm_wheel(padding=100_000), vllm_file())
    index.cut = True
    with index.served() as url:
        result = kvdoctor("engines", "add", "9.9.9", PIP_INDEX_URL=url)
    assert result.returncode == 3
    # Older pips take the half for the whole, and then find that its hash is wrong.
    cut = f"the download of {vllm_file()} was cut" in result.stderr or "the download of vllm==9.9.9 was cut" in result.stderr
    assert cut or "is not the file that the package index promises: its sha256 differs" in result.stderr
    assert left_in(engines) == []


def test_a_wrong_hash(kvdoctor: Run, index: PackageIndex, engines: Path) -> None:
    index.add(vllm_wheel(), vllm_file(), sha256="0" * 64)
    result = kvdoctor("engines", "add", "9.9.9")
    assert_failed(result, 3, "vllm==9.9.9 is not the file that the package index promises: its sha256 differs", engines)


def test_an_index_with_no_hashes(kvdoctor: Run, index: PackageIndex, engines: Path) -> None:
    index.add(vllm_wheel(), vllm_file(), sha256=None)
    with index.served() as url:
        result = kvdoctor("engines", "add", "9.9.9", PIP_INDEX_URL=url)
    message = f"the package index gives no sha256 for {vllm_file()}, so the download could not be verified"
    assert_failed(result, 3, message, engines)


def test_an_archive_with_a_member_that_leads_out(kvdoctor: Run, index: PackageIndex, engines: Path, tmp_path: Path) -> None:
    index.add(with_members(vllm_wheel(), ("vllm/../../../../../escaped", b"x")), vllm_file())
    result = kvdoctor("engines", "add", "9.9.9")
    message = f"{vllm_file()} has a member 'vllm/../../../../../escaped' that leads out of its folder"
    assert_failed(result, 3, message, engines)
    assert list(tmp_path.rglob("escaped")) == []


def test_a_wheel_of_another_release(kvdoctor: Run, index: PackageIndex, engines: Path) -> None:
    index.add(vllm_wheel("9.9.8"), vllm_file("9.9.9"))
    result = kvdoctor("engines", "add", "9.9.9")
    assert result.returncode == 3
    assert left_in(engines) == []


@pytest.mark.parametrize("fails_at", ["download", "unpacking"])
def test_no_space_left(index: PackageIndex, engines: Path, environment: dict[str, str], fails_at: str) -> None:
    content = vllm_wheel(padding=900_000) if fails_at == "download" else with_members(vllm_wheel(), ("vllm/large.bin", bytes(10_000_000)))
    index.add(content, vllm_file())
    with index.served() as url:
        result = subprocess.run(
            [sys.executable, "-m", "kvdoctor", "engines", "add", "9.9.9"],
            env=environment | {"PIP_INDEX_URL": url},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            # A limit on the size of files fails as a full disk does.
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)),
        )
    what = "to download vllm==9.9.9" if fails_at == "download" else f"for an engine in {engines}"
    assert_failed(result, 3, f"there is no space left {what}", engines)


@pytest.mark.parametrize("kind", ["a file in the way", "a file system that takes no folders"])
def test_a_cache_that_cannot_be_written(kvdoctor: Run, index: PackageIndex, tmp_path: Path, kind: str) -> None:
    index.add(vllm_wheel(), vllm_file())
    (tmp_path / "file").touch()
    cache = tmp_path / "file/cache" if kind == "a file in the way" else Path("/proc/kvdoctor")
    result = kvdoctor("engines", "add", "9.9.9", KVDOCTOR_CACHE_DIR=str(cache))
    assert (result.returncode, result.stderr.split(": ")[1]) == (3, f"the engine cache {cache}/engines cannot be written")
    assert "KVDOCTOR_CACHE_DIR" in result.stderr


def test_an_index_that_cannot_be_reached(kvdoctor: Run, engines: Path) -> None:
    result = kvdoctor("engines", "add", "9.9.9", PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert_failed(result, 3, "the package index could not be reached for vllm==9.9.9 (Connection refused)", engines)


def test_a_version_that_does_not_exist(kvdoctor: Run, index: PackageIndex, engines: Path) -> None:
    index.add(vllm_wheel("9.9.8"), vllm_file("9.9.8"))
    result = kvdoctor("engines", "add", "9.9.9")
    assert_failed(result, 2, "the package index has no wheel of vllm==9.9.9 for this kind of machine", engines)
    assert result.stderr.endswith("  The newest it has: 9.9.8.\n")


def test_an_index_without_vllm(kvdoctor: Run, engines: Path) -> None:
    result = kvdoctor("engines", "add", "9.9.9")
    assert_failed(result, 3, "the package index that pip is configured for has nothing like vllm==9.9.9", engines)


@pytest.mark.parametrize("text", ["9.9", "latest", "../9.9.9", "9.9.9; rm", "09.9.9", "--help.0.1"])
def test_a_version_that_is_none(kvdoctor: Run, engines: Path, text: str) -> None:
    result = kvdoctor("engines", "add", "--", text) if text.startswith("-") else kvdoctor("engines", "add", text)
    assert result.returncode == 2
    assert left_in(engines) == []


def test_offline_and_not_in_the_cache(kvdoctor: Run, engines: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    result = kvdoctor("inspect", str(tmp_path), "--vllm", "9.9.9", "--offline")
    assert_failed(result, 3, "vLLM 9.9.9 is not in the engine cache, and --offline was given", engines)
    assert result.stderr.endswith("  Run: kvdoctor engines add 9.9.9\n")


def start(environment: dict[str, str], url: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "kvdoctor", "engines", "add", "9.9.9"],
        env=environment | {"PIP_INDEX_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_adds_at_once_do_one_download_and_both_succeed(environment: dict[str, str], index: PackageIndex, engines: Path) -> None:
    index.add(vllm_wheel(padding=50_000), vllm_file())
    index.slow = True
    with index.served() as url:
        first, second = start(environment, url), start(environment, url)
        outputs = [process.communicate(timeout=120) for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0], outputs
    assert sum("fetching vLLM 9.9.9" in stderr for _, stderr in outputs) == 1
    assert left_in(engines) == ["vllm-9.9.9"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_ended_mid_way(
    kvdoctor: Run, environment: dict[str, str], index: PackageIndex, tmp_path: Path, *, number: signal.Signals
) -> None:
    engines = tmp_path / "cache" / "engines"
    index.add(vllm_wheel(padding=2_000_000), vllm_file())
    index.slow = True
    with index.served() as url:
        process = start(environment, url)
        wait_until(lambda: any(path.endswith(".whl") for path in index.requests))
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=20)
        wait_until(lambda: not running(tmp_path))
    assert (process.returncode, stdout) == (-9 if number == signal.SIGKILL else 128 + number, "")
    if number == signal.SIGKILL:
        assert [name[:9] for name in left_in(engines)] == [".partial-"]
    else:
        assert stderr.splitlines()[-1] == "kvdoctor: stopped"
        assert left_in(engines) == []
    assert "0 fetched" in kvdoctor("engines", "list").stdout
    index.slow = False
    assert kvdoctor("engines", "add", "9.9.9").returncode == 0
    assert left_in(engines) == ["vllm-9.9.9"]


def test_an_engine_in_use_is_neither_removed_nor_evicted(
    kvdoctor: Run, environment: dict[str, str], index: PackageIndex, engines: Path
) -> None:
    for version in ("9.9.8", "9.9.9"):
        index.add(vllm_wheel(version, padding=600_000), vllm_file(version))
    kvdoctor("engines", "add", "9.9.8")
    user = "import sys; from kvdoctor.engines.find import find_engine; find_engine('9.9.8'); print('found', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", user], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "found\n"
        removed = kvdoctor("engines", "remove", "9.9.8")
        added = kvdoctor("engines", "add", "9.9.9", KVDOCTOR_ENGINES_LIMIT="700K")
        process.communicate("")
    assert (removed.returncode, removed.stderr.splitlines()[0]) == (3, "kvdoctor: vLLM 9.9.8 is in use by another kvdoctor")
    assert added.returncode == 0
    assert left_in(engines) == ["vllm-9.9.8", "vllm-9.9.9"]
    assert kvdoctor("engines", "remove", "9.9.8").returncode == 0


def test_an_engine_that_another_hand_spoilt_is_fetched_again(kvdoctor: Run, index: PackageIndex, engines: Path) -> None:
    index.add(vllm_wheel(), vllm_file())
    kvdoctor("engines", "add", "9.9.9")
    (engines / "vllm-9.9.9/manifest.json").write_text("{")
    result = kvdoctor("engines", "add", "9.9.9")
    assert (result.returncode, result.stdout.split(",")[0]) == (0, "vLLM 9.9.9: added")
    assert left_in(engines) == ["vllm-9.9.9"]
