"""KV201 and KV207."""

import dataclasses

import pytest

from kvdoctor.plan import Plan
from tests.unit import plans
from tests.unit.rules.findings import (
    found,
    reason,
    settled_but,
    the,
)

# KV201 page-padding


def test_kv201_fires_on_hidden_states_that_waste_a_quarter() -> None:
    finding = the(plans.pull_request_51108(), "KV201")
    assert finding.message.startswith("25.0 % of each page (278,528 of 1,114,112 bytes) is padding in 1 hidden state layer: ")
    assert finding.evidence["wasted_percent"] == 25.0
    assert finding.evidence["groups"] == [2]


def test_kv201_reports_groups_alike_once() -> None:
    states = [plans.group(plans.layers(f"{part}.{{}}", range(3), kind="mamba", used_bytes=20_000)) for part in "ab"]
    finding = the(plans.plan(*states), "KV201")
    assert (finding.evidence["groups"], finding.evidence["layer_count"]) == ([0, 1], 6)
    assert "the recurrent state is padded" in finding.message


def test_kv201_judges_a_mixed_group_by_all_its_pages() -> None:
    full, padded = plans.layer("a", page_bytes=80_000, used_bytes=80_000), plans.layer("b", page_bytes=10_000, used_bytes=5_000)
    assert found(plans.plan(plans.group((full, padded))), "KV201") == []
    finding = the(plans.plan(plans.group((plans.layer("c", page_bytes=9_000, used_bytes=9_000), padded))), "KV201")
    assert finding.message.startswith("26.3 % of the pages of 2 full attention layers is padding, at worst 5,000 of 10,000 bytes of a page")


@pytest.mark.parametrize(("used", "count"), [(9_000, 0), (8_999, 1), (10_000, 0)])
def test_kv201_fires_above_ten_percent_only(used: int, count: int) -> None:
    plan = plans.plan(plans.group((plans.layer(page_bytes=10_000, used_bytes=used),)))
    assert len(found(plan, "KV201")) == count


def test_kv201_does_not_fire_on_qwen3_next() -> None:
    assert found(plans.qwen3_next(), "KV201") == []


def test_kv201_is_skipped_without_groups() -> None:
    assert reason(plans.plan(), "KV201") == "no groups were settled"


def test_kv201_does_not_fire_on_a_padded_page_in_a_group_that_takes_little_of_the_pool() -> None:
    state = plans.group((plans.layer("s", kind="mamba", used_bytes=16_384),), blocks_per_request=2)
    attention = plans.group((plans.layer("a"),), blocks_per_request=512)
    assert found(plans.plan(state, attention), "KV201") == []
    wide = settled_but(plans.plan(state, attention), groups=(dataclasses.replace(state, blocks_per_request=None), attention))
    assert len(found(wide, "KV201")) == 1


# KV207 empty-share-of-pool


def test_kv207_adds_up_padding_idle_room_and_room_behind_the_last_token() -> None:
    attention = plans.group(plans.layers("a.{}", range(3), page_bytes=16_000, used_bytes=16_000), blocks_per_request=512)
    # 600 tokens too many for 8,192; two layers' room is idle, and a quarter of the page is padding.
    hidden = plans.group(
        (plans.layer("h", kind="hidden_state", block_size=8, page_bytes=16_000, used_bytes=12_000),), blocks_per_request=1_099
    )
    finding = the(plans.plan(attention, hidden), "KV207")
    assert finding.evidence == {
        "held_bytes": (512 + 1_099) * 48_000,
        "padding_bytes": 1_099 * 4_000,
        "idle_bytes": 1_099 * 32_000,
        "unfilled_bytes": 600 * 1_500,
        "empty_percent": pytest.approx(100 * (1_099 * 36_000 + 900_000) / (1_611 * 48_000)),
    }
    assert finding.message == (
        "52.3 % of the blocks of a request of 8,192 tokens is empty: 5.7 % padding in pages, "
        "45.5 % room left by groups narrower than the block, 1.2 % room behind the last token"
    )
    assert finding.remediation.endswith("and without a draft model if there is one")


def test_kv207_takes_a_block_longer_than_the_request_for_half_empty() -> None:
    plan = plans.plan(plans.group((plans.layer(block_size=16_384),), blocks_per_request=1))
    finding = the(plan, "KV207")
    assert (finding.evidence["empty_percent"], finding.evidence["unfilled_bytes"]) == (50.0, 16_384)
    assert finding.remediation == "Compare the plan under a smaller --block-size, or a longer --max-model-len"


@pytest.mark.parametrize("kind", ["mamba", "cross_attention", "other"])
def test_kv207_counts_no_tokens_where_blocks_hold_none(kind: str) -> None:
    assert found(plans.plan(plans.group((plans.layer(kind=kind, block_size=16_384),), blocks_per_request=1)), "KV207") == []


@pytest.mark.parametrize("plan", [plans.llama(), plans.qwen3_next()])
def test_kv207_does_not_fire_where_nearly_all_is_filled(plan: Plan) -> None:
    assert found(plan, "KV207") == []


def test_kv207_is_skipped_before_a_requests_blocks_are_settled() -> None:
    assert reason(plans.plan(), "KV207") == "what a request holds was not settled"
