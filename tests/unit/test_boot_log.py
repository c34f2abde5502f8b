"""Start-up logs as they come: each written from a public boot's figures in the wording of its release."""

import time
from pathlib import Path
from typing import Any

import pytest

from kvdoctor.vllm_text.boot_log import BootLog, read_boot_log, release_of, sources
from kvdoctor.vllm_text.launch_arguments import launch_arguments
from kvdoctor.vllm_text.python_repr import NotReadable, read_repr

LOGS = Path(__file__).parents[1] / "boot_logs"

SPECULATIVE = (
    '--speculative-config={"method": "extract_hidden_states", "num_speculative_tokens": 1, '
    '"draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [1]}}}'
)
CONNECTOR = (
    '--kv-transfer-config={"kv_connector": "ExampleHiddenStatesConnector", "engine_id": "2f0f9b1e", "kv_buffer_device": "cuda", '
    '"kv_role": "kv_producer", "kv_connector_extra_config": {"shared_storage_path": "hidden_states"}}'
)
# The release, the model, the arguments as words, the printed budgets, and the figures: longest request, tokens, concurrency.
READ: dict[str, tuple[str, str, list[str], tuple[float, ...], tuple[int, int, float]]] = {
    "dense-0.31.0": ("0.31.0", "meta-llama/Llama-3.1-8B-Instruct", [], (56.21,), (131_072, 460_496, 3.51)),
    "sliding-window-0.28.0": (
        "0.28.0",
        "openai/gpt-oss-20b",
        ["--max-model-len=131072", "--enforce-eager", "--block-size=64"],
        (3.12,),
        (131_072, 131_815, 1.01),
    ),
    "hybrid-0.29.0": (
        "0.29.0",
        "Qwen/Qwen3.8-27B",
        ["--dtype=bfloat16", "--max-model-len=8192", "--max-num-seqs=256"],
        (31.24,),
        (8_192, 314_187, 38.35),
    ),
    "mla-tp8-0.27.1": (
        "0.27.1",
        "zai-org/GLM-5.1-FP8",
        ["--enforce-eager", "--tensor-parallel-size=8"],
        (32.11,),
        (202_752, 344_192, 1.7),
    ),
    "drafter-0.28.0": (
        "0.28.0",
        "Qwen/Qwen3.8-27B-FP8",
        [
            "--max-model-len=4096",
            "--max-num-seqs=4",
            "--enable-prefix-caching",
            "--mamba-cache-mode=align",
            SPECULATIVE,
            CONNECTOR,
        ],
        (22.35,),
        (4_096, 52_110, 12.72),
    ),
    "tp2-0.27.1": (
        "0.27.1",
        "Qwen/Qwen3-32B",
        ["--max-model-len=32768", "--tensor-parallel-size=2"],
        (8.22,),
        (32_768, 67_296, 2.05),
    ),
    "pp2-0.27.1": (
        "0.27.1",
        "Qwen/Qwen3-32B",
        ["--max-model-len=32768", "--pipeline-parallel-size=2"],
        (6.92,),
        (32_768, 56_640, 1.73),
    ),
    "fp8-kv-0.25.1": (
        "0.25.1",
        "nvidia/Qwen3.6-35B-A3B-NVFP4",
        [
            "--dtype=bfloat16",
            "--max-model-len=131072",
            "--kv-cache-dtype=fp8",
            "--enable-prefix-caching",
            '--limit-mm-per-prompt={"image": 2, "audio": 0}',
            "--max-num-batched-tokens=8192",
            "--max-num-seqs=1",
        ],
        (6.01,),
        (131_072, 569_878, 4.35),
    ),
    "extensible-0.34.0": (
        "0.34.0",
        "meta-llama/Llama-3.1-8B-Instruct",
        ["--max-model-len=32768"],
        (58.9,),
        (32_768, 460_480, 14.05),
    ),
    "restarts-0.28.0": ("0.28.0", "Qwen/Qwen3-14B", [], (11.57,), (40_960, 75_824, 1.85)),
}


def read(name: str) -> BootLog:
    boot = read_boot_log((LOGS / f"{name}.log").read_text(encoding="utf-8"))
    assert boot is not None
    return boot


@pytest.mark.parametrize("name", READ)
def test_a_log_gives_its_launch_and_its_figures(name: str) -> None:
    boot = read(name)
    taken = launch_arguments(boot.arguments or {})
    figures = tuple(boot.figures[key][0] for key in ("concurrency_length", "kv_cache_tokens", "max_concurrency"))
    assert (boot.version, boot.model, list(taken.words), boot.available_gib, figures) == READ[name]
    assert (boot.usage, boot.complete, boot.refusal, taken.left_out) == ("serve", True, None, ())


def test_block_sizes_padding_layout_and_blocks_are_read() -> None:
    assert {key: read("hybrid-0.29.0").figures[key] for key in ("attention_block_size", "mamba_padding_percent", "kv_cache_layout")} == {
        "attention_block_size": (784,),
        "mamba_padding_percent": (0.13,),
        "kv_cache_layout": ("LBNHC",),
    }
    assert read("drafter-0.28.0").figures["num_blocks"] == (458,)
    assert read("dense-0.31.0").weights_gib == (15.0,)


def test_the_blocks_that_the_extensible_cache_measures_are_read() -> None:
    assert read("extensible-0.34.0").measured_blocks == 7195


def test_the_gpu_is_known_where_nvidia_smi_or_a_kernel_config_names_it() -> None:
    assert [read(name).gpus for name in ("dense-0.31.0", "mla-tp8-0.27.1", "hybrid-0.29.0")] == [("a100-80g",), ("h200",), ()]


