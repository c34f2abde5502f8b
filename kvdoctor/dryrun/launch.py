"""The dry launch: vLLM's own steps, in vLLM's own order, up to a scheduler that could take requests.

Configuration, one worker per pipeline stage up to its layer specs, ``EngineCore._initialize_kv_caches`` with a stand-in executor,
then the checks that a boot makes afterwards. Nothing here decides about a layout; it hands vLLM its own objects.
"""

import argparse
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvdoctor.dryrun import budget, checks, compat, device, serve_checks, tokens, world
from kvdoctor.dryrun.arguments import engine_arguments, given_arguments, read_arguments
from kvdoctor.dryrun.executor import make_engine, make_executor
from kvdoctor.dryrun.model import build_stage
from kvdoctor.dryrun.settled import Settled

READ_ARGUMENTS = "reading the arguments"
CONFIGURE = "engine configuration"
BUILD = "building the model"
PLAN = "KV-cache planning"


def run(settled: Settled, model: str) -> None:
    """Take every step, filling ``settled``.

    Raises:
        Refused: vLLM refused; what was settled before is in ``settled``.
        KvdoctorError: the request was wrong, or no answer could be had.
    """
    arguments = configure(settled, model)
    config = settled.config
    with settled.step(BUILD):
        for stage in range(config.parallel_config.pipeline_parallel_size):
            # A worker process has a copy of the engine's configuration; the single worker of a one-GPU launch shares it.
            worker_config = config if config.parallel_config.world_size == 1 else copy.deepcopy(config)
            with world.worker_of(worker_config, stage):
                settled.stages.append(build_stage(worker_config))
    settled.assumptions.extend(dict.fromkeys(note for stage in settled.stages for note in stage.weights_notes))
    budget.settle(settled)
    plan_kv_cache(settled)
    checks.run(settled)
    serve_checks.check_configured(settled, arguments)


def configure(settled: Settled, model: str) -> argparse.Namespace:
    """Settle vLLM's ``VllmConfig`` for the request; the arguments as they were read are handed back."""
    from vllm.usage.usage_lib import UsageContext

    with settled.step(READ_ARGUMENTS):
        given = read_arguments(settled.request, model)
        tokens.leave_out_absent(settled, given)
        arguments = engine_arguments(given, settled.request.usage)
        settled.given_arguments = given_arguments(settled.request)
    serve_checks.check_arguments(settled, given)
    world_size = arguments.tensor_parallel_size * arguments.pipeline_parallel_size * getattr(arguments, "prefill_context_parallel_size", 1)
    device.assume(settled.request.gpu, gpu_count=max(1, world_size * arguments.data_parallel_size))
    context = UsageContext.OPENAI_API_SERVER if settled.request.usage == "serve" else UsageContext.LLM_CLASS
    tokens.make_optional(settled)
    with settled.step(CONFIGURE):
        settled.config = arguments.create_engine_config(usage_context=context)
    return given


def plan_kv_cache(settled: Settled) -> None:
    """``EngineCore._initialize_kv_caches``, unchanged, over stand-in workers that answer from the built stages."""
    from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes

    config = settled.config
    with settled.step(PLAN), _recorded(settled):
        executor = make_executor(settled)
        settled.scheduler_config = make_engine(config, executor)._initialize_kv_caches(config)
        settled.worker_configs = [worker.worker_config for worker in executor.stand_ins]
        settled.scheduler_block_size, settled.hash_block_size = resolve_kv_cache_block_sizes(settled.scheduler_config, config)
        settled.prefix_hit_tokens = getattr(settled.scheduler_config, "cache_hit_alignment_tokens", None) or settled.scheduler_block_size


@contextmanager
def _recorded(settled: Settled) -> Iterator[None]:
    """Note the groups, and the memory that vLLM finds needed, as soon as vLLM has them: a later refusal must not lose them."""
    planning = compat.planning_module()
    holder, name = compat.grouping_step()
    grouping, checking = getattr(holder, name), planning._check_enough_kv_cache_memory

    def note_groups(*arguments: Any, **options: Any) -> Any:
        groups = grouping(*arguments, **options)
        settled.groups = settled.groups or groups  # the first call is for the whole model; estimates (0.29 to 0.32) call again
        return groups

    def note_needed(available: int, get_needed: Any, max_model_len: int, estimate: Any, *more: Any, **options: Any) -> None:
        needed = get_needed()
        settled.budget.needed_bytes = max(needed, settled.budget.needed_bytes or 0)
        if 0 < available < needed:
            settled.budget.estimated_max_model_len = estimate(available)
            settled.budget.usable_bytes = min(available, settled.budget.usable_bytes or available)
        checking(available, get_needed, max_model_len, estimate, *more, **options)  # 0.34 passes its configuration, for its advice

    setattr(holder, name, note_groups)
    planning._check_enough_kv_cache_memory = note_needed
    try:
        yield
    finally:
        setattr(holder, name, grouping)
        planning._check_enough_kv_cache_memory = checking
