"""What a boot checks after the KV-cache plan, as far as it needs no GPU: kernel block sizes, graph modes, buffer views, the scheduler."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from kvdoctor.dryrun import compat, drafter, prefix, world
from kvdoctor.dryrun.blame import first_line, lacks_file, needs_gpu
from kvdoctor.dryrun.model import META, BuiltStage, on_meta
from kvdoctor.dryrun.pool_size import pool_config
from kvdoctor.dryrun.settled import NotChecked, Settled

BACKENDS = "kernel block sizes"
GRAPHS = "CUDA-graph mode"
BUFFERS = "KV-cache buffers"
CONTEXT_PARALLEL = "context parallelism"
SCHEDULER = "scheduler"
PREFIX = "smallest reusable prefix"

# Connectors whose scheduler side opens no socket and asks for no other package.
_QUIET_CONNECTORS = frozenset({"ExampleHiddenStatesConnector", "ExampleConnector", "SharedStorageConnector", "OffloadingConnector"})


def run(settled: Settled) -> None:
    """Take the remaining steps of a boot in its order: each worker's, then the scheduler's."""
    for index, (stage, worker_config) in enumerate(zip(settled.stages, settled.worker_configs, strict=True)):
        # Layers ask for their tensor-parallel rank here too (Mamba-1's state shape).
        with world.worker_of(stage.config, index), suppress(NotChecked):
            kernel_block_sizes = _check_worker(settled, stage, worker_config)
            if index == 0:
                settled.kernel_block_sizes = kernel_block_sizes
    build_scheduler(settled)


def _check_worker(settled: Settled, stage: BuiltStage, worker_config: Any) -> list[int | None]:
    """The checks of ``GPUModelRunner.initialize_kv_cache`` (``vllm/v1/worker/gpu/model_runner.py``, 0.33) in its order."""
    from vllm.config import set_current_vllm_config
    from vllm.v1.worker.cp_utils import check_attention_cp_compatibility
    from vllm.v1.worker.gpu import attn_utils

    config = stage.config
    # As the runner does: layers that share another's cache join its group while buffers are bound, in the worker's own copy.
    worker_config = copy.deepcopy(worker_config)
    config.cache_config.num_gpu_blocks = worker_config.num_blocks
    target_layers = {name for group in worker_config.kv_cache_groups for name in group.layer_names} - stage.draft_layers
    with set_current_vllm_config(config):
        with settled.step(BACKENDS, after_plan=True), _builders_not_made():
            groups, graph_support, kernel_block_sizes = attn_utils.init_attn_backend(worker_config, config, META)
        with settled.step(GRAPHS, after_plan=True):
            _resolve_graphs(settled, stage, worker_config, graph_support)
        with settled.step(CONTEXT_PARALLEL, after_plan=True):
            check_attention_cp_compatibility(config, **compat.accepted(check_attention_cp_compatibility, target_layer_names=target_layers))
        with settled.step(BUFFERS, after_plan=True), on_meta():
            compat.bind_buffers(config, worker_config, groups, kernel_block_sizes, META)
        with _builders_not_made():
            drafter.check(settled, stage, worker_config, kernel_block_sizes)
    return list(kernel_block_sizes)


@contextmanager
def _builders_not_made() -> Iterator[None]:
    """Metadata builders allocate on the device; what the checks ask of them are class methods, so the class stands for its instance."""
    from vllm.v1.worker.utils import AttentionGroup

    make = AttentionGroup.create_metadata_builders

    def name_builders(group: Any, *_arguments: Any, **_options: Any) -> None:
        group.metadata_builders = [_BuilderClass(group.backend.get_builder_cls())]

    AttentionGroup.create_metadata_builders = name_builders
    try:
        yield
    finally:
        AttentionGroup.create_metadata_builders = make


class _BuilderClass:
    """A metadata builder that was not made: answers what its class can answer."""

    def __init__(self, builder: Any) -> None:
        self.get_cudagraph_support = builder.get_cudagraph_support
        self.get_varlen_cudagraph_max_query_len = getattr(builder, "get_varlen_cudagraph_max_query_len", None)


def _resolve_graphs(settled: Settled, stage: BuiltStage, worker_config: Any, graph_support: Any) -> None:
    """The graph mode and, for mamba layers under full graphs, enough blocks for every sequence (``vllm/config/compilation.py``)."""
    config = stage.config
    resolve = config.compilation_config.resolve_cudagraph_mode_and_sizes
    options = compat.accepted(
        resolve,
        use_v2_model_runner=compat.uses_v2_runner(config),
        kv_cache_config=worker_config,
        max_num_reqs=config.scheduler_config.max_num_seqs,
        is_profiling=False,
        tensor_parallel_size=config.parallel_config.tensor_parallel_size,
    )
    speculative_tokens = config.speculative_config.num_speculative_tokens if config.speculative_config else 0
    resolve(graph_support.min_cg_support, graph_support.min_cg_attn_backend, 1 + speculative_tokens, **options)
    settled.config.compilation_config.cudagraph_mode = config.compilation_config.cudagraph_mode


def build_scheduler(settled: Settled) -> None:
    """The real scheduler, with its KV-cache manager and coordinator: the last assertions of a launch, the divisibility one among them."""
    config, scheduler_config = settled.config, settled.scheduler_config
    if not scheduler_config.kv_cache_groups:
        config.scheduler_config.enable_chunked_prefill = False  # as EngineCore does for a model without KV cache
    if config.kv_transfer_config is not None and config.kv_transfer_config.kv_connector not in _QUIET_CONNECTORS:
        settled.not_checked(
            f"connector {config.kv_transfer_config.kv_connector}", "its scheduler side opens sockets or needs its own package"
        )
    lacking = _missing_for_multimodal(settled)
    if lacking is not None:
        # The multimodal budget needs a processor that a lone config.json does not bring; the KV-cache side does not.
        settled.not_checked("multimodal budget of the scheduler", lacking)
    scheduler = None
    with (
        suppress(NotChecked),
        settled.step(SCHEDULER, after_plan=True),
        _nothing_published(),
        _only_quiet_connectors(config),
        _multimodal_budget(present=lacking is None),
    ):
        scheduler = _scheduler(settled)
    if scheduler is None:
        settled.not_checked(PREFIX, "it needs the scheduler")
        return
    settled.report_step(PREFIX)
    try:
        settled.min_reusable_prefix_tokens = prefix.smallest_reusable(settled, scheduler)
        if settled.request.prefix is not None:
            settled.prefix_hits += prefix.hits(settled, scheduler, settled.request.prefix)
    except Exception as error:  # noqa: BLE001 - the launch is settled; a question of ours that vLLM cannot take must not undo that
        settled.not_checked(PREFIX, f"{type(error).__name__}: {first_line(error)}")


def _scheduler(settled: Settled) -> Any:
    from vllm.v1.structured_output import StructuredOutputManager

    config = settled.config
    return config.scheduler_config.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=pool_config(settled),
        structured_output_manager=object.__new__(StructuredOutputManager),  # its constructor wants a tokenizer; the scheduler only keeps it
        block_size=settled.scheduler_block_size,
        hash_block_size=settled.hash_block_size,
        log_stats=False,
    )


@contextmanager
def _nothing_published() -> Iterator[None]:
    """KV events would bind a socket."""
    from vllm.distributed.kv_events import EventPublisherFactory, NullEventPublisher

    create = EventPublisherFactory.create
    EventPublisherFactory.create = staticmethod(lambda *_a, **_k: NullEventPublisher())
    try:
        yield
    finally:
        EventPublisherFactory.create = create


@contextmanager
def _only_quiet_connectors(config: Any) -> Iterator[None]:
    """Leave a connector out of the scheduler when making it would reach the network."""
    transfer = config.kv_transfer_config
    quiet = transfer is None or transfer.kv_connector in _QUIET_CONNECTORS
    config.kv_transfer_config = transfer if quiet else None
    try:
        yield
    finally:
        config.kv_transfer_config = transfer


def _missing_for_multimodal(settled: Settled) -> str | None:
    """Why the scheduler could not size its multimodal budget: what is missing beside the config. ``None`` where nothing is."""
    from vllm.multimodal import MULTIMODAL_REGISTRY
    from vllm.v1.core.sched import scheduler

    config = settled.config
    if not getattr(config.model_config, "supports_multimodal_inputs", config.model_config.is_multimodal_model):
        return None
    try:
        scheduler.MultiModalBudget(config, MULTIMODAL_REGISTRY)
    except Exception as error:  # noqa: BLE001 - the scheduler makes the budget again; what is vLLM's refusal is met there
        if needs_gpu(error):
            return first_line(error)
        if lacks_file(error) or "tokenizer" in str(error).lower() or "processor" in str(error).lower():
            # Not vLLM's words, which lead astray: they talk of flags and of a hub id that nobody gave.
            return "it needs the model's tokenizer and processor, which are not beside the config"
    return None


@contextmanager
def _multimodal_budget(*, present: bool) -> Iterator[None]:
    """Where the budget cannot be sized, have the scheduler take the model for a text model: its KV-cache side is all that is asked here."""
    from vllm.v1.core.sched import scheduler

    budget = scheduler.MultiModalBudget

    class NoBudget:
        mm_max_toks_per_item: ClassVar[dict[str, int]] = {}
        encoder_compute_budget = 0
        encoder_cache_size = 0

        def __init__(self, *_arguments: Any, **_options: Any) -> None:
            return

    if not present:
        scheduler.MultiModalBudget = NoBudget
    try:
        yield
    finally:
        scheduler.MultiModalBudget = budget
