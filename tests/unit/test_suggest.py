"""Advice is tried: what vLLM takes is shown, the best first, and what it refuses is not."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from kvdoctor.assess import Launch, Planning
from kvdoctor.diagnosis import Diagnosis, diagnose, read_context
from kvdoctor.engines.interface import Engine
from kvdoctor.errors import Unassessed
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.plan import Plan
from kvdoctor.report import FORMATS
from kvdoctor.rules.trials import Change, trial_for
from kvdoctor.suggest import changed, with_suggestions
from tests.unit import plans
from tests.unit.rules.findings import CONTEXT_REFUSAL, SEQUENCES_REFUSAL
from tests.unit.rules.test_values import BATCH, HEADS, UNIT

Answer = Callable[[LaunchRequest], Plan | Unassessed]


class Service:
    """Stands in for the planning service: ``answer`` is what vLLM makes of a request."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[LaunchRequest] = []
        self._waiting: list[int] = []

    def submit(self, launch: Launch) -> int:
        self.asked.append(launch.request)
        self._waiting.append(len(self.asked) - 1)
        return len(self.asked) - 1

    def outcomes(self) -> Iterator[tuple[int, Plan | Unassessed]]:
        while self._waiting:
            number = self._waiting.pop()  # the last first: the order is not that of the questions
            yield number, self.answer(self.asked[number])


def tried(plan: Plan, answer: Answer, **request: Any) -> tuple[Diagnosis, Service]:
    service, asked = Service(answer), plans.request(**request)
    launch = Launch(engine=cast("Engine", None), request=asked)
    made = with_suggestions(diagnose(asked, plan), launch, plan, cast("Planning", service), on_step=lambda _: None)
    return made, service


def suggestions(diagnosis: Diagnosis, rule: str) -> list[str]:
    return [suggestion.change for finding in diagnosis.findings if finding.rule == rule for suggestion in finding.suggestions]


def test_what_vllm_takes_is_suggested_with_its_effect() -> None:
    healthy = dataclasses.replace(plans.qwen3_next(), max_concurrency=11.0)
    made, _ = tried(plans.refused(SEQUENCES_REFUSAL, base=plans.qwen3_next()), lambda _: healthy)
    (first, second) = made.findings[0].suggestions
    assert (first.change, first.arguments, first.max_concurrency) == ("--max-num-seqs 758", ("--max-num-seqs", "758"), 11.0)
    assert (first.kv_cache_tokens, first.min_reusable_prefix_tokens) == (16_000, 576)
    assert second.change == "--gpu-memory-utilization 0.95"


def test_what_vllm_refuses_or_cannot_be_asked_is_not_suggested() -> None:
    refusal = plans.refused(SEQUENCES_REFUSAL, base=plans.qwen3_next())

    def answer(request: LaunchRequest) -> Plan | Unassessed:
        return refusal if "--max-num-seqs" in request.vllm_args else Unassessed("no answer", hint="Wait longer.")

    made, service = tried(refusal, answer)
    assert len(service.asked) == 2
    assert suggestions(made, "KV402") == []


def test_a_tried_change_is_shown_in_the_table_and_in_markdown() -> None:
    made, _ = tried(plans.refused(SEQUENCES_REFUSAL, base=plans.qwen3_next()), lambda _: plans.qwen3_next())
    line = "tried: --max-num-seqs 758: launches with 16,000 tokens, 2.95 full requests, prefixes from 576 tokens, 0.3 % empty"
    assert line in FORMATS["table"](made, width=160, color=False)
    assert "tried:" in FORMATS["markdown"](made, width=160, color=False)


def test_beside_an_error_nothing_else_is_tried() -> None:
    _, service = tried(plans.refused(SEQUENCES_REFUSAL, base=plans.qwen3_next()), lambda _: plans.qwen3_next())
    assert not any("--prefix-match-unit" in request.vllm_args for request in service.asked)


def test_of_a_launch_only_what_is_better_is_suggested() -> None:
    finer = dataclasses.replace(plans.qwen3_next(), min_reusable_prefix_tokens=16)
    made, _ = tried(plans.qwen3_next(), lambda request: finer if "16" in request.vllm_args else plans.qwen3_next())
    assert suggestions(made, "KV302") == ["--prefix-match-unit 16"]


def test_a_change_goes_behind_the_other_arguments_and_leaves_some_out() -> None:
    request = changed(plans.request(vllm_args=("--block-size", "8")), Change(arguments=("--block-size", "16"), left_out=("max_num_seqs",)))
    assert request.vllm_args == ("--block-size", "8", "--block-size", "16")
    assert request.left_out == ("max_num_seqs",)


def proposed(rule: str, plan: Plan, **request: Any) -> list[str]:
    trial = trial_for(rule, read_context(plans.request(**request), plan))
    return [] if trial is None else [change.text for change in trial.changes]


