"""KV401 to KV407: capacity."""

import dataclasses
from typing import Any

import pytest

from kvdoctor.diagnosis import diagnose, verdict_line
from kvdoctor.left_out import LEFT_OUT
from kvdoctor.plan import LogRecord, Plan, RequestsAt
from tests.unit import plans
from tests.unit.rules.findings import (
    CONTEXT_REFUSAL,
    NO_MEMORY_REFUSAL,
    SEQUENCES_REFUSAL,
    found,
    reason,
    settled_but,
    the,
)

# KV401 context-does-not-fit, KV402 max-num-seqs-exceeds-state-blocks, KV405 weights-do-not-fit


def with_memory(plan: Plan, **changes: Any) -> Plan:
    return settled_but(plan, memory=dataclasses.replace(plan.memory, **changes))


def test_kv401_gives_needed_available_and_largest() -> None:
    plan = with_memory(plans.refused(CONTEXT_REFUSAL), needed_for_max_model_len_bytes=14_302_248_960, kv_cache_bytes=12 * 2**30)
    finding = the(plan, "KV401")
    assert finding.message == "one request of 131,072 tokens needs 13.32 GiB of KV cache, and 12.00 GiB are available"
    assert finding.remediation == ("Pass --max-model-len 109472 or less, raise --gpu-memory-utilization, or use more GPUs")
    assert finding.evidence == {
        "max_model_len": 131_072,
        "needed_bytes": 14_302_248_960,
        "kv_cache_bytes": 12_884_901_888,
        "estimated_max_model_len": 109_472,
    }


def test_kv401_reads_the_older_words_without_figures() -> None:
    words = "The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (2400)."
    assert the(plans.refused(words), "KV401").message == "one request of 8,192 tokens does not fit into the KV cache"


def test_kv402_gives_the_largest_legal_value() -> None:
    finding = the(plans.refused(SEQUENCES_REFUSAL), "KV402")
    assert finding.message == "1,024 sequences exceed the 758 blocks for recurrent states"
    assert finding.remediation == "Pass --max-num-seqs 758 or less, or raise --gpu-memory-utilization, or use more GPUs"


def test_kv401_gives_figures_that_differ_and_are_those_that_vllm_compares() -> None:
    plan = with_memory(plans.refused(CONTEXT_REFUSAL), needed_for_max_model_len_bytes=4_700_000_000, kv_cache_bytes=4_700_000_000)
    plan = settled_but(plan, usable_kv_cache_bytes=4_700_000_000 - 3_670_016)
    assert the(plan, "KV401").message.endswith("needs 4.38 GiB of KV cache, and 4.37 GiB are available")
    plan = settled_but(plan, usable_kv_cache_bytes=4_700_000_000 - 2**20)
    assert the(plan, "KV401").message.endswith("needs 4.377 GiB of KV cache, and 4.376 GiB are available")
    plan = settled_but(plan, usable_kv_cache_bytes=4_700_000_000 - 1)
    assert the(plan, "KV401").message.endswith("needs 4,700,000,000 bytes of KV cache, and 4,699,999,999 bytes are available")


@pytest.mark.parametrize(
    ("given", "source", "advice"),
    [
        ({"num_gpu_blocks_override": 100}, "estimate", "raise or leave out --num-gpu-blocks-override 100"),
        ({"kv_cache_memory_bytes": 5}, "kv_cache_memory", "raise --kv-cache-memory-bytes, or use more GPUs"),
        ({}, "kv_cache_memory", "raise --kv-cache-memory, or use more GPUs"),
    ],
)
def test_kv401_and_kv402_advise_no_flag_that_is_out_of_force(given: dict[str, Any], source: str, advice: str) -> None:
    for words, rule in ((CONTEXT_REFUSAL, "KV401"), (SEQUENCES_REFUSAL, "KV402")):
        plan = with_memory(plans.refused(words, given_arguments=given), kv_cache_source=source)
        assert the(plan, rule).remediation.endswith(advice)


@pytest.mark.parametrize("rule", ["KV401", "KV402"])
def test_capacity_rules_do_not_fire_on_a_launch(rule: str) -> None:
    assert found(plans.llama(), rule) == []


@pytest.mark.parametrize(("words", "rule"), [(CONTEXT_REFUSAL, "KV401"), (SEQUENCES_REFUSAL, "KV402")])
def test_capacity_rules_are_skipped_on_a_made_up_budget(words: str, rule: str) -> None:
    plan = with_memory(plans.refused(words), weights_fit=False)
    assert reason(plan, rule) == "the weights do not fit, so there is no real budget to judge"


def test_kv405_fires_when_the_weights_leave_nothing() -> None:
    finding = the(with_memory(plans.llama(), weights_fit=False, weights_bytes=150 * 2**30), "KV405")
    assert finding.message == (
        "the weights take 150.00 GiB per GPU, and nothing of 73.28 GiB is left for a KV cache with an allowance of 3.00 GiB"
    )
    assert finding.evidence["weights_bytes"] == 150 * 2**30


def test_kv405_does_not_blame_weights_for_a_given_budget() -> None:
    plan = with_memory(plans.refused(NO_MEMORY_REFUSAL), kv_cache_source="kv_cache_memory", weights_fit=None)
    assert the(plan, "KV405").remediation == "Pass a larger --kv-cache-memory"


