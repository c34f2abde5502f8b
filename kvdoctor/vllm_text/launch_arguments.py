"""The arguments that a log names, as the words of a command line.

Only arguments that the KV-cache plan can depend on are taken, each from a list: a log comes from elsewhere, and must neither name code to
import nor files to read.
"""

import json
from dataclasses import dataclass
from typing import Any

from kvdoctor.vllm_text.python_repr import UNREAD

_TAKEN = frozenset(
    [
        "dtype",
        "max_model_len",
        "kv_cache_dtype",
        "kv_cache_dtype_skip_layers",
        "block_size",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "num_gpu_blocks_override",
        "enable_prefix_caching",
        "prefix_match_unit",
        "mamba_cache_dtype",
        "mamba_ssm_cache_dtype",
        "mamba_block_size",
        "mamba_cache_mode",
        "calculate_kv_scales",
        "kv_sharing_fast_prefill",
        "enable_extensible_kv_cache",
        "cpu_offload_gb",
        "swap_space",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
        "dcp_kv_cache_interleave_size",
        "cp_kv_cache_interleave_size",
        "data_parallel_size",
        "data_parallel_size_local",
        "enable_expert_parallel",
        "all2all_backend",
        "enable_dbo",
        "enable_eplb",
        "max_num_seqs",
        "max_num_batched_tokens",
        "enable_chunked_prefill",
        "async_scheduling",
        "disable_hybrid_kv_cache_manager",
        "disable_chunked_mm_input",
        "scheduler_reserve_full_isl",
        "quantization",
        "enforce_eager",
        "hf_overrides",
        "config_format",
        "tokenizer_mode",
        "skip_tokenizer_init",
        "speculative_config",
        "kv_transfer_config",
        "attention_backend",
        "attention_config",
        "limit_mm_per_prompt",
        "language_model_only",
        "skip_mm_profiling",
        "mm_encoder_tp_mode",
        "mm_encoder_attn_backend",
        "runner",
        "convert",
        "task",
        "pooler_config",
        "rope_scaling",
        "rope_theta",
        "disable_sliding_window",
        "disable_cascade_attn",
        "enable_lora",
        "max_loras",
        "max_lora_rank",
        "moe_backend",
        "model_impl",
        "revision",
        "compilation_config",
        "cudagraph_capture_sizes",
        "max_cudagraph_capture_size",
        "optimization_level",
        "performance_mode",
        "generation_config",
        "kv_offloading_size",
        "kv_offloading_backend",
    ]
)
# The front end's, the loader's, and what only names or counts: no plan depends on them, so nobody need hear of them.
_IDLE = frozenset(
    [
        "model",
        "model_tag",
        "served_model_name",
        "host",
        "port",
        "uds",
        "api_server_count",
        "headless",
        "root_path",
        "response_role",
        "middleware",
        "seed",
        "tokenizer",
        "tokenizer_revision",
        "code_revision",
        "load_format",
        "download_dir",
        "safetensors_load_strategy",
        "model_loader_extra_config",
        "ignore_patterns",
        "use_tqdm_on_load",
        "distributed_executor_backend",
        "max_parallel_loading_workers",
        "disable_custom_all_reduce",
        "enable_auto_tool_choice",
        "reasoning_parser",
        "structured_outputs_config",
        "guided_decoding_backend",
        "return_tokens_as_token_ids",
        "enable_prompt_tokens_details",
        "enable_server_load_tracking",
        "enable_force_include_usage",
        "enable_request_id_headers",
        "enable_tokenizer_info_endpoint",
        "enable_offline_docs",
        "exclude_tools_when_tool_choice_none",
        "trust_request_chat_template",
        "show_hidden_metrics_for_version",
        "collect_detailed_traces",
        "kv_cache_metrics",
        "enable_mfu_metrics",
        "max_logprobs",
        "logprobs_mode",
        "stream_interval",
        "scheduling_policy",
        "override_generation_config",
        "prefix_caching_hash_algo",
        "enable_sleep_mode",
        "mm_processor_cache_gb",
        "mm_processor_cache_type",
        "interleave_mm_strings",
        "allowed_local_media_path",
        "allowed_media_domains",
        "media_io_kwargs",
        "shutdown_timeout",
        "aggregate_engine_logging",
        "trust_remote_code",
        "config",
        "subparser",
        "dispatch_function",
    ]
)
_IDLE_STARTS = (
    "ssl_",
    "allow",
    "uvicorn_",
    "chat_template",
    "default_chat_template",
    "log_",
    "otlp_",
    "disable_log",
    "enable_log",
    "h11_",
    "tool_",
    "disable_uvicorn",
    "disable_fastapi",
    "disable_access_log",
    "max_log_len",
)
# The whole of it is printed, defaults and caches included; of these the plan can depend on two.
_COMPILATION = ("mode", "cudagraph_mode")


@dataclass(frozen=True, kw_only=True)
class LaunchArguments:
    """The words for vLLM's parser, the names of those left out that might matter, and whether the launch trusted the model's code."""

    words: tuple[str, ...]
    left_out: tuple[str, ...]
    trusts_remote_code: bool


def launch_arguments(arguments: dict[str, Any]) -> LaunchArguments:
    """Turn vLLM's non-default arguments into words."""
    words: list[str] = []
    left_out: list[str] = []
    for name, given in arguments.items():
        if given is None or name in _IDLE or name.startswith(_IDLE_STARTS):
            continue
        value = _reduced(name, given)
        made = _words(name, value) if name in _TAKEN else None
        if made is None:
            left_out.append(name)
        else:
            words += made
    trusts = arguments.get("trust_remote_code") is True
    return LaunchArguments(words=tuple(words), left_out=tuple(sorted(left_out)), trusts_remote_code=trusts)


def _reduced(name: str, value: Any) -> Any:
    """Leave out of an object's fields those that are not set, and of the compilation's nearly all."""
    if not isinstance(value, dict):
        return value
    fields = {key: item for key, item in value.items() if item is not None and item is not UNREAD}
    if name == "compilation_config":
        return {key: fields[key] for key in _COMPILATION if key in fields}
    return fields


def _words(name: str, value: Any) -> list[str] | None:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, dict):
        return [] if not value else [f"{flag}={json.dumps(value)}"] if _is_data(value) else None
    if isinstance(value, list):
        items = [str(item) for item in value]
        return (
            [flag, *items]
            if items and all(isinstance(item, (int, str)) for item in value) and not any(i.startswith("-") for i in items)
            else None
        )
    return None if value is UNREAD else [f"{flag}={value}"]


def _is_data(value: Any) -> bool:
    """Tell whether a dictionary is plain data that names no code to import."""
    if isinstance(value, dict):
        return all(not key.endswith(("module_path", "_cls", "code_path")) and _is_data(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_data(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))
