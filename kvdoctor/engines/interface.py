"""What an engine is to the rest of the program."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A vLLM that can answer: the interpreter it runs in, and where it came from.

    ``vllm_version`` is ``None`` until a worker of it has reported. ``notes`` are told to the user once.
    """

    python: str
    source: str
    vllm_version: str | None
    notes: tuple[str, ...]
