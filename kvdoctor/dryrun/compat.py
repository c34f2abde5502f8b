"""Where vLLM's releases differ on the path of a launch: each difference once, by what the code offers and not by its version.

Written against 0.33.0; every branch names the release that makes it needed.
"""

import importlib
import importlib.util
import inspect
from typing import Any

from kvdoctor.dryrun.stand_in import Untaught


def accepted(function: Any, **options: Any) -> dict[str, Any]:
    """Those of ``options`` that ``function`` takes: signatures grow and shrink by a keyword from release to release."""
    taken = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in taken}


def serve_parser(parser: Any) -> Any:
    """Give ``parser`` the arguments of ``vllm serve``."""
    make = serve_function("make_arg_parser")
    if make is None:
        raise Untaught("where the parser of `vllm serve` is")
    return make(parser)


# Where vLLM keeps what it does with the server's arguments: since 0.30; 0.29 (two modules); 0.28 and older (two modules).
_SERVE_MODULES = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.launchers.launcher",
    "vllm.entrypoints.openai.cli_args",
    "vllm.entrypoints.openai.api_server",
)


def serve_function(name: str) -> Any:
    """The function of ``vllm serve`` called ``name``, in whichever module this release has it; ``None`` where it has moved elsewhere."""
    for module in _SERVE_MODULES:
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            continue
        if found is not None:
            return found
    return None


def planning_module() -> Any:
    """Where the KV-cache planning lives: a module of its own since 0.33."""
    try:
        return importlib.import_module("vllm.v1.core.kv_cache_planning")
    except ModuleNotFoundError:
        return importlib.import_module("vllm.v1.core.kv_cache_utils")


def grouping_step() -> tuple[Any, str]:
    """The module and name by which the engine calls the grouping: a step of its own since 0.33, inside ``get_kv_cache_configs`` before."""
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.engine import core

    return (core, "get_global_kv_cache_groups") if hasattr(core, "get_global_kv_cache_groups") else (kv_cache_utils, "get_kv_cache_groups")


def supported_layouts(backends: list[Any]) -> list[str]:
    """The KV layouts that all ``backends`` support, most preferred first; releases before 0.29 have no such choice."""
    from vllm.v1.worker import worker_base

    supported = getattr(worker_base, "get_supported_kv_cache_layouts", None)
    return [] if supported is None else [layout.name for layout in supported(backends)]


def current_backends(config: Any) -> list[Any]:
    """The attention backends of the built layers; asked for since 0.29."""
    from vllm.v1.worker import worker_base

    current = getattr(worker_base, "get_current_attn_backends", None)
    return [] if current is None else list(current(config))


def record_layout(cache_config: Any, layout: str) -> None:
    """What a worker does with the layout that the engine chose (0.29 and later)."""
    from vllm.v1.worker import worker_base

    worker_base.record_kv_cache_layout(cache_config, layout)


def scheduled_block_size(spec: Any, config: Any) -> int:
    """Tokens of one block as the scheduler counts them: decode context parallelism multiplies it."""
    from vllm.v1.core import kv_cache_utils

    size = config.parallel_config.decode_context_parallel_size
    resolve = getattr(kv_cache_utils, "resolve_dcp_kv_block_size", None)  # 0.29 and later; every block was multiplied before
    return int(spec.block_size * size if resolve is None else resolve(spec, size))


def uses_v2_runner(config: Any) -> bool:
    """Whether the V2 model runner serves the launch: the configuration chooses up to 0.33; 0.34 has no other."""
    chosen = getattr(config, "use_v2_model_runner", None)
    return bool(importlib.util.find_spec("vllm.v1.worker.gpu_model_runner") is None if chosen is None else chosen)


def make_speculator(config: Any, device: Any) -> Any:
    """The speculator of the model runner that vLLM would use: its model is loaded, and a V1 drafter checks the plan.

    The V1 runner (the default for hybrid and MoE models up to 0.28) chooses its drafter in ``gpu_model_runner.py``; the V2 runner has
    ``init_speculator``, with a third argument that only n-gram drafting reads since 0.32.
    """
    if uses_v2_runner(config):
        from vllm.v1.worker.gpu.spec_decode import init_speculator

        return init_speculator(config, device, **accepted(init_speculator, req_states=None))
    return _v1_drafter(config, device)


