"""vLLM's own ``Executor`` and ``EngineCore`` over stand-in workers: only what reaches a worker is answered here.

``EngineCore._initialize_kv_caches`` asks its executor, and the executor asks the workers by name (``collective_rpc``). Only those names
are answered here, so that a release's new executor or engine methods need no line of ours, and a new question to the workers says which.
"""

from typing import Any

from kvdoctor.dryrun import compat, host_blocks
from kvdoctor.dryrun.model import BuiltStage
from kvdoctor.dryrun.settled import Settled
from kvdoctor.dryrun.stand_in import StandIn, Untaught, call


class Worker(StandIn):
    """The worker of one pipeline stage, standing for every tensor rank of it: they all answer alike.

    Its methods are those that the engine calls while it plans (``vllm/v1/worker/gpu_worker.py``).
    """

    def __init__(self, stage: BuiltStage, available_bytes: int) -> None:
        self.stage = stage
        self.worker_config: Any = None
        self._available_bytes = available_bytes

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """The layers' specs, as the built model gave them."""
        return dict(self.stage.specs)

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """What the layers' backends support (0.29 and later)."""
        return self.stage.layouts

    def set_kv_cache_layout(self, layout: str, cp_kv_cache_interleave_size: int | None = None) -> None:
        """As ``WorkerBase.set_kv_cache_layout`` does (0.29 and later; the interleave size since 0.33)."""
        compat.record_layout(self.stage.config.cache_config, layout)
        if cp_kv_cache_interleave_size is not None:
            self.stage.config.parallel_config.cp_kv_cache_interleave_size = cp_kv_cache_interleave_size

    def determine_available_memory(self) -> int:
        """The budget of this stage's GPUs, instead of profiling."""
        return self._available_bytes

    def update_max_model_len(self, max_model_len: int) -> None:
        """An auto-fitted context length goes to the workers."""
        self.stage.config.model_config.max_model_len = max_model_len

    def initialize_from_config(self, worker_config: Any) -> None:
        """Keep the worker's configuration: the scheduler's copy forgets the pages of all but one layer of a mixed group."""
        self.worker_config = worker_config

    def compile_or_warm_up_model(self) -> Any:
        """Nothing is compiled; with the extensible KV cache (0.34) a worker reports here how many blocks it measured room for.

        The budget *is* the measured room, so these are the blocks that vLLM has just planned in it.
        """
        extensible = getattr(self.stage.config.cache_config, "enable_extensible_kv_cache", False)
        return compat.compilation_times(self.worker_config.num_blocks if extensible else None)

    def get_simple_cpu_offload_num_cpu_blocks(self) -> int:
        """What fits into the host memory that ``SimpleCPUOffloadConnector`` was given (0.33 and later)."""
        return host_blocks.simple_cpu_blocks(self.stage.config, self.worker_config)

    def extensible_kv_cache_unsupported_reason(self) -> None:
        """None: that the driver maps virtual memory is assumed, as the rest of the machine is (0.34)."""

    def disable_extensible_kv_cache(self) -> None:
        """As the worker does, less its second look at the free memory (0.34)."""
        self.stage.config.cache_config.enable_extensible_kv_cache = False

    def extend_kv_cache(self, num_blocks: int) -> None:
        """The final number of blocks (0.34)."""
        self.stage.config.cache_config.num_gpu_blocks = num_blocks


def make_executor(settled: Settled) -> Any:
    """An executor of vLLM's own class whose RPCs go to one stand-in worker a pipeline stage."""
    from vllm.v1.executor.abstract import Executor

    ranks = settled.config.parallel_config.world_size // len(settled.stages)
    workers = [Worker(stage, size) for stage, size in zip(settled.stages, settled.budget.stage_bytes, strict=True)]

    class StandInExecutor(StandIn, Executor):  # type: ignore[misc]  # vLLM's classes are Any to mypy
        """vLLM's executor, with nobody behind it but stand-ins."""

        stands_for = "the executor"
        stand_ins = workers

        def _init_executor(self) -> None:
            """Start no process."""

        def check_health(self) -> None:
            """There is nothing that could be ill."""

        def collective_rpc(
            self,
            method: Any,
            timeout: Any = None,  # noqa: ARG002 - vLLM's signature; the answers are at hand
            args: Any = (),
            kwargs: Any = None,
            **options: Any,
        ) -> list[Any]:
            """Ask each worker, and give one answer a rank, in the ranks' order."""
            if not isinstance(method, str):
                raise Untaught(f"a function sent to the workers: {getattr(method, '__qualname__', method)}")
            if any(options.values()):
                raise Untaught(f"the executor's collective_rpc with {', '.join(options)}")
            own = method == "initialize_from_config"  # one configuration a rank; everything else goes to all alike
            answers = [
                call(worker, method, (args[0][index * ranks],) if own else tuple(args), kwargs) for index, worker in enumerate(workers)
            ]
            return [answer for answer in answers for _ in range(ranks)]

    StandInExecutor.__abstractmethods__ = frozenset()  # one that a release adds says so when it is called, not when this is made
    return StandInExecutor(settled.config)


def make_engine(config: Any, executor: Any) -> Any:
    """An ``EngineCore`` as its constructor leaves it before ``_initialize_kv_caches``."""
    from vllm.v1.engine.core import EngineCore

    class StandInEngine(StandIn, EngineCore):  # type: ignore[misc]  # as above
        """vLLM's engine, not constructed: no plugin, no process, no socket."""

        stands_for = "the engine"

        def __init__(self) -> None:
            self.vllm_config = config
            self.model_executor = executor
            self.log_stats = False
            self.available_gpu_memory_for_kv_cache = -1

    return StandInEngine()
