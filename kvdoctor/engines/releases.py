"""vLLM's releases: how they are written, which kvdoctor was tested with, and what one needs that its wheel does not say."""

import re
from typing import Literal

# Each passes the same contract test over the same samples (tests/dryrun).
TESTED = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0", "0.34.0")
# Older than the supported window, and taken as far as they go.
PARTLY = ("0.25.1", "0.26.0")

# What the wheel's metadata leaves open and the release cannot do with. transformers 5.15 made ``head_dim`` a per-layer attribute of
# Gemma 4's config (AmbiguousGlobalPerLayerAttributeError); vLLM reads it so since 0.28.0.
NEEDS: dict[tuple[int, int], str] = {
    (0, 25): "transformers<5.14",
    (0, 26): "transformers<5.14",
    (0, 27): "transformers<5.14",
}

Standing = Literal["tested", "partly", "untested"]

_NUMBER = r"(0|[1-9][0-9]{0,3})"
_RELEASE = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:rc[0-9]{{1,3}}|\.post[0-9]{{1,3}})?", re.ASCII)


def is_release(text: str) -> bool:
    """Tell whether ``text`` is written like a release: ``0.27.1``, ``0.28.0rc2``, ``0.28.0.post1``."""
    return _RELEASE.fullmatch(text) is not None


def standing(version: str) -> Standing:
    """Say how well kvdoctor knows ``version``. A development build or a later patch counts as the release it belongs to."""
    found = _parts(version)
    if found is None:
        return "untested"
    for known, name in ((TESTED, "tested"), (PARTLY, "partly")):
        lowest = {parts[:2]: parts for parts in map(_parts, reversed(known)) if parts is not None}
        if found[:2] in lowest and found >= lowest[found[:2]]:
            return "tested" if name == "tested" else "partly"
    return "untested"


def notes(version: str) -> tuple[str, ...]:
    """Give what the user should know about answers from ``version``."""
    window = f"{TESTED[0]} to {TESTED[-1]}"
    match standing(version):
        case "tested":
            return ()
        case "partly":
            return (f"vLLM {version} is older than the releases kvdoctor supports ({window}): some models cannot be assessed with it",)
        case _:
            outside = f"vLLM {version} is outside the releases kvdoctor was tested with ({window})"
            return (f"{outside}; kvdoctor engines test tells how far it can be used",)


def needs(version: str) -> str | None:
    """Give the requirement of ``version`` that its wheel's metadata does not state."""
    parts = _parts(version)
    return NEEDS.get(parts[:2]) if parts else None


def order(version: str) -> tuple[tuple[int, int, int], str]:
    """Give the key that sorts versions by age."""
    return _parts(version) or (0, 0, 0), version


def _parts(version: str) -> tuple[int, int, int] | None:
    match = re.match(r"([0-9]+)\.([0-9]+)\.([0-9]+)", version, re.ASCII)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
