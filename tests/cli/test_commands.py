import json
import subprocess
import sys

import pytest

from kvdoctor import __version__
from tests.cli.conftest import Run

HEAVY = ("torch", "vllm", "transformers", "huggingface_hub", "jsonschema")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("inspect", "--help")])
def test_help_is_printed_without_reading_what_it_does_not_need(
    kvdoctor: Run, environment: dict[str, str], arguments: tuple[str, ...]
) -> None:
    result = kvdoctor(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: kvdoctor")
    command = [sys.executable, "-X", "importtime", "-m", "kvdoctor", *arguments]
    imported = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    modules = {line.rpartition("|")[2].strip() for line in imported.splitlines() if line.startswith("import time:")}
    assert "kvdoctor.cli.main" in modules
    assert not modules & set(HEAVY)


def test_inspect_help_says_where_vllms_own_arguments_go(kvdoctor: Run) -> None:
    assert "What follows -- is vLLM's own" in kvdoctor("inspect", "--help").stdout


def test_gpus_lists_the_catalogue_with_its_sources(kvdoctor: Run) -> None:
    result = kvdoctor("gpus")
    assert result.returncode == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("h200 "))
    assert line.split("  ")[-1] == "CUDA total as torch's device properties print it, driver total as nvidia-smi prints it"
    assert "139.80 GiB" in line


def test_rules_and_explain_name_the_same_rules(kvdoctor: Run) -> None:
    rules = kvdoctor("rules").stdout.splitlines()
    assert rules[0].split()[:3] == ["KV101", "error", "block-not-divisible-by-hash"]
    explained = kvdoctor("explain", "kv101")
    assert explained.stdout.startswith("# KV101 block-not-divisible-by-hash (error)\n")
    assert explained.stdout == kvdoctor("explain", "block-not-divisible-by-hash").stdout


def test_version_names_kvdoctor_and_what_is_beside_it(kvdoctor: Run) -> None:
    lines = kvdoctor("version").stdout.splitlines()
    assert lines[0] == f"kvdoctor {__version__}"
    assert [line.split()[0] for line in lines] == ["kvdoctor", "python", "vllm", "torch", "transformers"]


def test_lists_come_as_json_too(kvdoctor: Run) -> None:
    gpus = {gpu["name"]: gpu for gpu in json.loads(kvdoctor("gpus", "--format", "json").stdout)["gpus"]}
    assert (gpus["h200"]["compute_capability"], gpus["h200"]["memory_bytes"]) == ("9.0", 150_109_945_856)
    rules = json.loads(kvdoctor("rules", "--format", "json").stdout)["rules"]
    assert (rules[0]["id"], rules[0]["severity"], rules[0]["name"]) == ("KV101", "error", "block-not-divisible-by-hash")
    assert rules[0]["documentation"].startswith(rules[0]["summary"])


def test_the_version_is_an_option_too(kvdoctor: Run) -> None:
    result = kvdoctor("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"kvdoctor {__version__}\n", "")


def test_the_shell_completes_commands(kvdoctor: Run, environment: dict[str, str]) -> None:
    assert "_KVDOCTOR_COMPLETE=complete_bash" in kvdoctor("--show-completion", "bash").stdout
    environment |= {"_KVDOCTOR_COMPLETE": "complete_bash", "COMP_WORDS": "kvdoctor insp", "COMP_CWORD": "1"}
    assert kvdoctor().stdout.split() == ["inspect"]
