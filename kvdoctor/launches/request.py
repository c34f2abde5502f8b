"""What the user wants to launch."""

from dataclasses import dataclass
from typing import Any, Literal

from kvdoctor.launches.gpus import Gpu


@dataclass(frozen=True, kw_only=True)
class ModelReference:
    """Where a model's config is.

    ``path`` is the local directory that vLLM is given as the model, ``None`` for a hub id. ``text`` is what the user wrote, for the
    address of a hub's page the id in it. ``config`` is what a config file of another name holds, or a pipe: a worker lays it out as a
    directory for vLLM.
    """

    text: str
    kind: Literal["hub", "directory", "file"]
    path: str | None
    revision: str | None
    config: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """What vLLM is given as the model."""
        if self.path is not None:
            return self.path
        return self.text if self.revision is None else self.text.removesuffix(f"@{self.revision}")


@dataclass(frozen=True, kw_only=True)
class PrefixQuestion:
    """Requests whose prefix hits are asked for: so many prompts with the same ``shared_tokens`` in front, and a growing conversation."""

    shared_tokens: int
    prompt_tokens: int
    requests: int
    turns: int


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One launch to assess.

    ``model`` is ``None`` when ``specs`` (the parsed specs file) stands in for it. ``vllm_args`` are vLLM's own
    arguments without the model, which stood among them at ``model_position`` if a pasted command names it behind options;
    ``environment`` holds the ``VLLM_*`` variables that the user gave for this launch
    (those of the checking shell are not used). ``kv_cache_memory_bytes`` is an exact budget per GPU. ``varied_args`` are vLLM's arguments
    too, which must not be among the others. Those that ``left_out`` names, as vLLM's parser does, count as not given.
    """

    model: ModelReference | None
    specs: dict[str, Any] | None
    vllm_args: tuple[str, ...]
    environment: dict[str, str]
    gpu: Gpu
    usage: Literal["serve", "llm"]
    kv_cache_memory_bytes: int | None
    trust_remote_code: bool
    offline: bool
    model_position: int | None = None
    varied_args: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    prefix: PrefixQuestion | None = None

    @property
    def all_args(self) -> tuple[str, ...]:
        """All that is vLLM's, in the order in which its parser reads it."""
        return (*self.vllm_args, *self.varied_args)
