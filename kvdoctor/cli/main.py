"""The entry point: split off vLLM's arguments, run the command, turn every ending into an exit code."""

import os
import platform
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from kvdoctor import __version__
from kvdoctor.cli import compare, engines, explain, gpus, inspect, prefix, rules, sweep, verify, version
from kvdoctor.cli.console import Stopped, one_line, say, say_error
from kvdoctor.errors import EXIT_BAD_REQUEST, EXIT_BUG, EXIT_OK, BadRequest, KvdoctorError

app = typer.Typer(
    help="vLLM's own KV-cache plan for a model, before the launch and without a GPU.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("inspect", epilog=inspect.EPILOG)(inspect.run)
app.add_typer(engines.app, name="engines")
app.command("compare", epilog=compare.EPILOG)(compare.run)
app.command("sweep", epilog=sweep.EPILOG)(sweep.run)
app.command("verify", epilog=verify.EPILOG)(verify.run)
app.command("prefix", epilog=prefix.EPILOG)(prefix.run)
app.command("gpus")(gpus.run)
app.command("rules")(rules.run)
app.command("explain")(explain.run)
app.command("version")(version.run)


@app.callback()
def _options(
    _version: Annotated[
        bool | None, typer.Option("--version", callback=version.show, is_eager=True, help="Show kvdoctor's version and exit.")
    ] = None,
) -> None:
    """Options that stand before a command."""


# typer's public name for click's usage errors is a subclass of theirs; the class itself lives in different places in different releases.
_UsageError: Any = typer.BadParameter.__base__

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> NoReturn:
    """Run kvdoctor on this process's arguments."""
    _keep_standard_descriptors()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            # A path may hold bytes, and a terminal an encoding, that would otherwise end in an encoding error.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    for number in _STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _stop)
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    ours, vllm_arguments = _split(list(argv) or ["--help"])
    verbose = "-v" in ours or "--verbose" in ours
    try:
        result = typer.main.get_command(app).main(args=ours, prog_name="kvdoctor", standalone_mode=False, obj=vllm_arguments)
    except KvdoctorError as error:
        say_error(error)
        return error.exit_code
    except _UsageError as error:
        return _usage_error(error)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except Stopped as stop:
        say("kvdoctor: stopped")
        return 128 + stop.number
    except Exception as error:  # noqa: BLE001 - the last line of defence: it reports, and exits with the code for a bug
        return _bug(error, verbose=verbose)
    return result if isinstance(result, int) else EXIT_OK


def _split(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """Split at the first ``--``: what follows is vLLM's, and must not reach our own parser."""
    if "--" not in argv:
        return argv, None
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _usage_error(error: Any) -> int:
    command = error.ctx.command_path if error.ctx else "kvdoctor"
    hint = f"See `{command} --help`."
    unknown = getattr(error, "option_name", None)
    if unknown and not getattr(error, "possibilities", None):
        hint += " vLLM's own options go after --."
    say_error(BadRequest(error.format_message(), hint=hint))
    return EXIT_BAD_REQUEST


def _bug(error: Exception, *, verbose: bool) -> int:
    say(f"kvdoctor: a bug in kvdoctor: {type(error).__name__}: {one_line(str(error))}")
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    say(f"  Please report it with: kvdoctor {__version__}, vLLM {version.installed('vllm') or 'not installed'}, {python}")
    if verbose:
        say("".join(traceback.format_exception(error)))
    else:
        say("  -v adds the traceback.")
    return EXIT_BUG


def _stop(number: int, _frame: FrameType | None) -> None:
    for other in _STOP_SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # the way out must not be cut short by a second one
    raise Stopped(number)


def _keep_standard_descriptors() -> None:
    """Fill closed descriptors 0 to 2, so that no file opened later takes their place and is written to by accident."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
