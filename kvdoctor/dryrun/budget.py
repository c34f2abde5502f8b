"""How many bytes of each GPU the KV cache gets: the user's figure, or an estimate that says so."""

import math
from typing import Any

from kvdoctor.dryrun import compat
from kvdoctor.dryrun.settled import Settled

# Runtime state that no formula here covers: CUDA graphs, kernels' workspaces, libraries. See ``_allowance``.
FIXED_ALLOWANCE_BYTES = 5 * 2**28
# What CUDA's context holds of the GPU before vLLM looks: outside the estimate of old, inside what 0.34 measures.
CONTEXT_BYTES = 2**29
# With weights that do not fit, the layout is still planned: with this budget, and without capacity figures.
LAYOUT_ONLY_BYTES = 2**40


def settle(settled: Settled) -> None:
    """Fill ``settled.budget`` for every pipeline stage.

    A budget from the user is exact (``--kv-cache-memory``, or vLLM's own ``--kv-cache-memory-bytes``, less what vLLM reserves for
    multimodal transfer). Otherwise: ``gpu_memory_utilization`` of the GPU, as vLLM's ``request_memory`` rounds it, less the stage's
    weights, less the allowance.
    """
    budget, request, config = settled.budget, settled.request, settled.config
    given = config.cache_config.kv_cache_memory_bytes
    if request.kv_cache_memory_bytes is not None:
        budget.stage_bytes = [request.kv_cache_memory_bytes] * len(settled.stages)
        return
    if given:
        budget.stage_bytes = [_less_mm_reserve(given, config)] * len(settled.stages)
        return
    budget.source = "estimate"
    requested = math.ceil(request.gpu.memory_bytes * compat.gpu_memory_utilization(config.cache_config))
    budget.allowance_bytes, budget.allowance_source = _allowance(config, request.gpu.memory_bytes - requested)
    left = [requested - stage.weights_bytes - budget.allowance_bytes for stage in settled.stages]
    budget.weights_fit = all(bytes_left > 0 for bytes_left in left)
    budget.stage_bytes = left if budget.weights_fit else [LAYOUT_ONLY_BYTES] * len(left)


def _less_mm_reserve(given: int, config: Any) -> int:
    """What ``determine_available_memory`` makes of ``--kv-cache-memory-bytes`` (``gpu_worker.py``, 0.33; no reserve before 0.31)."""
    from vllm.v1.worker import gpu_worker

    reserve = getattr(gpu_worker, "reserve_mm_ipc_gpu_memory", None)
    if reserve is None:
        return given
    processes = getattr(config.parallel_config, "_api_process_count", 1)
    return int(reserve(given, config.model_config.multimodal_config, processes))


def _allowance(config: Any, unrequested_bytes: int) -> tuple[int, str]:
    """Bytes kept back for everything but weights and KV cache, and how they were counted. kvdoctor's estimate, not vLLM's.

    One batch's widest activations, the sampler's logits in two precisions, and a fixed part. Set against four public boots, the
    budget came out 0.1 GiB (Llama-3.1-8B, A100), 0.1 GiB (Qwen3-14B, L40S), 0.7 GiB (Qwen3.5-0.8B, H100) and 2.8 GiB (a 27B hybrid
    with a vision tower, RTX PRO 6000) above what vLLM measured.
    """
    model, scheduler = config.model_config, config.scheduler_config
    hidden = model.get_hidden_size()
    text = model.hf_text_config
    intermediate = max(_widest(getattr(text, name, None)) for name in ("intermediate_size", "moe_intermediate_size"))
    tensor_parallel = config.parallel_config.tensor_parallel_size
    activations = scheduler.max_num_batched_tokens * (2 * hidden + 2 * intermediate // tensor_parallel) * 2
    logits = scheduler.max_num_seqs * model.get_vocab_size() * (2 + 4) if model.runner_type == "generate" else 0
    parts = (
        f"estimated: {FIXED_ALLOWANCE_BYTES / 2**30:.2f} GiB for CUDA graphs, workspaces and libraries, "
        f"{activations / 2**30:.2f} GiB for the activations of {scheduler.max_num_batched_tokens} tokens, "
        f"{logits / 2**30:.2f} GiB for the logits of {scheduler.max_num_seqs} sequences"
    )
    margin = compat.extensible_margin(config.cache_config, activations + logits)
    if margin is None:
        return FIXED_ALLOWANCE_BYTES + activations + logits, parts
    # Kept free of what the whole GPU has, so that what was not requested in the first place counts towards it.
    kept = max(0, CONTEXT_BYTES + margin - unrequested_bytes)
    parts += f", {kept / 2**30:.2f} GiB for CUDA's context and the margin of the extensible KV cache"
    return FIXED_ALLOWANCE_BYTES + activations + logits + kept, parts


def _widest(size: Any) -> int:
    """The widest of a size that a config gives once, for each layer (Gemma 3n), or not at all."""
    return max(size, default=0) if isinstance(size, (list, tuple)) else size or 0
