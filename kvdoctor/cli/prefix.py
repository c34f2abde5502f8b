"""``kvdoctor prefix``: how much of a prompt comes from the cache."""

from typing import Annotated

import typer

from kvdoctor.cli import options
from kvdoctor.cli.console import progress
from kvdoctor.cli.output import check_output, terminal, write_report
from kvdoctor.cli.planning import notes_once, planning
from kvdoctor.errors import EXIT_OK, EXIT_UNASSESSED, BadRequest

EPILOG = "What follows -- is vLLM's own: its arguments, or the whole `vllm serve MODEL ...` line, pasted."
_MOST = 2**17

Shared = Annotated[int, typer.Option("--shared", metavar="TOKENS", min=1, max=_MOST, help="Tokens that all prompts begin with.")]
Prompt = Annotated[
    int | None, typer.Option("--prompt", metavar="TOKENS", min=2, max=_MOST, help="Tokens of a whole prompt; default: 500 more.")
]
Requests = Annotated[int, typer.Option("--requests", metavar="N", min=2, max=32, help="How many prompts share them.")]
Turns = Annotated[
    int, typer.Option("--turns", metavar="N", min=1, max=32, help="Turns of a conversation that grows by the rest of a prompt.")
]


def run(  # noqa: PLR0917 - typer takes one parameter an option
    context: typer.Context,
    shared: Shared,
    model: options.Model = None,
    prompt: Prompt = None,
    requests: Requests = 4,
    turns: Turns = 5,
    vllm: options.Vllm = None,
    gpu: options.GpuName = None,
    kv_cache_memory: options.KvCacheMemory = None,
    args_file: options.ArgsFile = None,
    list_format: options.ListFormatOption = options.ListFormat.TABLE,
    output: options.Output = None,
    trust_remote_code: options.TrustRemoteCode = False,
    offline: options.Offline = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT_SECONDS,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> int:
    """Have vLLM's scheduler serve requests that share a prefix, and show what each takes from the cache."""
    # Not at the top: `--help` must answer before these are read.
    from kvdoctor.cli.request import common  # noqa: PLC0415
    from kvdoctor.launches.request import PrefixQuestion  # noqa: PLC0415
    from kvdoctor.prefix import ask  # noqa: PLC0415
    from kvdoctor.report import render_prefix  # noqa: PLC0415

    note = notes_once(quiet=quiet)
    check_output(output)
    whole = shared + 500 if prompt is None else prompt
    if whole <= shared:
        raise BadRequest(
            f"a prompt of {whole} tokens has no room for {shared} shared ones", hint="Give --prompt more tokens than --shared."
        )
    question = PrefixQuestion(shared_tokens=shared, prompt_tokens=whole, requests=requests, turns=turns)
    asked = common(
        context.obj, args_file, vllm=vllm, gpu=gpu, kv_cache_memory=kv_cache_memory, usage="serve", specs=None,
        trust_remote_code=trust_remote_code, offline=offline, note=note,
    )  # fmt: skip
    request = asked.request(model)
    with planning(offline=offline, timeout=timeout, verbose=verbose, quiet=quiet, note=note) as service:
        launch = service.launch(request, asked.vllm)
        with progress(quiet=quiet) as step:
            report = ask(launch, service, question, on_step=step)
    width, color = terminal(output)
    write_report(render_prefix(report, list_format.value, width=width, color=color), output)
    return EXIT_UNASSESSED if report.settings[0].why_not else EXIT_OK
