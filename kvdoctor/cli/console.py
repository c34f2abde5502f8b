"""stderr: progress, notes and errors. The report alone goes to stdout."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvdoctor.errors import KvdoctorError


def say(text: str) -> None:
    """Write a line to stderr; when nobody can read it, that is no reason to fail."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def say_error(error: KvdoctorError) -> None:
    """Show an error: what and why on one line, what to do next on another."""
    say(f"kvdoctor: {one_line(error.message)}")
    if error.hint:
        say(f"  {one_line(error.hint)}")


def one_line(text: str) -> str:
    """Make text from elsewhere safe to show on one line."""
    from kvdoctor.report import untrusted  # noqa: PLC0415 - the reports behind it cost what `--help` must not pay

    return untrusted.one_line(text)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the current step on stderr when it is a terminal, and nothing otherwise."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _step: None
        return
    from rich.console import Console  # noqa: PLC0415 - rich costs what `--help` must not pay

    with Console(stderr=True).status("starting") as status:
        yield lambda step: status.update(one_line(step).replace("[", r"\["))
