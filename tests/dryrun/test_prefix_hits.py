"""What requests take from the prefix cache, as vLLM's scheduler serves them."""

import dataclasses

from kvdoctor.launches.request import PrefixQuestion
from tests.launches import TIMEOUT_SECONDS, Launches, launch_request, sample_launch

QUESTION = PrefixQuestion(shared_tokens=2000, prompt_tokens=2500, requests=3, turns=3)


def cached(launches: Launches, sample: str, *more: str) -> list[int]:
    request = dataclasses.replace(launch_request(sample, (*sample_launch(sample)["args"], *more)), prefix=QUESTION)
    plan = launches.worker().plan(request, timeout_seconds=TIMEOUT_SECONDS)
    return [hit.cached_tokens for hit in plan.prefix_hits]


def test_attention_reuses_whole_blocks_from_the_second_prompt_on(launches: Launches) -> None:
    assert cached(launches, "llama-3.1-8b") == [0, 2000, 2000, 0, 2496, 2992]


def test_a_recurrent_state_is_kept_once_a_second_prompt_has_shown_that_it_is_shared(launches: Launches) -> None:
    assert cached(launches, "qwen3-next-80b-a3b-mtp") == [0, 0, 1920, 0, 2240, 2880]


def test_nothing_is_reused_where_prefix_caching_is_off(launches: Launches) -> None:
    assert cached(launches, "llama-3.1-8b", "--no-enable-prefix-caching") == [0, 0, 0, 0, 0, 0]


def test_prompts_that_the_launch_does_not_take_are_not_served(launches: Launches) -> None:
    assert cached(launches, "llama-3.1-8b", "--max-model-len", "3200") == [0, 2000, 2000, 0, 2496]


def test_nothing_is_served_unless_it_is_asked_for(launches: Launches) -> None:
    assert launches.plan("llama-3.1-8b").prefix_hits == ()
