"""The dry launch: vLLM's own steps, in vLLM's own order, up to a scheduler that could take requests.

Configuration, one worker per pipeline stage up to its layer specs, ``EngineCore._initialize_kv_caches`` with a stand-in executor,
then the checks that a boot makes afterwards. Nothing here decides about a layout; it hands vLLM its own objects.
"""

import copy
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvdoctor.dryrun import budget, checks, device, releases, world
from kvdoctor.dryrun.arguments import engine_arguments
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
    configure(settled, model)
    config = settled.config
    with settled.step(BUILD):
        for stage in range(config.parallel_config.pipeline_parallel_size):
            # A worker process has a copy of the engine's configuration; the single worker of a one-GPU launch shares it.
            worker_config = config if config.parallel_config.world_size == 1 else copy.deepcopy(config)
            with world.worker_of(worker_config, stage):
                settled.stages.append(build_stage(worker_config))
    budget.settle(settled)
    plan_kv_cache(settled)
    checks.run(settled)


def configure(settled: Settled, model: str) -> None:
    """Settle vLLM's ``VllmConfig`` for the request."""
    from vllm.usage.usage_lib import UsageContext

    with settled.step(READ_ARGUMENTS):
        arguments = engine_arguments(settled.request, model)
    world_size = arguments.tensor_parallel_size * arguments.pipeline_parallel_size * getattr(arguments, "prefill_context_parallel_size", 1)
    device.assume(settled.request.gpu, gpu_count=max(1, world_size * arguments.data_parallel_size))
    context = UsageContext.OPENAI_API_SERVER if settled.request.usage == "serve" else UsageContext.LLM_CLASS
    with settled.step(CONFIGURE):
        settled.config = arguments.create_engine_config(usage_context=context)


def plan_kv_cache(settled: Settled) -> None:
    """``EngineCore._initialize_kv_caches``, unchanged, with an executor that answers from the built stages."""
    from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
    from vllm.v1.engine.core import EngineCore

    config, executor = settled.config, _Executor(settled)
    engine = types.SimpleNamespace(model_executor=executor, collective_rpc=executor.collective_rpc, available_gpu_memory_for_kv_cache=-1)
    with settled.step(PLAN), _recorded(settled):
        settled.scheduler_config = EngineCore._initialize_kv_caches(engine, config)
        settled.scheduler_block_size, settled.hash_block_size = resolve_kv_cache_block_sizes(settled.scheduler_config, config)
        settled.prefix_hit_tokens = getattr(settled.scheduler_config, "cache_hit_alignment_tokens", None) or settled.scheduler_block_size


class _Executor:
    """What the engine asks its executor for while it plans, answered from the stages; each tensor rank of a stage answers alike."""

    def __init__(self, settled: Settled) -> None:
        self._settled = settled
        self._ranks = settled.config.parallel_config.world_size // len(settled.stages)

    def _per_rank(self, answers: list[Any]) -> list[Any]:
        return [answer for answer in answers for _ in range(self._ranks)]

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        return self._per_rank([dict(stage.specs) for stage in self._settled.stages])

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return self._per_rank([stage.layouts for stage in self._settled.stages])

    def determine_available_memory(self) -> list[int]:
        return self._per_rank(self._settled.budget.stage_bytes)

    def set_kv_cache_layout(self, layout: str, interleave_size: int | None = None) -> None:
        """As ``WorkerBase.set_kv_cache_layout`` does in each worker (0.29 and later; the interleave size since 0.33)."""
        for stage in self._settled.stages:
            releases.record_layout(stage.config.cache_config, layout)
            if interleave_size is not None:
                stage.config.parallel_config.cp_kv_cache_interleave_size = interleave_size

    def initialize_from_config(self, worker_configs: list[Any]) -> None:
        """Keep the workers' configurations: the scheduler's copy forgets the pages of all but one layer of a mixed group."""
        self._settled.worker_configs = worker_configs[:: self._ranks]

    def compile_or_warm_up_model(self) -> None:
        return None

    def get_simple_cpu_offload_num_blocks(self) -> int:
        raise device.StandInAsked("the number of blocks that fit into the CPU offload buffer")

    def collective_rpc(self, method: str, *, args: tuple[Any, ...] = (), **_options: object) -> None:
        """The one call that planning makes: an auto-fitted ``max_model_len`` goes to the workers."""
        if method != "update_max_model_len":
            raise device.StandInAsked(f"the workers' {method}")
        for stage in self._settled.stages:
            stage.config.model_config.max_model_len = args[0]


@contextmanager
def _recorded(settled: Settled) -> Iterator[None]:
    """Note the groups, and the memory that vLLM finds needed, as soon as vLLM has them: a later refusal must not lose them."""
    planning = releases.planning_module()
    holder, name = releases.grouping_step()
    grouping, checking = getattr(holder, name), planning._check_enough_kv_cache_memory

    def note_groups(*arguments: Any, **options: Any) -> Any:
        groups = grouping(*arguments, **options)
        settled.groups = settled.groups or groups  # the first call is for the whole model; estimates (0.29 to 0.32) call again
        return groups

    def note_needed(available: int, get_needed: Any, max_model_len: int, estimate: Any) -> None:
        needed = get_needed()
        settled.budget.needed_bytes = max(needed, settled.budget.needed_bytes or 0)
        if 0 < available < needed:
            settled.budget.estimated_max_model_len = estimate(available)
        checking(available, get_needed, max_model_len, estimate)

    setattr(holder, name, note_groups)
    planning._check_enough_kv_cache_memory = note_needed
    try:
        yield
    finally:
        setattr(holder, name, grouping)
        planning._check_enough_kv_cache_memory = checking
