"""Unpack a wheel with care: nothing leaves the folder, nothing is larger than it says, and compiled libraries keep only their names."""

import re
import stat
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from kvdoctor.errors import Unassessed

# vLLM's largest wheel has some 5,500 members and 160 MB without its libraries.
MAX_MEMBERS = 50_000
MAX_BYTES = 2 * 2**30

_CHUNK_BYTES = 2**20
_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
_ELF = b"\x7fELF"
_STEP_EVERY = 250
_HINT = "Nothing of it was kept. Try again; if it stays so, the package index serves a broken file."


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """What came out of a wheel. ``requires_dist`` is what it asks for, as its metadata writes it."""

    version: str
    files: int
    bytes: int
    requires_dist: tuple[str, ...]


def unpack(wheel: Path, folder: Path, *, package: str, libraries: bool, on_step: Callable[[str], None]) -> Unpacked:
    """Unpack ``wheel`` into ``folder``, which must be new.

    Without ``libraries`` a compiled one becomes an empty file: the dry launch counts a library as present by its file's name.

    Raises:
        Unassessed: the archive is broken or unsafe, or has no ``package`` in it.
        OSError: the folder cannot be written.

    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = _safe_members(archive, wheel.name, libraries=libraries)
            for count, member in enumerate(members):
                if count % _STEP_EVERY == 0:
                    on_step(f"unpacking {wheel.name}: {count} of {len(members)} files")
                _write(archive, member, folder, libraries=libraries)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeError) as error:
        raise Unassessed(f"{wheel.name} is a broken archive: {error}", hint=_HINT) from None
    files = [path for path in folder.rglob("*") if path.is_file()]
    metadata = _metadata(wheel.name, folder, package)
    return Unpacked(
        version=str(metadata["Version"]),
        files=len(files),
        bytes=sum(path.stat().st_size for path in files),
        requires_dist=tuple(map(str, metadata.get_all("Requires-Dist", []))),
    )


def _safe_members(archive: zipfile.ZipFile, wheel: str, *, libraries: bool) -> list[zipfile.ZipInfo]:
    """Give the files to unpack, when all members of the archive are in order."""
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise Unassessed(f"{wheel} has {len(members)} members, more than any wheel kvdoctor unpacks", hint=_HINT)
    seen: set[str] = set()
    for member in members:
        fault = _fault(member, seen)
        if fault:
            raise Unassessed(f"{wheel} has a member {member.filename!r} that {fault}", hint=_HINT)
        seen.add(member.filename)
    # NAME-VERSION.data holds what pip would install outside the package.
    kept = [member for member in members if not member.is_dir() and not member.filename.split("/")[0].endswith(".data")]
    total = sum(member.file_size for member in kept if libraries or not _LIBRARY.search(member.filename))
    if total > MAX_BYTES:
        raise Unassessed(f"{wheel} would unpack to {total} bytes, more than any wheel kvdoctor unpacks", hint=_HINT)
    folders = {"/".join(parts[:end]) for member in kept for parts in [member.filename.split("/")] for end in range(1, len(parts))}
    clash = next((member.filename for member in kept if member.filename in folders), None)
    if clash:
        raise Unassessed(f"{wheel} has a member {clash!r} that is a file and a folder", hint=_HINT)
    return kept


def _fault(member: zipfile.ZipInfo, seen: set[str]) -> str | None:
    name = member.filename
    parts = name.removesuffix("/").split("/")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if name.startswith("/") or "\\" in name or any(part in ("", ".", "..") for part in parts):
        return "leads out of its folder"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device"
    if name in seen:
        return "is there twice"
    if member.flag_bits & 0x1:
        return "is encrypted"
    return None


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path, *, libraries: bool) -> None:
    path = folder / member.filename
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        if not libraries and _LIBRARY.search(member.filename):
            return
        with archive.open(member) as source:
            chunk = source.read(_CHUNK_BYTES)
            if not libraries and chunk.startswith(_ELF):
                return  # a program: it is never run
            while chunk:
                file.write(chunk)
                chunk = source.read(_CHUNK_BYTES)


def _metadata(wheel: str, folder: Path, package: str) -> Message:
    found = list(folder.glob("*.dist-info/METADATA"))
    if len(found) != 1 or not (folder / package / "__init__.py").is_file():
        raise Unassessed(f"{wheel} is not a wheel of {package}", hint=_HINT)
    return HeaderParser().parsestr(found[0].read_text(encoding="utf-8", errors="replace"))
