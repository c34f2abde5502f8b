"""Temporary folders are gone when a command ends, and what a killed one left is gone after the next."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kvdoctor import scratch

ROOT = Path(__file__).parents[2]
HOLD = "from kvdoctor.scratch import temporary_folder\nwith temporary_folder('worker') as f:\n print(f, flush=True); input()"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch._sweep.cache_clear()
    return tmp_path


def age(path: Path, seconds: float = 3600) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def hold(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env=os.environ | {"TMPDIR": str(folder)},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip()).parent


def sweep() -> None:
    scratch._sweep.cache_clear()
    with scratch.temporary_folder("model"):
        pass


def test_a_folder_is_there_and_then_gone(folder: Path) -> None:
    with scratch.temporary_folder("model") as made:
        assert (made.name, list(made.iterdir()), scratch.is_temporary(made)) == ("model", [], True)
    assert list(folder.iterdir()) == []
    assert not scratch.is_temporary(folder / "model")


def test_what_a_killed_process_left_is_swept_and_what_is_in_use_is_not(folder: Path) -> None:
    killed, left = hold(folder)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    alive, used = hold(folder)
    for path in (left, used):
        age(path)
    sweep()
    assert (left.exists(), used.exists()) == (False, True)
    alive.communicate("\n")
    assert list(folder.iterdir()) == []


def test_a_folder_just_made_or_made_by_others_is_left_alone(folder: Path) -> None:
    young, strange, target = folder / "kvdoctor-young", folder / "kvdoctor-strange", folder / "kept"
    for path in (young, strange, target):
        path.mkdir()
    for path in (young, target):
        (path / ".alive").touch()
    link = folder / "kvdoctor-link"
    link.symlink_to(target)
    age(strange)
    age(target)
    sweep()
    assert sorted(path.name for path in folder.iterdir()) == ["kept", "kvdoctor-link", "kvdoctor-strange", "kvdoctor-young"]
