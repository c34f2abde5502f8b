"""The results of ``kvdoctor engines test``, kept in the cache beside the engines: a file for each release."""

import json
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from kvdoctor import __version__
from kvdoctor.engines import releases
from kvdoctor.engines.cache import cache_location
from kvdoctor.errors import Unassessed
from kvdoctor.plain import from_plain, to_plain
from kvdoctor.trial import Trial, in_short

_FOLDER = "trials"
_MOST_BYTES = 2**20
# A version names the file: what pip and vLLM's build write, and nothing that leads elsewhere.
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+_-]{0,99}", re.ASCII)


def read_trial(version: str) -> Trial | None:
    """Read the result for ``version``, when this kvdoctor made one."""
    if not _VERSION.fullmatch(version):
        return None
    try:
        with _path(version).open("rb") as file:
            trial = from_plain(Trial, json.loads(file.read(_MOST_BYTES)))
    except (OSError, ValueError, TypeError):
        return None  # none, or of another kvdoctor, or spoilt by another hand: it can be made again
    return trial if trial.kvdoctor_version == __version__ and trial.version == version else None


def keep_trial(trial: Trial) -> None:
    """Keep a result, in place of an older one.

    Raises:
        Unassessed: the cache cannot be written.

    """
    if not _VERSION.fullmatch(trial.version):
        return
    path = _path(trial.version)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".partial-", delete=False) as file:
            json.dump(to_plain(trial), file, indent=1)
        Path(file.name).replace(path)
    except OSError as error:
        raise Unassessed(f"the result cannot be kept in {path.parent}: {error.strerror or error}", hint="Set KVDOCTOR_CACHE_DIR.") from None


def forget_trial(version: str) -> None:
    """Remove the result for ``version``, if there is one."""
    if _VERSION.fullmatch(version):
        with suppress(OSError):
            _path(version).unlink()


def trial_notes(version: str) -> tuple[str, ...]:
    """Say what a test of an untested release found; nothing of a tested one, where every sample is a test of kvdoctor's own."""
    trial = None if releases.standing(version) == "tested" else read_trial(version)
    return () if trial is None else (in_short(trial),)


def _path(version: str) -> Path:
    return cache_location() / "engines" / _FOLDER / f"{version}.json"
