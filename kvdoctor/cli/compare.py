"""``kvdoctor compare``: two launches, or a folder of models on two sides, and what differs."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvdoctor.cli import options
from kvdoctor.cli.output import check_output, terminal, write_report
from kvdoctor.cli.planning import notes_once, planning
from kvdoctor.errors import EXIT_FINDING, EXIT_OK, EXIT_UNASSESSED, BadRequest

if TYPE_CHECKING:
    from kvdoctor.compare import Comparison
    from kvdoctor.compare.many import ManyComparison

EPILOG = (
    "Each side is a model or a report saved with `inspect --format json`. With one model, say what differs: --before-vllm, ... "
    "What follows -- is vLLM's own, and goes to both sides. Exit code 1: an error that the before side has not, or a limit passed."
)


def run(  # noqa: PLR0917 - typer takes one parameter an option
    context: typer.Context,
    sides: Annotated[
        list[str] | None, typer.Argument(metavar="[BEFORE] [AFTER]", help="Models or saved reports; one model serves both.")
    ] = None,
    every: Annotated[
        Path | None, typer.Option("--all", metavar="DIR", help="Compare every model in DIR: a folder each, as sample_configs.")
    ] = None,
    before_vllm: Annotated[
        str | None, typer.Option("--before-vllm", metavar="ENGINE", help="Which vLLM answers for the before side.")
    ] = None,
    after_vllm: Annotated[str | None, typer.Option("--after-vllm", metavar="ENGINE", help="Which vLLM answers for the after side.")] = None,
    before_args: Annotated[
        str | None, typer.Option("--before-args", metavar="ARGS", help="More vLLM arguments of the before side.")
    ] = None,
    after_args: Annotated[str | None, typer.Option("--after-args", metavar="ARGS", help="More vLLM arguments of the after side.")] = None,
    before_gpu: Annotated[str | None, typer.Option("--before-gpu", metavar="NAME", help="The GPU of the before side.")] = None,
    after_gpu: Annotated[str | None, typer.Option("--after-gpu", metavar="NAME", help="The GPU of the after side.")] = None,
    vllm: options.Vllm = None,
    gpu: options.GpuName = None,
    kv_cache_memory: options.KvCacheMemory = None,
    usage: options.UsageContext = options.Usage.SERVE,
    specs: options.Specs = None,
    args_file: options.ArgsFile = None,
    max_token_loss: Annotated[
        float | None,
        typer.Option("--max-token-loss", metavar="PERCENT", min=0, help="Exit with 1 when more of the KV-cache tokens is lost."),
    ] = None,
    max_hash_growth: Annotated[
        float | None, typer.Option("--max-hash-growth", metavar="PERCENT", min=0, help="Exit with 1 when the hash block grows by more.")
    ] = None,
    max_waste_growth: Annotated[
        float | None,
        typer.Option(
            "--max-waste-growth",
            metavar="PERCENT",
            min=0,
            help="Exit with 1 when the empty share of a full request grows by more points of percent.",
        ),
    ] = None,
    report_format: options.ReportFormat = options.Format.TABLE,
    output: options.Output = None,
    trust_remote_code: options.TrustRemoteCode = False,
    offline: options.Offline = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT_SECONDS,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> int:
    """Show what changes between two launches: another vLLM, other arguments, another GPU, another model."""
    # Not at the top: `--help` must answer before these are read.
    from kvdoctor.cli.compare_all import compare_folder  # noqa: PLC0415
    from kvdoctor.cli.compare_sides import Own, plan_sides  # noqa: PLC0415
    from kvdoctor.cli.request import common  # noqa: PLC0415
    from kvdoctor.compare import Limits, compare  # noqa: PLC0415
    from kvdoctor.report import render_comparison, render_many  # noqa: PLC0415

    check_output(output)
    if every is not None and (sides or specs is not None):
        raise BadRequest("--all takes its models from DIR, and another is given", hint="Leave out BEFORE, AFTER and --specs.")
    limits = Limits(
        max_token_loss_percent=max_token_loss, max_hash_growth_percent=max_hash_growth, max_waste_growth_points=max_waste_growth
    )
    note = notes_once(quiet=quiet)
    shared = common(
        context.obj, args_file, vllm=vllm, gpu=gpu, kv_cache_memory=kv_cache_memory, usage=usage.value, specs=specs,
        trust_remote_code=trust_remote_code, offline=offline, note=note,
    )  # fmt: skip
    own = (
        Own(name="before", vllm=before_vllm, arguments=before_args, gpu=before_gpu),
        Own(name="after", vllm=after_vllm, arguments=after_args, gpu=after_gpu),
    )
    with planning(offline=offline, timeout=timeout, verbose=verbose, quiet=quiet, note=note) as service:
        if every is not None:
            many = compare_folder(every, own, shared, limits, service, quiet=quiet)
            text, code = functools.partial(render_many, many), _worst(many)
        else:
            comparison = compare(*plan_sides(sides or [], own, shared, service, quiet=quiet), limits)
            text, code = functools.partial(render_comparison, comparison), exit_code_of(comparison)
    width, color = terminal(output)
    write_report(text(report_format.value, width=width, color=color), output)
    return code


def exit_code_of(comparison: "Comparison") -> int:
    """Turn a comparison into the exit code of the contract. What could not be assessed cannot be called no worse."""
    if comparison.new_errors or comparison.regressions:
        return EXIT_FINDING
    unassessed = "unassessed" in (comparison.before.verdict, comparison.after.verdict)
    return EXIT_UNASSESSED if unassessed else EXIT_OK


def _worst(many: "ManyComparison") -> int:
    codes = {EXIT_UNASSESSED if model.comparison is None else exit_code_of(model.comparison) for model in many.models}
    return next((code for code in (EXIT_FINDING, EXIT_UNASSESSED) if code in codes), EXIT_OK)
