"""The names of vLLM that the dry launch calls, replaces or reads, as data: what a new release must still have.

Kept in step with ``kvdoctor/dryrun``: whoever takes another name of vLLM there adds its line here. ``examine`` looks each up in a
release's source. Not listed is what the dry launch takes only if it is there and can do without.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NeededName:
    """A name, in any one of ``places`` (``module:name`` or ``module:Class.member``, the newest first), and what it is for.

    ``positional`` is how many arguments the dry launch passes by position (``self`` is none), ``None`` where it never calls the name.
    ``keywords`` are passed by name; ``offered`` are passed where they are taken. ``since`` and ``until`` (exclusive) say which releases
    are asked.
    """

    places: tuple[str, ...]
    use: str
    positional: int | None = None
    keywords: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    since: tuple[int, int] = (0, 0)
    until: tuple[int, int] | None = None


def _attributes(owner: str, names: str, use: str, since: tuple[int, int] = (0, 0)) -> tuple[NeededName, ...]:
    """Name members of one class, with the same use."""
    return tuple(NeededName(places=(f"{owner}.{name}",), use=use, since=since) for name in names.split())


_ARGUMENTS = (
    NeededName(
        # 0.30 and later; 0.29; 0.28 and older
        places=(
            "vllm.entrypoints.common.cli_args:make_arg_parser",
            "vllm.entrypoints.launchers.cli_args:make_arg_parser",
            "vllm.entrypoints.openai.cli_args:make_arg_parser",
        ),
        use="the arguments of `vllm serve`",
        positional=1,
    ),
    NeededName(places=("vllm.utils.argparse_utils:FlexibleArgumentParser",), use="vLLM's parser"),
    NeededName(places=("vllm.engine.arg_utils:EngineArgs.add_cli_args",), use="the arguments of LLM()", positional=1),
    NeededName(places=("vllm.engine.arg_utils:EngineArgs.from_cli_args",), use="the arguments as vLLM keeps them", positional=1),
    NeededName(places=("vllm.engine.arg_utils:AsyncEngineArgs.from_cli_args",), use="the arguments as vLLM keeps them", positional=1),
    NeededName(
        places=("vllm.engine.arg_utils:EngineArgs.create_engine_config",),
        use="the configuration",
        positional=0,
        keywords=("usage_context",),
    ),
    NeededName(places=("vllm.usage.usage_lib:UsageContext.OPENAI_API_SERVER",), use="the defaults of `vllm serve`"),
    NeededName(places=("vllm.usage.usage_lib:UsageContext.LLM_CLASS",), use="the defaults of LLM()"),
    NeededName(
        # 0.33 and later; 0.29 to 0.32; 0.28 and older
        places=(
            "vllm.entrypoints.common.cli_args:validate_parsed_serve_args",
            "vllm.entrypoints.launchers.cli_args:validate_parsed_serve_args",
            "vllm.entrypoints.openai.cli_args:validate_parsed_serve_args",
        ),
        use="what `vllm serve` refuses of its arguments",
        positional=1,
    ),
    NeededName(
        places=(
            "vllm.entrypoints.common.cli_args:validate_api_server_args",
            "vllm.entrypoints.launchers.launcher:validate_api_server_args",
            "vllm.entrypoints.openai.api_server:validate_api_server_args",
        ),
        use="the parsers that the server has",
        positional=1,
    ),
    NeededName(places=("vllm.tool_parsers:ToolParserManager",), use="the tool parsers"),
    NeededName(places=("vllm.reasoning:ReasoningParserManager",), use="the reasoning parsers"),
    NeededName(places=("vllm.config.reasoning:ReasoningConfig.initialize_token_ids",), use="a tokenizer that is not here", positional=1),
    NeededName(places=("vllm.tokenizers:cached_tokenizer_from_config",), use="a tokenizer that is not here", positional=1),
    NeededName(places=("vllm.utils.import_utils:resolve_obj_by_qualname",), use="classes that arguments name", positional=1),
    NeededName(places=("vllm.lora.peft_helper:PEFTHelper.from_local_dir",), use="the adapters of --lora-modules", positional=2),
    NeededName(
        places=("vllm.v1.worker.lora_model_runner_mixin:LoRAModelRunnerMixin._ensure_lora_enabled",),
        use="--lora-modules without --enable-lora",
    ),
    NeededName(places=("vllm.v1.worker.utils:request_memory",), use="more memory than a GPU has free", positional=2),
)

_CONFIGURATION = (
    *_attributes(
        "vllm.config:VllmConfig",
        "model_config cache_config parallel_config scheduler_config compilation_config speculative_config kv_transfer_config",
        "the parts of the configuration",
    ),
    *_attributes(
        "vllm.config:ParallelConfig",
        "tensor_parallel_size pipeline_parallel_size prefill_context_parallel_size decode_context_parallel_size data_parallel_size "
        "data_parallel_rank world_size world_size_across_dp enable_expert_parallel",
        "the ranks of the assumed cluster",
    ),
    *_attributes(
        "vllm.config:CacheConfig",
        "gpu_memory_utilization kv_cache_memory_bytes cache_dtype enable_prefix_caching prefix_caching_hash_algo num_gpu_blocks",
        "the KV cache's settings",
    ),
    *_attributes("vllm.config:CacheConfig", "resolved_gpu_memory_utilization", "the share of the GPU when it is not given", since=(0, 34)),
    *_attributes(
        "vllm.config:ModelConfig",
        "max_model_len dtype quantization hf_config hf_text_config runner_type architectures get_hidden_size get_vocab_size "
        "is_multimodal_model multimodal_config",
        "the model's facts and the estimate of the budget",
    ),
    *_attributes(
        "vllm.config:SchedulerConfig",
        "max_num_seqs max_num_batched_tokens enable_chunked_prefill async_scheduling get_scheduler_cls",
        "the scheduler's settings",
    ),
    NeededName(places=("vllm.config:set_current_vllm_config",), use="layers read the current configuration", positional=1),
    NeededName(places=("vllm.config:get_layers_from_vllm_config",), use="the attention layers of the built model", positional=2),
)

_DEVICE = (
    NeededName(places=("vllm.platforms:current_platform",), use="the platform that is replaced"),
    NeededName(places=("vllm.platforms:_current_platform",), use="the platform that is replaced"),
    *_attributes(
        "vllm.platforms.cuda:CudaPlatformBase",
        "get_device_capability get_device_name get_device_total_memory num_compute_units is_pin_memory_available set_device "
        "get_device_communicator_cls update_block_size_for_backend",
        "the assumed GPU's answers",
    ),
    NeededName(places=("vllm.platforms.cuda:pynvml",), use="what NVML does not report of a GPU"),
    NeededName(
        places=("vllm.platforms.cuda:NvmlCudaPlatform.get_device_total_memory",),
        use="vLLM's own way where NVML has no answer",
        positional=0,
    ),
    NeededName(places=("vllm.platforms.cuda:cuda_get_device_properties",), use="CUDA's answer in the place of NVML's", since=(0, 33)),
    NeededName(places=("vllm.platforms.interface:DeviceCapability",), use="the assumed compute capability", positional=2),
    NeededName(
        places=("vllm.distributed.device_communicators.base_device_communicator:DeviceCommunicatorBase",), use="communicators open nothing"
    ),
    NeededName(
        places=("vllm.distributed.device_communicators.shm_broadcast:MessageQueue.create_from_process_group",),
        use="no shared memory is opened",
    ),
    NeededName(places=("vllm.distributed.parallel_state:_node_count",), use="the assumed cluster is one node"),
    NeededName(
        places=("vllm.distributed.parallel_state:init_distributed_environment",),
        use="the assumed cluster",
        positional=0,
        keywords=("world_size", "rank", "local_rank", "distributed_init_method", "backend"),
    ),
    NeededName(
        places=("vllm.distributed.parallel_state:initialize_model_parallel",),
        use="the assumed cluster",
        positional=0,
        keywords=(
            "tensor_model_parallel_size",
            "pipeline_model_parallel_size",
            "prefill_context_model_parallel_size",
            "decode_context_model_parallel_size",
            "backend",
        ),
    ),
    NeededName(places=("vllm.distributed.parallel_state:destroy_model_parallel",), use="the next stage's groups", positional=0),
    NeededName(places=("vllm.distributed.parallel_state:destroy_distributed_environment",), use="the next stage's groups", positional=0),
    NeededName(places=("vllm.distributed.parallel_state:get_pp_group",), use="drafts are made by the last stage", positional=0),
    NeededName(places=("vllm.utils.deep_gemm:_apply_pdl",), use="DeepGEMM's library does not ask the driver"),
    NeededName(places=("vllm:_custom_ops",), use="operators are named after they are registered"),
    NeededName(places=("vllm:__version__",), use="which vLLM answers"),
)

# The V1 runner's drafters: there is no such runner since 0.34.
_DRAFTERS = tuple(
    NeededName(
        places=(f"vllm.v1.spec_decode.{place}",), use="the draft model of the V1 runner", positional=2, offered=("runner",), until=until
    )
    for place, until in (
        ("draft_model:DraftModelProposer", (0, 34)),
        ("gemma4:Gemma4Proposer", (0, 34)),
        ("step3p5:Step3p5MTPProposer", (0, 34)),
        ("dflash:DFlashProposer", (0, 34)),
        ("eagle:EagleProposer", (0, 34)),
        ("medusa:MedusaProposer", (0, 33)),
        ("extract_hidden_states:ExtractHiddenStatesProposer", (0, 34)),
    )
)

_MODEL = (
    NeededName(places=("vllm.model_executor.model_loader:get_model_loader",), use="the loader that is replaced: no weights are loaded"),
    NeededName(places=("vllm.model_executor.model_loader:get_model",), use="the model is built", positional=0, keywords=("vllm_config",)),
    *_attributes(
        "vllm.model_executor.model_loader.base_loader:BaseModelLoader",
        "download_model load_weights load_model",
        "the loader that is replaced",
    ),
    NeededName(
        places=("vllm.model_executor.model_loader.utils:record_metadata_for_reloading",),
        use="what only a reload of weights needs",
    ),
    NeededName(
        places=("vllm.model_executor.model_loader.utils:initialize_model",),
        use="the model is built",
        positional=0,
        keywords=("vllm_config", "model_config", "prefix"),
    ),
    NeededName(places=("vllm.utils.torch_utils:set_default_torch_dtype",), use="the model is built in its dtype", positional=1),
    NeededName(
        places=("vllm.model_executor.layers.attention_layer_base:AttentionLayerBase",), use="the attention layers of the built model"
    ),
    NeededName(
        places=("vllm.model_executor.models.registry:_run_in_subprocess",), use="model classes are inspected here, where the stand-ins are"
    ),
    *_attributes(
        "vllm.model_executor.models.registry:_LazyRegisteredModel",
        "_load_modelinfo_from_cache _save_modelinfo_to_cache",
        "what a model class can do is not taken from a file",
    ),
    NeededName(
        places=("vllm.model_executor.layers.fused_moe.expert_map_manager:ExpertMapManager.get_compressed_map_string",),
        use="expert maps are not read back",
    ),
    NeededName(
        places=("vllm.model_executor.layers.quantization.base_config:QuantizeMethodBase.process_weights_after_loading",),
        use="weights that are quantised while loading",
        positional=1,
    ),
    NeededName(
        places=("vllm.model_executor.layers.quantization.base_config:QuantizeMethodBase.uses_meta_device",),
        use="weights that are quantised while loading",
    ),
    NeededName(places=("vllm.model_executor.offloader:create_offloader",), use="weights kept in the CPU's memory", positional=1),
    NeededName(places=("vllm.model_executor.offloader:set_offloader",), use="weights kept in the CPU's memory", positional=1),
    NeededName(places=("vllm.model_executor.offloader:NoopOffloader",), use="weights kept in the CPU's memory"),
    NeededName(places=("vllm.model_executor.offloader.uva:get_accelerator_view_from_cpu_tensor",), use="weights kept in the CPU's memory"),
    NeededName(
        places=("vllm.model_executor.offloader.prefetch:_ModuleOffloader.start_onload_to_static",), use="weights kept in the CPU's memory"
    ),
    NeededName(places=("vllm.v1.worker.workspace:init_workspace_manager",), use="layers ask for the workspace", positional=1),
    NeededName(places=("vllm.v1.worker.gpu.spec_decode:init_speculator",), use="the draft model", positional=2, offered=("req_states",)),
    NeededName(places=("vllm.multimodal.registry:cached_tokenizer_from_config",), use="a multimodal model without its tokenizer"),
    NeededName(
        # Moved to the model's configuration in 0.31.
        places=(
            "vllm.config:ModelConfig._supports_multimodal_inputs",
            "vllm.multimodal.registry:MultiModalRegistry.supports_multimodal_inputs",
        ),
        use="a multimodal model without its tokenizer",
    ),
    NeededName(
        # 0.31 and later; 0.28 to 0.30
        places=(
            "vllm.model_executor.layers.fusion.mm_input_norm:_load_norm_params",
            "vllm.model_executor.models.vision:FusedInputNorm.from_model_config",
        ),
        use="a vision model without its processor's file",
        since=(0, 28),
    ),
    NeededName(
        places=("vllm.model_executor.layers.fusion.mm_input_norm:NormParams",),
        use="a vision model without its processor's file",
        since=(0, 31),
    ),
    NeededName(places=("vllm.multimodal:MULTIMODAL_REGISTRY",), use="the multimodal budget"),
)

_PLANNING = (
    NeededName(
        places=("vllm.v1.core.kv_cache_utils:get_max_concurrency_for_kv_cache_config",), use="requests at other lengths", positional=2
    ),
    NeededName(places=("vllm.v1.engine.core:EngineCore._initialize_kv_caches",), use="the KV-cache plan", positional=1),
    *_attributes(
        "vllm.v1.executor.abstract:Executor",
        "_init_executor collective_rpc get_kv_cache_specs determine_available_memory initialize_from_config check_health",
        "the executor over stand-in workers",
    ),
    # The questions to the workers that are answered.
    *_attributes(
        "vllm.v1.worker.gpu_worker:Worker",
        "get_kv_cache_spec determine_available_memory update_max_model_len initialize_from_config compile_or_warm_up_model",
        "the worker's answers while the engine plans",
    ),
    *_attributes(
        "vllm.v1.worker.gpu_worker:Worker",
        "get_supported_kv_cache_layouts set_kv_cache_layout",
        "the worker's answers while the engine plans",
        since=(0, 29),
    ),
    NeededName(
        places=("vllm.v1.worker.gpu_worker:Worker.get_simple_cpu_offload_num_cpu_blocks",),
        use="the host memory of SimpleCPUOffloadConnector",
        since=(0, 33),
    ),
    NeededName(
        places=("vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector:SimpleCPUOffloadConnector",),
        use="the host memory of SimpleCPUOffloadConnector",
        positional=3,
        since=(0, 33),
    ),
    NeededName(
        places=("vllm.v1.simple_kv_offload.manager:SimpleCPUOffloadScheduler._derive_cpu_config",),
        use="the host memory of SimpleCPUOffloadConnector",
        positional=3,
        since=(0, 33),
    ),
    NeededName(
        places=("vllm.distributed.kv_transfer.kv_connector.v1.base:KVConnectorRole",),
        use="the host memory of SimpleCPUOffloadConnector",
        since=(0, 33),
    ),
    NeededName(places=("vllm.config:KVTransferConfig",), use="the host memory of SimpleCPUOffloadConnector", since=(0, 33)),
    *_attributes(
        "vllm.v1.worker.gpu_worker:Worker",
        "extensible_kv_cache_unsupported_reason disable_extensible_kv_cache extend_kv_cache",
        "the extensible KV cache",
        since=(0, 34),
    ),
    NeededName(
        places=("vllm.v1.worker.extensible_kv_cache:KV_CACHE_MARGIN_FLOOR_BYTES",), use="the size of the extensible KV cache", since=(0, 34)
    ),
    NeededName(
        places=("vllm.v1.worker.extensible_kv_cache:KV_CACHE_MARGIN_FRACTION",), use="the size of the extensible KV cache", since=(0, 34)
    ),
    NeededName(
        places=("vllm.v1.worker.worker_base:CompilationTimes",),
        use="what a worker reports after its warm-up",
        positional=0,
        keywords=("language_model", "encoder"),
        offered=("num_kv_blocks",),
    ),
    NeededName(
        places=("vllm.v1.worker.worker_base:CompilationTimes",),
        use="the blocks of the extensible KV cache",
        positional=0,
        keywords=("language_model", "encoder", "num_kv_blocks"),
        since=(0, 34),
    ),
    NeededName(
        # A step of its own since 0.33, inside get_kv_cache_configs before.
        places=("vllm.v1.engine.core:get_global_kv_cache_groups", "vllm.v1.core.kv_cache_utils:get_kv_cache_groups"),
        use="the groups, seen when they are made",
    ),
    NeededName(
        places=(
            "vllm.v1.core.kv_cache_planning:_check_enough_kv_cache_memory",
            "vllm.v1.core.kv_cache_utils:_check_enough_kv_cache_memory",
        ),
        use="the bytes that a full request needs",
        positional=4,
        offered=("hint",),  # passed on as it comes (0.34)
    ),
    NeededName(
        places=("vllm.v1.core.kv_cache_utils:resolve_kv_cache_block_sizes",), use="the scheduler's and the hash block", positional=2
    ),
    NeededName(
        places=("vllm.v1.core.kv_cache_utils:resolve_dcp_kv_block_size",), use="decode context parallelism", positional=2, since=(0, 29)
    ),
    NeededName(places=("vllm.v1.worker.worker_base:get_supported_kv_cache_layouts",), use="the KV layout", positional=1, since=(0, 29)),
    NeededName(places=("vllm.v1.worker.worker_base:get_current_attn_backends",), use="the KV layout", positional=1, since=(0, 29)),
    NeededName(places=("vllm.v1.worker.worker_base:record_kv_cache_layout",), use="the KV layout", positional=2, since=(0, 29)),
    NeededName(places=("vllm.v1.worker.gpu_worker:reserve_mm_ipc_gpu_memory",), use="a given budget", positional=3, since=(0, 31)),
    *_attributes("vllm.v1.kv_cache_interface:KVCacheConfig", "num_blocks kv_cache_groups kv_cache_tensors", "the plan's figures"),
    *_attributes("vllm.v1.kv_cache_interface:KVCacheSpec", "block_size page_size_bytes max_memory_usage_bytes", "the plan's figures"),
    *_attributes("vllm.v1.kv_cache_interface:KVCacheGroupSpec", "layer_names kv_cache_spec", "the plan's groups"),
    NeededName(places=("vllm.v1.kv_cache_interface:KVQuantMode",), use="layer specs given directly"),
    NeededName(places=("vllm.config.cache:MambaCacheMode",), use="layer specs given directly"),
    NeededName(places=("vllm.v1.attention.backends.registry:MambaAttentionBackendEnum",), use="layer specs given directly"),
)

_CHECKS = (
    NeededName(places=("vllm.v1.worker.gpu.attn_utils:get_kv_cache_spec",), use="the layers' specs", positional=1),
    NeededName(places=("vllm.v1.worker.gpu.attn_utils:init_attn_backend",), use="kernel block sizes and graph support", positional=3),
    NeededName(
        places=("vllm.v1.worker.gpu.attn_utils:init_kv_cache",),
        use="the buffers' views",
        positional=0,
        keywords=("forward_context", "kv_cache_config", "device", "kernel_block_sizes"),
        offered=("runner_kv_caches", "attn_groups", "cache_dtype", "vllm_config"),
    ),
    NeededName(places=("vllm.v1.worker.utils:AttentionGroup.create_metadata_builders",), use="kernel block sizes, with no builder made"),
    NeededName(
        places=("vllm.v1.worker.cp_utils:check_attention_cp_compatibility",),
        use="context parallelism",
        positional=1,
        offered=("target_layer_names",),
    ),
    NeededName(
        places=("vllm.config:CompilationConfig.resolve_cudagraph_mode_and_sizes",),
        use="the CUDA-graph mode",
        positional=3,
        offered=("use_v2_model_runner", "kv_cache_config", "max_num_reqs", "is_profiling", "tensor_parallel_size"),
    ),
    *_attributes("vllm.config:CompilationConfig", "static_forward_context cudagraph_mode", "the layers, and the CUDA-graph mode"),
    NeededName(places=("vllm.distributed.kv_events:EventPublisherFactory.create",), use="no events are published"),
    NeededName(places=("vllm.distributed.kv_events:NullEventPublisher",), use="no events are published", positional=0),
    NeededName(places=("vllm.v1.core.sched.scheduler:MultiModalBudget",), use="the scheduler's multimodal budget", positional=2),
    NeededName(
        places=("vllm.v1.core.sched.scheduler:Scheduler",),
        use="the scheduler's own checks",
        positional=0,
        keywords=("vllm_config", "kv_cache_config", "structured_output_manager", "block_size", "hash_block_size", "log_stats"),
    ),
    NeededName(places=("vllm.v1.structured_output:StructuredOutputManager",), use="the scheduler keeps one"),
)

_PREFIX = (
    *_attributes(
        "vllm.v1.core.sched.scheduler:Scheduler",
        "add_request schedule update_from_output kv_cache_manager",
        "the smallest reusable prefix",
    ),
    NeededName(
        places=("vllm.v1.core.kv_cache_manager:KVCacheManager.get_computed_blocks",), use="the smallest reusable prefix", positional=1
    ),
    NeededName(places=("vllm.utils.hashing:get_hash_fn_by_name",), use="the smallest reusable prefix", positional=1),
    NeededName(places=("vllm.v1.core.kv_cache_utils:init_none_hash",), use="the smallest reusable prefix", positional=1),
    NeededName(places=("vllm.v1.core.kv_cache_utils:get_request_block_hasher",), use="the smallest reusable prefix", positional=2),
    NeededName(
        places=("vllm.v1.request:Request",),
        use="the smallest reusable prefix",
        positional=0,
        keywords=("request_id", "prompt_token_ids", "sampling_params", "pooling_params", "block_hasher"),
    ),
    NeededName(places=("vllm.pooling_params:PoolingParams",), use="the smallest reusable prefix"),
    NeededName(places=("vllm.sampling_params:SamplingParams",), use="the smallest reusable prefix"),
    NeededName(
        places=("vllm.v1.outputs:ModelRunnerOutput",),
        use="the smallest reusable prefix",
        positional=0,
        keywords=("req_ids", "sampled_token_ids", "logprobs", "prompt_logprobs_dict", "pooler_output"),
        offered=("req_id_to_index",),
    ),
)

NEEDED: tuple[NeededName, ...] = (*_ARGUMENTS, *_CONFIGURATION, *_DEVICE, *_MODEL, *_DRAFTERS, *_PLANNING, *_CHECKS, *_PREFIX)
