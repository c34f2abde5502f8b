"""pip's words, read: which of a few things went wrong."""

import re

from kvdoctor.errors import BadRequest, KvdoctorError, Unassessed

_CHECK_INDEX = "Check pip's index: pip config list"
_AGAIN = "Nothing of it was kept. Try again."

# What pip writes, what it amounts to, and what to do; the first that fits counts.
_CAUSES = (
    (
        ("No space left on device", "Disk quota exceeded", "File too large"),
        "there is no space left to download {what}",
        "Free some, or set KVDOCTOR_CACHE_DIR to another disk.",
    ),
    (
        ("DO NOT MATCH THE HASHES",),
        "{what} is not the file that the package index promises: its sha256 differs",
        f"The download was cut, or the file is another one. {_AGAIN}",
    ),
    (("no such option",), "this pip is too old to fetch engines", "Update it: python -m pip install -U pip"),
    (
        (
            "incomplete-download",
            "IncompleteRead",
            "Connection broken",
            "ProtocolError",
            "ReadTimeoutError",
            "Connection reset",
            "RemoteDisconnected",
        ),
        "the download of {what} was cut",
        _AGAIN,
    ),
)
# An index that does not know a package answers 404: that is no failure.
_UNREACHABLE = re.compile(
    r"Could not fetch URL \S+: (?!404 )(.*)|HTTP error ([45][0-9]{2} [^\n]*)|Max retries exceeded with url: (.*)"
    r"|(?:connection-failed|connection-timeout|proxy-connection-failed|ssl-verification-failed)[^\n]*\n(?:.*\n){0,3}"
)
_REASON = re.compile(r"\[Errno -?[0-9]+\] [A-Z][A-Za-z ]+|[45][0-9]{2} (?:Client|Server) Error: [A-Za-z ]+")
_VERSIONS = re.compile(r"Could not find a version that satisfies the requirement .*\(from versions: (.*)\)")
_SHOWN_VERSIONS = 8


def explain(output: str, what: str) -> KvdoctorError:
    """Give the error that pip's ``output`` amounts to; ``what`` was asked for."""
    listed = _VERSIONS.search(output)
    unreachable = _UNREACHABLE.search(output)
    if listed is None:
        for marks, message, hint in _CAUSES:
            if any(mark in output for mark in marks):
                return Unassessed(message.format(what=what), hint=hint)
    if unreachable:
        reason = _REASON.search(unreachable[0])
        told = f" ({reason[0].rpartition('] ')[2].strip()})" if reason else ""
        return Unassessed(f"the package index could not be reached for {what}{told}", hint=_CHECK_INDEX)
    if listed is None or what.partition("==")[2] in listed[1].split(", "):
        return Unassessed(f"pip could not fetch {what}: {_last_error(output)}", hint=_CHECK_INDEX)
    return _missing(what, listed[1])


def _missing(what: str, listed: str) -> KvdoctorError:
    if listed == "none":
        return Unassessed(f"the package index that pip is configured for has nothing like {what}", hint=_CHECK_INDEX)
    shown = ", ".join(listed.split(", ")[-_SHOWN_VERSIONS:])
    return BadRequest(f"the package index has no wheel of {what} for this kind of machine", hint=f"The newest it has: {shown}.")


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:") or "has inconsistent " in line] or lines[-1:]
    return errors[-1].removeprefix("ERROR:").strip() if errors else "it said nothing"
