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
