"""What ``vllm serve`` checks of its arguments, asked of vLLM's own functions, with no GPU and without running other people's code unasked.

A file that is not here may well be where the launch will run, so it is told and not judged.
"""

import argparse
import re
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kvdoctor.dryrun import compat, user_code
from kvdoctor.dryrun.blame import chain, first_line, is_accident, lacks_file, needs_gpu, words_of
from kvdoctor.dryrun.model import Replaced
from kvdoctor.dryrun.settled import Refused, Settled
from kvdoctor.errors import KvdoctorError
from kvdoctor.plan import NOT_ON_THIS_MACHINE, SERVE_ARGUMENTS, Check, Refusal

_PATH_FLAGS = ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs")
# vLLM's official image starts in a folder that holds the examples of vLLM's repository; recipes name its templates by this path.
_IMAGE_FOLDERS = ("examples/",)
# A CUDA context and its libraries take at least this much of a GPU before vLLM looks how much is free.
_CONTEXT_BYTES = 256 * 2**20
_LARGEST_PORT = 65_535


def check_arguments(settled: Settled, arguments: argparse.Namespace) -> None:
    """What the command checks before it makes an engine; nothing for ``LLM()``, which has no such arguments."""
    if settled.request.usage != "serve":
        return
    given = argparse.Namespace(**vars(arguments))
    given.subparser = "serve"  # as the command has it
    with settled.step(SERVE_ARGUMENTS):
        _leave_out_absent_files(settled, given)
        _ask(settled, "serve arguments", lambda: _function("validate_parsed_serve_args")(given))
        if given.headless:
            return
        user_code.read_parser_plugins(settled, given)
        if given.enable_auto_tool_choice or given.structured_outputs_config.reasoning_parser:
            _ask(settled, "parsers", lambda: _function("validate_api_server_args")(given))
        if not given.uds:
            _check_port(settled, given.port)


def check_configured(settled: Settled, arguments: argparse.Namespace) -> None:
    """What the workers and the server check of the arguments later, when the engine is configured; the second half of the same step."""
    settled.checks = [check for check in settled.checks if check.name != SERVE_ARGUMENTS or check.outcome != "passed"]
    with settled.step(SERVE_ARGUMENTS):
        if arguments.load_format != "auto" or arguments.model_loader_extra_config:
            _ask(settled, f"--load-format {arguments.load_format}", lambda: Replaced.get_model_loader(settled.config.load_config))
        for named in user_code.named_by(arguments, settled.config):
            _ask(settled, named.label, partial(user_code.check, settled, named, trusted=arguments.trust_remote_code))
        for lora in getattr(arguments, "lora_modules", None) or ():
            _check_lora(settled, lora.name, lora.path)
        _ask(settled, "--gpu-memory-utilization", lambda: _request_memory(settled))


def _ask(settled: Settled, name: str, ask: Callable[[], object]) -> None:
    """Ask vLLM: what it raises on purpose is its refusal; a question that this machine or this release cannot take is not checked."""
    try:
        ask()
    except (Refused, KvdoctorError):
        raise
    except user_code.SaysNo as no:
        raise _refused(settled, no.error, name) from no
    except Exception as error:
        if needs_gpu(error) or lacks_file(error) or is_accident(error) or any(isinstance(e, ImportError) for e in chain(error)):
            settled.not_checked(name, f"{type(error).__name__}: {first_line(error)}")
            return
        raise _refused(settled, error) from error


def _refused(settled: Settled, error: Exception, argument: str = "") -> Refused:
    """A refusal in vLLM's words; ``argument`` goes before words of Python's, which do not say what they are about."""
    # A KeyError shows its message as a quoted string.
    words = str(error.args[0]) if isinstance(error, KeyError) and error.args else words_of(error)
    settled.checks.append(Check(name=SERVE_ARGUMENTS, outcome="refused", note=None))
    message = f"{argument}: {words}" if argument else words
    return Refused(Refusal(stage=SERVE_ARGUMENTS, exception=type(error).__name__, message=message))


def _function(name: str) -> Callable[..., Any]:
    found = compat.serve_function(name)
    if found is None:
        raise ImportError(f"{name} has moved in this release", name=name)
    return found  # type: ignore[no-any-return]


def _leave_out_absent_files(settled: Settled, given: argparse.Namespace) -> None:
    """Take out of ``given`` the files that only the machine of the launch can have."""
    template = given.chat_template
    is_path = template and not any(mark in template for mark in "{}\n")
    if is_path and not Path(template).exists() and (Path(template).is_absolute() or template.startswith(_IMAGE_FOLDERS)):
        settled.not_checked(f"--chat-template {template}", NOT_ON_THIS_MACHINE)
        given.chat_template = None
    for name in _PATH_FLAGS:
        path = getattr(given, name, None)
        if path and not Path(path).exists():
            settled.not_checked(f"--{name.replace('_', '-')} {path}", NOT_ON_THIS_MACHINE)


def _check_port(settled: Settled, port: int) -> None:
    """A port that no socket takes; whether it is free is a matter of the machine of the launch."""
    if 0 <= port <= _LARGEST_PORT:
        return
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OverflowError as error:
            raise _refused(settled, error, f"--port {port}") from error


def _check_lora(settled: Settled, name: str, path: str) -> None:
    """An adapter that the server loads at its start: its config is read as vLLM reads it, its weights are not."""
    flag = f"--lora-modules {name}={path}"
    if settled.config.lora_config is None:
        from vllm.v1.worker.lora_model_runner_mixin import LoRAModelRunnerMixin

        _ask(settled, flag, lambda: LoRAModelRunnerMixin._ensure_lora_enabled(SimpleNamespace()))
        return
    place = Path(path).expanduser()
    if not place.exists() and (place.is_absolute() or re.fullmatch(r"[\w.-]*\w[\w.-]*(/[\w.-]*\w[\w.-]*)?", path)):
        settled.not_checked(flag, NOT_ON_THIS_MACHINE)  # relative and of one or two names: an id of the hub, too
        return
    _ask(settled, flag, lambda: _read_adapter(settled, flag, place))


def _read_adapter(settled: Settled, flag: str, place: Path) -> None:
    from vllm.lora.peft_helper import PEFTHelper

    try:
        PEFTHelper.from_local_dir(str(place), settled.config.model_config.max_model_len).validate_legal(settled.config.lora_config)
    except FileNotFoundError as error:
        raise _refused(settled, error, flag) from error


def _request_memory(settled: Settled) -> None:
    """A GPU never has all of its memory free, and a worker that is told to use all of it refuses to start (optional with 0.34's cache)."""
    from vllm.v1.worker.utils import request_memory

    total = settled.request.gpu.memory_bytes
    cache = settled.config.cache_config
    if request_memory(SimpleNamespace(total_memory=total, free_memory=total, device_="cuda:0"), cache) >= total:
        request_memory(SimpleNamespace(total_memory=total, free_memory=total - _CONTEXT_BYTES, device_="cuda:0"), cache)
