"""From vLLM's objects to a :class:`~kvdoctor.plan.Plan`: nothing of vLLM leaves the fence."""

import dataclasses
import enum
from fractions import Fraction
from typing import Any

import torch

from kvdoctor.dryrun import compat
from kvdoctor.dryrun.settled import Settled
from kvdoctor.plan import EngineFacts, GroupPlan, LaunchFacts, LayerPlan, MemoryFacts, Plan, Refusal, RequestsAt, StagePlan

# vLLM's spec classes by name, most special first; a class is known by the first name in its ancestry.
KINDS = {
    "HiddenStateCacheSpec": "hidden_state",
    "SlidingWindowMLASpec": "sliding_window_mla",
    "MLAAttentionSpec": "mla",
    "SinkFullAttentionSpec": "full_attention",
    "RSWASpec": "full_attention",
    "FullAttentionSpec": "full_attention",
    "ChunkedLocalAttentionSpec": "chunked_local",
    "SlidingWindowSpec": "sliding_window",
    "CircularBufferSpec": "circular_buffer",
    "MambaSpec": "mamba",
    "EncoderOnlyAttentionSpec": "encoder_only",
    "CrossAttentionSpec": "cross_attention",
    "HiSparseHotSpec": "hisparse",
    "HiSparseResidentSpec": "hisparse",
}


def kind_of(spec: Any) -> str:
    """The kind of a spec by its class, or the class that it refines; ``other`` for a class that kvdoctor does not know."""
    return next((KINDS[base.__name__] for base in type(spec).__mro__ if base.__name__ in KINDS), "other")


def to_plan(settled: Settled, refusal: Refusal | None, *, source: str) -> Plan:
    """Everything settled, as plain data; ``source`` is what the engine is to the user."""
    stages = _stages(settled)
    counted = settled.budget.weights_fit is not False  # a layout-only budget has no meaning as capacity
    cache = settled.config.cache_config if settled.config is not None else None
    planned = settled.scheduler_config is not None and counted
    return Plan(
        engine=_engine(settled, source),
        launch=_launch(settled),
        memory=_memory(settled, stages),
        stages=stages,
        layers=_layers(settled),
        groups=_groups(settled),
        scheduler_block_size=settled.scheduler_block_size,
        hash_block_size=settled.hash_block_size,
        prefix_hit_tokens=settled.prefix_hit_tokens,
        min_reusable_prefix_tokens=settled.min_reusable_prefix_tokens,
        prefix_hits=tuple(settled.prefix_hits),
        num_blocks=settled.scheduler_config.num_blocks if planned else None,
        bytes_per_block=max((s.bytes_per_block for s in stages if s.bytes_per_block is not None), default=None),
        kv_cache_tokens=getattr(cache, "kv_cache_size_tokens", None) if planned else None,
        max_concurrency=getattr(cache, "kv_cache_max_concurrency", None) if planned else None,
        checks=tuple(settled.checks),
        assumptions=tuple(settled.assumptions),
        given_arguments=dict(settled.given_arguments),
        usable_kv_cache_bytes=settled.budget.usable_bytes if counted else None,
        requests_at=_requests_at(settled) if planned else (),
        refusal=refusal,
        vllm_log=tuple(settled.log),
    )


def _groups(settled: Settled) -> tuple[GroupPlan, ...]:
    configs = settled.worker_configs
    if configs:
        per_stage = [config.kv_cache_groups for config in configs]
    elif settled.groups:
        per_stage = [settled.groups]
    else:
        return ()
    backends = {name: backend for stage in settled.stages for name, backend in stage.backends.items()}
    draft_layers = {name for stage in settled.stages for name in stage.draft_layers}
    plans = []
    for index, group in enumerate(per_stage[0]):
        layers = [
            _layer(name, _spec_of(member.kv_cache_spec, name), backends, draft_layers)
            for groups in per_stage
            for member in [groups[index]]
            for name in member.layer_names
            if _has_page(_spec_of(member.kv_cache_spec, name))
        ]
        spec = _representative(group.kv_cache_spec)
        if not _has_page(spec):
            continue
        kernel = settled.kernel_block_sizes[index] if index < len(settled.kernel_block_sizes) else None
        plans.append(
            GroupPlan(
                spec=type(spec).__name__,
                kind=kind_of(spec),
                block_size=compat.scheduled_block_size(spec, settled.config),
                layers=tuple(layers),
                prefix_cacheable=bool(getattr(spec, "prefix_cacheable", True)),
                draft=bool(layers) and all(layer.draft for layer in layers),
                blocks_per_request=_blocks_per_request(spec, settled.config),
                kernel_block_size=kernel,
            )
        )
    return tuple(plans)


