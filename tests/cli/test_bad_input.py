"""Whatever a user gets wrong ends in one clear line, what to do next, the exit code of the contract, and an empty stdout."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import FakeEngine, Run, answers

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")


def refused(result: subprocess.CompletedProcess[str], code: int) -> str:
    """Check the form that all errors share, and return the line that says what and why."""
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 2, result.stderr
    assert lines[0].startswith("kvdoctor: ")
    assert lines[1].startswith("  ")
    assert lines[1].strip()
    assert result.returncode == code
    return lines[0].removeprefix("kvdoctor: ")


FILES = {
    "not JSON": (b"model_type: llama", "is not JSON: Expecting value in line 1, column 1"),
    "no object": (b"[]", "is not a model's config.json: it holds a JSON array, not an object"),
    "no model_type": (b'{"architectures": ["LlamaForCausalLM"]}', "has no model_type, so vLLM cannot tell which model it is"),
    "Infinity": (b'{"model_type": "llama",\n "rope_theta": Infinity}', 'is not JSON: "rope_theta" is Infinity in line 2'),
    "binary": (b"GGUF\x03\x00\x00\x00\xff", "is not a model's config.json: it is a binary file, not UTF-8 text"),
    "empty": (b"", "is empty"),
    "deep": (b'{"a":' * 5000, "is not a model's config.json: its JSON is nested too deeply"),
    "huge": (b" " * (2**24 + 1), "is not a model's config.json: it is larger than 16 MiB"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_config(kvdoctor: Run, tmp_path: Path, name: str) -> None:
    data, message = FILES[name]
    (tmp_path / "config.json").write_bytes(data)
    assert refused(kvdoctor("inspect", "./config.json"), 2) == f"config.json {message}"


def test_a_file_that_cannot_be_read(kvdoctor: Run) -> None:
    """Unreadable to root too, unlike a file without permissions."""
    assert refused(kvdoctor("inspect", "/proc/self/mem"), 2) == "/proc/self/mem cannot be read: Input/output error"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission(kvdoctor: Run, config: Path) -> None:
    config.chmod(0)
    assert refused(kvdoctor("inspect", str(config)), 2) == f"{config} cannot be read: Permission denied"


def test_a_missing_path_and_an_empty_directory(kvdoctor: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert refused(kvdoctor("inspect", "./missing"), 2) == "model ./missing does not exist"
    assert refused(kvdoctor("inspect", "missing/config.json"), 2) == "model missing/config.json does not exist"
    assert refused(kvdoctor("inspect", "empty"), 2) == "empty is an empty directory"
    assert refused(kvdoctor("inspect", "gpt2"), 2) == "model 'gpt2' is no hub id, and no file or directory of that name exists"


def test_a_name_with_terminal_escapes_is_shown_and_not_obeyed(kvdoctor: Run) -> None:
    assert refused(kvdoctor("inspect", "./\x1b[31mred\nname"), 2) == r"model ./\x1b[31mred name does not exist"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpu", "h101"), "GPU 'h101' is not in the catalogue"),
        (("--gpu", "9.0:some"), "the memory of --gpu 'some' is not a size"),
        (("--vllm", "latest"), "engine 'latest' is neither a release nor a directory that is there"),
        (("--vllm", "python:/nope"), "engine python:/nope is no interpreter that can be run"),
        (("--kv-cache-memory", "40 gigs"), "--kv-cache-memory '40 gigs' is not a size"),
        (("--select", "KV999"), "no rule matches 'KV999'"),
        (("--output", "missing/report"), "--output missing/report is in a directory that does not exist"),
        (("--output", "."), "--output . is a directory"),
        (("--specs", "specs.json"), "both a model (model) and --specs are given"),
        (("--", "vllm", "serve", "org/name"), "the model is given twice: model and, in the pasted command, org/name"),
        (("--", "org/name"), "'org/name' after -- is neither one of vLLM's options nor the start of a `vllm serve` command"),
        (("--format", "yaml"), "Invalid value for '--format'"),
        (("--timeout", "0"), "Invalid value for '--timeout'"),
        (("--timeout", "nan"), "Invalid value for '--timeout'"),
        (("--tensor-parallel-size", "2"), "No such option: --tensor-parallel-size"),
        (("other",), "Got unexpected extra argument"),
    ],
)
def test_a_wrong_option(kvdoctor: Run, config: Path, arguments: tuple[str, ...], message: str) -> None:
    assert config.parent.name == "model"
    assert refused(kvdoctor("inspect", "model", *arguments), 2).startswith(message)


def test_no_model_no_command_no_rule(kvdoctor: Run) -> None:
    assert refused(kvdoctor("inspect"), 2) == "no model is given"
    assert refused(kvdoctor("inspekt"), 2).startswith("No such command 'inspekt'")
    assert refused(kvdoctor("explain", "KV999"), 2) == "there is no rule 'KV999'"
    assert refused(kvdoctor("explain"), 2).startswith("Missing argument")


def test_specs_that_are_no_specs(kvdoctor: Run, tmp_path: Path) -> None:
    (tmp_path / "specs.json").write_text('{"layers": {"a": 1, "a": 2}}')
    assert refused(kvdoctor("inspect", "--specs", "specs.json"), 2) == "specs.json is not a file of layer specs: the key 'a' is given twice"
    assert refused(kvdoctor("inspect", "--specs", "nope.json"), 2) == "nope.json does not exist"


def test_a_closed_stdout(config: Path, environment: dict[str, str]) -> None:
    for arguments in ("gpus", f"inspect {config}"):
        shell = f'exec "{sys.executable}" -m kvdoctor {arguments} >&-'
        result = subprocess.run(["sh", "-c", shell], env=environment, capture_output=True, text=True, check=False)
        assert refused(result, 2) == "stdout is closed, so there is nowhere to write the report"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    with Path("/dev/full").open("w") as full:
        result = kvdoctor(
            "inspect", str(config), "--vllm", fake_engine(answers("llama")), capture_output=False, stdout=full, stderr=subprocess.PIPE
        )
    assert result.returncode == 2
    assert result.stderr.splitlines()[0] == "kvdoctor: the report cannot be written: No space left on device"
    assert "Traceback" not in result.stderr


def test_an_engine_that_does_not_import(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    engine = fake_engine("raise ImportError('libcudart.so.13: cannot open shared object file')")
    message = refused(kvdoctor("inspect", str(config), "--vllm", engine), 3)
    assert message == "the worker ended with exit code 1 while importing vLLM: ImportError: libcudart.so.13: cannot open shared object file"


def test_a_time_out(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    result = kvdoctor("inspect", str(config), "--vllm", fake_engine("time.sleep(60)"), "--timeout", "1")
    assert refused(result, 3) == "importing vLLM took more than 1 seconds"


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_no_vllm(kvdoctor: Run, config: Path) -> None:
    assert refused(kvdoctor("inspect", str(config)), 3) == "vLLM is not installed beside kvdoctor"


@needs_vllm
def test_a_misspelt_vllm_option_gets_vllms_own_complaint(kvdoctor: Run, config: Path) -> None:
    message = refused(kvdoctor("inspect", str(config), "--", "--tensor-paralel-size", "2"), 2)
    assert "unrecognized arguments: --tensor-paralel-size" in message


@needs_vllm
def test_an_architecture_that_vllm_does_not_know(kvdoctor: Run, config: Path) -> None:
    config.write_text(json.dumps({"model_type": "llama", "architectures": ["NoSuchModelForCausalLM"], "num_hidden_layers": 2}))
    message = refused(kvdoctor("inspect", str(config)), 2)
    assert "vLLM does not know this model: Model architectures ['NoSuchModelForCausalLM'] are not supported for now" in message


@needs_vllm
def test_a_hub_id_without_network(kvdoctor: Run, environment: dict[str, str], tmp_path: Path) -> None:
    environment["HF_HOME"] = str(tmp_path / "hub")
    message = refused(kvdoctor("inspect", "no-such-org/no-such-model", "--offline"), 3)
    assert "no-such-org/no-such-model" in message
