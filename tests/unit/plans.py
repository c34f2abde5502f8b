"""Small plans to test with: each builder takes what a test is about and fills in the rest."""

import dataclasses
from typing import Any

from kvdoctor.launches.gpus import Gpu
from kvdoctor.launches.request import LaunchRequest, ModelReference
from kvdoctor.plan import Check, EngineFacts, GroupPlan, LaunchFacts, LayerPlan, LogRecord, MemoryFacts, Plan, Refusal, StagePlan

H100 = Gpu(
    name="h100-80g",
    device_name="NVIDIA H100 80GB HBM3",
    compute_capability=(9, 0),
    memory_bytes=85_520_809_984,
    nvml_memory_bytes=85_520_809_984,
    sm_count=132,
    shared_memory_bytes=232_448,
    l2_bytes=52_428_800,
    source="a test",
)

HASH_REFUSAL = Refusal(
    stage="the scheduler",
    exception="AssertionError",
    message=(
        "Each KV cache group's real block_size must be divisible by hash_block_size. "
        "block_sizes=[544, 544, 544, 544, 181], hash_block_size=98464"
    ),
)


LOG_RECORD = LogRecord(level="INFO", message="Setting attention block size to 576 tokens")


def request(**changes: Any) -> LaunchRequest:
    made = LaunchRequest(
        model=ModelReference(text="org/model", kind="hub", path=None, revision=None),
        specs=None,
        vllm_args=(),
        environment={},
        gpu=H100,
        usage="serve",
        kv_cache_memory_bytes=None,
        trust_remote_code=False,
        offline=True,
    )
    return dataclasses.replace(made, **changes)


def layer(name: str = "model.layers.0.self_attn.attn", **changes: Any) -> LayerPlan:
    made = LayerPlan(
        name=name,
        spec="FullAttentionSpec",
        kind="full_attention",
        block_size=16,
        page_bytes=32_768,
        used_bytes=32_768,
        backend="FLASH_ATTN",
        draft=False,
        fields={},
    )
    return dataclasses.replace(made, **changes)


def layers(name: str, numbers: range, **changes: Any) -> tuple[LayerPlan, ...]:
    """Layers named by ``name`` with a ``{}`` for the number."""
    return tuple(layer(name.format(number), **changes) for number in numbers)


def group(members: tuple[LayerPlan, ...], **changes: Any) -> GroupPlan:
    made = GroupPlan(
        spec=members[0].spec,
        kind=members[0].kind,
        block_size=members[0].block_size,
        layers=members,
        prefix_cacheable=True,
        draft=False,
        blocks_per_request=512,
        kernel_block_size=16,
    )
    return dataclasses.replace(made, **changes)


def plan(*groups: GroupPlan, launch: dict[str, Any] | None = None, memory: dict[str, Any] | None = None, **changes: Any) -> Plan:
    """A plan on one GPU whose pool is as wide as its widest group."""
    members = tuple(member for made in groups for member in made.layers)
    block = max((sum(member.page_bytes for member in made.layers) for made in groups), default=None)
    made = Plan(
        engine=EngineFacts(
            vllm_version="0.33.0",
            torch_version="2.12.0",
            transformers_version="5.5.0",
            source="installed",
            platform="cuda",
            compute_capability="9.0",
            libraries="stand-ins",
            model_runner="V2",
            attention_backends={"FLASH_ATTN": len(members)} if members else {},
            kv_cache_layout="BLNHC",
        ),
        launch=dataclasses.replace(LAUNCH, **(launch or {})),
        memory=dataclasses.replace(MEMORY, **(memory or {})),
        stages=(
            StagePlan(
                index=0,
                weights_bytes=16_060_522_496,
                draft_weights_bytes=0,
                kv_cache_bytes=42_949_672_960,
                layer_count=len(members),
                group_layers=tuple(len(made.layers) for made in groups),
                bytes_per_block=block,
            ),
        ),
        layers=members,
        groups=groups,
        scheduler_block_size=max((made.block_size for made in groups), default=None),
        hash_block_size=min((made.block_size for made in groups), default=None),
        prefix_hit_tokens=max((made.block_size for made in groups), default=None),
        min_reusable_prefix_tokens=max((made.block_size for made in groups), default=None),
        num_blocks=1000 if groups else None,
        bytes_per_block=block,
        kv_cache_tokens=16_000 if groups else None,
        max_concurrency=2.95 if groups else None,
        checks=(Check(name="the KV-cache plan", outcome="passed", note=None),),
        assumptions=("the kernels of the official image",),
        refusal=None,
        vllm_log=(),
    )
    return dataclasses.replace(made, **changes)


