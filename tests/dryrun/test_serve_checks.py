"""What ``vllm serve`` refuses of its arguments is refused here, and what only the machine of the launch can know is not judged."""

import json
from pathlib import Path

import pytest

from kvdoctor.errors import Unassessed
from kvdoctor.plan import NOT_A_PARSER, NOT_ON_THIS_MACHINE, Plan
from tests.launches import GIB, Launches

SMALL = "qwen3-0.6b"
NO_TOKENIZER = ("reasoning tokens", "the model's tokenizer is not beside the config")
NOT_RUN = "code of the launch's own, not run without --trust-remote-code"
AUTO = "--enable-auto-tool-choice"


def planned(launches: Launches, *args: str, model: str = SMALL, gpu: str = "h100-80g") -> Plan:
    return launches.plan(model, args, kv_cache_memory=20 * GIB, gpu=gpu)


def left_open(plan: Plan) -> list[tuple[str, str | None]]:
    return [(check.name, check.note) for check in plan.checks if check.outcome == "not_checked"]


@pytest.mark.parametrize(
    "args",
    [
        ("--reasoning-parser", "qwen3"),
        ("--reasoning-parser", "deepseek_r1", AUTO, "--tool-call-parser", "hermes"),
        ("--reasoning-parser", "qwen3", "--tokenizer-mode", "slow"),
        ("--reasoning-config", '{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}'),
    ],
    ids=" ".join,
)
def test_a_lone_config_is_planned_without_the_tokenizer_that_a_reasoning_parser_wants(launches: Launches, args: tuple[str, ...]) -> None:
    plan = planned(launches, *args)
    assert (plan.refusal, plan.groups) == (None, planned(launches).groups)
    assert left_open(plan) == [NO_TOKENIZER]
    assert not [record.message for record in plan.vllm_log if "reasoning token IDs" in record.message]


def test_the_second_configuration_of_a_multimodal_model_wants_no_tokenizer_either(launches: Launches) -> None:
    plan = planned(launches, "--reasoning-parser", "qwen3", "--max-model-len", "4096", model="qwen3-vl-4b")
    assert plan.refusal is None
    assert [check for check in left_open(plan) if check == NO_TOKENIZER] == [NO_TOKENIZER]


