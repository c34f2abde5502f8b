"""``kvdoctor verify``: a real start-up log against the plan of the same launch."""

import stat
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvdoctor.cli import options
from kvdoctor.cli.console import progress
from kvdoctor.cli.output import check_output, terminal, write_report
from kvdoctor.cli.planning import notes_once, planning
from kvdoctor.errors import EXIT_FINDING, EXIT_OK, EXIT_UNASSESSED, BadRequest, Unassessed

if TYPE_CHECKING:
    from kvdoctor.verify import Verification
    from kvdoctor.vllm_text.boot_log import BootLog
    from kvdoctor.vllm_text.launch_arguments import LaunchArguments

EPILOG = (
    "What follows -- is vLLM's own: arguments that the log does not have, or has otherwise. "
    "Exit codes: 0 all that both have agrees, 1 something does not, 2 no log of vLLM, 3 the log does not say enough."
)
_HINT = "Give the log that `vllm serve` wrote while it started, from its first line on."

LogFile = Annotated[str, typer.Argument(metavar="BOOT_LOG", help="vLLM's log from its start on: a file, or - for stdin.")]
OptionalUsage = Annotated[options.Usage | None, typer.Option("--usage", help="How vLLM was started, where the log does not tell.")]
LogGpu = Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="The GPU of the boot, where the log does not name it.")]
LogVllm = Annotated[str | None, typer.Option("--vllm", metavar="ENGINE", help="Which vLLM answers, instead of the log's release.")]


