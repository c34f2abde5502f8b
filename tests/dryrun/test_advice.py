"""What advice goes by is vLLM's own: its parser says what was given, its reasons are read as it gives them."""

from collections import Counter

import pytest

from kvdoctor.diagnosis import diagnose
from kvdoctor.plan import Plan
from tests.launches import Launches, launch_request

NGRAM = '{"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 4}'


def test_what_was_given_is_what_vllms_parser_took_for_given_and_no_secret_is_kept(launches: Launches) -> None:
    args = ("-tp", "2", "-pp", "2", "--nnodes", "2", "--no-enable-prefix-caching", "--api-key", "hidden", "--hf-token", "hidden")
    plan = launches.plan("qwen3-0.6b", (*args, "--speculative-config", NGRAM))
    assert plan.given_arguments == {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "nnodes": 2,
        "enable_prefix_caching": False,
        "api_key": None,
        "hf_token": None,
        "speculative_config": None,
    }
    assert plan.assumptions[0].endswith(", as many as the launch asks for, on 2 nodes")
    assert [name for name, count in Counter(check.name for check in plan.checks).items() if count > 1] == []


@pytest.mark.parametrize(
    ("sample", "args", "advice"),
    [
        (
            "qwen3-0.6b",
            ("--num-gpu-blocks-override", "1"),
            "Raise or leave out --num-gpu-blocks-override 1: so few blocks leave none beside the one that vLLM keeps",
        ),
        (
            "qwen3-0.6b",
            ("--block-size", "8"),
            "Leave out --block-size 8",
        ),
        (
            "qwen3-0.6b",
            ("--attention-backend", "FLASHINFER", "--kv-cache-dtype", "fp8_ds_mla"),
            "Leave out --attention-backend FLASHINFER, or change --kv-cache-dtype fp8_ds_mla",
        ),
        (
            "qwen3-0.6b",
            ("--kv-cache-memory-bytes", "4697620480"),
            "Pass --max-model-len 40944 or less, raise --kv-cache-memory-bytes, or use more GPUs",
        ),
        (
            "qwen3.5-0.8b",
            ("--disable-hybrid-kv-cache-manager",),
            "Leave out --disable-hybrid-kv-cache-manager: layers of several kinds need the hybrid KV-cache manager",
        ),
        (
            "lfm2-2.6b",
            ("--speculative-config", NGRAM),
            "Leave out --speculative-config, with which a recurrent state is larger than the page that vLLM padded for it",
        ),
    ],
)
def test_the_advice_on_a_refusal_is_about_what_was_given(launches: Launches, sample: str, args: tuple[str, ...], advice: str) -> None:
    plan: Plan = launches.plan(sample, args)
    (error,) = [finding for finding in diagnose(launch_request(sample, args), plan).findings if finding.severity == "error"]
    assert error.remediation == advice
