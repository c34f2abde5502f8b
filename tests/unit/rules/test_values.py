"""KV104 to KV107: values that vLLM does not take."""

from typing import Any

import pytest

from kvdoctor.rules.refusal_text import NoAttentionBackend, read_refusal
from tests.unit import plans
from tests.unit.rules.findings import found, the

UNIT = (
    "Invalid prefix_match_unit=100; prefix-cacheable KV cache group block sizes must be divisible by prefix_match_unit. "
    "Got group block sizes=[320, 320, 16], prefix-cacheable=[320, 320]."
)
UNIT_OF_ONE_GROUP = (
    "Invalid prefix_match_unit=24; with a single KV cache group, prefix-cache hits land on the block size (16). Unset it or set it to 16."
)
BATCH = "In Mamba cache align mode, block_size (2096) must be <= max_num_batched_tokens (2048)."
HEADS = "Total number of attention heads (32) must be divisible by tensor parallel size (3)."


def backends(reasons: str) -> str:
    return f"No valid attention backend found for cuda with X. Reasons: {{{reasons}}}."


def test_kv104_names_the_blocks_that_the_unit_must_divide() -> None:
    finding = the(plans.refused(UNIT, base=plans.qwen3_next()), "KV104")
    assert finding.message == "prefix match unit 100 does not divide the block of 320 tokens"
    assert finding.remediation == "Pass --prefix-match-unit 320 or one that divides 320, or leave it out"
    assert finding.evidence == {"prefix_match_unit": 100, "block_sizes": [320], "largest_unit": 320}


def test_kv104_knows_the_one_unit_that_a_single_group_takes() -> None:
    assert the(plans.refused(UNIT_OF_ONE_GROUP), "KV104").remediation == "Pass --prefix-match-unit 16, or leave it out"


def test_kv104_names_several_blocks_and_does_without_any() -> None:
    several = "Invalid prefix_match_unit=100; sizes. Got group block sizes=[544, 136], prefix-cacheable=[544, 136]."
    assert the(plans.refused(several), "KV104").message == "prefix match unit 100 does not divide the blocks of 136, 544 tokens"
    without = "Invalid prefix_match_unit=7; prefix-cache boundaries must align with each spec's per-state compression."
    assert the(plans.refused(without), "KV104").remediation == "Leave out --prefix-match-unit"


def test_kv105_gives_the_smallest_legal_batch() -> None:
    finding = the(plans.refused(BATCH, exception="AssertionError"), "KV105")
    assert finding.remediation == "Pass --max-num-batched-tokens 2096 or more, or use vLLM 0.27.1 or newer"
    assert finding.evidence == {"block_size": 2096, "max_num_batched_tokens": 2048}


@pytest.mark.parametrize(
    ("words", "message", "advice"),
    [
        (HEADS, "--tensor-parallel-size 3 does not divide the model's 32 attention heads", "Pass a --tensor-parallel-size that divides 32"),
        (
            "100352 is not divisible by 3",
            "--tensor-parallel-size 3 does not divide the model's 100,352 rows of a matrix",
            "Pass a --tensor-parallel-size that divides 100352",
        ),
        (
            "tp_size=4 must be divisible by dcp_size=3.",
            "--decode-context-parallel-size 3 does not divide the model's 4 tensor-parallel ranks",
            "Pass a --decode-context-parallel-size that divides 4",
        ),
        (
            "The model's number of query heads per KV head (4) must be divisible by `--decode-context-parallel-size` (3) for GQA/MQA.",
            "--decode-context-parallel-size 3 does not divide the model's 4 query heads per KV head",
            "Pass a --decode-context-parallel-size that divides 4",
        ),
        (
            "`--decode-context-parallel-size` (4) exceeds the maximum supported value (2) for `--tensor-parallel-size` (16) and 8 heads.",
            "--decode-context-parallel-size 4 is more than the model's KV heads allow under this tensor-parallel size",
            "Pass --decode-context-parallel-size 2 or less",
        ),
        (
            "GQA/MQA requires `--tensor-parallel-size` (4) to be greater than the model's total number of KV heads (8). Increase it.",
            "context parallelism needs more tensor-parallel ranks than the 8 KV heads, and there are 4",
            "Pass --decode-context-parallel-size 1, or a --tensor-parallel-size that is a multiple of 8 and larger",
        ),
    ],
)
def test_kv106_says_what_cannot_be_divided(words: str, message: str, advice: str) -> None:
    finding = the(plans.refused(words), "KV106")
    assert (finding.message, finding.remediation) == (message, advice)


@pytest.mark.parametrize(
    ("words", "given", "message", "advice"),
    [
        (
            backends("FLASH_ATTN: [block_size not supported], OTHER: [block_size not supported, dtype not supported]"),
            {"block_size": 8},
            "a block of 8 tokens is all that keeps FLASH_ATTN out",
            "Leave out --block-size 8",
        ),
        (
            "No common block size for 24 (A: [MultipleOf(16)]; B: [16, 32]).",
            {},
            "the attention backends of a group share no kernel block size for a block of 24 tokens: A: [MultipleOf(16)]; B: [16, 32]",
            "Pass another --block-size",
        ),
        (
            "QSA ring capacity 12 must divide the attention block size 1600",
            {"speculative_config": None},
            "a ring of 12 raw keys, sized by the speculative tokens, does not divide the block of 1,600 tokens",
            "Lower num_speculative_tokens in --speculative-config",
        ),
    ],
)
def test_kv107_says_whose_kernels_do_not_take_the_block(words: str, given: dict[str, Any], message: str, advice: str) -> None:
    finding = the(plans.refused(words, given_arguments=given), "KV107")
    assert (finding.message, finding.remediation) == (message, advice)


def test_kv107_leaves_a_backend_to_kv103_that_more_than_the_block_keeps_out() -> None:
    words = backends("FLASH_ATTN: [block_size not supported, dtype not supported]")
    assert isinstance(read_refusal(plans.refused(words).refusal), NoAttentionBackend)
    assert found(plans.refused(words), "KV107") == []
    assert len(found(plans.refused(words), "KV103")) == 1


@pytest.mark.parametrize("rule", ["KV104", "KV105", "KV106", "KV107"])
@pytest.mark.parametrize("plan", [plans.llama(), plans.qwen3_next(), plans.refused("something else")])
def test_a_rule_about_a_value_does_not_fire_on_a_launch_or_another_refusal(rule: str, plan: Any) -> None:
    assert found(plan, rule) == []
