"""``docker run ... IMAGE ...`` (or podman, nerdctl), read for what vLLM is given inside the container."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from kvdoctor.errors import BadRequest

_RUNNERS = ("docker", "podman", "nerdctl")
# The options of `docker run` that take no value; every other one does, attached or as the next word.
_BARE = frozenset(
    {
        "detach", "disable-content-trust", "env-host", "help", "init", "interactive", "no-healthcheck", "no-hostname", "no-hosts",
        "oom-kill-disable", "privileged", "publish-all", "quiet", "read-only", "replace", "rm", "rmi", "sig-proxy", "tty",
    }
)  # fmt: skip
_BARE_LETTERS = frozenset("ditPq")
_RELEASE_TAG = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+(?:rc[0-9]+|\.post[0-9]+)?)(?:[-+].*)?", re.ASCII)


@dataclass(kw_only=True)
class Container:
    """What a ``docker run`` says of the launch. ``serves`` tells that the image's own start is vLLM's server, and ``words`` go to it.

    ``passed`` names the variables that are handed on from the shell around it.
    """

    image: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    env_files: list[str] = field(default_factory=list)
    entrypoint: str | None = None
    words: list[str] = field(default_factory=list)

    @property
    def serves(self) -> bool:
        """The image starts vLLM by itself."""
        return self.entrypoint is None and "vllm" in self.image

    @property
    def release(self) -> str | None:
        """The release that the image's tag names: ``v0.33.0``, ``v0.33.0-cu129``."""
        name, _, tag = self.image.partition("@")[0].rpartition(":")
        found = _RELEASE_TAG.fullmatch(tag) if name and "vllm" in name else None
        return found[1] if found else None


def container_at(words: Sequence[str]) -> tuple[int, int] | None:
    """Find where ``docker run`` begins and where it ends; ``None`` when no container is started."""
    for at, word in enumerate(words):
        if PurePath(word).name in _RUNNERS:
            after = at + 2 if words[at + 1 : at + 2] == ["container"] else at + 1
            return (at, after + 1) if words[after : after + 1] == ["run"] else None
    return None


def read_container(words: Sequence[str]) -> Container:
    """Read the words after ``docker run``."""
    found = Container()
    waiting = list(words)
    while waiting and waiting[0].startswith("-"):
        word = waiting.pop(0)
        if word == "--":
            break
        for name, value in _option(word, waiting):
            _note(found, name, value)
    if not waiting:
        raise BadRequest("the pasted command starts a container and names no image", hint="Paste the whole `docker run ...` line.")
    found.image = waiting.pop(0)
    found.words = [*([found.entrypoint] if found.entrypoint else []), *waiting]
    return found


def _option(word: str, waiting: list[str]) -> list[tuple[str, str]]:
    """Give an option's name and value, taking the value from ``waiting`` when it is the next word."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if not equals and name not in _BARE:
            value = waiting.pop(0) if waiting else ""
        return [(name, value)]
    for at, letter in enumerate(word[1:], start=1):
        if letter not in _BARE_LETTERS:
            attached = word[at + 1 :].removeprefix("=")
            return [(letter, attached or (waiting.pop(0) if waiting else ""))]
    return []


def _note(found: Container, name: str, value: str) -> None:
    if name in ("e", "env"):
        variable, equals, text = value.partition("=")
        if equals:
            found.environment[variable] = text
        else:
            found.passed.append(variable)
    elif name == "env-file":
        found.env_files.append(value)
    elif name == "entrypoint":
        found.entrypoint = value
