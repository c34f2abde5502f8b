"""What vLLM decided, as plain data: the result of a dry launch.

No vLLM object is in here. Every number is vLLM's own unless its docstring says otherwise; ``None`` means that the launch
was refused, or asked for, before vLLM settled it. Bytes and tokens are integers.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["passed", "refused", "not_checked"]

# The step in which ``vllm serve`` checks its own arguments, and why it may not check one of them: rules know these words.
SERVE_ARGUMENTS = "serve arguments"
NOT_ON_THIS_MACHINE = "is not on this machine"
NOT_A_PARSER = "is no tool parser of this release, and is never asked for without --enable-auto-tool-choice"


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """One layer's KV-cache spec.

    ``page_bytes`` is what a block of this layer takes, ``used_bytes`` the same without vLLM's padding.

    ``fields`` are the spec's own fields by vLLM's names, for the reader of the JSON; ``backend`` is ``None`` for specs given directly.
    """

    name: str
    spec: str
    kind: str
    block_size: int
    page_bytes: int
    used_bytes: int
    backend: str | None
    draft: bool
    fields: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """A KV-cache group: its layers (over all pipeline stages) share block tables.

    ``block_size`` is in tokens, as the scheduler allocates it. ``blocks_per_request`` is how many blocks of the group a request of
    ``max_model_len`` tokens holds at most; ``kernel_block_size`` what the attention kernels see.
    """

    spec: str
    kind: str
    block_size: int
    layers: tuple[LayerPlan, ...]
    prefix_cacheable: bool
    draft: bool
    blocks_per_request: int | None
    kernel_block_size: int | None


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One pipeline stage, per GPU.

    ``weights_bytes`` is summed from the meta model, the draft's included (``draft_weights_bytes`` is that part).

    ``group_layers[i]`` counts the stage's layers in group i. ``num_blocks`` and ``needed_bytes`` are vLLM's for this stage's worker.
    """

    index: int
    weights_bytes: int
    draft_weights_bytes: int
    kv_cache_bytes: int | None
    layer_count: int
    group_layers: tuple[int, ...]
    bytes_per_block: int | None


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """Which vLLM answered, and on which assumed device.

    ``libraries``: vLLM's own compiled libraries were ``loaded``, or ``stand-ins`` used.
    ``attention_backends`` maps a backend's name to the number of layers on it.
    """

    vllm_version: str
    torch_version: str
    transformers_version: str
    source: str
    platform: str
    compute_capability: str
    libraries: Literal["loaded", "stand-ins"]
    model_runner: str | None
    attention_backends: dict[str, int]
    kv_cache_layout: str | None


@dataclass(frozen=True, kw_only=True)
class LaunchFacts:
    """The launch as vLLM's configuration settled it, defaults included; ``None`` before there was a configuration."""

    model: str
    architecture: str | None
    model_type: str | None
    dtype: str | None
    quantization: str | None
    kv_cache_dtype: str | None
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    tensor_parallel_size: int | None
    pipeline_parallel_size: int | None
    decode_context_parallel_size: int | None
    data_parallel_size: int | None
    expert_parallel: bool | None
    prefix_caching: bool | None
    chunked_prefill: bool | None
    async_scheduling: bool | None
    mamba_cache_mode: str | None
    cudagraph_mode: str | None
    speculative_method: str | None
    num_speculative_tokens: int | None
    # vLLM 0.34: the cache is sized after warm-up from the memory then free, not before from a profile. ``None``: a release without it.
    extensible_kv_cache: bool | None = None
    # Of the whole model, before they are divided over ranks; latent attention has one.
    total_kv_heads: int | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryFacts:
    """The budget per GPU. ``kv_cache_source`` says who set it: the user, or kvdoctor's estimate.

    An estimate is ``gpu_bytes`` x ``gpu_memory_utilization`` less weights less ``allowance_bytes`` (explained in ``allowance_source``).
    ``weights_fit`` is ``False`` when nothing is left; the layout is then planned all the same, without capacity figures.
    """

    gpu_bytes: int
    gpu_memory_utilization: float | None
    weights_bytes: int | None
    kv_cache_bytes: int | None
    kv_cache_source: Literal["kv_cache_memory", "estimate"]
    allowance_bytes: int | None
    allowance_source: str | None
    weights_fit: bool | None
    needed_for_max_model_len_bytes: int | None
    estimated_max_model_len: int | None


@dataclass(frozen=True, kw_only=True)
class Check:
    """One of the steps a boot takes. ``note`` says why it was not checked, or what it settled."""

    name: str
    outcome: Outcome
    note: str | None


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """vLLM's own words: which step refused, with which exception.

    ``accident``: no check of vLLM's said no; its code failed (an attribute, a key, a type), which a boot may or may not meet.
    """

    stage: str
    exception: str
    message: str
    accident: bool = False


@dataclass(frozen=True, kw_only=True)
class RequestsAt:
    """How many requests of ``tokens`` tokens fit at once, by vLLM's own count: over all GPUs that serve a request together.

    ``group_blocks`` is what one of them holds at most, by group.
    """

    tokens: int
    requests: float
    group_blocks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """A line of vLLM's log; ``level`` is Python's level name."""

    level: str
    message: str


@dataclass(frozen=True, kw_only=True)
class PrefixHit:
    """A request that vLLM's scheduler served, and how much of its prompt came from the cache."""

    scenario: Literal["shared prefix", "conversation"]
    number: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The whole dry launch, from configuration to scheduler.

    ``given_arguments`` are the arguments that the user gave, by the names of vLLM's parser; a value that is no number, flag or short
    word is ``None`` there. ``usable_kv_cache_bytes`` is what vLLM compares with a request that does not fit: the budget less the block
    that it keeps for itself. ``requests_at`` has some usual lengths and, last, ``max_model_len``.
    """

    engine: EngineFacts
    launch: LaunchFacts
    memory: MemoryFacts
    stages: tuple[StagePlan, ...]
    layers: tuple[LayerPlan, ...]
    groups: tuple[GroupPlan, ...]
    scheduler_block_size: int | None
    hash_block_size: int | None
    prefix_hit_tokens: int | None
    min_reusable_prefix_tokens: int | None
    num_blocks: int | None
    bytes_per_block: int | None
    kv_cache_tokens: int | None
    max_concurrency: float | None
    checks: tuple[Check, ...]
    assumptions: tuple[str, ...]
    refusal: Refusal | None
    vllm_log: tuple[LogRecord, ...]
    given_arguments: dict[str, Any] = field(default_factory=dict)
    usable_kv_cache_bytes: int | None = None
    # Only where they were asked for.
    prefix_hits: tuple[PrefixHit, ...] = ()
    requests_at: tuple[RequestsAt, ...] = ()
