"""KV501 to KV504: parallelism and connectors."""

import dataclasses

import pytest

from kvdoctor.plan import LogRecord, Plan
from tests.unit import plans
from tests.unit.rules.findings import found, reason, settled_but, the

# KV504 dcp-inflates-block


def test_kv504_gives_the_block_before_and_after() -> None:
    group = plans.group((plans.layer(),), block_size=64)
    finding = the(plans.plan(group, launch={"decode_context_parallel_size": 4}), "KV504")
    assert finding.message == "decode context parallelism over 4 ranks multiplies the block: 16 -> 64 tokens"


def test_kv504_does_not_fire_without_context_parallelism_or_where_nothing_grows() -> None:
    assert found(plans.plan(plans.group((plans.layer(),), block_size=64)), "KV504") == []
    assert found(plans.plan(plans.group((plans.layer(),)), launch={"decode_context_parallel_size": 4}), "KV504") == []


@pytest.mark.parametrize(("size", "why"), [(None, "the parallel sizes were not settled"), (2, "no groups were settled")])
def test_kv504_is_skipped_without_its_figures(size: int | None, why: str) -> None:
    assert reason(plans.plan(launch={"decode_context_parallel_size": size}), "KV504") == why


# KV501 hybrid-manager-disabled, KV503 connector-chunk-mismatch

TURNED_OFF = LogRecord(level="WARNING", message="Hybrid KV cache manager is disabled for this hybrid model, This means nothing is saved.")
CHUNK_REFUSAL = (
    "'block_size'=48 in kv_connector_extra_config must be a multiple of the GPU KV cache block size (320 tokens). "
    "Use 320 instead, or set 'blocks_per_chunk' to express the chunk size in blocks."
)


@pytest.mark.parametrize(
    "words",
    [
        "Failed to promote local KV cache specs to one unified type.",
        "Hybrid KV cache manager is disabled but failed to convert the KV cache specs to one unified type.",
    ],
)
def test_kv501_is_an_error_where_the_layers_need_the_hybrid_manager(words: str) -> None:
    finding = the(plans.refused(words, given_arguments={"kv_transfer_config": None}), "KV501")
    assert finding.severity == "error"
    assert finding.message == "--kv-transfer-config turns the hybrid KV-cache manager off, and the model's layers need it"


def test_kv501_warns_of_windows_that_keep_every_token() -> None:
    plan = settled_but(plans.llama(), vllm_log=(TURNED_OFF,), given_arguments={"disable_hybrid_kv_cache_manager": True})
    finding = the(plan, "KV501")
    assert finding.severity == "warning"
    assert finding.message == (
        "--disable-hybrid-kv-cache-manager turns the hybrid KV-cache manager off, and windowed layers keep every token, "
        "as full attention does"
    )
    assert finding.evidence == {"arguments": "--disable-hybrid-kv-cache-manager"}


def test_kv501_fires_without_an_argument_to_blame() -> None:
    assert the(settled_but(plans.llama(), vllm_log=(TURNED_OFF,)), "KV501").message.startswith("the launch turns the hybrid")


def test_kv501_does_not_fire_where_the_switch_makes_no_difference() -> None:
    assert found(settled_but(plans.llama(), given_arguments={"disable_hybrid_kv_cache_manager": True}), "KV501") == []


def test_kv503_gives_the_legal_chunk() -> None:
    finding = the(plans.refused(CHUNK_REFUSAL, base=plans.qwen3_next()), "KV503")
    assert finding.message == "the connector's chunk of 48 tokens is not a multiple of the block of 320"
    assert finding.evidence == {"chunk": 48, "block_size": 320, "legal_chunk": 320}


@pytest.mark.parametrize("plan", [plans.llama(), plans.refused("something else")])
def test_kv503_does_not_fire_without_the_refusal(plan: Plan) -> None:
    assert found(plan, "KV503") == []


# KV502 pipeline-stage-bottleneck


def staged(*layers: int, memory: int | None = 2**30) -> Plan:
    """Stages with that many layers of 32 KiB each, and the same memory."""
    first = plans.llama().stages[0]
    stages = [
        dataclasses.replace(
            first, index=index, layer_count=count, group_layers=(count,), kv_cache_bytes=memory, bytes_per_block=count * 32_768
        )
        for index, count in enumerate(layers)
    ]
    return settled_but(plans.llama(), stages=tuple(stages))


def test_kv502_names_the_stage_that_the_others_wait_for() -> None:
    finding = the(staged(8, 24), "KV502")
    assert finding.message == (
        "pipeline stage 1 with 24 KV layers has memory for 1,365 blocks, another for 4,096: 0.67 GiB, 33.3 % of the KV cache's memory, "
        "stays empty"
    )
    assert finding.evidence["stage"] == 1
    assert finding.evidence["stage_blocks"] == [4096, 1365]


@pytest.mark.parametrize("plan", [staged(16, 16), staged(15, 17), staged(32), plans.llama()])
def test_kv502_does_not_fire_on_balanced_stages(plan: Plan) -> None:
    assert found(plan, "KV502") == []


def test_kv502_is_skipped_without_the_stages_memory() -> None:
    assert reason(staged(8, 24, memory=None), "KV502") == "the stages' memory was not settled"