def test_the_last_complete_start_counts() -> None:
    boot = read("restarts-0.28.0")
    assert (boot.starts, boot.start) == (3, 2)


def test_a_start_that_a_validator_refuses_has_vllms_own_words() -> None:
    lines = (LOGS / "restarts-0.28.0.log").read_text(encoding="utf-8").splitlines()
    boot = read_boot_log("\n".join(lines[:12]))
    assert boot is not None
    assert boot.refusal is not None
    assert boot.refusal.exception == "ValidationError"
    assert boot.refusal.message == (
        "User-specified max_model_len (400000) is greater than the derived max_model_len (max_position_embeddings=40960 or "
        "model_max_length=None in model's config.json)."
    )


def test_the_engines_own_exception_is_the_refusal_and_not_those_that_follow() -> None:
    boot = read("refused-0.28.0")
    assert boot.refusal is not None
    assert boot.refusal.exception == "ValueError"
    assert boot.refusal.message.startswith(
        "To serve at least one request with the model's max seq len (131072), (3.1 GiB KV cache is needed"
    )


def test_a_secret_is_not_taken_and_an_address_loses_its_user() -> None:
    text = (
        "INFO 06-02 10:00:00 [a.py:1] non-default args: {'model': 'm', 'api_key': ['sk-1'], 'hf_token': 't', 'max_num_batched_tokens': 8, "
        "'kv_transfer_config': {'kv_connector': 'C', 'kv_connector_extra_config': {'password': 'p', 'url': 'redis://me:pw@host:1'}}}"
    )
    boot = read_boot_log(text)
    assert boot is not None
    assert boot.arguments == {
        "model": "m",
        "max_num_batched_tokens": 8,
        "kv_transfer_config": {"kv_connector": "C", "kv_connector_extra_config": {"url": "redis://***@host:1"}},
    }


def test_a_log_can_neither_trust_a_models_code_nor_name_code_to_import() -> None:
    taken = launch_arguments(
        {
            "trust_remote_code": True,
            "worker_cls": "evil.Worker",
            "logits_processors": ["evil:P"],
            "kv_transfer_config": {"kv_connector": "X", "kv_connector_module_path": "evil.module"},
            "max_model_len": 8,
        }
    )
    assert (taken.words, taken.left_out, taken.trusts_remote_code) == (
        ("--max-model-len=8",),
        ("kv_transfer_config", "logits_processors", "worker_cls"),
        True,
    )


def test_a_false_switch_is_turned_off_and_a_list_becomes_words() -> None:
    assert launch_arguments({"enable_prefix_caching": False, "cudagraph_capture_sizes": [1, 2]}).words == (
        "--no-enable-prefix-caching",
        "--cudagraph-capture-sizes",
        "1",
        "2",
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': <CompilationMode.VLLM_COMPILE: 3>, 'b': <Mode.BOTH: (2, 1)>}", {"a": 3, "b": "BOTH"}),
        ("{'a': Config(x=1, y='<b: 1>'), 'c': torch.bfloat16}", {"a": {"x": 1, "y": "<b: 1>"}, "c": "bfloat16"}),
        ('{"a": null, "b": [true, -1.5]}', {"a": None, "b": [True, -1.5]}),
        ("{'a': '}\\'{', 'b': (1, 2)}", {"a": "}'{", "b": [1, 2]}),
    ],
)
def test_what_python_prints_is_read(text: str, value: Any) -> None:
    assert read_repr(text) == value


@pytest.mark.parametrize("text", ["{'a': 1", "[" * 100 + "]" * 100, "{" + "'a': 1," * 20_000 + "}", "", "{'a'}}"])
def test_what_is_no_value_is_not_read(text: str) -> None:
    with pytest.raises(NotReadable):
        read_repr(text)


@pytest.mark.parametrize("text", ["__import__('os').system('true')", "(lambda: 1)()", "f'{1}'", "[x for x in y]"])
def test_nothing_is_evaluated(text: str) -> None:
    assert repr(read_repr(text)) == "UNREAD"


def test_escapes_do_not_come_out_of_a_log() -> None:
    text = "\x1b]0;title\x07INFO 06-02 10:00:00 [a.py:1] vLLM server version 0.33.0, serving model \x1b[2Jorg/m\x9b1m\r\n"
    boot = read_boot_log(text)
    assert boot is not None
    assert (boot.version, boot.model) == ("0.33.0", "org/m1m")


def test_two_services_in_one_log_are_told_apart() -> None:
    text = "a-1  | vLLM server version 0.33.0, serving model org/a\nb-1  | vLLM server version 0.33.0, serving model org/b\n"
    assert sources(text) == ("a-1", "b-1")


def test_a_text_without_vllm_is_no_log() -> None:
    assert read_boot_log("INFO:     Started server process [1]\n{}\n") is None


def test_a_hostile_log_is_read_in_bounded_time() -> None:
    lines = ["█" * 50_000 + " " * 50_000, "Memory after warmup: " * 4_000, "x" * 90_000 + " [type=", "model='" * 15_000, "://" * 30_000]
    text = "vLLM server version 0.33.0, serving model m\n" + "\n".join(lines * 2)
    started = time.perf_counter()
    assert read_boot_log(text) is not None
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(
    ("version", "release"),
    [("0.33.0", "0.33.0"), ("0.33.0+cu129", "0.33.0"), ("0.34.0rc1", "0.34.0rc1"), ("0.33.1.dev7+gabc", None), (None, None)],
)
def test_a_development_build_is_no_release(version: str | None, release: str | None) -> None:
    assert release_of(version) == release
