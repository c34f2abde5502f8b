"""``kvdoctor engines``: the releases of vLLM that are kept in the cache."""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvdoctor.cli import options
from kvdoctor.cli.console import progress
from kvdoctor.cli.output import check_output, terminal, write_report
from kvdoctor.cli.planning import notes_once, planning
from kvdoctor.cli.version import installed
from kvdoctor.errors import EXIT_FINDING, EXIT_OK, EXIT_UNASSESSED, Unassessed

_HEADINGS = ("version", "size", "source", "standing", "last used")
_MIB = 2**20


class TrialFormat(StrEnum):
    """What a test of a release is written as."""

    TABLE = "table"
    JSON = "json"


app = typer.Typer(help="List, fetch, test and remove the vLLM releases that can answer (--vllm VERSION).", rich_markup_mode=None)

Versions = Annotated[list[str], typer.Argument(metavar="VERSION...", help="Releases of vLLM, like 0.27.1.")]
Details = Annotated[bool, typer.Option("--verbose", "-v", help="Show which installed packages are not as a release asks for.")]


@app.command("list")
def show(verbose: Details = False) -> None:
    """List the installed vLLM and the fetched releases: size, where from, whether kvdoctor was tested with them, last used."""
    # Not at the top: `--help` must answer before these are read.
    from kvdoctor.engines.fetch import dependency_notes  # noqa: PLC0415
    from kvdoctor.engines.store import Store, size_limit  # noqa: PLC0415

    check_output(None)
    limit, store = size_limit(), Store()
    rows: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    here = installed("vllm")
    if here:
        rows.append(((here, "", "installed", _standing(here), ""), ()))
    engines = store.all()
    sizes = [engine.size() for engine in engines]
    for engine, size in zip(engines, sizes, strict=True):
        cells = (engine.version, _mib(size), engine.manifest.vllm.wheel, _standing(engine.version), _day(engine.last_used))
        rows.append((cells, dependency_notes(engine.manifest, all_packages=True) if verbose else ()))
    lines = _table(rows) if rows else ["no engine: neither an installed vLLM nor a fetched release"]
    lines += ["", f"{len(engines)} fetched, {_mib(sum(sizes))} of {_mib(limit)} in {store.root}"]
    write_report("\n".join(lines) + "\n", None)


@app.command("add")
def add(versions: Versions, verbose: Details = False, quiet: options.Quiet = False) -> None:
    """Fetch releases into the cache, from the package index that pip is configured for."""
    from kvdoctor.engines import releases  # noqa: PLC0415
    from kvdoctor.engines.fetch import dependency_notes, fetch_release  # noqa: PLC0415
    from kvdoctor.engines.store import Store, check_release  # noqa: PLC0415

    check_output(None)
    for version in versions:
        check_release(version)
    store = Store()
    note = notes_once(quiet=quiet)
    for version in versions:
        known = store.find(version) is not None
        with progress(quiet=quiet) as step:
            engine = fetch_release(version, store, offline=False, on_step=step, note=note)
        for text in releases.notes(version):
            note(text)
        lines = [f"vLLM {version}: {'there already' if known else 'added'}, {_mib(engine.size())} in {engine.folder}"]
        lines += [f"  {text}" for text in dependency_notes(engine.manifest, all_packages=verbose)]
        write_report("\n".join(lines) + "\n", None)


@app.command("test")
def try_out(  # noqa: PLR0917 - typer takes one parameter an option
    engine: Annotated[
        str | None,
        typer.Argument(
            metavar="[VERSION|DIR]",
            help="A release, fetched if need be, or a directory with vLLM's source; the installed vLLM if not given.",
        ),
    ] = None,
    samples: Annotated[
        Path | None, typer.Option("--samples", metavar="DIR", help="Plan these models, a folder each, instead of kvdoctor's ten.")
    ] = None,
    report_format: Annotated[TrialFormat, typer.Option("--format", help="What to write.")] = TrialFormat.TABLE,
    output: options.Output = None,
    offline: options.Offline = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT_SECONDS,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> int:
    """Say how far a release can be used that kvdoctor was not tested with: names that are gone, and samples against a tested release.

    Exit code 0: usable; 1: in part; 3: not.
    """
    from kvdoctor.cli.engine_trial import try_engine  # noqa: PLC0415
    from kvdoctor.engines.trials import keep_trial  # noqa: PLC0415
    from kvdoctor.report.trial import render_trial  # noqa: PLC0415

    check_output(output)
    note = notes_once(quiet=quiet)
    with planning(offline=offline, timeout=timeout, verbose=verbose, quiet=quiet, note=note) as service:
        trial = try_engine(engine, service, samples=samples, quiet=quiet, note=note)
    if samples is None and not trial.source.startswith("checkout "):
        # Not of a checkout, which changes, nor of other samples, which say something else.
        try:
            keep_trial(trial)
        except Unassessed as error:
            note(error.message)
    width, color = terminal(output)
    write_report(render_trial(trial, report_format.value, width=width, color=color), output)
    return {"usable": EXIT_OK, "partly usable": EXIT_FINDING, "not usable": EXIT_UNASSESSED}[trial.conclusion]


@app.command("remove")
def remove(versions: Versions, quiet: options.Quiet = False) -> None:
    """Remove fetched releases from the cache."""
    from kvdoctor.engines.store import Store, check_release  # noqa: PLC0415
    from kvdoctor.engines.trials import forget_trial  # noqa: PLC0415
    from kvdoctor.errors import BadRequest  # noqa: PLC0415

    check_output(None)
    for version in versions:
        check_release(version)
    store = Store()
    with progress(quiet=quiet) as step, store.changing(step):
        found = {version: store.find(version) for version in versions}
        for version, engine in found.items():
            if engine is None:
                raise BadRequest(f"vLLM {version} is not in the engine cache", hint="See: kvdoctor engines list")
        for engine in filter(None, found.values()):
            size = engine.size()
            store.remove(engine)
            forget_trial(engine.version)
            write_report(f"vLLM {engine.version}: removed, {_mib(size)} freed\n", None)


def _table(rows: Iterable[tuple[tuple[str, ...], tuple[str, ...]]]) -> list[str]:
    listed = [(_HEADINGS, ()), *rows]
    widths = [max(len(cells[column]) for cells, _ in listed) for column in range(len(_HEADINGS))]
    lines: list[str] = []
    for cells, notes in listed:
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
        lines += [f"    {text}" for text in notes]
    return lines


def _standing(version: str) -> str:
    """Say how well kvdoctor knows a release, and what its test found where nobody wrote for it."""
    from kvdoctor.engines import releases  # noqa: PLC0415 - as above
    from kvdoctor.engines.trials import read_trial  # noqa: PLC0415

    standing = releases.standing(version)
    trial = None if standing == "tested" else read_trial(version)
    return standing if trial is None else f"{standing}, {trial.conclusion} ({trial.tested_at[:10]})"


def _mib(size: int) -> str:
    return f"{size / _MIB:.0f} MiB"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M") if seconds else "never"
