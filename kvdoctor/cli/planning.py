"""The planning service as the command line uses it: notes, logs and progress on stderr."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvdoctor.cli.console import one_line, progress, say, say_log

if TYPE_CHECKING:
    from kvdoctor.assess import Planning


def planning(*, offline: bool, timeout: float, verbose: bool, quiet: bool, note: Callable[[str], None]) -> "Planning":
    """Open the planning service."""
    from kvdoctor.assess import Planning, Voice  # noqa: PLC0415 - `--help` must answer before it is read

    def log(text: str) -> None:
        if verbose and text.strip():
            say_log(text)

    voice = Voice(note=note, log=log, finding=lambda: progress(quiet=quiet))
    return Planning(offline=offline, timeout_seconds=timeout, voice=voice)


def notes_once(*, quiet: bool) -> Callable[[str], None]:
    """Give what tells the user each note once, however many launches have it to say."""
    told: set[str] = set()

    def note(text: str) -> None:
        if text not in told and not quiet:
            told.add(text)
            say(f"kvdoctor: note: {one_line(text)}")

    return note
