"""Two reports compared: what changed, why, and whether that is worse."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given

from kvdoctor.compare import Comparison, Limits, compare
from kvdoctor.compare.many import short
from kvdoctor.diagnosis import Diagnosis, diagnose
from kvdoctor.plan import LogRecord, Plan
from kvdoctor.report.as_json import read_json, render_json
from kvdoctor.waste import empty_percent
from tests.unit import plans
from tests.unit.strategies import any_plans


def diagnosis_of(plan: Plan, **request: Any) -> Diagnosis:
    return diagnose(plans.request(**request), plan)


def compared(before: Plan, after: Plan, limits: Limits | None = None) -> Comparison:
    return compare(diagnosis_of(before), diagnosis_of(after), limits or Limits())


def before_pull_request_51108() -> Plan:
    """What 0.27.1 made of the same three layers: hidden states in blocks of 181 tokens, and no launch."""
    after = plans.pull_request_51108()
    hidden = dataclasses.replace(after.groups[2].layers[0], block_size=181, used_bytes=1_112_064)
    group = dataclasses.replace(after.groups[2], layers=(hidden,), block_size=181, blocks_per_request=1449)
    return dataclasses.replace(
        after,
        groups=(*after.groups[:2], group),
        refusal=plans.HASH_REFUSAL,
        scheduler_block_size=None,
        hash_block_size=None,
        prefix_hit_tokens=None,
        min_reusable_prefix_tokens=None,
    )


def with_figures(**changes: Any) -> Plan:
    return dataclasses.replace(plans.llama(), **changes)


def told(comparison: Comparison) -> dict[str, tuple[object, object, object]]:
    return {made.key: (made.before, made.after, made.difference) for made in comparison.changes}


def test_the_founding_case_is_told_in_one_line() -> None:
    made = compared(before_pull_request_51108(), plans.pull_request_51108())
    assert made.verdict == "after: launches; hash block 98,464 -> 136; 20.0 % of a full request is empty"


def test_the_hash_block_of_a_refusal_is_the_one_that_vllm_names() -> None:
    assert told(compared(before_pull_request_51108(), plans.pull_request_51108()))["layout.hash_block_size"] == (98_464, 136, -98_328)


def test_a_report_compared_with_itself_has_no_difference() -> None:
    made = compared(plans.qwen3_next(), plans.qwen3_next())
    assert (made.same, made.changes, made.groups.changes, made.groups.unchanged) == (True, (), (), 4)
    assert made.verdict == "no difference: launches: block 576, hash block 576; 0.3 % of a full request's blocks is empty"
    assert short(made) == "same"


def test_only_what_changed_is_told_and_the_rest_is_counted() -> None:
    made = compared(with_figures(), with_figures(kv_cache_tokens=12_000, max_concurrency=0.5))
    assert told(made) == {"layout.kv_cache_tokens": (16_000, 12_000, -4_000), "layout.max_concurrency": (2.95, 0.5, -2.45)}
    assert made.changes[0].difference_percent == -25.0
    assert made.unchanged == 37
    assert made.verdict == "both launch; tokens -25.0 %"


def test_text_and_switches_have_no_difference() -> None:
    before, after = with_figures(), plans.plan(*plans.llama().groups, launch={"async_scheduling": False, "dtype": "float16"})
    assert told(compared(before, after)) == {
        "launch.dtype": ("bfloat16", "float16", None),
        "launch.async_scheduling": (True, False, None),
    }


def test_a_saved_report_compares_like_a_fresh_one() -> None:
    before, after = diagnosis_of(before_pull_request_51108()), diagnosis_of(plans.pull_request_51108())
    assert compare(read_json(render_json(before)), read_json(render_json(after))) == compare(before, after)


@given(any_plans(), any_plans())
def test_any_two_reports_can_be_compared(before: Plan, after: Plan) -> None:
    made = compared(before, after)
    assert made.verdict
    assert short(made)
    assert compared(before, before).same


class TestFindings:
    def test_they_appear_go_and_stay(self) -> None:
        before = diagnosis_of(before_pull_request_51108())
        after = diagnosis_of(plans.pull_request_51108())
        there, back = compare(before, after), compare(after, before)
        assert [(change.event, change.finding.rule) for change in there.findings] == [
            ("appeared", "KV201"),
            ("appeared", "KV207"),
            ("appeared", "KV302"),
            ("went", "KV101"),
            ("stayed", "KV901"),
        ]
        assert [(change.event, change.finding.rule) for change in back.findings] == [
            ("appeared", "KV101"),
            ("went", "KV201"),
            ("went", "KV207"),
            ("went", "KV302"),
            ("stayed", "KV901"),
        ]

    def test_a_rule_that_could_not_look_on_the_other_side_says_so(self) -> None:
        made = compared(before_pull_request_51108(), plans.pull_request_51108())
        skipped = {change.finding.rule: change.skipped for change in made.findings}
        assert {rule for rule, why in skipped.items() if why is None} == {"KV101", "KV201", "KV207", "KV901"}
        assert skipped["KV302"] == "the smallest reusable prefix was not settled"

    def test_one_that_stays_with_other_figures_keeps_both(self) -> None:
        before = plans.qwen3_next()
        (change,) = compared(before, dataclasses.replace(before, min_reusable_prefix_tokens=1152)).findings
        assert (change.event, change.message_before) == ("stayed", "a shared prefix shorter than 576 tokens is never reused")
        assert change.finding.message == "a shared prefix shorter than 1,152 tokens is never reused"

    def test_two_known_bugs_of_a_release_are_told_apart(self) -> None:
        old = dataclasses.replace(before_pull_request_51108().engine, vllm_version="0.27.1", model_runner="V1")
        changes = compared(dataclasses.replace(before_pull_request_51108(), engine=old), plans.pull_request_51108()).findings
        bugs = [(change.event, change.finding.url.rpartition("/")[2]) for change in changes if change.finding.rule == "KV901"]
        assert bugs == [("went", "51108"), ("stayed", "54076")]

    def test_an_error_that_the_before_side_has_not_is_new(self) -> None:
        assert compared(plans.pull_request_51108(), before_pull_request_51108()).new_errors == ("KV101 block-not-divisible-by-hash",)
        assert compared(before_pull_request_51108(), before_pull_request_51108()).new_errors == ()
        assert compared(before_pull_request_51108(), plans.pull_request_51108()).new_errors == ()

    @pytest.mark.parametrize(("stage", "new"), [("the KV-cache plan", ()), ("the scheduler", ("KV103 launch-refused",))])
    def test_a_refusal_that_no_rule_knows_is_new_at_another_step(self, stage: str, new: tuple[str, ...]) -> None:
        assert compared(plans.refused("one"), plans.refused("another", stage=stage)).new_errors == new

    def test_a_refusal_counts_when_its_rule_was_left_out(self) -> None:
        after = diagnose(plans.request(), before_pull_request_51108(), ignore=("KV1",))
        assert compare(diagnosis_of(plans.llama()), after).new_errors == ("refused at the scheduler: AssertionError",)


class TestLimits:
    def test_what_is_within_a_limit_is_no_regression(self) -> None:
        made = compared(with_figures(), with_figures(kv_cache_tokens=15_000), Limits(max_token_loss_percent=6.25))
        assert (made.regressions, made.unchecked_limits) == ((), ())

    @pytest.mark.parametrize(
        ("limits", "after", "limit", "found"),
        [
            (Limits(max_token_loss_percent=5), {"kv_cache_tokens": 14_000}, "--max-token-loss", 12.5),
            (Limits(max_hash_growth_percent=99), {"hash_block_size": 16}, "--max-hash-growth", 100.0),
        ],
    )
    def test_what_is_past_a_limit_is_one(self, limits: Limits, after: dict[str, int], limit: str, found: float) -> None:
        (regression,) = compared(with_figures(hash_block_size=8), with_figures(**after), limits).regressions
        assert (regression.limit, regression.found) == (limit, found)

    def test_waste_is_held_against_points_of_percent(self) -> None:
        before = plans.plan(plans.group((plans.layer(),)))
        after = plans.plan(plans.group((plans.layer(used_bytes=24_576),)))
        (regression,) = compared(before, after, Limits(max_waste_growth_points=24)).regressions
        assert (regression.before, regression.after, regression.found) == (0.0, 25.0, 25.0)

    def test_a_gain_is_never_a_regression(self) -> None:
        limits = Limits(max_token_loss_percent=0, max_hash_growth_percent=0, max_waste_growth_points=0)
        better = with_figures(kv_cache_tokens=32_000, hash_block_size=8)
        assert compared(with_figures(), better, limits).regressions == ()

    def test_a_limit_that_has_nothing_to_hold_against_is_said_to_be_unchecked(self) -> None:
        limits = Limits(max_token_loss_percent=0, max_hash_growth_percent=0)
        assert compared(before_pull_request_51108(), plans.pull_request_51108(), limits).unchecked_limits == (
            "--max-token-loss: the before side does not launch",
            "--max-hash-growth: the before side does not launch",
        )
        unknown = compared(with_figures(), with_figures(kv_cache_tokens=None), Limits(max_token_loss_percent=0))
        assert unknown.unchecked_limits == ("--max-token-loss: the tokens figure is not settled on the after side",)


class TestReasons:
    BLOCK = LogRecord(
        level="INFO", message="Setting attention block size to 576 tokens to ensure that attention page size is >= mamba page size."
    )

    def test_a_line_of_vllms_log_that_one_side_has_is_quoted_for_what_changed(self) -> None:
        before, after = plans.llama(), dataclasses.replace(plans.qwen3_next(), vllm_log=(self.BLOCK,))
        (reason,) = [reason for reason in compared(before, after).reasons if reason.source == "log"]
        assert (reason.side, reason.text) == ("after", self.BLOCK.message)
        assert reason.about == ("group_blocks", "layout.scheduler_block_size", "layout.hash_block_size", "groups")

    def test_a_line_that_both_sides_have_explains_nothing(self) -> None:
        before = dataclasses.replace(plans.llama(), vllm_log=(self.BLOCK,))
        after = dataclasses.replace(plans.qwen3_next(), vllm_log=(self.BLOCK,))
        assert [reason for reason in compared(before, after).reasons if reason.source == "log"] == []

    def test_a_line_about_what_did_not_change_is_left_out(self) -> None:
        after = dataclasses.replace(plans.llama(), vllm_log=(self.BLOCK,), kv_cache_tokens=1)
        assert compared(plans.llama(), after).reasons == ()

    def test_a_warning_about_nothing_that_changed_explains_nothing(self) -> None:
        after = dataclasses.replace(plans.llama(), vllm_log=(LogRecord(level="WARNING", message="something odd"),))
        made = compared(plans.llama(), after)
        assert (made.reasons, made.same) == ((), True)

    def moved(self, before: tuple[str, ...], after: tuple[str, ...]) -> list[tuple[str, str]]:
        moved = plans.plan(*plans.llama().groups, launch={"max_num_batched_tokens": 2048})
        old = dataclasses.replace(plans.llama(), given_arguments=dict.fromkeys(before))
        new = dataclasses.replace(moved, given_arguments=dict.fromkeys(after))
        made = compare(diagnosis_of(old), diagnosis_of(new))
        return [(reason.side, reason.text) for reason in made.reasons]

    def test_a_default_that_moved_is_called_vllms(self) -> None:
        text = "max_num_batched_tokens: neither side gives --max-num-batched-tokens; vLLM chose 8,192 before and 2,048 after"
        assert self.moved((), ()) == [("both", text)]

    def test_an_argument_of_one_side_is_named(self) -> None:
        text = "max_num_batched_tokens: --max-num-batched-tokens is given on the after side alone; vLLM chose 8,192 on the other"
        assert self.moved((), ("max_num_batched_tokens",)) == [("after", text)]

    def test_nothing_is_said_where_both_give_it_or_an_older_report_does_not_tell(self) -> None:
        assert self.moved(("max_num_batched_tokens",), ("max_num_batched_tokens",)) == []
        moved = plans.plan(*plans.llama().groups, launch={"max_num_batched_tokens": 2048})
        old = diagnosis_of(plans.llama())
        old = dataclasses.replace(old, request=dataclasses.replace(old.request, given_arguments=None))
        assert compare(old, diagnosis_of(moved)).reasons == ()


def test_where_nothing_is_cached_by_prefix_block_sizes_are_no_headline() -> None:
    off = dataclasses.replace(plans.plan(*plans.llama().groups, launch={"prefix_caching": False}), hash_block_size=8192)
    made = compared(plans.llama(), off, Limits(max_hash_growth_percent=0))
    assert made.verdict == "both launch; prefix caching off"
    assert [regression.limit for regression in made.regressions] == ["--max-hash-growth"]
    back = compared(off, plans.llama(), Limits(max_hash_growth_percent=0))
    assert back.unchecked_limits == ("--max-hash-growth: prefix caching is off on the before side",)


def test_the_empty_share_counts_padding_and_idle_room_by_the_blocks_that_a_request_holds() -> None:
    wide = plans.group(plans.layers("layers.{}.attn", range(3)), blocks_per_request=10)
    narrow = plans.group((plans.layer("layers.3.hidden", used_bytes=16_384),), blocks_per_request=30)
    # Of each narrow block two thirds are idle and half of the rest is padding; three blocks of four are narrow.
    share = empty_percent(diagnosis_of(plans.plan(wide, narrow)).layout, 8192)
    assert share == pytest.approx(100 * (3 / 4) * (5 / 6))
    assert empty_percent(diagnosis_of(plans.plan()).layout, 8192) is None
    assert empty_percent(diagnosis_of(plans.plan(plans.group((plans.layer(),), blocks_per_request=None))).layout, 8192) is None


def test_a_model_of_many_is_told_in_a_few_words() -> None:
    assert short(compared(before_pull_request_51108(), plans.pull_request_51108())) == (
        "now launches; hash block 98,464 -> 136; a full request holds, a full request costs, empty share of a full request; "
        "KV201 appeared; KV207 appeared; KV302 appeared; KV101 went"
    )
    assert short(compared(plans.pull_request_51108(), before_pull_request_51108())).startswith("now refused; hash block 136 -> 98,464; ")
    moved = plans.plan(*plans.llama().groups, launch={"max_num_seqs": 8, "dtype": "x", "async_scheduling": False, "chunked_prefill": False})
    assert short(compared(plans.llama(), moved)) == "dtype, max_num_seqs, chunked_prefill and 1 more"
