"""Temporary folders, removed at the end; those that a killed kvdoctor left are removed by the next one."""

import fcntl
import functools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "kvdoctor-"
_ALIVE = ".alive"
# Between making a folder and locking it a moment passes, in which it looks like one that was left.
_YOUNG_SECONDS = 60.0


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Give an empty folder of this name."""
    _sweep(tempfile.gettempdir())
    own = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        # The system frees the lock however this process ends, and no process that it starts inherits it.
        with (own / _ALIVE).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder = own / name
            folder.mkdir()
            yield folder
    finally:
        shutil.rmtree(own, ignore_errors=True)


def is_temporary(path: Path) -> bool:
    """Tell whether ``path`` is in such a folder."""
    parents = [parent for parent in path.parents if parent.name.startswith(PREFIX)]
    return any(parent.parent == Path(tempfile.gettempdir()) for parent in parents)


@functools.cache  # once is enough
def _sweep(directory: str) -> None:
    with suppress(OSError):
        for folder in Path(directory).glob(f"{PREFIX}*"):
            with suppress(OSError):
                _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or time.time() - found.st_mtime < _YOUNG_SECONDS:
        return
    with (folder / _ALIVE).open("rb") as lock:  # without one it is none of these folders
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