def test_kv405_does_not_blame_weights_for_blocks_that_were_counted_out() -> None:
    plan = plans.refused(NO_MEMORY_REFUSAL, given_arguments={"num_gpu_blocks_override": 1})
    assert found(plan, "KV405") == []
    assert the(plan, "KV103").remediation.startswith("Raise or leave out --num-gpu-blocks-override 1: ")


def test_a_refusal_about_made_up_memory_is_not_vllms_word_about_the_deployment() -> None:
    plan = with_memory(plans.refused(CONTEXT_REFUSAL), weights_fit=False, estimated_max_model_len=9)
    plan = settled_but(plan, vllm_log=(LogRecord(level="INFO", message="GPU KV cache size: 9 tokens"), plans.LOG_RECORD))
    diagnosis = diagnose(plans.request(), plan)
    assert [finding.rule for finding in diagnosis.findings if finding.severity == "error"] == ["KV405"]
    assert (diagnosis.refusal, diagnosis.memory.estimated_max_model_len, diagnosis.vllm_log) == (None, None, (plans.LOG_RECORD,))
    assert [(check.outcome, check.note) for check in diagnosis.checks if check not in LEFT_OUT] == [
        ("not_checked", "the weights do not fit, so there is no real memory to check")
    ]
    assert verdict_line(diagnosis).startswith("will not launch: the weights take ")


def test_kv405_does_not_fire_when_the_weights_fit() -> None:
    assert found(plans.llama(), "KV405") == []


def test_kv405_is_skipped_when_no_weights_were_compared() -> None:
    assert reason(with_memory(plans.llama(), weights_fit=None), "KV405") == "no weights were compared with the GPU's memory"


# KV403 low-concurrency


@pytest.mark.parametrize(("concurrency", "count"), [(1.0, 1), (1.99, 1), (2.0, 0)])
def test_kv403_fires_below_two_requests(concurrency: float, count: int) -> None:
    assert len(found(settled_but(plans.llama(), max_concurrency=concurrency), "KV403")) == count


def test_kv403_gives_vllms_figure() -> None:
    finding = the(settled_but(plans.llama(), max_concurrency=1.125), "KV403")
    assert finding.message == "1.12 requests of 8,192 tokens fit into the KV cache at once"


def test_kv403_is_skipped_without_a_concurrency() -> None:
    assert reason(settled_but(plans.llama(), max_concurrency=None), "KV403") == "the concurrency was not settled"


# KV404 tokens-figure-misleads, KV407 batch-inflates-windows


def windowed(window_blocks: int, *, kind: str = "sliding_window", longest: int = 131_072, window: int = 1024) -> Plan:
    """Three groups of windows to one of full attention."""
    fields = {"sliding_window": window}
    windows = [
        plans.group(plans.layers(f"w{number}.{{}}", range(8), kind=kind, fields=fields), blocks_per_request=window_blocks)
        for number in range(3)
    ]
    full = plans.group(plans.layers("f.{}", range(8)), blocks_per_request=longest // 16)
    return plans.plan(*windows, full, launch={"max_model_len": longest})


def counting(plan: Plan, requests: float | None) -> Plan:
    """The plan with vLLM's count of requests of 8,192 tokens."""
    return settled_but(plan, requests_at=() if requests is None else (RequestsAt(tokens=8192, requests=requests),))


def test_kv404_gives_the_tokens_of_short_requests_and_the_fixed_cost() -> None:
    finding = the(counting(windowed(512), 0.5), "KV404")
    assert finding.message == (
        "the KV cache holds 16,000 tokens in requests of 131,072, and 4,096 in requests of 8,192: "
        "up to 0.38 GiB of a request does not depend on its length"
    )
    assert finding.evidence == {
        "kv_cache_tokens": 16_000,
        "short_tokens": 8192,
        "short_kv_cache_tokens": 4096,
        "bounded_bytes": 3 * 512 * 8 * 32_768,
    }


@pytest.mark.parametrize("plan", [counting(windowed(512), 0.98), counting(windowed(512, longest=8192), None)])
def test_kv404_does_not_fire_where_requests_cost_by_their_length(plan: Plan) -> None:
    assert found(plan, "KV404") == []
    assert reason(plan, "KV404") is None


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (counting(windowed(512), None), "requests of usual lengths were not counted"),
        (settled_but(counting(windowed(512), 0.5), stages=()), "what a request holds was not settled"),
    ],
)
def test_kv404_is_skipped_without_its_figures(plan: Plan, why: str) -> None:
    assert reason(plan, "KV404") == why


def test_kv407_names_the_batch_that_sizes_the_windows() -> None:
    finding = found(plans.refused(CONTEXT_REFUSAL, base=windowed(8192)), "KV407")[0]
    assert finding.message == ("75.0 % of the request is windows of at most 1,024 tokens, which are sized by the 8,192 tokens of a batch")
    assert finding.remediation == "Lower --max-num-batched-tokens 8192"


@pytest.mark.parametrize(
    "plan",
    [
        windowed(8192),
        plans.refused(CONTEXT_REFUSAL, base=windowed(20)),
        plans.refused(CONTEXT_REFUSAL, base=windowed(8192, window=8192)),
        plans.refused(CONTEXT_REFUSAL, base=windowed(8192, kind="full_attention")),
        plans.refused(CONTEXT_REFUSAL),
    ],
)
def test_kv407_does_not_fire_on_a_launch_or_on_windows_that_the_batch_does_not_size(plan: Plan) -> None:
    assert found(plan, "KV407") == []
