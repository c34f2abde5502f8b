"""No secret of a launch is in what kvdoctor shows, and nothing else is hidden."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdoctor.compare import Limits, compare
from kvdoctor.conceal import conceal_plan
from kvdoctor.diagnosis import diagnose
from kvdoctor.plain import to_plain
from kvdoctor.plan import LogRecord
from kvdoctor.report import FORMATS, render_comparison, render_sweep
from kvdoctor.report.as_json import read_json
from kvdoctor.secrets import curtain_for, hide_arguments, hide_environment, hide_setting, is_secret, without_secrets
from kvdoctor.sweep import SCHEMA_VERSION, Cell, Sweep, read_row
from tests.unit import plans

SECRET = "sk-live-4f9a"  # noqa: S105 - made up, as all here
PASSWORD = "hunter2!x"  # noqa: S105 - as above


@pytest.mark.parametrize(
    "name",
    ["api-key", "api_key", "hf-token", "HF_TOKEN", "VLLM_API_KEY", "token", "apiKey", "authToken", "AWS_SECRET_ACCESS_KEY",
     "OPENAI_API_KEY_2", "ssl-keyfile-password", "kv-transfer-config.kv_connector_extra_config.password", "credentials", "client_secret",
     "api_keys", "X-Amz-Signature"],
)  # fmt: skip
def test_a_name_with_a_secrets_word_is_a_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["max-num-batched-tokens", "num_speculative_tokens", "tokenizer", "tokenizer-mode", "num_key_value_heads", "eos_token_id", "pad_token",
     "image_token_index", "key_dim", "linear_num_key_heads", "ssl-keyfile", "HF_TOKEN_PATH", "keys", "tokens", "num_experts_per_token",
     "enable-prompt-tokens-details", "monkey", "keyboard", "", "1"],
)  # fmt: skip
def test_a_name_that_only_resembles_one_is_none(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--api-key", "a", "b", "--port", "80"), ("--api-key", "***", "***", "--port", "80")),
        (("--api_key=a",), ("--api_key=***",)),
        (("--api-k", "a"), ("--api-k", "***")),
        (("--max-num-batched-tokens", "8192"), ("--max-num-batched-tokens", "8192")),
        (("--tokenizer", "org/name"), ("--tokenizer", "org/name")),
        (("--ssl-keyfile", "key.pem"), ("--ssl-keyfile", "key.pem")),
        (("--hf-overrides", '{"num_key_value_heads":8}'), ("--hf-overrides", '{"num_key_value_heads":8}')),
        (("--x", '{"a": [{"password": "p", "port": 1}]}'), ("--x", '{"a": [{"password": "***", "port": 1}]}')),
        (("--x", '{"token": null, "key": true}'), ("--x", '{"token": null, "key": true}')),
        (('--x={"secret": {"a": 1}}',), ('--x={"secret": "***"}',)),
        (("--x", "redis://user:pass@host:6379/0"), ("--x", "redis://***@host:6379/0")),
        (("VLLM_API_KEY=a", "vllm", "serve", "m"), ("VLLM_API_KEY=***", "vllm", "serve", "m")),
        (("vllm serve m --api-key a --port 80",), ("vllm serve m --api-key *** --port 80",)),
    ],
)  # fmt: skip
def test_a_command_line_shows_all_but_its_secrets(words: tuple[str, ...], shown: tuple[str, ...]) -> None:
    assert hide_arguments(words) == shown
    assert hide_arguments(shown) == shown


def test_variables_and_varied_values_show_all_but_their_secrets() -> None:
    assert hide_environment({"VLLM_API_KEY": "a", "VLLM_PORT": "8000"}) == {"VLLM_API_KEY": "***", "VLLM_PORT": "8000"}
    assert (hide_setting("api-key", "a"), hide_setting("max-num-seqs", "8")) == ("***", "8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("non-default args: {'api_key': ['a', 'b'], 'port': 80}", "non-default args: {'api_key': ['***'], 'port': 80}"),
        ("Args(hf_token='a', tokenizer='org/name', hf_token=None)", "Args(hf_token='***', tokenizer='org/name', hf_token=None)"),
        ('{"a": {"password": "p"}}', '{"a": {"password": "***"}}'),
        ("--x '{\"password\": \"p\"}' --api-key a", "--x '{\"password\": \"***\"}' --api-key ***"),
        ("cannot reach https://me:word@host/v1?token=abc&n=1", "cannot reach https://***@host/v1?token=***&n=1"),
        ("num_key_value_heads=8, max_num_tokens=8, eos_token_id: 2", "num_key_value_heads=8, max_num_tokens=8, eos_token_id: 2"),
        ("block_sizes=[544, 181], hash_block_size=98464", "block_sizes=[544, 181], hash_block_size=98464"),
    ],
)  # fmt: skip
def test_free_text_shows_all_but_its_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


def test_a_secret_is_hidden_wherever_it_stands() -> None:
    curtain = curtain_for(("--api-key", SECRET, "--x", json.dumps({"a": {"password": PASSWORD}})), {"VLLM_TOKEN": 'tök"en-1'})
    assert curtain(f"refused {SECRET}/v1 with ({PASSWORD})") == "refused ***/v1 with (***)"
    assert curtain('said "t\\u00f6k\\"en-1" and tök"en-1') == 'said "***" and ***'


def test_a_secret_that_is_a_word_leaves_that_word_alone_where_it_is_no_value() -> None:
    curtain = curtain_for(("--api-key", "vllm"), {})
    assert curtain("vllm.config says vllm: api_server_key='vllm' name=vllm") == "vllm.config says vllm: api_server_key='***' name=***"


def test_text_of_megabytes_is_searched_at_once() -> None:
    text = "a" * 2_000_000 + "=b " + "://" * 500_000
    assert without_secrets(text) == text


@given(st.text(), st.text(min_size=1))
def test_what_is_hidden_twice_is_as_hidden_once(text: str, value: str) -> None:
    curtain = curtain_for(("--api-key", value), {})
    assert without_secrets(without_secrets(text)) == without_secrets(text)
    assert hide_arguments(("--api-key", value, text)) is not None
    assert isinstance(curtain(text), str)


def leaky_report() -> tuple[object, ...]:
    request = dataclasses.replace(
        plans.request(),
        vllm_args=("--api-key", SECRET, "--kv-transfer-config", json.dumps({"extra": {"password": PASSWORD}})),
        environment={"VLLM_API_KEY": SECRET},
    )
    base = plans.refused(f"cannot reach {SECRET}", base=plans.llama())
    leaky = dataclasses.replace(
        base,
        vllm_log=(LogRecord(level="INFO", message=f"{{'api_key': ['{SECRET}'], 'password': '{PASSWORD}'}}"),),
        assumptions=(f"environment: VLLM_API_KEY={SECRET}",),
    )
    return request, leaky


def test_no_format_shows_a_secret() -> None:
    request, leaky = leaky_report()
    curtain = curtain_for(request.vllm_args, request.environment)  # type: ignore[attr-defined]
    report = diagnose(request, conceal_plan(leaky, curtain, {}))  # type: ignore[arg-type]
    shown = [render(report, width=10_000, color=False) for render in FORMATS.values()]
    comparison = compare(report, report, Limits())
    shown += [render_comparison(comparison, name, width=10_000, color=False) for name in ("table", "json", "markdown")]
    row = read_row(Cell(model="m", values={"api-key": SECRET}), report)
    sweep = Sweep(schema_version=SCHEMA_VERSION, kvdoctor_version="0", models=("m",), vllm_args=hide_arguments(request.vllm_args),  # type: ignore[attr-defined]
                  varied={"api-key": ("***",)}, best_by="tokens", planned=1, rows=(row,))  # fmt: skip
    shown += [render_sweep(sweep, name, width=10_000, color=False) for name in ("table", "json", "csv", "markdown")]
    for text in shown:
        assert SECRET not in text
        assert PASSWORD not in text
        assert "***" in text or r"\*\*\*" in text


def test_a_saved_report_with_secrets_is_read_without_them() -> None:
    request, leaky = leaky_report()
    report = to_plain(diagnose(request, leaky))  # type: ignore[arg-type]
    report["request"]["vllm_args"] = ["--api-key", SECRET, "--token", PASSWORD]
    read = json.dumps(to_plain(read_json(json.dumps(report))))
    assert SECRET not in read
    assert PASSWORD not in read
