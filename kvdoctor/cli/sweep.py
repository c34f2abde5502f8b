"""``kvdoctor sweep``: a grid of launches."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kvdoctor.cli import options
from kvdoctor.cli.console import say
from kvdoctor.cli.output import check_output, terminal, write_report
from kvdoctor.cli.planning import notes_once, planning
from kvdoctor.errors import EXIT_FINDING, EXIT_OK, EXIT_UNASSESSED

if TYPE_CHECKING:
    from kvdoctor.sweep import Sweep

EPILOG = (
    "--vary NAME=VALUE,VALUE takes any of vLLM's arguments, and vllm, gpu or kv-cache-memory. A JSON value keeps its commas; on and off "
    "switch a flag (--NAME, --no-NAME), and default leaves the argument out. Exit code 1: no row launches; 3: a row could not be assessed."
)


class SweepFormat(StrEnum):
    """What a sweep is written as."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


class Best(StrEnum):
    """By what the best row is chosen."""

    TOKENS = "tokens"
    CONCURRENCY = "concurrency"
    WASTE = "waste"
    BLOCK = "block"


def run(  # noqa: PLR0917 - typer takes one parameter an option
    context: typer.Context,
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help="Models, as for inspect; all of them with every value.")
    ] = None,
    vary: Annotated[
        list[str] | None, typer.Option("--vary", metavar="NAME=VALUES", help="What varies: tensor-parallel-size=1,2,4; again for more.")
    ] = None,
    best: Annotated[
        Best, typer.Option("--best", help="Mark the best row by this: most tokens or concurrency, least waste, smallest block.")
    ] = Best.TOKENS,
    vllm: options.Vllm = None,
    gpu: options.GpuName = None,
    kv_cache_memory: options.KvCacheMemory = None,
    usage: options.UsageContext = options.Usage.SERVE,
    specs: options.Specs = None,
    args_file: options.ArgsFile = None,
    report_format: Annotated[SweepFormat, typer.Option("--format", help="What to write.")] = SweepFormat.TABLE,
    output: options.Output = None,
    trust_remote_code: options.TrustRemoteCode = False,
    offline: options.Offline = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT_SECONDS,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> int:
    """Plan every combination of the values that vary, a row each."""
    # Not at the top: `--help` must answer before these are read.
    from kvdoctor import __version__  # noqa: PLC0415
    from kvdoctor.cli.request import common  # noqa: PLC0415
    from kvdoctor.cli.sweep_grid import plan_grid  # noqa: PLC0415
    from kvdoctor.report import render_sweep  # noqa: PLC0415
    from kvdoctor.secrets import hide_arguments, hide_setting  # noqa: PLC0415
    from kvdoctor.sweep import SCHEMA_VERSION, Sweep, make_grid, mark_best, parse_variations  # noqa: PLC0415

    check_output(output)
    note = notes_once(quiet=quiet)  # every cell has the same to say
    shared = common(
        context.obj, args_file, vllm=vllm, gpu=gpu, kv_cache_memory=kv_cache_memory, usage=usage.value, specs=specs,
        trust_remote_code=trust_remote_code, offline=offline, note=note,
    )  # fmt: skip
    variations = parse_variations(vary or ())
    cells = make_grid(models or [None], variations)
    with planning(offline=offline, timeout=timeout, verbose=verbose, quiet=quiet, note=note) as service:
        planned = plan_grid(cells, shared, service, quiet=quiet)
    if planned.stopped is not None and not planned.rows:
        raise planned.stopped
    if len(planned.failures) == len(cells) and len({error.message for error in planned.failures}) == 1:
        raise planned.failures[0]  # nothing differs between the rows: it is the request that is wrong
    rows = [planned.rows[number] for number in sorted(planned.rows)]
    sweep = Sweep(
        schema_version=SCHEMA_VERSION,
        kvdoctor_version=__version__,
        models=tuple(dict.fromkeys(row.model for row in rows)),
        vllm_args=hide_arguments(shared.vllm_arguments),
        varied={variation.name: tuple(hide_setting(variation.name, value) for value in variation.values) for variation in variations},
        best_by=best.value,
        planned=len(cells),
        rows=mark_best(rows, best.value),
    )
    width, color = terminal(output)
    write_report(render_sweep(sweep, report_format.value, width=width, color=color), output)
    if planned.stopped is not None:
        say(f"kvdoctor: stopped: {len(rows)} of {len(cells)} launches are planned")
        return 128 + planned.stopped.number
    return exit_code_of(sweep)


def exit_code_of(sweep: "Sweep") -> int:
    """Turn a sweep into an exit code: a row that is refused is what a sweep is for, as long as another launches."""
    if any(row.verdict == "unassessed" for row in sweep.rows):
        return EXIT_UNASSESSED
    return EXIT_OK if any(row.verdict in ("ok", "warning") for row in sweep.rows) else EXIT_FINDING
