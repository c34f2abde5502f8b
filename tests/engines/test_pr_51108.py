"""The failure this project was born from, from the releases themselves: there on 0.27.1, gone on 0.28.0 (vLLM pull request 51108)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.at_hand import engine_at_hand

ROOT = Path(__file__).parents[2]
MODEL = "sample_configs/qwen3.5-0.8b"
SPECULATION = {
    "method": "extract_hidden_states",
    "num_speculative_tokens": 1,
    "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}},
}
CONNECTOR = {
    "kv_connector": "ExampleHiddenStatesConnector",
    "kv_role": "kv_producer",
    "kv_connector_extra_config": {"shared_storage_path": "hidden_states"},
}
ARGUMENTS = [
    "--enable-prefix-caching",
    "--mamba-cache-mode=align",
    f"--speculative-config={json.dumps(SPECULATION)}",
    f"--kv-transfer-config={json.dumps(CONNECTOR)}",
]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvdoctor", *arguments], cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.fixture(scope="module")
def fresh() -> subprocess.CompletedProcess[str]:
    for release in ("0.27.1", "0.28.0"):
        engine_at_hand(release)
    return run("compare", MODEL, "--before-vllm", "0.27.1", "--after-vllm", "0.28.0", "--", *ARGUMENTS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    reports = {}
    for release in ("0.27.1", "0.28.0"):
        engine_at_hand(release)
        reports[release] = folder / f"{release}.json"
        run("inspect", MODEL, "--vllm", release, "--format", "json", "--output", str(reports[release]), "--", *ARGUMENTS)
    return reports


def test_before_vllm_refuses_in_its_own_words_and_the_groups_are_shown(saved: dict[str, Path]) -> None:
    report = json.loads(saved["0.27.1"].read_text())
    assert report["refusal"]["message"] == (
        "Each KV cache group's real block_size must be divisible by hash_block_size. "
        "block_sizes=[544, 544, 544, 544, 181], hash_block_size=98464"
    )
    assert [(group["kind"], group["block_size"]) for group in report["layout"]["groups"]] == [
        ("mamba", 544),
        ("mamba", 544),
        ("mamba", 544),
        ("full_attention", 544),
        ("hidden_state", 181),
    ]
    assert [finding["rule"] for finding in report["findings"] if finding["severity"] == "error"] == ["KV101"]


def test_after_it_launches_and_a_quarter_of_each_hidden_state_page_is_padding(saved: dict[str, Path]) -> None:
    report = json.loads(saved["0.28.0"].read_text())
    assert report["refusal"] is None
    layout = report["layout"]
    assert [group["block_size"] for group in layout["groups"]] == [544, 544, 544, 544, 136]
    assert (layout["scheduler_block_size"], layout["hash_block_size"]) == (544, 136)
    hidden = layout["groups"][4]
    assert (hidden["page_bytes"], hidden["wasted_bytes"], hidden["wasted_percent"]) == (1_114_112, 278_528, 25.0)


def test_the_comparison_says_both(fresh: subprocess.CompletedProcess[str]) -> None:
    assert fresh.returncode == 0
    assert "block_sizes=[544, 544, 544, 544, 181], hash_block_size=98464" in fresh.stdout
    assert "went error KV101" in fresh.stdout
    last = fresh.stdout.splitlines()[-1]
    assert last == "after: launches; hash block 98,464 -> 136; 69.8 % of a full request is empty"


def test_saved_reports_give_the_same_text(fresh: subprocess.CompletedProcess[str], saved: dict[str, Path]) -> None:
    assert run("compare", str(saved["0.27.1"]), str(saved["0.28.0"])).stdout == fresh.stdout
