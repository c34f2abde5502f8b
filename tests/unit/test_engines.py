import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

import pytest

from kvdoctor.engines.cache import cache_directory, cache_location
from kvdoctor.engines.find import find_engine
from kvdoctor.errors import BadRequest, Unassessed
from kvdoctor.workers.environment import worker_environment


def install(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    """Make vLLM look installed in ``version``, or absent."""

    def metadata(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None if version is None else object())
    monkeypatch.setattr(importlib.metadata, "version", metadata)


def test_the_installed_engine_is_this_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "0.33.0")
    engine = find_engine(None)
    assert (engine.python, engine.source, engine.vllm_version, engine.notes) == (sys.executable, "installed", "0.33.0", ())


@pytest.mark.parametrize("version", ["0.33.0", "0.33.0+cu129"])
def test_the_release_that_is_installed_is_not_fetched_again(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    install(monkeypatch, version)
    assert find_engine("0.33.0", offline=True).source == "installed"


def test_the_installed_release_is_fetched_when_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, "0.33.0")
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path))
    with pytest.raises(Unassessed, match=r"vLLM 0\.33\.0 is not in the engine cache"):
        find_engine("fetched:0.33.0", offline=True)


@pytest.mark.parametrize("version", ["0.33.0.dev7+gabc", "0.33.1", None])
def test_another_build_than_the_release_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None) -> None:
    install(monkeypatch, version)
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path))
    with pytest.raises(Unassessed, match=r"vLLM 0\.33\.0 is not in the engine cache"):
        find_engine("0.33.0", offline=True)


@pytest.mark.parametrize("version", ["0.27.1", "0.32.0", "0.33.1", "0.33.2.dev7+gabc", "0.33.0+cu129", "0.33.0rc1"])
def test_builds_of_the_tested_releases_are_taken_without_a_word(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    install(monkeypatch, version)
    assert find_engine(None).notes == ()


@pytest.mark.parametrize("version", ["0.27.0", "0.24.0", "0.35.0", "1.0", "main"])
def test_another_release_is_taken_with_a_note(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    install(monkeypatch, version)
    [note] = find_engine(None).notes
    assert note == (
        f"vLLM {version} is outside the releases kvdoctor was tested with (0.27.1 to 0.34.0); "
        "kvdoctor engines test tells how far it can be used"
    )


@pytest.mark.parametrize("version", ["0.25.1", "0.26.0"])
def test_a_release_before_the_window_is_taken_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    install(monkeypatch, version)
    [note] = find_engine(None).notes
    assert note == f"vLLM {version} is older than the releases kvdoctor supports (0.27.1 to 0.34.0): some models cannot be assessed with it"


def test_without_vllm_the_next_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    with pytest.raises(Unassessed) as caught:
        find_engine(None)
    assert caught.value.message == "vLLM is not installed beside kvdoctor"
    assert "pip install 'kvdoctor[vllm]'" in caught.value.hint


def test_another_interpreter_keeps_the_path_it_was_called_by(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    engine = find_engine(f"python:{link}")
    assert (engine.python, engine.source, engine.vllm_version) == (str(link), f"python:{link}", None)


@pytest.mark.parametrize(
    "text", ["python:", "python:/nope/python", "0.27", "v0.27.1", "latest", "/nope/vllm", "/", "PYTHON:x", "fetched:", "fetched:latest"]
)
def test_an_engine_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        find_engine(text)
    assert "--vllm" in caught.value.hint


def test_the_cache_is_the_variables_then_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("KVDOCTOR_CACHE_DIR", raising=False)
    assert cache_location() == Path("/home/me/.cache/kvdoctor")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_location() == Path("/home/me/.cache/kvdoctor")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_location() == Path("/caches/kvdoctor")
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", "~/own")
    assert cache_location() == Path("/home/me/own")


def test_a_writable_cache_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path / "a/b"))
    with cache_directory() as (directory, note):
        assert (directory, note) == (tmp_path / "a/b", None)
    assert list((tmp_path / "a/b").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_replaced_by_one_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path / "file/cache"))
    with cache_directory() as (directory, note):
        assert note == f"the cache directory {tmp_path}/file/cache cannot be written (Not a directory); using a temporary one"
        (directory / "x").touch()
    assert not directory.exists()


