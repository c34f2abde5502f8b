"""``~`` in paths, also where there is no such home."""

from pathlib import Path


def expanded(text: str) -> Path:
    """Expand ``~`` and ``~user``; a home that is not known stays as it was written, a path that does not exist."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def home_cache() -> Path:
    """Give the user's ``~/.cache``; for a user without a home, as in some containers, a place that cannot be made.

    Not a place among the temporary files: another user could have put an engine there.
    """
    try:
        return Path("~/.cache").expanduser()
    except RuntimeError:
        return Path("/nonexistent/.cache")