def run(  # noqa: PLR0917 - typer takes one parameter an option
    context: typer.Context,
    boot_log: LogFile,
    model: options.Model = None,
    vllm: LogVllm = None,
    gpu: LogGpu = None,
    usage: OptionalUsage = None,
    report_format: options.ReportFormat = options.Format.TABLE,
    output: options.Output = None,
    trust_remote_code: options.TrustRemoteCode = False,
    offline: options.Offline = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT_SECONDS,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> int:
    """Compare a real start-up log of vLLM with the plan of the same launch, figure by figure."""
    # Not at the top: `--help` must answer before these are read.
    from kvdoctor.cli.request import Common  # noqa: PLC0415
    from kvdoctor.report import render_verification  # noqa: PLC0415
    from kvdoctor.verify import verify  # noqa: PLC0415
    from kvdoctor.verify_budget import budget_of, find_plan  # noqa: PLC0415
    from kvdoctor.vllm_text.launch_arguments import launch_arguments  # noqa: PLC0415

    note = notes_once(quiet=quiet)
    check_output(output)
    boot = _read(boot_log)
    taken = launch_arguments(boot.arguments or {})
    chosen = _settled(boot, model=model, vllm=vllm, gpu=gpu, has_arguments=context.obj is not None)
    shared = Common(
        vllm_arguments=taken.words,
        vllm=chosen.engine,
        gpu=chosen.gpu,
        kv_cache_memory=None,
        usage=usage.value if usage else "serve" if boot.usage == "serve" else "llm",
        specs=None,
        trust_remote_code=trust_remote_code,
        offline=offline,
        note=note,
        launch_file_taken=True,  # it is the boot's launch that counts
    )
    request = shared.request(chosen.model, more_arguments=context.obj or ())
    with planning(offline=offline, timeout=timeout, verbose=verbose, quiet=quiet, note=note) as service:
        launch = service.launch(request, chosen.engine)
        budget = budget_of(boot)
        with progress(quiet=quiet) as step:
            found = find_plan(
                boot,
                budget,
                lambda size: service.plan(replace(launch, request=replace(launch.request, kv_cache_memory_bytes=size)), on_step=step),
            )
    verification = verify(
        boot,
        found,
        budget,
        request=launch.request,
        log_name="stdin" if boot_log == "-" else boot_log,
        left_out=taken.left_out,
        notes=_notes(boot, taken, found.plan.engine.vllm_version, trust_remote_code=trust_remote_code),
    )
    width, color = terminal(output)
    write_report(render_verification(verification, report_format.value, width=width, color=color), output)
    return _exit_code(verification)


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """What the log leaves to be given, settled."""

    model: str
    gpu: str
    engine: str | None


def _read(name: str) -> "BootLog":
    from kvdoctor.vllm_text.boot_log import read_boot_log, sources  # noqa: PLC0415 - as in run

    text = _text(name)
    services = sources(text)
    if len(services) > 1:
        raise Unassessed(
            f"the log holds the starts of {len(services)} services: {', '.join(services[:4])}",
            hint="Give the log of one, as `docker compose logs SERVICE` prints it.",
        )
    boot = read_boot_log(text)
    if boot is None:
        raise BadRequest(
            f"{name} is no start-up log of vLLM: it has neither its version nor its arguments nor its engine's line", hint=_HINT
        )
    return boot


def _text(name: str) -> str:
    from kvdoctor.vllm_text.boot_log import MAX_BYTES  # noqa: PLC0415 - as in run

    try:
        if name == "-":
            if sys.stdin is None:
                raise BadRequest("stdin is closed, so there is no log to read", hint=_HINT)
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            path = Path(name)
            kind = path.stat().st_mode
            # A pipe is what `<(kubectl logs ...)` gives; a device or a socket may never end or never answer.
            if not stat.S_ISREG(kind) and not stat.S_ISFIFO(kind):
                raise BadRequest(f"{name} is not a regular file", hint=_HINT)
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadRequest(f"{name} cannot be read: {reason}", hint="Check the path and its permissions.") from None
    if len(raw) > MAX_BYTES:
        raise BadRequest(
            f"{name} is larger than {MAX_BYTES // 2**20} MiB", hint="Give the part from a start of vLLM to `Application startup complete`."
        )
    return raw.decode("utf-8", errors="replace")


def _settled(boot: "BootLog", *, model: str | None, vllm: str | None, gpu: str | None, has_arguments: bool) -> _Chosen:
    """Put together what the launch was, or name all that is missing at once, with what gives it."""
    from kvdoctor.vllm_text.boot_log import release_of  # noqa: PLC0415 - as in run

    missing: list[tuple[str, str]] = []
    release = release_of(boot.version)
    if vllm is None and release is None:
        said = f"a release (it says {boot.version})" if boot.version else "its vLLM's version"
        missing.append((said, "--vllm ENGINE"))
    if gpu is None and len(boot.gpus) != 1:
        missing.append(("which GPU it ran on" if not boot.gpus else f"which of {', '.join(boot.gpus)} it ran on", "--gpu NAME"))
    if model is None and (why := _model_missing(boot.model)):
        missing.append((why, "MODEL behind BOOT_LOG"))
    if boot.arguments is None and not has_arguments:
        unread = f" that can be read ({boot.arguments_unreadable})" if boot.arguments_unreadable else ""
        missing.append((f"arguments{unread} (`non-default args`)", "them after --, or -- alone if there were none"))
    if not boot.complete:
        missing.append(("how the start ended: no `KV cache size`, no error", "a log that goes on longer"))
    if missing:
        raise Unassessed(
            f"the log does not say enough; it lacks {'; '.join(what for what, _ in missing)}",
            hint=f"Give {'; '.join(how for _, how in missing)}.",
        )
    return _Chosen(model=model or boot.model or "", gpu=gpu or boot.gpus[0], engine=vllm or release)


def _model_missing(model: str | None) -> str | None:
    from kvdoctor.launches.model_reference import find_model  # noqa: PLC0415 - as in run

    if model is None:
        return "its model"
    try:
        find_model(model)
    except BadRequest as error:
        return f"a model that can be found here ({error.message})"
    return None


def _notes(boot: "BootLog", taken: "LaunchArguments", planned: str, *, trust_remote_code: bool) -> tuple[str, ...]:
    notes = []
    if boot.starts > 1:
        which = "the last complete one" if boot.complete else "the last one"
        notes.append(f"the log has {boot.starts} starts; number {boot.start}, {which}, counts")
    if taken.left_out:
        notes.append(f"left out of the plan: {', '.join(taken.left_out)}; give what matters of it after --")
    if taken.trusts_remote_code and not trust_remote_code:
        notes.append("the boot ran code from the model's repository; the plan does so only with --trust-remote-code")
    if boot.version and boot.version.partition("+")[0] != planned.partition("+")[0]:
        notes.append(f"the log is of vLLM {boot.version}, the plan of {planned}")
    return tuple(notes)


def _exit_code(verification: "Verification") -> int:
    return {"agrees": EXIT_OK, "differs": EXIT_FINDING}.get(verification.verdict, EXIT_UNASSESSED)
