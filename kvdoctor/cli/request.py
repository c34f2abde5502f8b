"""From the command line's words to a LaunchRequest, with everything checked that needs no vLLM."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kvdoctor.cli.console import hide
from kvdoctor.errors import BadRequest
from kvdoctor.json_file import read_json_object
from kvdoctor.launches.command_line import VllmCommand, parse_vllm_command, words_of_text
from kvdoctor.launches.gpus import DEFAULT_GPU, Gpu, find_gpu
from kvdoctor.launches.model_folder import LAUNCH_FILE, untaken_keys
from kvdoctor.launches.model_reference import find_model
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.launches.sizes import parse_size
from kvdoctor.text_file import read_text

_ARGS_FILE = "vLLM's arguments as on a shell's command line"


@dataclass(frozen=True, kw_only=True)
class Common:
    """What every launch of a command shares. ``vllm_arguments`` are the words behind ``--`` and in ``--args-file``."""

    vllm_arguments: tuple[str, ...]
    vllm: str | None
    gpu: str | None
    kv_cache_memory: str | None
    usage: Literal["serve", "llm"]
    specs: Path | None
    trust_remote_code: bool
    offline: bool
    note: Callable[[str], None]
    launch_file_taken: bool = False

    def request(
        self,
        model: str | None,
        *,
        more_arguments: Sequence[str] = (),
        varied_arguments: Sequence[str] = (),
        gpu: str | None = None,
        kv_cache_memory: str | None = None,
    ) -> LaunchRequest:
        """Make the request of one launch. ``more_arguments`` are vLLM's too, after the others: the last of two counts."""
        hide((*self.vllm_arguments, *more_arguments, *varied_arguments), {})
        command = _extended(parse_vllm_command(self.vllm_arguments), more_arguments)
        hide(command.arguments, command.environment)
        if command.left_out:
            self.note(f"not vLLM's, and left out of account: {', '.join(command.left_out)}")
        _note_exported(command, self.note)
        text = _one_model(model, command, self.specs)
        assumed = _gpu(gpu or self.gpu or DEFAULT_GPU, self.note)
        budget = kv_cache_memory or self.kv_cache_memory
        if text is not None and not self.launch_file_taken:
            keys = untaken_keys(text, gpu=assumed.name, args=command.arguments)
            if keys:
                self.note(f"not taken from the {LAUNCH_FILE} beside the model, which `compare --all` reads: {', '.join(keys)}")
        return LaunchRequest(
            model=None if text is None else find_model(text),
            specs=read_json_object(self.specs, what="a file of layer specs", unique_keys=True) if self.specs else None,
            vllm_args=command.arguments,
            environment=command.environment,
            gpu=assumed,
            usage=self.usage,
            kv_cache_memory_bytes=None if budget is None else parse_size(budget, "--kv-cache-memory"),
            trust_remote_code=self.trust_remote_code,
            offline=self.offline,
            model_position=command.model_position,
            varied_args=tuple(varied_arguments),
        )


def common(
    after: Sequence[str] | None,
    args_file: Path | None,
    *,
    vllm: str | None,
    gpu: str | None,
    kv_cache_memory: str | None,
    usage: Literal["serve", "llm"],
    specs: Path | None,
    trust_remote_code: bool,
    offline: bool,
    note: Callable[[str], None],
) -> Common:
    """Put together what the launches of a command share; ``after`` are the words behind ``--``."""
    words = given_words(after, args_file)
    return Common(
        vllm_arguments=tuple(words),
        vllm=named_engine(vllm, words, note=note),
        gpu=gpu,
        kv_cache_memory=kv_cache_memory,
        usage=usage,
        specs=specs,
        trust_remote_code=trust_remote_code,
        offline=offline,
        note=note,
    )


def given_words(after: Sequence[str] | None, args_file: Path | None) -> list[str]:
    """Put the words of ``--args-file`` before those after ``--``, so that the last of two counts."""
    words = list(after or ())
    hide(words, {})
    if args_file is None:
        return words
    text = read_text(args_file, what=_ARGS_FILE)
    hint = "Write it as on a shell's command line: quotes, # comments and lines continued with \\ are read."
    given = words_of_text(text, f"--args-file {args_file}", hint=hint)
    hide(given, {})
    if given and words and not words[0].startswith("-"):
        raise BadRequest(
            "a whole command stands after --, and --args-file gives more",
            hint="Put the command into the file, and after -- only vLLM's own arguments.",
        )
    return [*given, *words]


def named_engine(vllm: str | None, words: Sequence[str], *, note: Callable[[str], None]) -> str | None:
    """Give the engine that ``--vllm`` names or, without it, the tag of the container image in a pasted command."""
    command = parse_vllm_command(words)
    hide(command.arguments, command.environment)
    if command.image is None:
        return vllm
    if vllm is not None:
        note(f"the image {command.image} is left out of account, for --vllm {vllm}")
    elif command.release is None:
        note(f"the image {command.image} names no vLLM release: the installed vLLM answers (--vllm names another)")
    else:
        note(f"vLLM {command.release} answers, as the image {command.image} says")
        return command.release
    return vllm


def _gpu(text: str, note: Callable[[str], None]) -> Gpu:
    found = find_gpu(text)
    if found.name != text.strip().lower().replace("_", "-") and found.name != text.strip():
        note(f"--gpu {text} is taken for {found.name}: {found.device_name}, {found.memory_bytes / 2**30:.2f} GiB")
    return found


# Where vLLM keeps its files, and how it logs: no plan depends on them.
_PLACES = frozenset({"VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_ASSETS_CACHE", "VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS"})


def _note_exported(command: VllmCommand, note: Callable[[str], None]) -> None:
    """Name the variables of this shell that a launch from it would get, and this one does not. Their values may be secrets."""
    known = {*command.environment, *_PLACES}
    exported = sorted(name for name in os.environ if name.startswith("VLLM_") and name not in known)
    if exported:
        note(f"not taken from this shell: {', '.join(exported)} (a launch's variables stand after --, in front of its arguments)")


def _extended(command: VllmCommand, more_arguments: Sequence[str]) -> VllmCommand:
    if not more_arguments:
        return command
    more = parse_vllm_command(more_arguments)
    if more.model is not None:
        raise BadRequest(
            f"a whole command is given where only arguments fit: vllm serve {more.model}", hint="Give vLLM's arguments, without the model."
        )
    return replace(
        command,
        arguments=command.arguments + more.arguments,
        environment=command.environment | more.environment,
        left_out=command.left_out + more.left_out,
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
