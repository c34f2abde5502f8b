"""Packages beside an engine: the transformers that a release was made for, where the one installed is not that.

transformers decides what a config means, so that a release with another one may refuse a model that it knows. It needs no compiler and
is small; so are the two packages that come in step with it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from kvdoctor.engines import releases
from kvdoctor.engines.dependencies import Difference, Requirements, installed_version, installed_with
from kvdoctor.engines.index import download, look_up
from kvdoctor.engines.store import Wheel
from kvdoctor.engines.unpack import unpack
from kvdoctor.errors import KvdoctorError

_LEADER = "transformers"
# What is fetched along with it, when it asks for another version than the installed one: distribution, and the package in it.
_PACKAGES = {_LEADER: "transformers", "huggingface-hub": "huggingface_hub", "tokenizers": "tokenizers"}
_IMPORT_SECONDS = 120
# Its own check of its dependencies' versions runs at import; the rest is loaded when it is asked for.
_TRY = """
import importlib, json, sys
sys.path[:0] = json.loads(sys.argv[1])
for name in ("AutoConfig", "AutoTokenizer", "PreTrainedModel"):
    getattr(importlib.import_module("transformers"), name)
"""


def fetch_beside(
    version: str, requires_dist: tuple[str, ...], *, folder: Path, scratch: Path, on_step: Callable[[str], None]
) -> tuple[tuple[Wheel, ...], str | None]:
    """Fetch what the release ``version`` needs in place of what is installed into ``folder``; else say why it is not there.

    The engine is good without: a failure is a note to the user, not the end.
    """
    needed = releases.needs(version)
    asked = (*requires_dist, *([needed] if needed else []))
    try:
        unmet = {difference.name: difference for difference in Requirements(asked).differences(installed_version)}
    except ImportError:
        return (), None  # dependency_notes says so
    if _LEADER not in unmet or unmet[_LEADER].installed is None:
        return (), None
    try:
        wheels = _fetch(unmet[_LEADER], asked, folder, scratch, on_step)
        fault = _import_fault(folder)
    except KvdoctorError as error:
        wheels, fault = (), error.message
    if fault is None:
        return wheels, None
    shutil.rmtree(folder, ignore_errors=True)
    return (), f"no matching transformers beside it ({fault}); install it: pip install '{_LEADER}{unmet[_LEADER].wanted}'"


def _fetch(leader: Difference, asked: tuple[str, ...], folder: Path, scratch: Path, on_step: Callable[[str], None]) -> tuple[Wheel, ...]:
    fetched: dict[str, Wheel] = {}
    waiting = [leader]
    lines = list(asked)
    while waiting:
        wanted = waiting.pop()
        place = scratch / wanted.name
        place.mkdir()
        on_step(f"looking for {wanted.name}{wanted.wanted}")
        promise = look_up(f"{wanted.name}{wanted.wanted}", any_python=False, scratch=place)
        file, index_hash = download(promise, scratch=place, on_step=on_step)
        part = place / "unpacked"
        unpacked = unpack(file, part, package=_PACKAGES[wanted.name], libraries=True, on_step=on_step)
        folder.mkdir(exist_ok=True)
        for entry in part.iterdir():
            entry.rename(folder / entry.name)
        fetched[wanted.name] = Wheel(
            name=wanted.name, version=unpacked.version, wheel=promise.wheel, sha256=promise.sha256, index_hash=index_hash
        )
        lines += unpacked.requires_dist
        present = installed_with({name: wheel.version for name, wheel in fetched.items()})
        unmet = Requirements(lines).differences(present)
        waiting = [difference for difference in unmet if difference.name in _PACKAGES and difference.name not in fetched]
    return tuple(fetched.values())


def _import_fault(folder: Path) -> str | None:
    """Import from ``folder`` on top of what is installed, in a process of its own; give what went wrong."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, with a text of ours
            [sys.executable, "-P", "-c", _TRY, json.dumps([str(folder)])],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            env=environment, timeout=_IMPORT_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"importing it took more than {_IMPORT_SECONDS} seconds"
    if done.returncode == 0:
        return None
    errors = [line.strip() for line in done.stderr.splitlines() if "Error: " in line and not line.startswith(" ")]
    return errors[-1] if errors else f"importing it ended with exit code {done.returncode}"
