"""What differs between two runs of one request taken out of what vLLM wrote: the same request gets the same report, byte for byte."""

import re
from collections.abc import Mapping

# Durations as vLLM measures them have decimals, or follow "took" and the like; one that is a setting is a whole number.
_DURATION = re.compile(r"(?<![\w.])\d+\.\d+(?= ?(?:s|ms|secs?|seconds?|milliseconds?)\b)|(?<=took )\d+(?= ?(?:s|ms|secs?|seconds?)\b)")
_CLOCK = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\b\d\d-\d\d \d\d:\d\d:\d\d\b")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b")
_PROCESS = re.compile(r"(?<=\bpid=)\d+|(?<=\bpid )\d+", re.IGNORECASE)
_PORT = re.compile(r"(?<=\btcp://127\.0\.0\.1:)\d+|(?<=\btcp://localhost:)\d+|(?<=\btcp://\[::1\]:)\d+")
_LEFT_OUT = "..."


def same_every_time(text: str, places: Mapping[str, str]) -> str:
    """Leave out addresses of objects, process numbers and ports, and name temporary folders as ``places`` does."""
    for path in sorted(places, key=len, reverse=True):
        text = text.replace(path, places[path])
    for varying in (_ADDRESS, _PROCESS, _PORT):
        text = varying.sub(_LEFT_OUT, text)
    return text


def timeless(text: str) -> str:
    """Leave out how long something took, and when it was."""
    return _DURATION.sub(_LEFT_OUT, _CLOCK.sub(_LEFT_OUT, text))
