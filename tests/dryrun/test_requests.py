"""What only vLLM can tell is wrong with a request: its parser, and the fields of its spec classes."""

from dataclasses import replace

import pytest

from kvdoctor.errors import BadRequest
from tests.launches import TIMEOUT_SECONDS, Launches, launch_request


@pytest.mark.parametrize(
    ("field", "value", "wrong"),
    [
        ("block_size", 0, "block_size of FullAttentionSpec is 0, which is less than 1"),
        ("head_size", 64.0, "head_size of FullAttentionSpec is 64.0, not a whole number"),
        ("num_kv_heads", True, "num_kv_heads of FullAttentionSpec is true, not a whole number"),
        ("dtype", "nope", "FullAttentionSpec does not take these values: dtype is 'nope', which is no dtype of torch"),
        ("heads", 1, "FullAttentionSpec has no heads"),
    ],
)
def test_a_wrong_value_of_given_specs_is_named_with_its_layer_and_field(launches: Launches, field: str, value: object, wrong: str) -> None:
    layer = {"class": "FullAttentionSpec", "block_size": 16, "num_kv_heads": 1, "head_size": 64, "dtype": "bfloat16"} | {field: value}
    request = replace(launch_request("llama-3.1-8b"), model=None, specs={"layers": {"a": layer}})
    with pytest.raises(BadRequest) as caught:
        launches.worker().plan(request, timeout_seconds=TIMEOUT_SECONDS)
    assert caught.value.message == f"layer a: {wrong}"


@pytest.mark.parametrize("words", [("--model", "other"), ("--model=other",), ("--model-i", "auto", "other")])
def test_a_second_model_among_vllms_arguments_is_found_by_its_parser(launches: Launches, words: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest, match="vLLM's arguments name a second model, 'other'"):
        launches.plan("qwen3-0.6b", words)


def test_a_word_that_vllm_reads_as_an_options_value_is_no_model(launches: Launches) -> None:
    request = replace(launch_request("qwen3-0.6b", ("--served-model-name", "x")), model_position=2)
    with pytest.raises(BadRequest, match="is no model in the pasted command, but the value of the option before it"):
        launches.worker().plan(request, timeout_seconds=TIMEOUT_SECONDS)


@pytest.mark.parametrize(
    "words", [("--kv-cache-memory-bytes", "1G"), ("--kv_cache_memory_bytes=1G",), ("--kv-cache-mem", "1G")], ids=lambda words: words[0]
)
def test_a_budget_given_twice_is_refused_however_it_is_spelled(launches: Launches, words: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest, match="the KV-cache budget is given twice"):
        launches.plan("qwen3-0.6b", words, kv_cache_memory=2**30)


def test_a_revision_given_twice_is_refused(launches: Launches) -> None:
    request = launch_request("qwen3-0.6b", ("--revision=dev",))
    assert request.model is not None
    named = replace(request, model=replace(request.model, revision="main"))
    with pytest.raises(BadRequest, match="the revision is given twice"):
        launches.worker().plan(named, timeout_seconds=TIMEOUT_SECONDS)


@pytest.mark.parametrize(
    "given", [("--tensor-parallel-size", "2"), ("-tp", "2"), ("--tensor_parallel_size=2",), ("--tensor-par", "2")], ids=" ".join
)
def test_an_argument_cannot_vary_and_be_given_however_either_is_spelled(launches: Launches, given: tuple[str, ...]) -> None:
    request = replace(launch_request("qwen3-0.6b", given), varied_args=("-tp", "4"))
    with pytest.raises(BadRequest, match="--tensor-parallel-size is varied, and given after -- as well"):
        launches.worker().plan(request, timeout_seconds=TIMEOUT_SECONDS)


def test_what_varies_is_given_too(launches: Launches) -> None:
    request = replace(launch_request("qwen3-0.6b", ("--max-num-seqs", "8")), varied_args=("--dtype", "half"))
    plan = launches.worker().plan(request, timeout_seconds=TIMEOUT_SECONDS)
    assert (plan.launch.dtype, plan.given_arguments) == ("float16", {"max_num_seqs": 8, "dtype": "half"})