SHELL = {
    "PATH": "/usr/bin",
    "HOME": "/home/me",
    "VLLM_ATTENTION_BACKEND": "LEAK",
    "VLLM_CACHE_ROOT": "/home/me/.cache/vllm",
    "CUDA_VISIBLE_DEVICES": "0",
    "CUDA_HOME": "/usr/local/cuda",
    "TORCH_LOGS": "+all",
    "TORCHINDUCTOR_CACHE_DIR": "/home/me/inductor",
    "TRITON_INTERPRET": "1",
    "RANK": "3",
    "LD_PRELOAD": "/x.so",
    "PYTHONSTARTUP": "/x.py",
    "PYTHONPATH": f"/site{os.pathsep}{os.pathsep}relative",
    "HF_TOKEN": "secret",
    "HF_ENDPOINT": "https://mirror.example",
    "HF_HUB_ENABLE_HF_TRANSFER": "1",
    "HTTPS_PROXY": "http://proxy.example",
}  # fmt: skip


def environment(*, network: bool = False, given: dict[str, str] | None = None, **shell: str) -> dict[str, str]:
    return worker_environment(SHELL | shell, given=given or {}, cache=Path("/cache"), scratch=Path("/scratch"), network=network)


def test_nothing_of_the_shell_that_changes_the_answer_reaches_the_worker() -> None:
    made = environment()
    assert not {"VLLM_ATTENTION_BACKEND", "CUDA_HOME", "TORCH_LOGS", "TRITON_INTERPRET", "RANK", "LD_PRELOAD", "PYTHONSTARTUP"} & set(made)
    assert made["CUDA_VISIBLE_DEVICES"] == ""
    assert made["VLLM_NO_USAGE_STATS"] == made["DO_NOT_TRACK"] == "1"


def test_the_launchs_own_variables_reach_the_worker_but_not_those_that_would_write_elsewhere() -> None:
    made = environment(given={"VLLM_KV_CACHE_LAYOUT": "HND", "VLLM_CACHE_ROOT": "/elsewhere", "PATH": "/evil"})
    assert made["VLLM_KV_CACHE_LAYOUT"] == "HND"
    assert made["VLLM_CACHE_ROOT"] == "/cache/vllm"
    assert made["PATH"] == "/usr/bin"


def test_every_cache_lies_in_kvdoctors_own_and_temporary_files_in_the_scratch_directory() -> None:
    made = environment()
    moved = {name for name, value in made.items() if value.startswith("/cache/")}
    assert moved >= {
        "HOME",
        "XDG_CACHE_HOME",
        "VLLM_CACHE_ROOT",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "FLASHINFER_WORKSPACE_BASE",
    }
    assert made["TMPDIR"] == "/scratch"


def test_the_hub_is_reached_as_the_user_reaches_it() -> None:
    made = environment(network=True)
    assert (made["HF_TOKEN"], made["HF_ENDPOINT"], made["HTTPS_PROXY"]) == ("secret", "https://mirror.example", "http://proxy.example")
    assert made["HF_HUB_OFFLINE"] == "0"


def test_the_network_is_off_unless_it_is_asked_for() -> None:
    assert environment()["HF_HUB_OFFLINE"] == "1"
    assert environment(network=True, HF_HUB_OFFLINE="1")["HF_HUB_OFFLINE"] == "1"


def test_the_working_directory_is_no_place_to_import_from() -> None:
    made = environment()
    assert made["PYTHONPATH"] == "/site"
    assert made["PYTHONSAFEPATH"] == "1"
