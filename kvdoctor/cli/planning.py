"""Several launches planned at once, with notes and logs on stderr."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvdoctor.cli.console import one_line, progress, say, say_log

if TYPE_CHECKING:
    from kvdoctor.engines.interface import Engine
    from kvdoctor.workers.pool import Job, Pool


class EngineFinder:
    """Finds each engine once, and shows what it takes to fetch one."""

    def __init__(self, *, offline: bool, quiet: bool) -> None:
        self._offline = offline
        self._quiet = quiet
        self._found: dict[str | None, Engine] = {}

    def find(self, text: str | None) -> "Engine":
        """Find the engine for ``text``, the value of ``--vllm``."""
        from kvdoctor.engines.find import find_engine  # noqa: PLC0415 - `--help` must answer before it is read

        if text not in self._found:
            with progress(quiet=self._quiet) as step:
                self._found[text] = find_engine(
                    text, offline=self._offline, on_step=step, note=lambda note: say_note(note, quiet=self._quiet)
                )
        return self._found[text]


def open_pool(
    jobs: Sequence["Job"], *, timeout: float, verbose: bool, quiet: bool, step: Callable[[int, str], None] | None = None
) -> "Pool":
    """Make the pool that plans ``jobs``; ``step`` hears what each is at."""
    # Not at the top: `--help` must answer before these are read.
    from kvdoctor.workers.machine import find_room  # noqa: PLC0415
    from kvdoctor.workers.pool import Listener, Pool  # noqa: PLC0415

    def log(text: str) -> None:
        if verbose and text.strip():
            say_log(text)

    listener = Listener(step=step or _ignore, note=lambda text: say_note(text, quiet=quiet), log=log)
    return Pool(jobs, timeout_seconds=timeout, room=find_room(), listener=listener)


def say_note(text: str, *, quiet: bool) -> None:
    """Tell the user something that is no error."""
    if not quiet:
        say(f"kvdoctor: note: {one_line(text)}")


def notes_once(*, quiet: bool) -> Callable[[str], None]:
    """Give what tells the user each note once, however many launches have it to say."""
    told: set[str] = set()

    def note(text: str) -> None:
        if text not in told:
            told.add(text)
            say_note(text, quiet=quiet)

    return note


def _ignore(_job: int, _step: str) -> None:
    """Stand in for a listener."""
