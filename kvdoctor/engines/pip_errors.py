"""pip's words, read: which of a few things went wrong."""

import re

from kvdoctor.errors import BadRequest, KvdoctorError, Unassessed

_UNREACHABLE = (
    "Retrying (",
    "Could not fetch URL",
    "HTTP error 5",
    "HTTP error 40",
    "ProxyError",
    "NewConnectionError",
    "Max retries exceeded",
)
_CUT = ("IncompleteRead", "Connection broken", "ProtocolError", "ReadTimeoutError", "Connection reset", "RemoteDisconnected")
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_NOT_FOUND = re.compile(r"Could not find a version that satisfies the requirement .*\(from versions: (.*)\)")
_SHOWN_VERSIONS = 8
_NOTHING_KEPT = "Nothing of it was kept."


def explain(output: str, what: str) -> KvdoctorError:
    """Give the error that pip's ``output`` amounts to; ``what`` was asked for."""
    if any(words in output for words in _FULL):
        return Unassessed(f"there is no space left to download {what}", hint="Free some, or set KVDOCTOR_CACHE_DIR to another disk.")
    if "DO NOT MATCH THE HASHES" in output:
        return Unassessed(
            f"{what} is not the file that the package index promises: its sha256 differs",
            hint=f"The download was cut, or the file is another one. {_NOTHING_KEPT} Try again.",
        )
    if any(words in output for words in _CUT) and "No matching distribution" not in output:
        return Unassessed(f"the download of {what} was cut", hint=f"{_NOTHING_KEPT} Try again.")
    if "no such option" in output:
        return Unassessed("this pip is too old to fetch engines", hint="Update it: python -m pip install -U pip")
    if any(words in output for words in _UNREACHABLE):
        return Unassessed(
            f"the package index could not be reached for {what}: {_last_error(output)}", hint="Check pip's index: pip config list"
        )
    not_found = _NOT_FOUND.search(output)
    if not_found:
        return _missing(what, not_found[1])
    return Unassessed(f"pip could not fetch {what}: {_last_error(output)}", hint="Check pip's index: pip config list")


def _missing(what: str, listed: str) -> KvdoctorError:
    versions = [] if listed == "none" else listed.split(", ")
    if not versions:
        return Unassessed(
            f"the package index that pip is configured for has no wheels to look for {what} in", hint="Check it: pip config list"
        )
    shown = ", ".join(versions[-_SHOWN_VERSIONS:])
    return BadRequest(f"the package index has no wheel of {what} for this kind of machine", hint=f"The newest it has: {shown}.")


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR:", "WARNING: Retrying"))] or lines[-1:]
    return errors[-1].removeprefix("ERROR:").removeprefix("WARNING:").strip() if errors else "it said nothing"