def _v1_drafter(config: Any, device: Any) -> Any:
    """The V1 runner's choice of drafter, for the methods that have a model."""
    import types

    speculative = config.speculative_config
    runner = types.SimpleNamespace(max_num_reqs=config.scheduler_config.max_num_seqs, supports_mm_inputs=False, uses_mrope=False)
    for module, name, method in (
        ("draft_model", "DraftModelProposer", "uses_draft_model"),
        ("gemma4", "Gemma4Proposer", "use_gemma4_mtp"),
        ("step3p5", "Step3p5MTPProposer", "use_step3p5_mtp"),
        ("dflash", "DFlashProposer", "use_dflash"),
        ("eagle", "EagleProposer", "use_eagle"),
        ("medusa", "MedusaProposer", None),
        ("extract_hidden_states", "ExtractHiddenStatesProposer", "uses_extract_hidden_states"),
    ):
        chosen = getattr(speculative, method or "", None)
        if chosen() if callable(chosen) else speculative.method == module:
            drafter = getattr(importlib.import_module(f"vllm.v1.spec_decode.{module}"), name)
            return drafter(config, device, **accepted(drafter.__init__, runner=runner))
    return None


def bind_buffers(config: Any, worker_config: Any, groups: Any, kernel_block_sizes: Any, device: Any) -> None:
    """``init_kv_cache`` of the V2 runner: buffers, strides and views of every layer, on ``device``."""
    from vllm.v1.worker.gpu.attn_utils import init_kv_cache

    flat = [group for members in groups for group in members]
    init_kv_cache(
        **accepted(
            init_kv_cache,
            runner_kv_caches=[],  # up to 0.29
            forward_context=config.compilation_config.static_forward_context,
            kv_cache_config=worker_config,
            # A flat list of all groups since 0.32; one list a KV-cache group before 0.29.
            attn_groups=groups if "runner_kv_caches" in inspect.signature(init_kv_cache).parameters else flat,
            device=device,
            cache_dtype=config.cache_config.cache_dtype,
            kernel_block_sizes=kernel_block_sizes,
            vllm_config=config,
        )
    )


def compilation_times(num_kv_blocks: int | None) -> Any:
    """What a worker reports after its warm-up: with the measured blocks of an extensible KV cache since 0.34."""
    from vllm.v1.worker import worker_base

    times = worker_base.CompilationTimes
    return times(language_model=0.0, encoder=0.0, **({} if num_kv_blocks is None else {"num_kv_blocks": num_kv_blocks}))


def gpu_memory_utilization(cache_config: Any) -> float:
    """The share of the GPU that vLLM takes: unset since 0.34, and then by the way the cache is sized."""
    return float(getattr(cache_config, "resolved_gpu_memory_utilization", cache_config.gpu_memory_utilization))


def runner_output(names: list[str], **options: Any) -> Any:
    """A model runner's output for the requests ``names``; the index beside their names went in 0.34."""
    from vllm.v1.outputs import ModelRunnerOutput

    index = {name: position for position, name in enumerate(names)}
    return ModelRunnerOutput(req_ids=names, **options, **accepted(ModelRunnerOutput, req_id_to_index=index))


def extensible_margin(cache_config: Any, transient_bytes: int) -> int | None:
    """Bytes that an extensible KV cache leaves free beyond the transient peak (0.34); ``None`` where the cache is sized from a profile."""
    if not getattr(cache_config, "enable_extensible_kv_cache", False):
        return None
    from vllm.v1.worker import extensible_kv_cache as sizing

    return max(int(sizing.KV_CACHE_MARGIN_FLOOR_BYTES), int(sizing.KV_CACHE_MARGIN_FRACTION * transient_bytes))