LLAMA_WITH_LARGEST = plans.plan(*plans.llama().groups, memory={"estimated_max_model_len": 109_472})
HASH = dataclasses.replace(plans.pull_request_51108(), refusal=plans.HASH_REFUSAL)
CHUNK = "'block_size'=48 in kv_connector_extra_config must be a multiple of the GPU KV cache block size (320 tokens). Use 320 instead."


@pytest.mark.parametrize(
    ("rule", "plan", "changes"),
    [
        ("KV101", HASH, ["--no-enable-prefix-caching"]),
        (
            "KV103",
            plans.refused("max_num_batched_tokens (128) must be more", given_arguments={"max_num_batched_tokens": 128, "seed": 1}),
            ["without --max-num-batched-tokens", "without --seed"],
        ),
        ("KV104", plans.refused(UNIT), ["--prefix-match-unit 320", "--prefix-match-unit 160", "--prefix-match-unit 80"]),
        ("KV105", plans.refused(BATCH), ["--max-num-batched-tokens 2096"]),
        (
            "KV106",
            plans.refused(HEADS),
            ["--tensor-parallel-size 2", "--tensor-parallel-size 4", "--tensor-parallel-size 1", "--tensor-parallel-size 8"],
        ),
        (
            "KV107",
            plans.refused("No common block size for 24", given_arguments={"block_size": 24}),
            ["without --block-size", "--block-size 16", "--block-size 32", "--block-size 64"],
        ),
        (
            "KV401",
            plans.refused(CONTEXT_REFUSAL, base=LLAMA_WITH_LARGEST),
            [
                "--gpu-memory-utilization 0.95",
                "--kv-cache-dtype fp8",
                "--max-model-len 109472",
                "--tensor-parallel-size 2",
            ],
        ),
        ("KV405", plans.llama(), ["--gpu-memory-utilization 0.95", "--tensor-parallel-size 2", "--tensor-parallel-size 4"]),
        ("KV407", plans.llama(), [f"--max-num-batched-tokens {size}" for size in (4096, 2048, 1024, 512)]),
        ("KV503", plans.refused("something"), []),
        (
            "KV204",
            plans.plan(*plans.llama().groups, launch={"total_kv_heads": 8, "tensor_parallel_size": 16}),
            ["--decode-context-parallel-size 2"],
        ),
        ("KV302", plans.llama(), []),
        ("KV902", plans.llama(), []),
    ],
)
def test_what_a_rule_would_have_tried(rule: str, plan: Plan, changes: list[str]) -> None:
    assert proposed(rule, plan) == changes


def test_a_json_argument_is_changed_where_it_is_wrong() -> None:
    arguments = ("--kv-transfer-config", '{"kv_connector": "X", "kv_connector_extra_config": {"block_size": 48, "n": 1}}')
    assert proposed("KV503", plans.refused(CHUNK), vllm_args=arguments) == [
        '--kv-transfer-config {"kv_connector": "X", "kv_connector_extra_config": {"block_size": 320, "n": 1}}'
    ]


def test_a_ring_is_told_with_fewer_speculative_tokens() -> None:
    plan = plans.refused("QSA ring capacity 12 must divide the attention block size 1600")
    arguments = ('--speculative-config={"method": "mtp", "num_speculative_tokens": 3}',)
    assert proposed("KV107", plan, vllm_args=arguments) == [
        '--speculative-config {"method": "mtp", "num_speculative_tokens": 2}',
        '--speculative-config {"method": "mtp", "num_speculative_tokens": 1}',
    ]


def drafted(block: int) -> Plan:
    """Qwen3-Next with a drafter, and blocks of that many tokens."""
    base = plans.qwen3_next()
    launch = dataclasses.replace(base.launch, speculative_method="mtp", num_speculative_tokens=2)
    return dataclasses.replace(base, launch=launch, scheduler_block_size=block, given_arguments={"speculative_config": None})


def test_kv305_compares_with_the_plan_without_the_drafter() -> None:
    made, service = tried(drafted(608), lambda _: plans.qwen3_next())
    (finding,) = (finding for finding in made.findings if finding.rule == "KV305")
    assert finding.message == "speculation (mtp, 2 tokens) makes the block 608 tokens instead of 576"
    assert service.asked[0].left_out == ("speculative_config",)
    assert "KV305" not in [skipped.rule for skipped in made.skipped_rules]


def test_kv305_does_not_fire_where_the_block_stays() -> None:
    made, _ = tried(drafted(576), lambda _: plans.qwen3_next())
    assert "KV305" not in [finding.rule for finding in made.findings]


def test_kv305_is_skipped_where_nothing_else_is_planned() -> None:
    skipped = {skipped.rule: skipped.reason for skipped in diagnose(plans.request(), drafted(608)).skipped_rules}
    assert skipped["KV305"] == "the plan without the drafter was not made"
    assert "KV305" not in [skipped.rule for skipped in diagnose(plans.request(), plans.qwen3_next()).skipped_rules]
