"""What an engine is to the rest of the program."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A vLLM that can answer: the interpreter it runs in, and where it came from.

    ``path`` comes before all else that the interpreter imports from: a fetched release, or a checkout. ``vllm_version`` is ``None`` until
    a worker of it has reported. ``notes`` are told to the user once. ``dependency_notes`` say where what it runs on is not what it asks
    for, as far as that can change an answer: they belong to the report's assumptions. ``built_like`` is the package of another vLLM, where
    ``path`` is a checkout that was never built: what a build adds is taken from there.
    """

    python: str
    source: str
    vllm_version: str | None
    notes: tuple[str, ...]
    path: tuple[str, ...] = ()
    dependency_notes: tuple[str, ...] = ()
    built_like: str | None = None