def _spec_of(group_spec: Any, name: str) -> Any:
    members = getattr(group_spec, "kv_cache_specs", None)
    return members[name] if members is not None else group_spec


def _representative(group_spec: Any) -> Any:
    members = getattr(group_spec, "kv_cache_specs", None)
    return next(filter(_has_page, members.values()), next(iter(members.values()))) if members else group_spec


def _layers(settled: Settled) -> tuple[LayerPlan, ...]:
    return tuple(
        _layer(name, spec, stage.backends, stage.draft_layers)
        for stage in settled.stages
        for name, spec in stage.specs.items()
        if _has_page(spec)
    )


def _has_page(spec: Any) -> bool:
    """Whether vLLM can size the spec's page: it asserts that a padded page holds its content, and refuses the launch.

    The specs of layers may be so (Zamba2 on 0.33), or what the grouping makes of them (extracted hidden states up to 0.27).
    """
    try:
        return spec.page_size_bytes >= 0  # type: ignore[no-any-return]
    except AssertionError:
        return False


def _layer(name: str, spec: Any, backends: Any, draft_layers: Any) -> LayerPlan:
    backend = backends.get(name)
    return LayerPlan(
        name=name,
        spec=type(spec).__name__,
        kind=kind_of(spec),
        block_size=spec.block_size,
        page_bytes=spec.page_size_bytes,
        used_bytes=_used_bytes(spec),
        backend=backend.get_name() if backend is not None else None,
        draft=name in draft_layers,
        fields={f.name: _plain(getattr(spec, f.name)) for f in dataclasses.fields(spec)},
    )


def _used_bytes(spec: Any) -> int:
    """Give vLLM's page size without padding; mamba specs have no property for it before 0.33, so the padding is taken away."""
    used = getattr(spec, "real_page_size_bytes", None)
    if used is None and any(f.name == "page_size_padded" for f in dataclasses.fields(spec)):
        used = dataclasses.replace(spec, page_size_padded=None).page_size_bytes
    return int(spec.page_size_bytes if used is None else used)