def test_a_tokenizer_that_is_there_is_read(launches: Launches, tmp_path: Path) -> None:
    """Its strings are vLLM's to judge: one that no token stands for is refused as at a boot."""
    (tmp_path / "config.json").write_text((Path("sample_configs") / SMALL / "config.json").read_text(encoding="utf-8"), encoding="utf-8")
    vocabulary = {f"<{number}>": number for number in range(300)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<0>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8")
    config = '{"reasoning_start_str": "<1>", "reasoning_end_str": "<2>"}'
    plan = launches.plan(tmp_path, ("--reasoning-config", config), kv_cache_memory=20 * GIB)
    assert (plan.refusal, left_open(plan)) == (None, [])


@pytest.mark.parametrize(
    ("args", "exception", "words"),
    [
        ((AUTO,), "TypeError", "Error: --enable-auto-tool-choice requires --tool-call-parser"),
        ((AUTO, "--tool-call-parser", "nope"), "KeyError", "invalid tool call parser: nope (chose from { "),
        (("--reasoning-parser", "nope"), "KeyError", "invalid reasoning parser: nope (chose from { "),
        (("--enable-log-outputs",), "TypeError", "Error: --enable-log-outputs requires --enable-log-requests"),
        (("--chat-template", "nope.jinja"), "VLLMValidationError", "The supplied chat template string (nope.jinja) appears path-like"),
        (("--port", "999999"), "OverflowError", "--port 999999: bind(): port must be 0-65535."),
        (("--load-format", "nope"), "ValueError", "Load format `nope` is not supported"),
        (("--gpu-memory-utilization", "1.0"), "ValueError", "Free memory on device cuda:0 (78.94/79.19 GiB) on startup is less than"),
        (("--lora-modules", "a=./nope"), "RuntimeError", "LoRA is not enabled. Use --enable-lora to enable LoRA."),
        (("--enable-lora", "--lora-modules", "a=./nope"), "FileNotFoundError", "--lora-modules a=./nope: [Errno 2] No such file"),
        (("--logits-processors", "nope"), "ValueError", "--logits-processors nope: Invalid logits processor FQCN 'nope'."),
        (("--logits-processors", "vllm.nope:A"), "ModuleNotFoundError", "--logits-processors vllm.nope:A: No module named 'vllm.nope'"),
        (("--worker-cls", "vllm.nope.A"), "ModuleNotFoundError", "--worker-cls vllm.nope.A: No module named 'vllm.nope'"),
        (("--worker-cls", "nope"), "ValueError", "--worker-cls nope: not enough values to unpack (expected 2, got 1)"),
        (("--middleware", "vllm.envs.Nope"), "AttributeError", "--middleware vllm.envs.Nope: module 'vllm.envs' has no attribute 'Nope'"),
        (
            ("--logits-processors", "json.decoder:JSONDecoder", "--trust-remote-code"),
            "ValueError",
            "--logits-processors json.decoder:JSONDecoder: JSONDecoder is not a subclass of vllm.v1.",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_vllm_serve_refuses_is_refused_in_its_words(launches: Launches, args: tuple[str, ...], exception: str, words: str) -> None:
    refusal = planned(launches, *args).refusal
    assert refusal is not None
    assert (refusal.stage, refusal.exception, refusal.accident) == ("serve arguments", exception, False)
    assert refusal.message.startswith(words)


def test_a_late_refusal_keeps_the_plan_and_stands_once_among_the_steps(launches: Launches) -> None:
    plan = planned(launches, "--load-format", "nope")
    assert plan.groups == planned(launches).groups
    assert [check.outcome for check in plan.checks if check.name == "serve arguments"] == ["refused"]
    assert [check.outcome for check in planned(launches).checks if check.name == "serve arguments"] == ["passed"]


@pytest.mark.parametrize(
    ("args", "open_questions"),
    [
        (("--chat-template", "/models/a.jinja"), [("--chat-template /models/a.jinja", NOT_ON_THIS_MACHINE)]),
        (("--chat-template", "examples/a.jinja"), [("--chat-template examples/a.jinja", NOT_ON_THIS_MACHINE)]),
        (("--tokenizer", "/models/a"), [("--tokenizer /models/a", NOT_ON_THIS_MACHINE)]),
        (("--ssl-keyfile", "a.key"), [("--ssl-keyfile a.key", NOT_ON_THIS_MACHINE)]),
        (
            ("--enable-lora", "--lora-modules", "a=/models/a", "b=org/name"),
            [("--lora-modules a=/models/a", NOT_ON_THIS_MACHINE), ("--lora-modules b=org/name", NOT_ON_THIS_MACHINE)],
        ),
        (
            ("--tool-parser-plugin", "/a/b.py", AUTO, "--tool-call-parser", "mine"),
            [("--tool-parser-plugin /a/b.py", NOT_ON_THIS_MACHINE)],
        ),
        (
            ("--reasoning-parser-plugin", "tests/launches.py", "--reasoning-parser", "mine"),
            [("--reasoning-parser-plugin tests/launches.py", NOT_RUN)],
        ),
        (("--tool-call-parser", "nope"), [("--tool-call-parser nope", NOT_A_PARSER)]),
        (("--logits-processors", "json.decoder:Nope"), [("--logits-processors json.decoder:Nope", NOT_RUN)]),
        (("--middleware", "json.tool.Nope"), [("--middleware json.tool.Nope", NOT_RUN)]),
        (("--middleware", "json.nope.Nope"), [("--middleware json.nope.Nope", "no module json.nope was found")]),
        (("--port", "80"), []),
        (("--headless", "--port", "999999"), []),
        (("--gpu-memory-utilization", "0.99"), []),
        (("--load-format", "runai_streamer"), []),
        (("--worker-cls", "vllm.v1.worker.gpu_worker.Worker"), []),
        (("--chat-template", "{{ messages }}"), []),
        (("--chat-template", "template_chatml.jinja"), []),
        (("--structured-outputs-config", '{"backend": "xgrammar"}'), []),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value, tuple) else "",
)
def test_what_only_the_machine_of_the_launch_knows_is_not_judged(
    launches: Launches, args: tuple[str, ...], open_questions: list[tuple[str, str]]
) -> None:
    plan = planned(launches, *args)
    assert (plan.refusal, left_open(plan)) == (None, open_questions)


@pytest.mark.parametrize(
    ("flag", "value"), [("--logits-processors", "nope.a:B"), ("--worker-cls", "nope.a.B"), ("--middleware", "nope.a.B")]
)
def test_a_module_that_is_not_here_is_neither_refused_nor_passed(launches: Launches, flag: str, value: str) -> None:
    with pytest.raises(Unassessed, match=rf"^the module nope\.a of {flag} is not on this machine$"):
        planned(launches, flag, value)


def test_a_class_of_the_users_that_fails_with_consent_is_not_our_bug(launches: Launches) -> None:
    """With consent it is imported, and what it raises on a machine without a GPU says nothing of the launch."""
    plan = planned(launches, "--middleware", "colorsys.nope.A", "--trust-remote-code")
    ((name, why),) = left_open(plan)
    assert name == "--middleware colorsys.nope.A"
    assert why == "it could not be imported here: ModuleNotFoundError: No module named 'colorsys.nope'; 'colorsys' is not a package"


def test_an_adapter_that_is_here_is_read_as_vllm_reads_it(launches: Launches, tmp_path: Path) -> None:
    adapter = {"r": 64, "lora_alpha": 16, "target_modules": ["q_proj"], "bias": "none", "peft_type": "LORA"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter), encoding="utf-8")
    refusal = planned(launches, "--enable-lora", "--lora-modules", f"a={tmp_path}").refusal
    assert refusal is not None
    assert refusal.message == "LoRA rank 64 is greater than max_lora_rank 16."
    assert planned(launches, "--enable-lora", "--max-lora-rank", "64", "--lora-modules", f"a={tmp_path}").refusal is None


def test_an_engine_started_by_llm_has_no_server_to_check(launches: Launches) -> None:
    plan = launches.plan(SMALL, ("--gpu-memory-utilization", "0.9"), usage="llm", kv_cache_memory=20 * GIB)
    assert plan.refusal is None
