"""A verdict that rests on an estimate is planned at the other end of it: KV406."""

import dataclasses
from collections.abc import Callable

import pytest

from kvdoctor.assess import Launch, Planning
from kvdoctor.borderline import at_both_ends
from kvdoctor.cli.options import FailOn, exit_code
from kvdoctor.diagnosis import Diagnosis, diagnose, verdict_line
from kvdoctor.engines.interface import Engine
from kvdoctor.errors import Unassessed
from kvdoctor.plan import Plan, Refusal
from kvdoctor.report import FORMATS
from tests.unit import plans

GIB = 2**30
NO_ROOM = Refusal(stage="KV-cache planning", exception="ValueError", message="no room")
REFUSED = dataclasses.replace(plans.qwen3_next(), refusal=NO_ROOM)


class Service(Planning):
    """Plans the other end as told."""

    def __init__(self, answer: Plan | Unassessed) -> None:
        self.answer = answer
        self.budgets: list[int | None] = []

    def plan(self, launch: Launch, on_step: Callable[[str], None] | None = None) -> Plan:
        del on_step
        self.budgets.append(launch.request.kv_cache_memory_bytes)
        if isinstance(self.answer, Unassessed):
            raise self.answer
        return self.answer


def ended(plan: Plan, other: Plan | Unassessed, **chosen: tuple[str, ...]) -> tuple[Diagnosis, Service]:
    launch = Launch(engine=Engine(python="", source="x", vllm_version=None, notes=()), request=plans.request())
    service = Service(other)
    before = diagnose(launch.request, plan, **chosen)
    return at_both_ends(before, launch, plan, service, on_step=lambda _step: None), service


def test_a_refusal_that_the_reserve_alone_decides_is_borderline_and_no_error() -> None:
    made, service = ended(REFUSED, plans.qwen3_next())
    assert (made.verdict, service.budgets) == ("borderline", [43 * GIB])
    (finding,) = [finding for finding in made.findings if finding.rule == "KV406"]
    assert (
        finding.message
        == "refused with the estimated 40.00 GiB for the KV cache, launches with 43.00 GiB: the reserve of 3.00 GiB is estimated"
    )
    severities = [finding.severity for finding in made.findings]
    assert "error" not in severities
    assert [exit_code(made.verdict, severities, fail_on) for fail_on in (FailOn.ERROR, FailOn.WARNING)] == [0, 1]
    assert verdict_line(made) == f"borderline: {finding.message}"
    assert "BORDERLINE  refused with the estimated" in FORMATS["table"](made, width=200, color=False)


def test_a_launch_that_twice_the_reserve_would_end_is_borderline() -> None:
    made, service = ended(plans.qwen3_next(), REFUSED)
    assert (made.verdict, service.budgets) == ("borderline", [37 * GIB])
    assert verdict_line(made).startswith("borderline: launches with the estimated 40.00 GiB for the KV cache, refused with 37.00 GiB")


@pytest.mark.parametrize(("plan", "other", "verdict"), [(REFUSED, REFUSED, "refused"), (plans.qwen3_next(), plans.qwen3_next(), "ok")])
def test_an_answer_that_holds_at_both_ends_stands(plan: Plan, other: Plan, verdict: str) -> None:
    made, _ = ended(plan, other)
    assert made.verdict == diagnose(plans.request(), plan).verdict
    assert "KV406" not in [finding.rule for finding in made.findings]
    assert "KV406" not in [skipped.rule for skipped in made.skipped_rules]
    assert verdict in (made.verdict, "ok")


def test_weights_that_fit_without_the_reserve_are_borderline_and_others_are_not() -> None:
    for weights, verdict in ((72 * GIB, "borderline"), (74 * GIB, "refused")):
        memory = {"weights_fit": False, "kv_cache_bytes": None, "weights_bytes": weights}
        plan = plans.plan(*plans.qwen3_next().groups, memory=memory, num_blocks=None)
        assert ended(plan, plans.qwen3_next())[0].verdict == verdict


def test_a_given_budget_has_no_other_end() -> None:
    given = plans.plan(*plans.qwen3_next().groups, memory={"kv_cache_source": "kv_cache_memory"})
    made, service = ended(given, REFUSED)
    assert (made.verdict, service.budgets) == (diagnose(plans.request(), given).verdict, [])
    assert "KV406" not in [skipped.rule for skipped in made.skipped_rules]


def test_the_verdict_does_not_depend_on_the_rules_that_were_chosen() -> None:
    made, _ = ended(REFUSED, plans.qwen3_next(), select=("KV1",))
    assert made.verdict == "borderline"
    assert "KV406" not in [finding.rule for finding in made.findings]


def test_without_an_answer_at_the_other_end_the_rule_is_skipped_with_the_reason() -> None:
    made, _ = ended(REFUSED, Unassessed("no answer", hint="h"))
    assert made.verdict == "refused"
    reasons = {skipped.rule: skipped.reason for skipped in made.skipped_rules}
    assert reasons["KV406"] == "the launch was not planned at the other end of the estimated budget"
