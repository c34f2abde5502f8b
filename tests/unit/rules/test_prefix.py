"""KV301 to KV304: prefix caching."""

import dataclasses
from typing import Any

import pytest

from kvdoctor.plan import Plan
from tests.unit import plans
from tests.unit.rules.findings import found, reason, settled_but, the

# KV301 block-exceeds-context, KV302 coarse-prefix-granularity


def reusable(smallest: int | None, *, longest: int | None, caching: bool | None = True, hits: int | None = None) -> Plan:
    plan = plans.plan(plans.group((plans.layer(),)), launch={"max_model_len": longest, "prefix_caching": caching})
    return settled_but(plan, min_reusable_prefix_tokens=smallest, prefix_hit_tokens=hits)


def test_kv301_fires_when_no_request_can_hold_the_smallest_prefix() -> None:
    finding = the(reusable(576, longest=512), "KV301")
    assert finding.message == "the smallest reusable prefix is 576 tokens, and a request has at most 512"
    assert found(reusable(576, longest=512), "KV302") == []


def test_kv301_goes_by_the_grain_of_hits_when_nothing_is_ever_reused() -> None:
    assert the(reusable(None, longest=512, hits=576), "KV301").evidence == {"min_reusable_prefix_tokens": 576, "max_model_len": 512}


@pytest.mark.parametrize("plan", [reusable(576, longest=576), reusable(576, longest=512, caching=False)])
def test_kv301_does_not_fire(plan: Plan) -> None:
    assert found(plan, "KV301") == []


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (reusable(None, longest=512), "the smallest reusable prefix was not settled"),
        (reusable(576, longest=None), "the longest request was not settled"),
    ],
)
def test_kv301_is_skipped_without_its_figures(plan: Plan, why: str) -> None:
    assert reason(plan, "KV301") == why


@pytest.mark.parametrize(("smallest", "count"), [(255, 0), (256, 1), (784, 1)])
def test_kv302_fires_from_256_tokens(smallest: int, count: int) -> None:
    assert len(found(reusable(smallest, longest=8192), "KV302")) == count


def test_kv302_advises_a_finer_unit_where_states_are_aligned() -> None:
    assert the(plans.qwen3_next(), "KV302").remediation == (
        "Start prompts with at least 576 shared tokens, or compare a --prefix-match-unit that divides 576"
    )


def test_kv302_does_not_fire_when_prefix_caching_is_off() -> None:
    assert found(reusable(784, longest=8192, caching=False), "KV302") == []


def test_kv302_is_skipped_without_its_figure() -> None:
    assert reason(reusable(None, longest=8192), "KV302") == "the smallest reusable prefix was not settled"


# KV303 prefix-caching-off, KV304 sub-block-hits-inert


def without_caching(kind: str, **changes: Any) -> Plan:
    member = plans.layer(kind, kind=kind)
    return plans.plan(plans.group((member,)), launch={"prefix_caching": False}, **changes)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("mamba", "vLLM's default for a model without attention"),
        ("cross_attention", "vLLM's default for an encoder with a decoder"),
        ("full_attention", "by vLLM's default for this model or by another argument"),
    ],
)
def test_kv303_says_why_prefix_caching_is_off(kind: str, why: str) -> None:
    assert the(without_caching(kind), "KV303").message == f"prefix caching is off, {why}: every request computes its whole prompt"


@pytest.mark.parametrize("plan", [plans.llama(), without_caching("mamba", given_arguments={"enable_prefix_caching": False})])
def test_kv303_does_not_fire_where_it_is_on_or_was_turned_off(plan: Plan) -> None:
    assert found(plan, "KV303") == []


def test_kv303_is_skipped_without_groups() -> None:
    assert reason(plans.plan(launch={"prefix_caching": False}), "KV303") == "no groups were settled"


def with_unit(unit: int | None, *, hits: int | None, caching: bool = True) -> Plan:
    given = {} if unit is None else {"prefix_match_unit": unit}
    launch = dataclasses.replace(plans.LAUNCH, prefix_caching=caching)
    return settled_but(plans.llama(), prefix_hit_tokens=hits, given_arguments=given, launch=launch)


def test_kv304_tells_that_hits_stay_coarser_than_the_unit() -> None:
    finding = the(with_unit(64, hits=256), "KV304")
    assert finding.message == "prefix hits land on multiples of 256 tokens, though --prefix-match-unit is 64"
    assert finding.evidence == {"prefix_match_unit": 64, "prefix_hit_tokens": 256}


@pytest.mark.parametrize("plan", [with_unit(64, hits=64), with_unit(None, hits=256), with_unit(64, hits=256, caching=False)])
def test_kv304_does_not_fire_where_hits_land_on_the_unit(plan: Plan) -> None:
    assert found(plan, "KV304") == []


def test_kv304_is_skipped_without_the_grain_of_hits() -> None:
    assert reason(with_unit(64, hits=None), "KV304") == "the grain of prefix hits was not settled"
