"""stderr: progress, notes and errors. The report alone goes to stdout."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kvdoctor.errors import KvdoctorError
from kvdoctor.secrets import Curtain, curtain_for


class Stopped(BaseException):
    """A signal that asks kvdoctor to end, raised so that every worker is ended on the way out.

    Not a ``KeyboardInterrupt``: typer would take that and end the process itself.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


_hidden = Curtain()


def hide(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Keep the secrets of this launch from whatever is said from here on."""
    global _hidden  # noqa: PLW0603 - stderr is one, and so is what may not be on it
    _hidden |= curtain_for(arguments, environment)


def concealed(text: str) -> str:
    """Hide what :func:`hide` was told of."""
    return _hidden(text)


def say(text: str) -> None:
    """Write to stderr, with nothing in it that acts on a terminal or a CI's log; when nobody can read it, that is no reason to fail."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(_shown(text) + "\n")
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def say_log(text: str) -> None:
    """Write what a worker wrote, a progress bar's steps a line each, and set off so that none of it can pass for a line of kvdoctor's."""
    for line in text.replace("\r\n", "\n").replace("\r", "\n").rstrip().split("\n"):
        say(f"  | {line}")


def say_error(error: KvdoctorError) -> None:
    """Show an error: what and why on one line, what to do next on another."""
    say(f"kvdoctor: {one_line(error.message)}")
    if error.hint:
        say(f"  {one_line(error.hint)}")


def one_line(text: str) -> str:
    """Make text from elsewhere safe to show on one line."""
    from kvdoctor.report import untrusted  # noqa: PLC0415 - the reports behind it cost what `--help` must not pay

    return untrusted.one_line(concealed(text))


def _shown(text: str) -> str:
    from kvdoctor.report import untrusted  # noqa: PLC0415 - as above

    return untrusted.visible(concealed(text))


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the current step on stderr when it is a terminal, and nothing otherwise."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _step: None
        return
    from rich.console import Console  # noqa: PLC0415 - rich costs what `--help` must not pay

    with Console(stderr=True).status("starting") as status:
        yield lambda step: status.update(one_line(step).replace("[", r"\["))


@contextmanager
def progress_bar(total: int, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """Show on stderr how many of ``total`` are done when it is a terminal; what is given is to be called for each."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - as above

    columns = (TextColumn("planning"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
