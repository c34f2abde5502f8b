"""kvdoctor's own cache directory."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvdoctor.home import expanded, home_cache


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
        # Not os.access: it says yes to root on a read-only file system of some kinds, and nothing about a full disk.
        with tempfile.TemporaryFile(dir=location) as probe:
            probe.write(b"\0")
    except OSError as error:
        with tempfile.TemporaryDirectory(prefix="kvdoctor-cache-", ignore_cleanup_errors=True) as directory:
            yield Path(directory), f"the cache directory {location} cannot be written ({error.strerror}); using a temporary one"
        return
    yield location, None
