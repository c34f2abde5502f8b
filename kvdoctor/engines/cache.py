"""kvdoctor's own cache directory."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvdoctor.home import expanded, home_cache
from kvdoctor.scratch import temporary_folder


def cache_location() -> Path:
    """Say where the cache belongs: ``$KVDOCTOR_CACHE_DIR``, else under the user's cache directory."""
    own = os.environ.get("KVDOCTOR_CACHE_DIR")
    if own:
        return expanded(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if xdg.startswith("/") else home_cache()
    return base.absolute() / "kvdoctor"


@contextmanager
def cache_directory() -> Iterator[tuple[Path, str | None]]:
    """Give a cache directory that can be written, and a note for the user when it is a temporary one, removed at the end."""
    location = cache_location()
    try:
        location.mkdir(parents=True, exist_ok=True)
        reason = why_distrusted(location)
        # Not os.access: it says yes to root on a read-only file system of some kinds, and nothing about a full disk.
        with tempfile.TemporaryFile(dir=location) as probe:
            probe.write(b"\0")
    except OSError as error:
        reason = f"cannot be written ({error.strerror})"
    if reason is None:
        yield location, None
        return
    with temporary_folder("cache") as directory:
        yield directory, f"the cache directory {location} {reason}; using a temporary one"


def why_distrusted(folder: Path) -> str | None:
    """Say why nothing may be run that lies in ``folder``: another user could have put it there. ``None`` for a folder that is not there.

    Root may own it: root can write anywhere, and a container image's cache is root's.
    """
    try:
        found = folder.stat()
    except OSError:
        return None
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to another user"
    return "can be written by every user" if found.st_mode & stat.S_IWOTH else None
