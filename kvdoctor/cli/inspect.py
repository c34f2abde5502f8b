"""``kvdoctor inspect``: one launch, planned by vLLM and judged."""

import typer

from kvdoctor.cli import options
from kvdoctor.cli.console import progress
from kvdoctor.cli.output import check_output, terminal, write_report
from kvdoctor.cli.planning import notes_once, planning

EPILOG = "What follows -- is vLLM's own: its arguments, or the whole `vllm serve MODEL ...` line, pasted."


def run(  # noqa: PLR0917 - typer takes one parameter an option
    context: typer.Context,
    model: options.Model = None,
    vllm: options.Vllm = None,
    gpu: options.GpuName = None,
    kv_cache_memory: options.KvCacheMemory = None,
    usage: options.UsageContext = options.Usage.SERVE,
    specs: options.Specs = None,
    args_file: options.ArgsFile = None,
    report_format: options.ReportFormat = options.Format.TABLE,
    details: options.Details = False,
    output: options.Output = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    fail_on: options.FailOnSeverity = options.FailOn.ERROR,
    trust_remote_code: options.TrustRemoteCode = False,
    no_suggest: options.NoSuggest = False,
    offline: options.Offline = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT_SECONDS,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> int:
    """Show the KV-cache layout that vLLM will build for a model, and whether it will launch."""
    # Not at the top: `--help` must answer before these are read.
    from kvdoctor.borderline import at_both_ends  # noqa: PLC0415
    from kvdoctor.cli.request import common  # noqa: PLC0415
    from kvdoctor.diagnosis import diagnose  # noqa: PLC0415
    from kvdoctor.report import FORMATS  # noqa: PLC0415
    from kvdoctor.rules import choose_rules  # noqa: PLC0415
    from kvdoctor.suggest import with_suggestions  # noqa: PLC0415

    note = notes_once(quiet=quiet)
    check_output(output)
    chosen, ignored = options.rule_selectors(select), options.rule_selectors(ignore)
    choose_rules(select=chosen, ignore=ignored)
    asked = common(
        context.obj, args_file, vllm=vllm, gpu=gpu, kv_cache_memory=kv_cache_memory, usage=usage.value, specs=specs,
        trust_remote_code=trust_remote_code, offline=offline, note=note,
    )  # fmt: skip
    request = asked.request(model)
    with planning(offline=offline, timeout=timeout, verbose=verbose, quiet=quiet, note=note) as service:
        launch = service.launch(request, asked.vllm)
        with progress(quiet=quiet) as step:
            plan = service.plan(launch, on_step=step)
            diagnosis = diagnose(launch.request, plan, select=chosen, ignore=ignored)
            diagnosis = at_both_ends(diagnosis, launch, plan, service, on_step=step)
            if not no_suggest:
                diagnosis = with_suggestions(diagnosis, launch, plan, service, on_step=step)
    width, color = terminal(output)
    write_report(FORMATS[report_format.value](diagnosis, width=width, color=color, details=details), output)
    return options.exit_code(diagnosis.verdict, [finding.severity for finding in diagnosis.findings], fail_on)