LAUNCH = LaunchFacts(
    model="org/model",
    architecture="LlamaForCausalLM",
    model_type="llama",
    dtype="bfloat16",
    quantization=None,
    kv_cache_dtype="auto",
    max_model_len=8192,
    max_num_seqs=1024,
    max_num_batched_tokens=8192,
    tensor_parallel_size=1,
    pipeline_parallel_size=1,
    decode_context_parallel_size=1,
    data_parallel_size=1,
    expert_parallel=False,
    prefix_caching=True,
    chunked_prefill=True,
    async_scheduling=True,
    mamba_cache_mode=None,
    cudagraph_mode="FULL_AND_PIECEWISE",
    speculative_method=None,
    num_speculative_tokens=None,
)

MEMORY = MemoryFacts(
    gpu_bytes=85_520_809_984,
    gpu_memory_utilization=0.92,
    weights_bytes=16_060_522_496,
    kv_cache_bytes=42_949_672_960,
    kv_cache_source="estimate",
    allowance_bytes=3_221_225_472,
    allowance_source="3 GiB for activations and CUDA graphs, a round figure",
    weights_fit=True,
    needed_for_max_model_len_bytes=None,
    estimated_max_model_len=None,
)


def llama() -> Plan:
    """One group of 32 layers, nothing padded."""
    return plan(group(layers("model.layers.{}.self_attn.attn", range(32), page_bytes=65_536, used_bytes=65_536)))


def qwen3_next() -> Plan:
    """Qwen3-Next-80B-A3B on an H100 with vLLM 0.33.0: three groups of recurrent states and one of attention."""
    states = [
        tuple(
            layer(
                f"model.layers.{number}.linear_attn",
                spec="MambaSpec",
                kind="mamba",
                block_size=576,
                page_bytes=1_179_648,
                used_bytes=1_097_728,
                backend="GDN_ATTN",
            )
            for number in range(48)
            if number % 4 == third
        )
        for third in range(3)
    ]
    attention = tuple(
        layer(f"model.layers.{number}.self_attn.attn", block_size=576, page_bytes=1_179_648, used_bytes=1_179_648)
        for number in range(3, 48, 4)
    )
    made = plan(
        *(group(members, blocks_per_request=2, kernel_block_size=None) for members in states),
        group(attention, blocks_per_request=456, kernel_block_size=64),
        launch={"max_model_len": 262_144, "mamba_cache_mode": "align"},
    )
    backends = {"GDN_ATTN": 36, "FLASH_ATTN": 12}
    return dataclasses.replace(made, engine=dataclasses.replace(made.engine, attention_backends=backends))


def pull_request_51108() -> Plan:
    """The three layers of PR #51108's own test, with 0.33.0: the hidden states' page wastes a quarter."""
    attention = layer("model.full_attn", block_size=544, page_bytes=1_114_112, used_bytes=1_114_112)
    state = layer("model.mamba", spec="MambaSpec", kind="mamba", block_size=544, page_bytes=1_114_112, used_bytes=1_114_112, backend=None)
    hidden = layer(
        "cache_only_layers.0",
        spec="HiddenStateCacheSpec",
        kind="hidden_state",
        block_size=136,
        page_bytes=1_114_112,
        used_bytes=835_584,
        backend=None,
    )
    return plan(
        group((attention,), blocks_per_request=482),
        group((state,), blocks_per_request=2),
        group((hidden,), blocks_per_request=1928),
        launch={"max_model_len": 262_144, "mamba_cache_mode": "align"},
    )


def deepseek_v3_2() -> Plan:
    """Two layers' worth of DeepSeek-V3.2: one group that holds pages of two sizes."""
    indexer = layers(
        "model.layers.{}.self_attn.indexer.k_cache", range(2), kind="mla", spec="MLAAttentionSpec", page_bytes=8448, used_bytes=8448
    )
    latent = layers(
        "model.layers.{}.self_attn.mla_attn.attn", range(2), kind="mla", spec="MLAAttentionSpec", page_bytes=73_728, used_bytes=73_728
    )
    return plan(group(indexer + latent))


def refused(
    message: str, *, stage: str = "the KV-cache plan", exception: str = "ValueError", base: Plan | None = None, **changes: Any
) -> Plan:
    return dataclasses.replace(
        base or llama(),
        refusal=Refusal(stage=stage, exception=exception, message=message),
        checks=(Check(name=stage, outcome="refused", note=None),),
        **changes,
    )
