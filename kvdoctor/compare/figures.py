"""The figures that two reports are compared by, and their differences."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvdoctor.compare.interface import Change, Unit, Value
from kvdoctor.diagnosis import Diagnosis
from kvdoctor.waste import empty_percent


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of a report: where it is shown, what it is called, where it stands."""

    section: str
    name: str
    key: str
    unit: Unit | None
    read: Callable[[Diagnosis], Value]


def compare_figures(before: Diagnosis, after: Diagnosis) -> tuple[tuple[Change, ...], int]:
    """Give the figures that differ, in order, and the number of those that are known and equal."""
    changes: list[Change] = []
    unchanged = 0
    for figure in FIGURES:
        old, new = figure.read(before), figure.read(after)
        if old != new:
            changes.append(change(section=figure.section, name=figure.name, key=figure.key, unit=figure.unit, before=old, after=new))
        elif old is not None:
            unchanged += 1
    return tuple(changes), unchanged


def change(*, section: str, name: str, key: str, unit: Unit | None, before: Value, after: Value) -> Change:
    """Put two values beside each other, with their difference where they are numbers."""
    difference = _difference(before, after)
    base = before if isinstance(before, (int, float)) else 0
    return Change(
        section=section,
        name=name,
        key=key,
        unit=unit,
        before=before,
        after=after,
        difference=difference,
        difference_percent=None if difference is None or not base or unit == "percent" else 100 * difference / base,
    )


def hash_block_size(diagnosis: Diagnosis) -> int | None:
    """Give the hash block size; where vLLM refused before it settled one, the size that its refusal names."""
    if diagnosis.layout.hash_block_size is not None:
        return diagnosis.layout.hash_block_size
    named = (finding.evidence.get("hash_block_size") for finding in diagnosis.findings)
    return next((size for size in named if isinstance(size, int)), None)


def count_alike(sizes: Iterable[int | str]) -> str:
    """544, 544, 181 -> "544 x 2, 181", in the order of first appearance."""
    return ", ".join(str(size) if count == 1 else f"{size} x {count}" for size, count in Counter(sizes).items())


def _difference(before: Value, after: Value) -> int | float | None:
    if isinstance(before, (bool, str)) or isinstance(after, (bool, str)) or before is None or after is None:
        return None
    return after - before


def _group_blocks(diagnosis: Diagnosis) -> str | None:
    return count_alike(group.block_size for group in diagnosis.layout.groups) or None


def _backends(diagnosis: Diagnosis) -> str | None:
    layers = diagnosis.engine.attention_backend_layers
    return ", ".join(f"{name} x {layers[name]}" for name in sorted(layers)) or None


def _draft_weights(diagnosis: Diagnosis) -> int | None:
    return max((stage.draft_weights_bytes for stage in diagnosis.stages), default=None)


def _read(key: str) -> Callable[[Diagnosis], Value]:
    def read(diagnosis: Diagnosis) -> Value:
        value: Value = functools.reduce(getattr, key.split("."), diagnosis)  # type: ignore[assignment]
        return value

    return read


def _at(section: str, name: str, key: str, unit: Unit | None = None) -> Figure:
    return Figure(section=section, name=name, key=key, unit=unit, read=_read(key))


_BLOCKS, _CAPACITY, _MEMORY, SETTINGS = "Block sizes", "Capacity per GPU", "Memory per GPU", "Launch"

