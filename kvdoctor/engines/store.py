"""The fetched engines on disk: each a folder that is there whole or not at all.

``engines/vllm-0.28.0/`` holds ``manifest.json``, the unpacked wheel in ``wheel/`` and, where the release needs other packages than those
installed, these in ``beside/``. What is not finished has a name that starts with ``.partial-``. Who changes anything holds the lock, so
a partial folder that is met under the lock belongs to nobody: its process was killed.
"""

import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kvdoctor.engines import releases
from kvdoctor.engines.cache import cache_location, why_distrusted
from kvdoctor.errors import BadRequest, Unassessed
from kvdoctor.launches.sizes import parse_size
from kvdoctor.plain import from_plain, to_plain

DEFAULT_LIMIT_BYTES = 4 * 2**30

_PREFIX = "vllm-"
_PARTIAL = ".partial-"
_MANIFEST = "manifest.json"
_LAST_USED = "last-used"
_WAIT_SECONDS = 0.2
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# An engine that was found stays until this process ends: a worker imports from it to the last.
_IN_USE: dict[Path, BinaryIO] = {}


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel that was fetched. ``index_hash`` tells whether its sha256 is the index's word, and not only what came from a local file."""

    name: str
    version: str
    wheel: str
    sha256: str
    index_hash: bool


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a fetched engine is. ``beside_note`` says why packages that the release needs are not beside it."""

    vllm: Wheel
    beside: tuple[Wheel, ...]
    beside_note: str | None
    requires_dist: tuple[str, ...]
    files: int
    bytes: int
    added: str


@dataclass(frozen=True, kw_only=True)
class StoredEngine:
    """A fetched engine on disk."""

    folder: Path
    manifest: Manifest

    @property
    def version(self) -> str:
        """The release."""
        return self.manifest.vllm.version

    @property
    def path(self) -> tuple[str, ...]:
        """Where to import from, first to last."""
        beside = (str(self.folder / "beside"),) if self.manifest.beside else ()
        return (*beside, str(self.folder / "wheel"))

    @property
    def last_used(self) -> float:
        """When it was last found, in seconds since the epoch."""
        try:
            return (self.folder / _LAST_USED).stat().st_mtime
        except OSError:
            return 0.0

    def size(self) -> int:
        """Count its bytes on disk, with what Python compiled since."""
        total = 0
        for root, _, files in os.walk(self.folder):
            for file in files:
                with suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(root, file)).st_size  # noqa: PTH118 - thousands of files
        return total


class Store:
    """The folder of fetched engines."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or cache_location() / "engines"

    def find(self, version: str) -> StoredEngine | None:
        """Find a whole engine."""
        self._check_owner()
        folder = self.root / f"{_PREFIX}{version}"
        try:
            manifest = from_plain(Manifest, json.loads((folder / _MANIFEST).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None  # not there, or spoilt by another hand: it is fetched again
        return StoredEngine(folder=folder, manifest=manifest) if manifest.vllm.version == version else None

    def all(self) -> tuple[StoredEngine, ...]:
        """Give all engines, by release."""
        try:
            names = [entry.name for entry in self.root.iterdir()]
        except OSError:
            return ()
        versions = sorted((name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)), key=releases.order)
        return tuple(engine for version in versions if (engine := self.find(version)))

    def use(self, engine: StoredEngine) -> bool:
        """Mark an engine as used, now and until this process ends; ``False`` when it was removed a moment ago."""
        path = engine.folder / _MANIFEST
        if path not in _IN_USE:
            try:
                file = path.open("rb")
            except FileNotFoundError:
                return False
            fcntl.flock(file, fcntl.LOCK_SH)
            with suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                    _IN_USE[path] = file
            if path not in _IN_USE:
                file.close()
                return False
        with suppress(OSError):  # a cache that can only be read still serves
            (engine.folder / _LAST_USED).touch()
        return True

    def _check_owner(self) -> None:
        """Refuse a store that others could have put an engine into: its code is run."""
        for folder in (self.root.parent, self.root):
            reason = why_distrusted(folder)
            if reason is not None:
                raise Unassessed(
                    f"the cache directory {folder} {reason}, and what lies there would be run",
                    hint="Set KVDOCTOR_CACHE_DIR to a directory of your own that others cannot write.",
                )

    @contextmanager
    def changing(self, on_step: Callable[[str], None]) -> Iterator[None]:
        """Hold the lock, and clear away what a killed process left. An error of the disk becomes the user's error."""
        self._check_owner()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with (self.root / ".lock").open("ab") as lock:
                while not _lock(lock):
                    on_step("waiting for another kvdoctor that is fetching an engine")
                    time.sleep(_WAIT_SECONDS)
                for left in self.root.glob(f"{_PARTIAL}*"):
                    shutil.rmtree(left, ignore_errors=True)
                yield
        except OSError as error:
            raise self._disk_error(error) from None

    @contextmanager
    def new_folder(self) -> Iterator[Path]:
        """Give a folder to build an engine in. It is gone at the end, unless :meth:`keep` took it."""
        folder = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self.root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, folder: Path, manifest: Manifest) -> StoredEngine:
        """Make ``folder`` the engine of its release: from here on it is there, whole."""
        target = self.root / f"{_PREFIX}{manifest.vllm.version}"
        (folder / _LAST_USED).touch()
        with (folder / _MANIFEST).open("x", encoding="utf-8") as file:
            json.dump(to_plain(manifest), file, indent=1)
        os.sync()  # a power cut must not leave the name with half of the files behind it
        if target.exists():
            self._discard(target)
        folder.rename(target)
        _sync_folder(self.root)
        return StoredEngine(folder=target, manifest=manifest)

    def remove(self, engine: StoredEngine) -> None:
        """Remove an engine that nobody uses.

        Raises:
            Unassessed: another process uses it.

        """
        with (engine.folder / _MANIFEST).open("rb") as file:
            if not _lock(file):
                raise Unassessed(f"vLLM {engine.version} is in use by another kvdoctor", hint="Try again when that has ended.")
            self._discard(engine.folder)

    def make_room(self, needed: int, *, limit: int) -> tuple[StoredEngine, ...]:
        """Remove the engines used longest ago until ``needed`` more bytes fit under ``limit``; give those removed."""
        engines = sorted(self.all(), key=lambda engine: engine.last_used)
        sizes = {engine.version: engine.size() for engine in engines}
        removed: list[StoredEngine] = []
        for engine in engines:
            if needed + sum(sizes.values()) <= limit:
                break
            with suppress(Unassessed):
                self.remove(engine)
                removed.append(engine)
                del sizes[engine.version]
        return tuple(removed)

    def _discard(self, folder: Path) -> None:
        grave = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self.root))
        folder.rename(grave / "removed")
        shutil.rmtree(grave, ignore_errors=True)

    def _disk_error(self, error: OSError) -> Unassessed:
        if error.errno in _FULL:
            return no_space(self.root)
        return Unassessed(
            f"the engine cache {self.root} cannot be written: {error.strerror or error}",
            hint="Point KVDOCTOR_CACHE_DIR at a directory that can be, or use the installed vLLM.",
        )


def no_space(root: Path) -> Unassessed:
    """Say that the disk is full."""
    return Unassessed(
        f"there is no space left for an engine in {root}",
        hint="Fetching one takes about 600 MB, of which some 120 MB stay: free some (kvdoctor engines remove), or set KVDOCTOR_CACHE_DIR.",
    )


def size_limit() -> int:
    """Give the most that engines may take together: ``$KVDOCTOR_ENGINES_LIMIT``, or 4 GiB."""
    text = os.environ.get("KVDOCTOR_ENGINES_LIMIT")
    return parse_size(text, "KVDOCTOR_ENGINES_LIMIT") if text else DEFAULT_LIMIT_BYTES


def check_release(version: str) -> None:
    """Refuse what is not written like a release: it names a folder, and is put on pip's command line."""
    if not releases.is_release(version):
        raise BadRequest(f"{version!r} is not a release of vLLM", hint=f"Write it whole, like {releases.TESTED[-1]}.")


def _lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
