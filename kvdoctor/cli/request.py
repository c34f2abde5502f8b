"""From the command line's words to a LaunchRequest, with everything checked that needs no vLLM."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from kvdoctor.cli.console import hide
from kvdoctor.command_line import VllmCommand, has_flag, parse_vllm_command
from kvdoctor.errors import BadRequest
from kvdoctor.gpus import find_gpu
from kvdoctor.json_file import read_json_object
from kvdoctor.model_reference import resolved_model
from kvdoctor.request import LaunchRequest
from kvdoctor.sizes import parse_size


@contextmanager
def launch_request(
    *,
    model: str | None,
    vllm_arguments: Sequence[str],
    gpu: str,
    kv_cache_memory: str | None,
    usage: Literal["serve", "llm"],
    specs: Path | None,
    trust_remote_code: bool,
    offline: bool,
    note: Callable[[str], None],
    more_arguments: Sequence[str] = (),
) -> Iterator[LaunchRequest]:
    """Build the request. It is good inside the ``with`` only: a config file may be held in a temporary directory.

    ``note`` hears what was left out of account. ``more_arguments`` are vLLM's too, after the others: the last of two counts.
    """
    hide((*vllm_arguments, *more_arguments), {})
    command = _extended(parse_vllm_command(vllm_arguments), more_arguments)
    hide(command.arguments, command.environment)
    if command.ignored_variables:
        note(f"not vLLM's, and left out of account: {', '.join(command.ignored_variables)}")
    text = _one_model(model, command, specs)
    if kv_cache_memory is not None and has_flag(command.arguments, "--kv-cache-memory-bytes"):
        raise BadRequest(
            "the KV-cache budget is given twice: --kv-cache-memory and vLLM's --kv-cache-memory-bytes", hint="Give one of them."
        )
    request = LaunchRequest(
        model=None,
        specs=read_json_object(specs, what="a file of layer specs", unique_keys=True) if specs else None,
        vllm_args=command.arguments,
        environment=command.environment,
        gpu=find_gpu(gpu),
        usage=usage,
        kv_cache_memory_bytes=None if kv_cache_memory is None else parse_size(kv_cache_memory, "--kv-cache-memory"),
        trust_remote_code=trust_remote_code or has_flag(command.arguments, "--trust-remote-code"),
        offline=offline,
    )
    if text is None:
        yield request
        return
    with resolved_model(text) as reference:
        if reference.revision is not None and has_flag(command.arguments, "--revision"):
            raise BadRequest(f"the revision is given twice: {text} and vLLM's --revision", hint="Give one of them.")
        yield replace(request, model=reference)


def _extended(command: VllmCommand, more_arguments: Sequence[str]) -> VllmCommand:
    if not more_arguments:
        return command
    more = parse_vllm_command(more_arguments)
    if more.model is not None:
        raise BadRequest(
            f"a whole command is given where only arguments fit: vllm serve {more.model}", hint="Give vLLM's arguments, without the model."
        )
    return VllmCommand(
        model=command.model,
        arguments=command.arguments + more.arguments,
        environment=command.environment | more.environment,
        ignored_variables=command.ignored_variables + more.ignored_variables,
    )


def _one_model(model: str | None, command: VllmCommand, specs: Path | None) -> str | None:
    if model is not None and command.model is not None:
        raise BadRequest(
            f"the model is given twice: {model} and, in the pasted command, {command.model}", hint="Leave out the one before --."
        )
    text = command.model if model is None else model
    if specs is not None and text is not None:
        raise BadRequest(f"both a model ({text}) and --specs are given", hint="Give one: specs stand in for a model.")
    if specs is None and text is None:
        raise BadRequest("no model is given", hint="Give MODEL, or paste the command: -- vllm serve MODEL ...")
    return text
