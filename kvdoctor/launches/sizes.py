"""Sizes of memory as people write them."""

import re

from kvdoctor.errors import BadRequest

# A bare G is vLLM's own notation for 2**30 (--kv-cache-memory-bytes 40G). A lower-case g is 10**9 there and 2**30 elsewhere: not accepted.
_UNITS: dict[str, int] = {
    "": 1,
    "B": 1,
    **{
        name: factor
        for power, letter in enumerate("KMGT", start=1)
        for name, factor in (
            (letter, 1 << (10 * power)),
            (f"{letter}iB", 1 << (10 * power)),
            (f"{letter}B", int(1000**power)),
        )
    },
}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", re.ASCII)


def parse_size(text: str, what: str) -> int:
    """Turn ``40GiB``, ``40G``, ``512MiB`` or a number of bytes into bytes; ``what`` names the value in the error."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2]) if match else None
    if match is None or unit is None:
        raise BadRequest(f"{what} {text!r} is not a size", hint="Write it like 40GiB, 512MiB or 42949672960 (bytes).")
    whole, _, fraction = match[1].partition(".")
    size = int(whole) * unit + int(fraction or "0") * unit // int(10 ** len(fraction))
    if size <= 0:
        raise BadRequest(f"{what} {text!r} leaves no memory", hint="Give a size above zero, like 40GiB.")
    return size
