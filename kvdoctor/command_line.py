"""What follows ``--`` on kvdoctor's command line: vLLM's own arguments, or the whole command that starts vLLM."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from kvdoctor.errors import BadRequest

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_API_SERVER = "vllm.entrypoints.openai.api_server"
_CLI_MODULES = ("vllm.entrypoints.cli.main", "vllm")


@dataclass(frozen=True, kw_only=True)
class VllmCommand:
    """A launch as it was written: the model if it was named, vLLM's arguments without it, and the variables set in front.

    ``ignored_variables`` are those that are not vLLM's.
    """

    model: str | None
    arguments: tuple[str, ...]
    environment: dict[str, str]
    ignored_variables: tuple[str, ...]


def parse_vllm_command(words: Sequence[str]) -> VllmCommand:
    """Read ``words`` as ``[VAR=VALUE ...] vllm serve MODEL ARGS``, as the module form of it, or as vLLM's arguments alone."""
    words = _split_quoted(list(words))
    environment: dict[str, str] = {}
    ignored: list[str] = []
    at = 1 if words[:1] == ["env"] else 0
    while at < len(words) and (assignment := _ASSIGNMENT.fullmatch(words[at])):
        if assignment[1].startswith("VLLM_"):
            environment[assignment[1]] = assignment[2]
        else:
            ignored.append(assignment[1])
        at += 1
    rest = words[at:]
    length = _program_length(rest)
    if length == 0:
        _refuse_stray_words(rest)
        return VllmCommand(model=None, arguments=tuple(rest), environment=environment, ignored_variables=tuple(ignored))
    model, arguments = _take_model(rest[length:])
    return VllmCommand(model=model, arguments=tuple(arguments), environment=environment, ignored_variables=tuple(ignored))


def split_words(text: str, what: str) -> list[str]:
    """Split words as a shell does; ``what`` names the text in the error."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadRequest(f"{what} {text!r} cannot be split: {error}", hint="Write it as on a shell's command line, in quotes.") from None


def has_flag(arguments: Sequence[str], *names: str) -> bool:
    """Tell whether one of vLLM's flags is among ``arguments``, in either of the spellings that vLLM takes."""
    given = {word.partition("=")[0].replace("_", "-") for word in arguments if word.startswith("-")}
    return any(name in given for name in names)


def _split_quoted(words: list[str]) -> list[str]:
    """Split a command that is given as one quoted string, over several lines perhaps."""
    if len(words) == 1 and not words[0].startswith("-") and re.search(r"\s(serve|-m)\s", words[0]):
        try:
            return shlex.split(words[0].replace("\\\n", " "), comments=True)
        except ValueError as error:
            raise BadRequest(f"the command after -- cannot be split: {error}", hint="Paste it without the quotes around it.") from None
    return words


def _program_length(words: list[str]) -> int:
    """Count the words that start vLLM's server; 0 when ``words`` are arguments only."""
    if not words or words[0].startswith("-"):
        return 0
    program = PurePath(words[0]).name
    if program == "vllm":
        return _after_serve(words, 1)
    if re.fullmatch(r"python[0-9.]*", program) and "-m" in words[:4]:
        module = words.index("-m") + 1
        if words[module : module + 1] == [_API_SERVER]:
            return module + 1
        if words[module : module + 1] and words[module] in _CLI_MODULES:
            return _after_serve(words, module + 1)
    return 0


def _after_serve(words: list[str], at: int) -> int:
    if words[at : at + 1] != ["serve"]:
        given = " ".join(words[: at + 1])
        raise BadRequest(f"{given!r} does not start a server", hint="Paste the `vllm serve ...` line.")
    return at + 1


def _take_model(words: list[str]) -> tuple[str | None, list[str]]:
    """Take the model out of a server's arguments: the first word, or ``--model``."""
    model, rest = None, list(words)
    if rest and not rest[0].startswith("-"):
        model, rest = rest[0], rest[1:]
    for at, word in enumerate(rest):
        name, equals, value = word.partition("=")
        if name != "--model":
            continue
        taken = 1 if equals else 2
        if len(rest) < at + taken:
            raise BadRequest("--model has no value in the pasted command", hint="Put the model right after `vllm serve`.")
        if model is not None:
            raise BadRequest("the pasted command names its model twice", hint="Put the model right after `vllm serve`, without --model.")
        return value if equals else rest[at + 1], rest[:at] + rest[at + taken :]
    return model, rest


def _refuse_stray_words(words: list[str]) -> None:
    if words and not words[0].startswith("-"):
        raise BadRequest(
            f"{words[0]!r} after -- is neither one of vLLM's options nor the start of a `vllm serve` command",
            hint="Put the model before --, and after it only vLLM's own arguments or the whole `vllm serve ...` line.",
        )
