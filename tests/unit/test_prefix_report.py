"""``kvdoctor prefix``: the requests under the settings given and under others, and the line that sums them up."""

import dataclasses
import json
from collections.abc import Callable
from typing import cast

import pytest

from kvdoctor.assess import Launch, Planning
from kvdoctor.engines.interface import Engine
from kvdoctor.errors import Unassessed
from kvdoctor.launches.request import LaunchRequest, PrefixQuestion
from kvdoctor.plan import Plan, PrefixHit
from kvdoctor.prefix import PrefixReport, ask
from kvdoctor.report import render_prefix
from tests.unit import plans
from tests.unit.test_suggest import Service

QUESTION = PrefixQuestion(shared_tokens=2000, prompt_tokens=2500, requests=2, turns=1)


class Answering(Service):
    def plan(self, launch: Launch, _on_step: Callable[[str], None]) -> Plan:
        return cast("Plan", self.answer(launch.request))


def hit(number: int, cached: int) -> PrefixHit:
    return PrefixHit(scenario="shared prefix", number=number, prompt_tokens=2500, cached_tokens=cached)


def answer(request: LaunchRequest) -> Plan | Unassessed:
    assert request.prefix == QUESTION
    if "16" in request.vllm_args:
        return dataclasses.replace(plans.qwen3_next(), prefix_hit_tokens=16, prefix_hits=(hit(1, 0), hit(2, 2000)))
    if "288" in request.vllm_args:
        return Unassessed("no answer", hint="Wait longer.")
    return dataclasses.replace(plans.qwen3_next(), prefix_hits=(hit(1, 0), hit(2, 1728)))


def report(answers: Callable[[LaunchRequest], Plan | Unassessed] = answer) -> PrefixReport:
    launch = Launch(engine=cast("Engine", None), request=plans.request())
    return ask(launch, cast("Planning", Answering(answers)), QUESTION, on_step=lambda _: None)


def test_each_request_is_shown_with_what_it_took_and_the_settings_with_their_shares() -> None:
    shown = render_prefix(report(), "table", width=140, color=False)
    assert "shared prefix 2   2,500           1,728       772" in shown
    assert "--prefix-match-unit 288: no answer" in shown
    assert shown.endswith("34.6 % of the prompts comes from the cache; 40.0 % with --prefix-match-unit 16\n")


def test_the_json_has_every_setting() -> None:
    made = json.loads(render_prefix(report(), "json", width=80, color=False))
    assert [setting["change"] for setting in made["settings"]] == ["as given", "--prefix-match-unit 16", "--prefix-match-unit 288"]
    assert made["settings"][1]["hits"][1]["cached_tokens"] == 2000


@pytest.mark.parametrize(
    ("plan", "why"),
    [(plans.refused("It is Tuesday."), "vLLM refuses at the KV-cache plan: It is Tuesday."), (plans.llama(), "nothing could be served")],
)
def test_a_launch_that_serves_nothing_says_why(plan: Plan, why: str) -> None:
    assert render_prefix(report(lambda _: plan), "table", width=140, color=False).endswith(f"nothing was served: {why}\n")
