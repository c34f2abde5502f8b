"""What the package index of this machine offers, through pip: the wheel it promises, and the file itself.

pip alone knows which index is configured, with which proxy and credentials. It is asked twice: what the index promises (a report with
the wheel's sha256), then for exactly that file.
"""

import hashlib
import importlib.util
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kvdoctor.engines.pip_errors import explain
from kvdoctor.errors import Unassessed

# vLLM's wheels name the C library they were built on; which one does not matter to their Python files.
_GLIBC_MINORS = range(17, 46)
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}
_POLL_SECONDS = 0.1
_LOG = "pip.log"
_CACHED_BYTES = 2**20
_NO_HASH = re.compile(r"\(0 matches, [1-9][0-9]* no digest\)")
_TOTAL = re.compile(r"Downloading \S+\.whl \(([0-9.]+ [kMG]?B)\)")

# Nothing of how this machine installs packages for itself, and everything of where it gets them from.
_OVERRIDES = {
    "PIP_CONSTRAINT": os.devnull,
    "PIP_USER": "0",
    "PIP_REQUIRE_VIRTUALENV": "0",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_QUIET": "0",
    "PIP_VERBOSE": "0",
    "NO_COLOR": "1",
    "LC_ALL": "C.UTF-8",  # its messages are read
}


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A wheel as the index promises it. ``local``: it lies on a disk of this machine."""

    name: str
    version: str
    wheel: str
    sha256: str
    local: bool
    any_python: bool


def look_up(requirement: str, *, any_python: bool, scratch: Path) -> Promise:
    """Ask the index for the newest wheel that satisfies ``requirement``; with ``any_python`` the official Linux wheel, whatever runs here.

    Raises:
        BadRequest: there is no such release.
        Unassessed: pip or the index cannot be had.

    """
    report = scratch / "report.json"
    arguments = ["install", "--dry-run", "--ignore-installed", "--target", str(scratch / "target"), "--report", str(report)]
    _pip([*arguments, *_common(any_python), "--cache-dir", str(scratch / "cache"), requirement], requirement, scratch=scratch)
    try:
        [item] = json.loads(report.read_text(encoding="utf-8"))["install"]
        info = item["download_info"]
        archive = info["archive_info"]
        url = urlsplit(info["url"])
        digest = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
        name, version = str(item["metadata"]["name"]), str(item["metadata"]["version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unassessed(
            f"pip's report on {requirement} could not be read: {error!r}", hint="Update pip: python -m pip install -U pip"
        ) from None
    wheel = unquote(url.path.rsplit("/", 1)[-1])
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise _unverifiable(wheel)
    return Promise(name=name, version=version, wheel=wheel, sha256=digest, local=url.scheme == "file", any_python=any_python)


def download(promise: Promise, *, scratch: Path, on_step: Callable[[str], None]) -> tuple[Path, bool]:
    """Fetch the promised file; give it, and whether its sha256 is the index's own word.

    Raises:
        Unassessed: the file cannot be had whole, or is not the promised one.

    """
    wanted, folder = scratch / "requirements.txt", scratch / "wheel"
    wanted.write_text(f"{promise.name}=={promise.version} --hash=sha256:{promise.sha256}\n", encoding="utf-8")
    # Where the index has no metadata apart from wheels, looking up has fetched the wheel already.
    cache = scratch / "cache"
    cached = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) > _CACHED_BYTES
    arguments = ["download", "--require-hashes", "--dest", str(folder), *(["--cache-dir", str(cache)] if cached else ["--no-cache-dir"])]
    _pip([*arguments, *_common(promise.any_python), "-r", str(wanted)], promise.wheel, scratch=scratch, on_step=on_step)
    files = list(folder.iterdir())
    if len(files) != 1 or files[0].suffix != ".whl":
        raise Unassessed(f"pip fetched {', '.join(file.name for file in files) or 'nothing'} for {promise.wheel}", hint="Update pip.")
    index_hash = not _NO_HASH.search(_read(scratch / _LOG))
    if not index_hash and not promise.local:
        raise _unverifiable(promise.wheel)
    with files[0].open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != promise.sha256:
            raise explain("DO NOT MATCH THE HASHES", promise.wheel)
    return files[0], index_hash


def _common(any_python: bool) -> list[str]:
    arguments = ["--no-deps", "--only-binary", ":all:"]
    if any_python:
        machine = platform.machine().lower()
        tags = [f"manylinux_2_{minor}_{_MACHINES.get(machine, machine)}" for minor in reversed(_GLIBC_MINORS)]
        arguments += ["--implementation", "cp", *(word for tag in [*tags, "any"] for word in ("--platform", tag))]
    return arguments


def _pip(arguments: Sequence[str], what: str, *, scratch: Path, on_step: Callable[[str], None] | None = None) -> None:
    """Run pip to its end; whatever happens it is gone afterwards, and a killed kvdoctor takes it along."""
    if importlib.util.find_spec("pip") is None:
        raise Unassessed(
            f"pip is not installed beside kvdoctor, and fetching {what} needs it",
            hint=f"Run: {sys.executable} -m ensurepip (or: uv pip install pip).",
        )
    start = str(Path(__file__).parents[1] / "start.py")
    output, log = scratch / "output.txt", scratch / _LOG
    with output.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 - pip, with arguments that are ours
            [sys.executable, "-P", start, str(os.getpid()), "[]", "pip", *arguments, "--log", str(log)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | _OVERRIDES | {"TMPDIR": str(scratch)},
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            if on_step:
                on_step(_progress(what, output, scratch))
            time.sleep(_POLL_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode != 0:
        raise explain(_read(output) + _read(log), what)


def _progress(what: str, output: Path, scratch: Path) -> str:
    """Tell how far the download is, by the file that grows."""
    total = _TOTAL.search(_read(output))
    sizes = [0]
    for folder, _, files in os.walk(scratch):  # which forgives that pip moves things meanwhile
        for file in files:
            with suppress(OSError):
                sizes += [(Path(folder) / file).stat().st_size] if file.endswith(".whl") else []
    return f"downloading {what}: {max(sizes) / 1e6:.0f} MB" + (f" of {total[1]}" if total else "")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _unverifiable(wheel: str) -> Unassessed:
    return Unassessed(
        f"the package index gives no sha256 for {wheel}, so the download could not be verified",
        hint="Use an index that does, or download the wheel yourself and let pip find it: PIP_FIND_LINKS=/directory/of/wheels",
    )
