"""Where a report goes: stdout, or a file that is written whole or not at all."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from kvdoctor.errors import BadRequest

# A pipe has no width: nothing that is written there may be wrapped.
_PIPE_WIDTH = 10_000
_HINT = "Give --output FILE in a directory that can be written."


def check_output(path: Path | None) -> None:
    """Refuse at once, before any work, an output that cannot be written."""
    if path is None:
        if sys.stdout is None:
            raise BadRequest("stdout is closed, so there is nowhere to write the report", hint="Give --output FILE.")
        return
    if path.is_dir():
        raise BadRequest(f"--output {path} is a directory", hint=_HINT)
    folder = path.resolve().parent
    if not folder.is_dir():
        raise BadRequest(f"--output {path} is in a directory that does not exist", hint=_HINT)
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadRequest(f"--output {path} cannot be written: permission denied", hint=_HINT)


def terminal(path: Path | None) -> tuple[int, bool]:
    """Give the width of what the report is written to, and whether it takes colour."""
    if path is not None or not sys.stdout.isatty():
        return _PIPE_WIDTH, False
    dumb = os.environ.get("TERM") in ("dumb", "unknown")
    return shutil.get_terminal_size().columns, not dumb and not os.environ.get("NO_COLOR")


def write_report(text: str, path: Path | None) -> None:
    """Write ``text`` to ``path``, or to stdout."""
    try:
        if path is None:
            _write_stdout(text)
        elif path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a device or a pipe: nothing to replace
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        where = "the report" if path is None else f"--output {path}"
        raise BadRequest(f"{where} cannot be written: {error.strerror}", hint=_HINT) from None


def _write_stdout(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, a pager) has seen enough. The interpreter must not complain about its own last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace(path: Path, text: str) -> None:
    mask = os.umask(0)
    os.umask(mask)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~mask
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            Path(file.name).chmod(mode)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise
