"""What follows ``--`` on kvdoctor's command line: vLLM's own arguments, or the whole command that starts vLLM."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from kvdoctor.errors import BadRequest
from kvdoctor.launches.container import container_at, read_container
from kvdoctor.launches.late_model import find_late_model
from kvdoctor.launches.shell_text import split_commands, split_words

__all__ = ["VllmCommand", "parse_vllm_command", "split_words"]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(?!=)(.*)", re.DOTALL)
_API_SERVER = "vllm.entrypoints.openai.api_server"
_CLI_MODULES = ("vllm.entrypoints.cli.main", "vllm")
# Programs that start the one named after them and change nothing that is planned; of the others a note is made.
_WRAPPERS = ("env", "exec", "export", "nice", "nohup", "stdbuf", "sudo", "time", "uv", "uvx")
_SHELLS = ("bash", "dash", "sh", "zsh")
_SERVE_HINT = "Put the model before --, and after it only vLLM's own arguments or the whole `vllm serve ...` line."
_PASTE_HINT = "Paste it without the quotes around it."


@dataclass(frozen=True, kw_only=True)
class VllmCommand:
    """A launch as it was written: the model if it was named, vLLM's arguments without it, and the variables set in front.

    ``model_position`` is where among ``arguments`` the model stood, if behind some of them: only vLLM's parser can tell whether it was no
    option's value. ``left_out`` names what plays no part: variables that are not vLLM's, an unknown program in front. ``image`` is the
    container's, ``release`` the vLLM that its tag names.
    """

    model: str | None
    arguments: tuple[str, ...]
    environment: dict[str, str]
    left_out: tuple[str, ...] = ()
    model_position: int | None = None
    image: str | None = None
    release: str | None = None


@dataclass(kw_only=True)
class _Front:
    """What stands in front of the server."""

    environment: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    image: str | None = None
    release: str | None = None

    def assign(self, name: str, value: str) -> None:
        if name.startswith("VLLM_"):
            self.environment[name] = value
        elif name not in self.left_out:
            self.left_out.append(name)

    def lose(self) -> None:
        """Forget the variables set so far: they do not reach what is started."""
        self.left_out += self.environment
        self.environment.clear()


def parse_vllm_command(words: Sequence[str]) -> VllmCommand:
    """Read ``words`` as ``[VAR=VALUE ...] vllm serve MODEL ARGS``, as another form of it, or as vLLM's arguments alone.

    The other forms: ``python -m``, programs such as ``env``, ``sudo`` or ``uv run`` in front, a shell's ``-c``, and ``docker run``.
    """
    front = _Front()
    rest = _split_quoted(list(words))
    run = None if rest and rest[0].startswith("-") else container_at(rest)
    serves = False
    if run is not None:
        _read_front(rest[: run[0]], front)
        front.lose()
        container = read_container(rest[run[1] :])
        front.image, front.release = container.image, container.release
        for name, value in container.environment.items():
            front.assign(name, value)
        front.left_out += [*container.passed, *(f"--env-file {file}" for file in container.env_files)]
        rest, serves = container.words, container.serves
    start = _start_of_server(rest := _split_script(rest))
    if start is not None:
        _read_front(rest[: start[0]], front)
        return _command(rest[start[1] :], front)
    if serves:
        return _command(rest, front)
    if front.image is not None:
        raise BadRequest(f"nothing tells that the container of {front.image} serves with vLLM", hint="Paste the `vllm serve ...` line.")
    at = _arguments_at(rest)
    _read_front(rest[:at], front)
    _refuse_stray_words(rest[at:])
    return _made(front, model=None, arguments=rest[at:])


def words_of_text(text: str, what: str, *, hint: str) -> list[str]:
    """Split text that holds vLLM's arguments, or the command that starts it among others, into the words of that command."""
    commands = split_commands(text, what, hint=hint)
    served = [command for command in commands if _start_of_server(command) is not None or container_at(command) is not None]
    if not served:
        return [word for command in commands[:1] for word in command]
    exported = [word for command in commands[: commands.index(served[0])] if command[0] == "export" for word in command]
    return [*exported, *served[0]]


def _command(words: Sequence[str], front: _Front) -> VllmCommand:
    model, arguments, position = _take_model(list(words))
    return _made(front, model=model, arguments=arguments, position=position)


def _made(front: _Front, *, model: str | None, arguments: Sequence[str], position: int | None = None) -> VllmCommand:
    return VllmCommand(
        model=model,
        arguments=tuple(arguments),
        environment=front.environment,
        left_out=tuple(dict.fromkeys(front.left_out)),
        model_position=position,
        image=front.image,
        release=front.release,
    )


def _split_quoted(words: list[str]) -> list[str]:
    """Split a command that is given as one quoted string, over several lines perhaps."""
    if len(words) == 1 and not words[0].startswith("-") and re.search(r"\s(serve|-m|run)\s", words[0]):
        return words_of_text(words[0], "the command after --", hint=_PASTE_HINT)
    return words


def _split_script(words: list[str]) -> list[str]:
    """Put the words of a shell's ``-c`` in its place."""
    for at, word in enumerate(words[:-2]):
        if PurePath(word).name in _SHELLS and re.fullmatch(r"-[a-z]*c[a-z]*", words[at + 1]):
            return [*words[:at], *words_of_text(words[at + 2], "the script after -c", hint="Paste its `vllm serve ...` line alone.")]
    return words


def _start_of_server(words: Sequence[str]) -> tuple[int, int] | None:
    """Find where the program that serves begins and its own arguments do; ``None`` when there is only a list of arguments."""
    if words and words[0].startswith("-"):
        return None
    for at, word in enumerate(words):
        length = _program_length(words[at:], word)
        if length:
            return at, at + length
    return None


def _program_length(words: Sequence[str], word: str) -> int:
    """Count the words that start vLLM's server; 0 when ``words`` do not begin with it."""
    program = PurePath(word).name
    if program == "vllm" and list(words[1:2]) == ["serve"]:
        return 2
    if re.fullmatch(r"python[0-9.]*", program) and "-m" in words[:4]:
        module = list(words).index("-m") + 1
        name, after = list(words[module : module + 1]), list(words[module + 1 : module + 2])
        if name == [_API_SERVER]:
            return module + 1
        if name and name[0] in _CLI_MODULES and after == ["serve"]:
            return module + 2
    return 0


def _read_front(words: Sequence[str], front: _Front) -> None:
    """Read what stands in front of the server: variables, and programs that start it."""
    program = ""
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if assignment := _ASSIGNMENT.fullmatch(word):
            front.assign(assignment[1], assignment[2])
        elif PurePath(word).name == "sudo" and not _keeps_variables(waiting):
            program = "sudo"
            front.lose()
        elif PurePath(word).name in _WRAPPERS:
            program = PurePath(word).name
        elif program == "env" and word in ("-i", "-", "--ignore-environment"):
            front.lose()
        elif program == "env" and (unset := _unset(word, waiting)):
            front.environment.pop(unset, None)
        elif not program:
            program = word
            front.left_out.append(word)


def _keeps_variables(options: Sequence[str]) -> bool:
    return any(word == "-E" or word.startswith("--preserve-env") for word in options)


def _unset(word: str, waiting: list[str]) -> str | None:
    """Give the variable that ``env`` is told to unset."""
    if word in ("-u", "--unset"):
        return waiting.pop(0) if waiting else None
    for start in ("--unset=", "-u"):
        if word.startswith(start):
            return word.removeprefix(start)
    return None


def _arguments_at(words: Sequence[str]) -> int:
    """Count the variables in front of arguments that stand alone."""
    at = 1 if list(words[:1]) in (["env"], ["export"]) else 0
    while at < len(words) and _ASSIGNMENT.fullmatch(words[at]):
        at += 1
    return at


def _take_model(words: list[str]) -> tuple[str | None, list[str], int | None]:
    """Take the model out of a server's arguments: the first word, ``--model``, or a word behind options."""
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
        return value if equals else rest[at + 1], rest[:at] + rest[at + taken :], None
    if model is None and (late := find_late_model(rest)) is not None:
        return rest[late], rest[:late] + rest[late + 1 :], late
    return model, rest, None


def _refuse_stray_words(words: Sequence[str]) -> None:
    if not words or words[0].startswith("-"):
        return
    program = PurePath(words[0]).name
    if program == "vllm" or (re.fullmatch(r"python[0-9.]*", program) and "-m" in words[:4]):
        raise BadRequest(f"{' '.join(words[:3])!r} does not start a server", hint="Paste the `vllm serve ...` line.")
    raise BadRequest(f"{words[0]!r} after -- is neither one of vLLM's options nor the start of a `vllm serve` command", hint=_SERVE_HINT)