FIGURES = (
    Figure(section=_BLOCKS, name="group blocks", key="group_blocks", unit=None, read=_group_blocks),
    _at(_BLOCKS, "scheduler block", "layout.scheduler_block_size", "tokens"),
    Figure(section=_BLOCKS, name="hash block", key="layout.hash_block_size", unit="tokens", read=hash_block_size),
    _at(_BLOCKS, "prefix caching", "layout.prefix_caching"),
    _at(_BLOCKS, "prefix hits on multiples of", "layout.prefix_hit_tokens", "tokens"),
    _at(_BLOCKS, "smallest reusable prefix", "layout.min_reusable_prefix_tokens", "tokens"),
    _at(_CAPACITY, "blocks", "layout.num_blocks", "blocks"),
    _at(_CAPACITY, "bytes per block", "layout.bytes_per_block", "bytes"),
    _at(_CAPACITY, "tokens", "layout.kv_cache_tokens", "tokens"),
    _at(_CAPACITY, "concurrency", "layout.max_concurrency", "requests"),
    _at(_CAPACITY, "a full request holds", "layout.blocks_per_request", "blocks"),
    _at(_CAPACITY, "a full request costs", "layout.bytes_per_request", "bytes"),
    Figure(
        section=_CAPACITY,
        name="empty share of a full request",
        key="empty_percent",
        unit="percent",
        read=lambda diagnosis: empty_percent(diagnosis.layout, diagnosis.launch.max_model_len),
    ),
    _at(_CAPACITY, "padding layers", "layout.padding_layers", "layers"),
    _at(_MEMORY, "GPU", "memory.gpu_bytes", "bytes"),
    _at(_MEMORY, "gpu_memory_utilization", "memory.gpu_memory_utilization"),
    _at(_MEMORY, "weights", "memory.weights_bytes", "bytes"),
    Figure(section=_MEMORY, name="draft weights", key="draft_weights_bytes", unit="bytes", read=_draft_weights),
    _at(_MEMORY, "KV cache", "memory.kv_cache_bytes", "bytes"),
    _at(_MEMORY, "KV cache set by", "memory.kv_cache_source"),
    _at(_MEMORY, "allowance", "memory.allowance_bytes", "bytes"),
    _at(_MEMORY, "weights fit", "memory.weights_fit"),
    _at(_MEMORY, "needed for a full request", "memory.needed_for_max_model_len_bytes", "bytes"),
    _at(_MEMORY, "largest max_model_len that fits", "memory.estimated_max_model_len", "tokens"),
    Figure(section=SETTINGS, name="attention backends", key="engine.attention_backend_layers", unit=None, read=_backends),
    _at(SETTINGS, "KV-cache layout", "engine.kv_cache_layout"),
    _at(SETTINGS, "model runner", "engine.model_runner"),
    _at(SETTINGS, "architecture", "launch.architecture"),
    _at(SETTINGS, "dtype", "launch.dtype"),
    _at(SETTINGS, "quantization", "launch.quantization"),
    _at(SETTINGS, "kv_cache_dtype", "launch.kv_cache_dtype"),
    _at(SETTINGS, "max_model_len", "launch.max_model_len", "tokens"),
    _at(SETTINGS, "max_num_seqs", "launch.max_num_seqs"),
    _at(SETTINGS, "max_num_batched_tokens", "launch.max_num_batched_tokens", "tokens"),
    _at(SETTINGS, "tensor_parallel_size", "launch.tensor_parallel_size"),
    _at(SETTINGS, "pipeline_parallel_size", "launch.pipeline_parallel_size"),
    _at(SETTINGS, "decode_context_parallel_size", "launch.decode_context_parallel_size"),
    _at(SETTINGS, "data_parallel_size", "launch.data_parallel_size"),
    _at(SETTINGS, "expert_parallel", "launch.expert_parallel"),
    _at(SETTINGS, "chunked_prefill", "launch.chunked_prefill"),
    _at(SETTINGS, "async_scheduling", "launch.async_scheduling"),
    _at(SETTINGS, "mamba_cache_mode", "launch.mamba_cache_mode"),
    _at(SETTINGS, "cudagraph_mode", "launch.cudagraph_mode"),
    _at(SETTINGS, "speculative_method", "launch.speculative_method"),
    _at(SETTINGS, "num_speculative_tokens", "launch.num_speculative_tokens"),
    _at(SETTINGS, "extensible_kv_cache", "launch.extensible_kv_cache"),
)
