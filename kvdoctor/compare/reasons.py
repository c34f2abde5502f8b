"""Why something changed, where vLLM's log or the arguments say so; nothing is guessed."""

import re
from collections.abc import Iterable

from kvdoctor.compare.interface import Change, Reason, Value, Which
from kvdoctor.diagnosis import Diagnosis
from kvdoctor.plan import LogRecord

GROUPS = "groups"
_BLOCKS = ("group_blocks", "layout.scheduler_block_size", "layout.hash_block_size", GROUPS)

# What a line of vLLM's log is about: words in it, and the keys of the changes that it tells of.
_TOPICS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), keys)
    for pattern, keys in (
        (r"attention block size|mamba page size|block[_ ]size|prefix_match_unit", _BLOCKS),
        (r"hybrid KV cache manager|padding layers|kv cache group|kv lcm block", _BLOCKS),
        (r"mamba cache mode|mamba_cache_mode", ("launch.mamba_cache_mode",)),
        (r"max_num_batched_tokens", ("launch.max_num_batched_tokens",)),
        (r"max_num_seqs", ("launch.max_num_seqs",)),
        (r"max[_ ]model[_ ]len|maximum model length", ("launch.max_model_len",)),
        (r"prefix[_ ]caching", ("layout.prefix_caching", "launch.mamba_cache_mode")),
        (r"chunked[_ ]prefill", ("launch.chunked_prefill",)),
        (r"async(hronous)?[_ -]scheduling", ("launch.async_scheduling",)),
        (r"cudagraph|CUDA graph", ("launch.cudagraph_mode",)),
        (r"attention backend|AttentionBackendEnum|MLA backend", ("engine.attention_backend_layers",)),
        (r"KV cache layout", ("engine.kv_cache_layout",)),
        (r"model[_ ]runner", ("engine.model_runner",)),
        (r"kv[_ ]cache[_ ]dtype|to store (the )?kv ?cache", ("launch.kv_cache_dtype",)),
        (r"downcasting|casting torch\.", ("launch.dtype",)),
        (r"quantiz", ("launch.quantization",)),
    )
)

# Settings whose default is vLLM's, and the arguments that set them, by the names of vLLM's parser.
_SETTINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("launch.max_num_batched_tokens", ("max_num_batched_tokens",)),
    ("launch.max_num_seqs", ("max_num_seqs",)),
    ("launch.max_model_len", ("max_model_len",)),
    ("layout.prefix_caching", ("enable_prefix_caching",)),
    ("launch.chunked_prefill", ("enable_chunked_prefill",)),
    ("launch.async_scheduling", ("async_scheduling",)),
    ("launch.mamba_cache_mode", ("mamba_cache_mode",)),
    ("launch.dtype", ("dtype",)),
    ("launch.kv_cache_dtype", ("kv_cache_dtype",)),
    ("engine.attention_backend_layers", ("attention_backend", "attention_config")),
    ("memory.gpu_memory_utilization", ("gpu_memory_utilization",)),
    ("group_blocks", ("block_size",)),
    ("launch.extensible_kv_cache", ("enable_extensible_kv_cache",)),
)


def find_reasons(before: Diagnosis, after: Diagnosis, changes: Iterable[Change], *, groups_changed: bool) -> tuple[Reason, ...]:
    """Quote the lines of vLLM's log that one side alone has and that are about what changed, and say which settings were given."""
    changed = {made.key: made for made in changes}
    keys = {*changed, *((GROUPS,) if groups_changed else ())}
    quoted = [*_log_reasons("before", before, after, keys), *_log_reasons("after", after, before, keys)]
    return (*_given(before, after, changed), *quoted)


def _log_reasons(side: Which, own: Diagnosis, other: Diagnosis, keys: set[str]) -> list[Reason]:
    known = {record.message for record in other.vllm_log}
    reasons: dict[str, Reason] = {}
    for record in own.vllm_log:
        about = _about(record, keys)
        if about and record.message not in known:
            reasons.setdefault(record.message, Reason(about=about, side=side, source="log", text=record.message))
    return list(reasons.values())


def _about(record: LogRecord, keys: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for topic, told in _TOPICS if topic.search(record.message) for key in told if key in keys))


def _given(before: Diagnosis, after: Diagnosis, changed: dict[str, Change]) -> list[Reason]:
    """Say who set what changed: the arguments of one side, or neither's. An older report does not say which it was given."""
    sides = [side.request.given_arguments for side in (before, after) if side.request.given_arguments is not None]
    if len(sides) < 2:  # noqa: PLR2004 - both
        return []
    reasons = []
    one_model = before.request.model == after.request.model
    for key, names in _SETTINGS:
        made = changed.get(key)
        # Where a launch was refused before there was a configuration, there is nothing that vLLM chose.
        if made is None or made.before is None or made.after is None:
            continue
        given = [[name for name in names if name in side] for side in sides]
        if not any(given) and one_model:
            chose = f"vLLM chose {_spelled(made.before)} before and {_spelled(made.after)} after"
            text = f"{made.name}: neither side gives {_flag(names[0])}; {chose}"
            reasons.append(Reason(about=(key,), side="both", source="arguments", text=text))
        elif any(given) and not all(given):
            side: Which = "before" if given[0] else "after"
            value = _spelled(made.after if given[0] else made.before)
            text = f"{made.name}: {_flag(*given[0], *given[1])} is given on the {side} side alone; vLLM chose {value} on the other"
            reasons.append(Reason(about=(key,), side=side, source="arguments", text=text))
    return reasons


def _flag(name: str, *_more: str) -> str:
    return f"--{name.replace('_', '-')}"


def _spelled(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)
