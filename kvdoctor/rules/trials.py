"""What rules would have tried: changes of the launch, and what makes one of them a success.

A candidate is a guess, and no advice: it becomes advice when vLLM has planned it and taken it (``kvdoctor/suggest.py``).
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kvdoctor.layout import Layout
from kvdoctor.rules.interface import RuleContext
from kvdoctor.rules.refusal_text import (
    BlockExceedsBatch,
    ChunkDoesNotFit,
    HeadsNotDivisible,
    RingDoesNotDivide,
    TooManySequences,
    UnitInvalid,
)
from kvdoctor.waste import empty_percent

_BATCHES = (4096, 2048, 1024)
_MORE_UTILIZATION = 0.95
# The block sizes that attention backends take, and multiples of them that suit large states.
_BLOCKS = (16, 32, 64, 128, 256, 512)
_NOTICEABLE = 1.0
_RANKS = "tensor_parallel_size"


@dataclass(frozen=True, kw_only=True)
class Change:
    """Arguments to put behind the others, and those to take away (by the names of vLLM's parser)."""

    arguments: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The change as advice shows it."""
        without = [f"without --{name.replace('_', '-')}" for name in self.left_out]
        return ", ".join([*([" ".join(self.arguments)] if self.arguments else []), *without])


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Candidates in the order in which the rule prefers them. ``better`` compares the layout of one that launches with today's."""

    changes: tuple[Change, ...]
    better: Callable[[Layout, Layout, int | None], bool] | None = None
    rank: Callable[[Layout, int | None], float] | None = None


def trial_for(rule: str, context: RuleContext) -> Trial | None:
    """What the rule would have tried on this launch; ``None`` where it has nothing."""
    propose = _PROPOSALS.get(rule)
    trial = None if propose is None else propose(context)
    return trial if trial is not None and trial.changes else None


def _set(name: str, *values: Any) -> list[Change]:
    return [Change(arguments=(f"--{name}", str(value))) for value in values]


def _without(name: str, context: RuleContext) -> list[Change]:
    return [Change(left_out=(name,))] if name in context.plan.given_arguments else []


def _trial(*changes: Iterable[Change], **options: Any) -> Trial:
    return Trial(changes=tuple(dict.fromkeys(change for some in changes for change in some)), **options)


def _hash(context: RuleContext) -> Trial:
    switch = Change(arguments=("--no-enable-prefix-caching",))
    align = _set("mamba-cache-mode", "align") if context.plan.launch.mamba_cache_mode not in (None, "align") else []
    return _trial(align, [switch], _without("speculative_config", context))


def _refused(context: RuleContext) -> Trial:
    """Of a refusal without a rule of its own, each argument that was given is left out in turn: those first that its words are about."""
    message = context.plan.refusal.message.replace("-", "_") if context.plan.refusal else ""
    names = sorted(context.plan.given_arguments, key=lambda name: name not in message)
    return _trial(*(_less_of(name, context) for name in names))


def _less_of(name: str, context: RuleContext) -> list[Change]:
    """Leave an argument out; of the ranks, which the memory may need, take half."""
    ranks = context.plan.launch.tensor_parallel_size or 1
    return _set("tensor-parallel-size", ranks // 2) if name == _RANKS and ranks > 1 else _without(name, context)


def _pages(context: RuleContext) -> Trial:
    return _trial(*(_without(name, context) for name in ("kv_cache_dtype", "block_size", "speculative_config")))


def _unit(context: RuleContext) -> Trial:
    refused = context.refusal
    units = _divisors(min(refused.block_sizes))[:3] if isinstance(refused, UnitInvalid) and refused.block_sizes else []
    return _trial(_set("prefix-match-unit", *units), _without("prefix_match_unit", context))


def _batch(context: RuleContext) -> Trial:
    refused = context.refusal
    return _trial(_set("max-num-batched-tokens", refused.block_size) if isinstance(refused, BlockExceedsBatch) else [])


def _ranks(context: RuleContext) -> Trial:
    refused = context.refusal
    if not isinstance(refused, HeadsNotDivisible):
        return _trial()
    name = refused.argument.replace("_", "-")
    if refused.limit is not None:
        return _trial(_set(name, refused.limit))
    if refused.what == "KV heads":
        return _trial(_set("decode-context-parallel-size", 1), _set(name, 2 * (refused.heads or 0)))
    sizes = _divisors(refused.heads or 1)
    smaller = [size for size in sizes if size < refused.size][:2]
    larger = [size for size in reversed(sizes) if size > refused.size][:2]
    return _trial(_set(name, *smaller[:1], *larger[:1], *smaller[1:], *larger[1:]))


def _kernel(context: RuleContext) -> Trial:
    if isinstance(context.refusal, RingDoesNotDivide):
        speculation = _json_argument(context, "num_speculative_tokens")
        tokens = int(speculation["num_speculative_tokens"]) if speculation else 0
        fewer = [{**speculation, "num_speculative_tokens": number} for number in range(tokens - 1, 0, -1)] if speculation else []
        return _trial(*(_set("speculative-config", json.dumps(one)) for one in fewer[:4]))
    given = context.plan.given_arguments.get("block_size")
    near = sorted(_BLOCKS, key=lambda size: abs(size - given) if isinstance(given, int) else size)[:3]
    return _trial(_without("block_size", context), _set("block-size", *near))


def _padding(context: RuleContext) -> Trial:
    given = context.plan.given_arguments.get("block_size")
    sizes = [size for size in _BLOCKS if size != given][-3:]
    return _trial(_without("block_size", context), _set("block-size", *sizes), better=_less_empty, rank=_empty)


def _inflated(context: RuleContext) -> Trial:
    return _trial(_without("block_size", context), better=_smaller_block, rank=_empty)


def _copies(context: RuleContext) -> Trial:
    launch, latent = context.plan.launch, any(group.kind.endswith("mla") for group in context.layout.groups)
    ranks, heads = launch.tensor_parallel_size or 1, 1 if latent else launch.total_kv_heads or 1
    return _trial(_set("decode-context-parallel-size", ranks // heads), better=_more_tokens)


def _coarse(context: RuleContext) -> Trial:
    hash_block = context.layout.hash_block_size
    if hash_block is None or context.plan.launch.mamba_cache_mode != "align" or "prefix_match_unit" in context.plan.given_arguments:
        return _trial()
    units = [unit for unit in reversed(_divisors(hash_block)) if unit % _BLOCKS[0] == 0 and unit < hash_block][:2]
    return _trial(_set("prefix-match-unit", *units), better=_shorter_prefix, rank=lambda layout, _: layout.min_reusable_prefix_tokens or 0)


def _context(context: RuleContext) -> Trial:
    launch, memory = context.plan.launch, context.plan.memory
    batches = [size for size in _BATCHES if launch.max_num_batched_tokens and size < launch.max_num_batched_tokens]
    windows = any(group.kind.startswith(("sliding_window", "chunked")) for group in context.plan.groups)
    largest = memory.estimated_max_model_len
    return _trial(
        _without("disable_hybrid_kv_cache_manager", context),
        _set("max-num-batched-tokens", *batches[:2]) if windows else [],
        _more_memory(context),
        _set("kv-cache-dtype", "fp8") if launch.kv_cache_dtype == "auto" else [],
        _set("max-model-len", largest) if largest else [],
        _more_gpus(context),
    )


def _sequences(context: RuleContext) -> Trial:
    refused = context.refusal
    return _trial(_set("max-num-seqs", refused.num_blocks) if isinstance(refused, TooManySequences) else [], _more_memory(context))


def _weights(context: RuleContext) -> Trial:
    return _trial(_more_memory(context), _more_gpus(context), _more_gpus(context, times=4))


def _windows(context: RuleContext) -> Trial:
    batch = context.plan.launch.max_num_batched_tokens or 0
    return _trial(_set("max-num-batched-tokens", *(size for size in (*_BATCHES, 512) if size < batch)))


def _manager(context: RuleContext) -> Trial:
    on = Change(arguments=("--no-disable-hybrid-kv-cache-manager",), left_out=())
    return _trial(_without("disable_hybrid_kv_cache_manager", context), [on], _without("kv_transfer_config", context))


def _chunk(context: RuleContext) -> Trial:
    refused, transfer = context.refusal, _json_argument(context, "kv_connector")
    if not isinstance(refused, ChunkDoesNotFit) or transfer is None:
        return _trial()
    extra = {**transfer.get("kv_connector_extra_config", {}), "block_size": refused.use}
    return _trial(_set("kv-transfer-config", json.dumps({**transfer, "kv_connector_extra_config": extra})))


def _more_memory(context: RuleContext) -> list[Change]:
    """More of the GPU, where the budget follows from that."""
    memory, given = context.plan.memory, context.plan.given_arguments
    share = memory.gpu_memory_utilization
    if memory.kv_cache_source != "estimate" or share is None or share >= _MORE_UTILIZATION or "num_gpu_blocks_override" in given:
        return []
    return _set("gpu-memory-utilization", _MORE_UTILIZATION)


def _more_gpus(context: RuleContext, times: int = 2) -> list[Change]:
    ranks = context.plan.launch.tensor_parallel_size
    return _set("tensor-parallel-size", times * ranks) if ranks and context.request.model is not None else []


def _json_argument(context: RuleContext, key: str) -> dict[str, Any] | None:
    """The argument whose value is a JSON object that has ``key``."""
    for word in reversed(context.request.all_args):
        try:
            value = json.loads(word[word.find("{") :]) if "{" in word else None
        except ValueError:
            continue
        if isinstance(value, dict) and key in value:
            return value
    return None


def _divisors(number: int) -> list[int]:
    return [size for size in range(number, 0, -1) if number % size == 0]


def _empty(layout: Layout, longest: int | None) -> float:
    share = empty_percent(layout, longest)
    return 100.0 if share is None else share


def _less_empty(layout: Layout, today: Layout, longest: int | None) -> bool:
    return _empty(layout, longest) < _empty(today, longest) - _NOTICEABLE


def _more_tokens(layout: Layout, today: Layout, _longest: int | None) -> bool:
    return (layout.kv_cache_tokens or 0) > (today.kv_cache_tokens or 0)


def _smaller_block(layout: Layout, today: Layout, _longest: int | None) -> bool:
    return (layout.scheduler_block_size or 0) < (today.scheduler_block_size or 0)


def _shorter_prefix(layout: Layout, today: Layout, _longest: int | None) -> bool:
    now, then = layout.min_reusable_prefix_tokens, today.min_reusable_prefix_tokens
    return now is not None and (then is None or now < then)


_PROPOSALS: dict[str, Callable[[RuleContext], Trial]] = {
    "KV101": _hash,
    "KV102": _pages,
    "KV103": _refused,
    "KV104": _unit,
    "KV105": _batch,
    "KV106": _ranks,
    "KV107": _kernel,
    "KV109": _refused,
    "KV201": _padding,
    "KV203": _inflated,
    "KV204": _copies,
    "KV302": _coarse,
    "KV401": _context,
    "KV402": _sequences,
    "KV405": _weights,
    "KV407": _windows,
    "KV501": _manager,
    "KV503": _chunk,
}