def _blocks_per_request(spec: Any, config: Any) -> int:
    """Blocks of a request of ``max_model_len`` tokens, from vLLM's own bytes (``get_max_concurrency_for_kv_cache_config``)."""
    return -(-int(spec.max_memory_usage_bytes(config)) // int(spec.page_size_bytes))


# Lengths that people plan for, where they are below the longest.
_USUAL_LENGTHS = (8192, 32_768, 131_072)


def _requests_at(settled: Settled) -> tuple[RequestsAt, ...]:
    """Ask vLLM's own count (``get_max_concurrency_for_kv_cache_config``) at other lengths; the last one is what it logs."""
    from vllm.v1.core.kv_cache_utils import get_max_concurrency_for_kv_cache_config

    config, planned = settled.config, settled.scheduler_config
    longest = config.model_config.max_model_len if config.model_config is not None else None
    logged = getattr(config.cache_config, "kv_cache_max_concurrency", None)
    if longest is None or logged is None or not planned.kv_cache_groups:
        return ()
    counted = []
    try:
        for tokens in (*(length for length in _USUAL_LENGTHS if length < longest), longest):
            config.model_config.max_model_len = tokens
            requests = float(get_max_concurrency_for_kv_cache_config(config, planned))
            held = tuple(_blocks_per_request(group.kv_cache_spec, config) for group in planned.kv_cache_groups)
            counted.append(RequestsAt(tokens=tokens, requests=requests, group_blocks=held))
    finally:
        config.model_config.max_model_len = longest
    # Counted on the scheduler's configuration; where that is not what vLLM logged, the other lengths would mislead.
    return tuple(counted) if counted[-1].requests == logged else (RequestsAt(tokens=longest, requests=float(logged)),)


def _stages(settled: Settled) -> tuple[StagePlan, ...]:
    counted = settled.budget.weights_fit is not False
    plans = []
    for index, stage in enumerate(settled.stages):
        worker_config = settled.worker_configs[index] if settled.worker_configs else None
        groups = worker_config.kv_cache_groups if worker_config is not None else []
        plans.append(
            StagePlan(
                index=index,
                weights_bytes=stage.weights_bytes,
                draft_weights_bytes=stage.draft_weights_bytes,
                kv_cache_bytes=settled.budget.stage_bytes[index] if settled.budget.stage_bytes and counted else None,
                layer_count=len(stage.specs),
                group_layers=tuple(sum(name in stage.specs for name in group.layer_names) for group in groups),
                bytes_per_block=_bytes_per_block(worker_config) if worker_config is not None else None,
            )
        )
    return tuple(plans)


def _bytes_per_block(worker_config: Any) -> int | None:
    """What one block takes in the pool of a worker: groups overlay each other in one allocation since 0.31, before that tensors add up."""
    tensors = [t for t in worker_config.kv_cache_tensors if not getattr(t, "host_resident", False)]
    if not tensors or not worker_config.num_blocks:
        return None
    total = tensors[0].size if hasattr(tensors[0], "layer_stride") else sum(t.size for t in tensors)
    return int(total // worker_config.num_blocks)


def _memory(settled: Settled, stages: tuple[StagePlan, ...]) -> MemoryFacts:
    budget, config = settled.budget, settled.config
    return MemoryFacts(
        gpu_bytes=settled.request.gpu.memory_bytes,
        gpu_memory_utilization=compat.gpu_memory_utilization(config.cache_config) if config is not None else None,
        weights_bytes=max((stage.weights_bytes for stage in stages), default=None),
        kv_cache_bytes=min((s.kv_cache_bytes for s in stages if s.kv_cache_bytes is not None), default=None),
        kv_cache_source="estimate" if budget.source == "estimate" else "kv_cache_memory",
        allowance_bytes=budget.allowance_bytes,
        allowance_source=budget.allowance_source,
        weights_fit=budget.weights_fit,
        needed_for_max_model_len_bytes=budget.needed_bytes,
        estimated_max_model_len=budget.estimated_max_model_len,
    )


def _engine(settled: Settled, source: str) -> EngineFacts:
    import transformers
    import vllm

    from kvdoctor.dryrun.install import libraries

    layers: dict[str, int] = {}
    for stage in settled.stages:
        for name in stage.specs:
            backend = stage.backends.get(name)
            if backend is not None:
                layers[backend.get_name()] = layers.get(backend.get_name(), 0) + 1
    runner = None if settled.config is None else "V2" if compat.uses_v2_runner(settled.config) else "V1"
    major, minor = settled.request.gpu.compute_capability
    layout = getattr(settled.config.cache_config, "kv_cache_layout", None) if settled.config is not None else None
    return EngineFacts(
        vllm_version=vllm.__version__,
        torch_version=torch.__version__,
        transformers_version=transformers.__version__,
        source=source,
        platform="cuda",
        compute_capability=f"{major}.{minor}",
        libraries="loaded" if libraries() else "stand-ins",
        model_runner=runner,
        attention_backends=layers,
        kv_cache_layout=str(getattr(layout, "name", layout)) if layout is not None else None,
    )


def _launch(settled: Settled) -> LaunchFacts:
    name, config = settled.model_name, settled.config
    if config is None:
        unsettled: dict[str, Any] = {field.name: None for field in dataclasses.fields(LaunchFacts)}
        return LaunchFacts(**unsettled | {"model": name})
    model, cache, parallel, scheduler = config.model_config, config.cache_config, config.parallel_config, config.scheduler_config
    speculative = config.speculative_config
    # A layer may settle ``auto`` while it is built, in its worker's copy of the configuration (DeepSeek-V4: fp8_ds_mla).
    kv_cache_dtype = (settled.stages[0].config if settled.stages else config).cache_config.cache_dtype
    mode = config.compilation_config.cudagraph_mode
    return LaunchFacts(
        model=name,
        architecture=next(iter(model.architectures or ()), None),
        model_type=getattr(model.hf_config, "model_type", None),
        dtype=_plain(model.dtype),
        quantization=model.quantization,
        kv_cache_dtype=str(kv_cache_dtype),
        max_model_len=model.max_model_len,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        tensor_parallel_size=parallel.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        decode_context_parallel_size=parallel.decode_context_parallel_size,
        data_parallel_size=parallel.data_parallel_size,
        expert_parallel=parallel.enable_expert_parallel,
        prefix_caching=cache.enable_prefix_caching,
        chunked_prefill=scheduler.enable_chunked_prefill,
        async_scheduling=scheduler.async_scheduling,
        mamba_cache_mode=getattr(cache, "mamba_cache_mode", None),
        cudagraph_mode=None if mode is None else mode.name,
        speculative_method=None if speculative is None else speculative.method,
        num_speculative_tokens=None if speculative is None else speculative.num_speculative_tokens,
        extensible_kv_cache=getattr(cache, "enable_extensible_kv_cache", None),
        total_kv_heads=model.get_total_num_kv_heads(),
    )


def _plain(value: Any) -> Any:
    """A spec's field as JSON can hold it: dtypes and enums by name, fractions as text, anything unknown by its text."""
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value)
