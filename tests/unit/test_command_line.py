import shlex
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdoctor.command_line import VllmCommand, has_flag, parse_vllm_command
from kvdoctor.errors import BadRequest


def parsed(line: str) -> tuple[str | None, list[str]]:
    command = parse_vllm_command(shlex.split(line))
    return command.model, list(command.arguments)


@pytest.mark.parametrize(
    ("line", "model", "arguments"),
    [
        ("", None, ""),
        ("--tensor-parallel-size 8 -O3", None, "--tensor-parallel-size 8 -O3"),
        ("vllm serve org/name", "org/name", ""),
        ("vllm serve org/name --max-model-len 8k -tp 2", "org/name", "--max-model-len 8k -tp 2"),
        ("/opt/venv/bin/vllm serve ./dir --port 8001", "./dir", "--port 8001"),
        ("vllm serve -tp 2 --model org/name --enforce-eager", "org/name", "-tp 2 --enforce-eager"),
        ("vllm serve -tp 2 --model=org/name --enforce-eager", "org/name", "-tp 2 --enforce-eager"),
        ("vllm serve --config serve.yaml", None, "--config serve.yaml"),
        ("python -m vllm.entrypoints.openai.api_server --model org/name -tp 2", "org/name", "-tp 2"),
        ("python3.12 -u -m vllm.entrypoints.openai.api_server -tp 2 --model=org/name", "org/name", "-tp 2"),
        ("python -m vllm.entrypoints.cli.main serve org/name -tp 2", "org/name", "-tp 2"),
        ("'vllm serve org/name \\\n  --max-model-len 8192 # as in production\n'", "org/name", "--max-model-len 8192"),
        ('vllm serve org/name --speculative-config \'{"method": "mtp"}\'', "org/name", '--speculative-config \'{"method": "mtp"}\''),
        ("'--hf-overrides={\"a\": 1}'", None, "'--hf-overrides={\"a\": 1}'"),
        ("--model-impl transformers", None, "--model-impl transformers"),
        ("vllm serve org/name --model-impl transformers", "org/name", "--model-impl transformers"),
    ],
)
def test_a_launch_is_read_as_its_model_and_vllms_arguments(line: str, model: str | None, arguments: str) -> None:
    assert parsed(line) == (model, shlex.split(arguments))


@pytest.mark.parametrize("env", ["", "env "])
def test_variables_in_front_belong_to_the_launch(env: str) -> None:
    line = f"{env}VLLM_KV_CACHE_LAYOUT=HND CUDA_VISIBLE_DEVICES=0,1 VLLM_X='a=b c' vllm serve org/name -tp 2"
    assert parse_vllm_command(shlex.split(line)) == VllmCommand(
        model="org/name",
        arguments=("-tp", "2"),
        environment={"VLLM_KV_CACHE_LAYOUT": "HND", "VLLM_X": "a=b c"},
        left_out=("CUDA_VISIBLE_DEVICES",),
    )


def test_variables_may_stand_before_arguments_alone() -> None:
    command = parse_vllm_command(["VLLM_USE_V2_MODEL_RUNNER=0", "--max-model-len", "8k"])
    assert command.environment == {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert command.arguments == ("--max-model-len", "8k")


@pytest.mark.parametrize(
    "line",
    [
        "vllm bench latency",
        "vllm",
        "python -m vllm chat",
        "org/name",
        "serve org/name",
        "docker run x",
        "vllm serve --model",
        "vllm serve org/a --model org/b",
    ],
)
def test_what_starts_no_server_is_refused(line: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parsed(line)
    assert "vllm serve" in caught.value.hint


def test_one_variable_with_a_space_in_it_is_no_command() -> None:
    assert parse_vllm_command(["VLLM_X=a b"]).environment == {"VLLM_X": "a b"}


def test_an_unclosed_quote_is_refused() -> None:
    with pytest.raises(BadRequest, match="cannot be split: No closing quotation"):
        parse_vllm_command(["vllm serve 'org/name"])


def test_a_flag_is_seen_in_both_of_vllms_spellings() -> None:
    assert has_flag(["--trust_remote_code"], "--trust-remote-code")
    assert has_flag(["--kv-cache-memory-bytes=40G"], "--kv-cache-memory-bytes")
    assert not has_flag(["--x", "trust-remote-code"], "--trust-remote-code")


@given(
    st.lists(st.text() | st.sampled_from(["vllm", "serve", "--model", "python", "-m", "env", "A=b", "VLLM_X=1", "org/name"]), max_size=8)
)
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    with suppress(BadRequest):
        assert set(parse_vllm_command(words).environment) <= {"VLLM_X"} | {word.partition("=")[0] for word in words}
