"""KV108 to KV110 fire and do not fire."""

import dataclasses
from typing import Any

import pytest

from kvdoctor.diagnosis import diagnose, verdict_line
from kvdoctor.plan import NOT_A_PARSER, NOT_ON_THIS_MACHINE, SERVE_ARGUMENTS, Check, Plan, Refusal
from kvdoctor.report import FORMATS
from tests.unit import plans
from tests.unit.rules.findings import (
    REMOTE_CODE_REFUSAL,
    found,
    settled_but,
    the,
)

# KV109 vllm-code-failed


def failed(plan: Plan) -> Plan:
    assert plan.refusal is not None
    return settled_but(plan, refusal=dataclasses.replace(plan.refusal, accident=True))


def test_kv109_tells_an_accident_in_vllms_code_from_a_refusal() -> None:
    plan = failed(plans.refused("'NoneType' object has no attribute 'x'", exception="AttributeError"))
    finding = the(plan, "KV109")
    assert finding.message == (
        "the code of vLLM 0.33.0 failed at the KV-cache plan, not by a check: AttributeError: 'NoneType' object has no attribute 'x'; "
        "a boot probably fails there too, but that is not certain"
    )
    diagnosis = diagnose(plans.request(), plan)
    assert diagnosis.verdict == "failed"
    assert "refuse" not in verdict_line(diagnosis)


def test_kv109_is_told_in_every_format_without_a_refusal() -> None:
    diagnosis = diagnose(plans.request(), failed(plans.refused("'x'", exception="KeyError")))
    for render in (FORMATS["table"], FORMATS["markdown"]):
        text = render(diagnosis, width=100, color=False)
        assert "refuse" not in text.replace("has refused this launch", "")
        assert "vLLM's code failed at the KV-cache plan" in text


@pytest.mark.parametrize("plan", [plans.llama(), plans.refused("no")])
def test_kv109_does_not_fire_on_a_launch_or_a_refusal(plan: Plan) -> None:
    assert found(plan, "KV109") == []


# KV108 remote-code-needed


@pytest.mark.parametrize(
    "words",
    [
        REMOTE_CODE_REFUSAL,
        "The repository org/model contains custom code which must be executed to correctly load the model.",
        "Loading org/model requires you to execute the configuration file in that repo on your local machine.",
    ],
)
def test_kv108_fires_when_vllm_asks_for_trust(words: str) -> None:
    assert the(plans.refused(words), "KV108").message == (
        "org/model needs code from its own repository, and --trust-remote-code was not given"
    )


@pytest.mark.parametrize(("asked", "given"), [(True, {}), (False, {"trust_remote_code": True})])
def test_kv108_leaves_the_refusal_to_vllms_words_when_trust_was_given(asked: bool, given: dict[str, Any]) -> None:
    plan = plans.refused(REMOTE_CODE_REFUSAL, given_arguments=given)
    assert found(plan, "KV108", trust_remote_code=asked) == []
    assert len(found(plan, "KV103", trust_remote_code=asked)) == 1


def test_kv108_does_not_fire_on_a_launch() -> None:
    assert found(plans.llama(), "KV108") == []


# KV110 serve-arguments-refused


def test_kv110_quotes_what_vllm_serve_refuses_and_is_the_only_error() -> None:
    refusal = Refusal(stage=SERVE_ARGUMENTS, exception="KeyError", message="invalid tool call parser: nope (chose from { hermes })")
    finding = the(settled_but(plans.llama(), refusal=refusal), "KV110")
    assert finding.message == "vLLM refuses an argument: invalid tool call parser: nope (chose from { hermes })"
    assert (finding.severity, finding.evidence) == ("error", {"exception": "KeyError"})


@pytest.mark.parametrize("note", [NOT_ON_THIS_MACHINE, NOT_A_PARSER])
def test_kv110_warns_of_what_may_be_wrong_on_the_machine_of_the_launch(note: str) -> None:
    check = Check(name="--chat-template /models/a.jinja", outcome="not_checked", note=note)
    made = diagnose(plans.request(), settled_but(plans.llama(), checks=(*plans.llama().checks, check)))
    (finding,) = (finding for finding in made.findings if finding.rule == "KV110")
    assert (finding.severity, finding.message) == ("warning", f"--chat-template /models/a.jinja {note}")
    assert made.verdict == "warning"


def test_kv110_does_not_fire_on_what_is_merely_not_checked() -> None:
    check = Check(name="--middleware a.B", outcome="not_checked", note="code of the launch's own")
    assert found(settled_but(plans.llama(), checks=(check,)), "KV110") == []
