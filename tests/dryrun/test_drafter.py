"""What a drafter checks of the plan is vLLM's word; what only a dry launch meets on the way to the check is not."""

import types
from pathlib import Path
from typing import Any

import pytest

from tests.launches import SAMPLES, TIMEOUT_SECONDS, launch_request, new_worker

# Like the methods of a proposer, in a module of vLLM's.
PROPOSER = """
def initialize_attn_backend(how):
    if how == "asserts":
        assert not how, "All drafting layers should belong to the same kv cache group"
    if how == "calls":
        helper()
    return {}[how]

def helper():
    raise ValueError("not the check")
"""


def raised(how: str) -> BaseException:
    module = types.ModuleType("vllm.v1.spec_decode.like_a_proposer")
    exec(PROPOSER, vars(module))  # noqa: S102 - the code is the test's own
    try:
        module.initialize_attn_backend(how)
    except Exception as error:  # noqa: BLE001 - what is judged
        return error
    raise AssertionError


@pytest.mark.parametrize(("how", "word"), [("asserts", True), ("calls", False), ("misses", False)])
def test_only_what_the_check_itself_raises_is_its_word(how: str, word: bool) -> None:
    from kvdoctor.dryrun.drafter import is_its_word

    assert is_its_word(raised(how)) is word


def test_a_draft_model_whose_layers_fall_into_two_groups_is_refused_by_the_v1_runner_as_vllm_does(tmp_path: Path) -> None:
    plan = _gpt_oss_drafting_for_itself(tmp_path, v2=0)
    assert plan.refusal is not None
    assert (plan.refusal.stage, plan.refusal.exception) == ("drafter's attention groups", "AssertionError")
    assert plan.refusal.message == "All drafting layers should belong to the same kv cache group"
    assert not plan.refusal.accident


def _gpt_oss_drafting_for_itself(cache: Path, *, v2: int) -> Any:
    environment = {"VLLM_USE_V2_MODEL_RUNNER": str(v2)}
    draft = f'{{"method": "draft_model", "model": "{SAMPLES / "gpt-oss-20b"}", "num_speculative_tokens": 3}}'
    request = launch_request("gpt-oss-20b", ("--speculative-config", draft), environment=environment)
    with new_worker(cache=cache, given=environment) as worker:
        return worker.plan(request, timeout_seconds=TIMEOUT_SECONDS)
