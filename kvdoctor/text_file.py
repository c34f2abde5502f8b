"""Text files from anywhere, read so that what is wrong with one is said in one line."""

import stat
from pathlib import Path

from kvdoctor.errors import BadRequest

MAX_BYTES = 16 * 2**20


def read_text(path: Path, *, what: str, pipes: bool = True) -> str:
    """Read the text in ``path``; ``what`` is what the file should be, for the error.

    Raises:
        BadRequest: it is not there, not text, or too large; or a device, or a pipe where ``pipes`` are not allowed: either may never end.

    """
    hint = f"Give the path of {what}."
    try:
        kind = path.stat().st_mode
        # A pipe is what `<(jq ...)` gives; a device or a socket may never end or never answer.
        if not stat.S_ISREG(kind) and not (pipes and stat.S_ISFIFO(kind)):
            raise BadRequest(f"{path} is not a regular file", hint=hint)
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise BadRequest(f"{path} does not exist", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadRequest(f"{path} cannot be read: {reason}", hint="Check the path and its permissions.") from None
    if len(raw) > MAX_BYTES:
        raise BadRequest(f"{path} is not {what}: it is larger than {MAX_BYTES // 2**20} MiB", hint=hint)
    if not raw.strip():
        raise BadRequest(f"{path} is empty", hint=hint)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise BadRequest(f"{path} is not {what}: it is a binary file, not UTF-8 text", hint=hint)
    return text
