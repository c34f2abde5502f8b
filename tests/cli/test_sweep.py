import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import FakeEngine, Run
from tests.cli.test_compare import BY_ARGUMENT, asked, workers_started


@pytest.fixture
def engine(fake_engine: FakeEngine) -> str:
    return fake_engine(BY_ARGUMENT)


def test_each_combination_is_a_row(kvdoctor: Run, engine: str, config: Path) -> None:
    result = kvdoctor("sweep", str(config), "--vllm", engine, "--vary", "plan=llama,qwen3_next", "--vary", "flag=on,off", "--", "--both")
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["*", "llama", "on", "ok", "16", "16", "0.0", "%", "16,000", "2.95"] in lines
    assert ["*", "qwen3_next", "off", "ok", "576", "576", "0.3", "%", "16,000", "2.95"] in lines
    assert [request["args"] for request in asked(engine)] == [
        ["--both", "--plan", "llama", "--flag"],
        ["--both", "--plan", "llama", "--no-flag"],
        ["--both", "--plan", "qwen3_next", "--flag"],
        ["--both", "--plan", "qwen3_next", "--no-flag"],
    ]
    assert workers_started(engine) == 1


def test_gpus_and_budgets_vary_too(kvdoctor: Run, engine: str, config: Path) -> None:
    result = kvdoctor("sweep", str(config), "--vllm", engine, "--vary", "gpu=h200,b200", "--vary", "kv-cache-memory=10GiB,20GiB")
    assert result.returncode == 0
    assert sorted(str(request["gpu"]) for request in asked(engine)) == ["b200", "b200", "h200", "h200"]
    assert workers_started(engine) == 2


def test_engines_vary_too(kvdoctor: Run, engine: str, config: Path) -> None:
    result = kvdoctor("sweep", str(config), "--vary", f"vllm={engine}")
    assert result.returncode == 0
    assert engine in result.stdout


def test_several_models_are_swept_with_every_value(kvdoctor: Run, engine: str, config: Path) -> None:
    result = kvdoctor("sweep", str(config), str(config.parent), "--vllm", engine, "--vary", "x=1,2", "--format", "json")
    assert [row["model"] for row in json.loads(result.stdout)["rows"]] == [str(config)] * 2 + [str(config.parent)] * 2


def test_csv_and_markdown(kvdoctor: Run, engine: str, config: Path) -> None:
    arguments = ("sweep", str(config), "--vllm", engine, "--vary", "x=1,2")
    rows = list(csv.DictReader(io.StringIO(kvdoctor(*arguments, "--format", "csv").stdout)))
    assert [(row["x"], row["kv_cache_tokens"]) for row in rows] == [("1", "16000"), ("2", "16000")]
    assert kvdoctor(*arguments, "--format", "markdown").stdout.startswith("## kvdoctor sweep: ")


def test_the_best_row_is_chosen_by_a_column(kvdoctor: Run, engine: str, config: Path) -> None:
    result = kvdoctor("sweep", str(config), "--vllm", engine, "--vary", "plan=llama,qwen3_next", "--best", "block", "--format", "json")
    assert [row["best"] for row in json.loads(result.stdout)["rows"]] == [True, False]


@pytest.mark.parametrize(("values", "code"), [("llama,refused", 0), ("refused", 1)])
def test_a_refused_row_is_a_result_while_another_launches(kvdoctor: Run, engine: str, config: Path, values: str, code: int) -> None:
    result = kvdoctor("sweep", str(config), "--vllm", engine, "--vary", f"plan={values}")
    assert result.returncode == code
    assert "refused at the scheduler" in result.stdout


def test_a_row_that_is_not_assessed_is_code_3(kvdoctor: Run, engine: str, config: Path) -> None:
    result = kvdoctor("sweep", str(config), "--vllm", engine, "--vary", "fail=default,on")
    assert (result.returncode, result.stderr) == (3, "")
    assert "(1) no answer" in result.stdout


def test_what_fails_every_row_alike_is_the_commands_failure(kvdoctor: Run, engine: str, config: Path) -> None:
    result = kvdoctor("sweep", str(config), "--vllm", engine, "--vary", "x=1,2", "--", "--fail")
    assert (result.returncode, result.stdout, result.stderr.splitlines()[0]) == (3, "", "kvdoctor: no answer")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("org/model",), "nothing varies"),
        (("org/model", "--vary", "x"), "--vary 'x' has no name and values"),
        (("org/model", "--vary", "gpu=no-such"), "GPU 'no-such' is not in the catalogue"),
        (("--vary", "x=1"), "no model is given"),
    ],
)
def test_a_wrong_request_is_told_in_one_line(kvdoctor: Run, arguments: tuple[str, ...], message: str) -> None:
    result = kvdoctor("sweep", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr.splitlines()[0]


# Answers the first launch, then no more.
ONE_THEN_NONE = BY_ARGUMENT.replace(
    "    args = request", '    if os.path.exists(os.path.join(HERE, "asked")):\n        time.sleep(60)\n    args = request'
)


def test_a_signal_leaves_the_rows_that_are_there(
    fake_engine: FakeEngine, config: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    engine = fake_engine(ONE_THEN_NONE)
    command = [sys.executable, "-m", "kvdoctor", "sweep", str(config), "--vllm", engine, "--vary", "x=1,2,3", "--format", "json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        ends = time.monotonic() + 20
        while not (tmp_path / "engine/asked").exists():
            assert time.monotonic() < ends
            time.sleep(0.02)
        time.sleep(0.5)  # the answer has to reach the other process
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
        assert process.returncode == 130
    sweep = json.loads(output)
    assert (sweep["planned"], [row["values"] for row in sweep["rows"]]) == (3, [{"x": "1"}])
    assert errors == "kvdoctor: stopped: 1 of 3 launches are planned\n"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_signal_before_the_first_row_leaves_nothing(
    fake_engine: FakeEngine, config: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    engine = fake_engine('open(os.path.join(HERE, "up"), "w"); time.sleep(60)')
    command = [sys.executable, "-m", "kvdoctor", "sweep", str(config), "--vllm", engine, "--vary", "x=1,2"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        ends = time.monotonic() + 20
        while not (tmp_path / "engine/up").exists():
            assert time.monotonic() < ends
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20) == ("", "kvdoctor: stopped\n")
        assert process.returncode == 143


def test_the_progress_is_shown_on_a_terminal(engine: str, config: Path, environment: dict[str, str]) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "kvdoctor", "sweep", str(config), "--vllm", engine, "--vary", "x=1,2,3"]
    result = subprocess.run(command, env=environment | {"TERM": "xterm"}, stdout=subprocess.PIPE, stderr=follower, check=True, timeout=60)
    os.close(follower)
    assert b"/3" in os.read(leader, 2**16)
    os.close(leader)
    assert b"planning" not in result.stdout
