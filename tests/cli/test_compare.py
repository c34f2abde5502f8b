import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvdoctor.diagnosis import diagnose
from kvdoctor.report.as_json import render_json
from tests.cli.conftest import FakeEngine, Run
from tests.unit import plans

# Plans as the argument `--plan NAME` says, llama without it; what was asked goes to a file beside it.
BY_ARGUMENT = """
open(os.path.join(HERE, "started"), "a").write("x")
send(event="ready", vllm_version="0.33.0")
for line in sys.stdin:
    message = json.loads(line)
    ASKED.update(message)
    request = message["request"]
    args = request["vllm_args"] + request["varied_args"]
    asked = {"args": args, "gpu": request["gpu"]["name"], "specs": request["specs"] is not None, "environment": request["environment"]}
    print(json.dumps(asked), file=open(os.path.join(HERE, "asked"), "a"), flush=True)
    if "--fail" in args:
        send(event="failure", id=message["id"], failure={"kind": "unassessed", "message": "no answer", "hint": "h"})
    else:
        send(event="plan", id=message["id"], plan=plan(args[args.index("--plan") + 1] if "--plan" in args else "llama"))
"""


@pytest.fixture
def engine(fake_engine: FakeEngine) -> str:
    return fake_engine(BY_ARGUMENT)


def asked(engine: str) -> list[dict[str, object]]:
    lines = Path(engine.removeprefix("python:")).with_name("asked").read_text().splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda request: str(request["args"]))


def workers_started(engine: str) -> int:
    return len(Path(engine.removeprefix("python:")).with_name("started").read_text())


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    for name, plan in {"llama": plans.llama(), "qwen": plans.qwen3_next(), "refused": plans.plan(refusal=plans.HASH_REFUSAL)}.items():
        (tmp_path / f"{name}.json").write_text(render_json(diagnose(plans.request(), plan)))
    return tmp_path


def test_two_saved_reports_need_no_engine(kvdoctor: Run, reports: Path) -> None:
    result = kvdoctor("compare", "llama.json", "qwen.json", cwd=reports)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "both launch; block 16 -> 576; hash block 16 -> 576"


def test_two_saved_reports_are_compared_in_half_a_second_of_work(environment: dict[str, str], reports: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "kvdoctor", "compare", "llama.json", "qwen.json"]
    result = subprocess.run(command, env=environment, cwd=reports, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")}
    assert not modules & {"torch", "vllm", "transformers", "huggingface_hub", "jsonschema", "pip"}
    started = time.process_time()
    spent = min(_seconds([*command[:1], *command[3:]], environment, reports) for _ in range(3))
    assert time.process_time() - started < spent + 1
    assert spent < 0.5


def _seconds(command: list[str], environment: dict[str, str], folder: Path) -> float:
    import resource  # noqa: PLC0415 - the children's processor time: a busy machine does not make it longer

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, cwd=folder, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.parametrize(("before", "after", "code"), [("llama", "refused", 1), ("refused", "llama", 0), ("refused", "refused", 0)])
def test_an_error_that_is_new_fails(kvdoctor: Run, reports: Path, before: str, after: str, code: int) -> None:
    assert kvdoctor("compare", f"{before}.json", f"{after}.json", cwd=reports).returncode == code


@pytest.mark.parametrize(
    ("limit", "code"),
    [("--max-hash-growth=3500", 0), ("--max-hash-growth=3499", 1), ("--max-waste-growth=0", 1), ("--max-token-loss=0", 0)],
)
def test_a_limit_that_is_passed_fails(kvdoctor: Run, reports: Path, limit: str, code: int) -> None:
    result = kvdoctor("compare", "llama.json", "qwen.json", limit, cwd=reports)
    assert result.returncode == code
    assert ("Limits passed" in result.stdout) is (code == 1)


def test_saved_and_fresh_give_the_same_text(kvdoctor: Run, engine: str, config: Path) -> None:
    for name, arguments in {"before": (), "after": ("--plan", "qwen3_next")}.items():
        kvdoctor("inspect", str(config), "--vllm", engine, "--format", "json", "-o", f"{name}.json", "--", *arguments)
    fresh = kvdoctor("compare", str(config), "--vllm", engine, "--after-args", "--plan qwen3_next")
    saved = kvdoctor("compare", "before.json", "after.json")
    mixed = kvdoctor("compare", "before.json", str(config), "--vllm", engine, "--", "--plan", "qwen3_next")
    assert fresh.returncode == 0
    assert fresh.stdout == saved.stdout == mixed.stdout


def test_both_sides_share_a_worker_where_they_can(kvdoctor: Run, engine: str, config: Path) -> None:
    result = kvdoctor("compare", str(config), "--vllm", engine, "--before-args", "-a 1", "--after-args=--plan qwen3_next", "--", "--both")
    assert (result.returncode, result.stderr) == (0, "")
    assert [request["args"] for request in asked(engine)] == [["--both", "--plan", "qwen3_next"], ["--both", "-a", "1"]]
    assert workers_started(engine) == 1


def test_each_gpu_has_a_worker(kvdoctor: Run, engine: str, config: Path) -> None:
    assert kvdoctor("compare", str(config), "--vllm", engine, "--before-gpu", "h200", "--after-gpu", "b200").returncode == 0
    assert sorted(str(request["gpu"]) for request in asked(engine)) == ["b200", "h200"]
    assert workers_started(engine) == 2


def test_each_side_has_its_engine(kvdoctor: Run, engine: str, config: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(engine.removeprefix("python:")).parent, other)
    result = kvdoctor(
        "compare",
        str(config),
        "--before-vllm",
        engine,
        "--after-vllm",
        f"python:{other}/python",
        "--after-args",
        "VLLM_USE_X=1 --plan llama",
    )
    assert result.returncode == 0
    assert f"after   vLLM 0.33.0 (python:{other}/python); VLLM_USE_X=1; --plan llama" in result.stdout
    assert asked(engine) == [{"args": [], "gpu": "h100-80g", "specs": False, "environment": {}}]


def test_two_models_are_two_sides(kvdoctor: Run, engine: str, config: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(config.parent, other)
    result = kvdoctor("compare", str(config.parent), str(other), "--vllm", engine)
    assert result.stdout.splitlines()[0] == f"{config.parent} -> {other}"


def test_a_pasted_command_and_specs_serve_both_sides(kvdoctor: Run, engine: str, config: Path, tmp_path: Path) -> None:
    (tmp_path / "specs.json").write_text('{"layers": {"a": 1}}')
    for given, pasted in (([], ["--", "vllm", "serve", str(config)]), (["--specs", "specs.json"], [])):
        result = kvdoctor("compare", *given, "--vllm", engine, "--after-args", "--plan qwen3_next", *pasted)
        assert (result.returncode, result.stderr) == (0, "")
    assert [request["specs"] for request in asked(engine)] == [False, True, False, True]


def test_json_and_markdown(kvdoctor: Run, reports: Path) -> None:
    data = json.loads(kvdoctor("compare", "llama.json", "qwen.json", "--format", "json", cwd=reports).stdout)
    assert (data["schema_version"], data["before"]["verdict"], data["new_errors"]) == (1, "ok", [])
    assert kvdoctor("compare", "llama.json", "qwen.json", "--format", "markdown", cwd=reports).stdout.startswith("## kvdoctor: ")


def test_a_side_that_cannot_be_assessed_is_named(kvdoctor: Run, engine: str, config: Path) -> None:
    result = kvdoctor("compare", str(config), "--vllm", engine, "--after-args=--fail")
    assert (result.returncode, result.stdout, result.stderr.splitlines()[0]) == (3, "", "kvdoctor: after: no answer")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is nothing to compare with"),
        (("llama.json",), "there is nothing to compare with"),
        (("org/model", "--before-vllm", "no-such", "--after-gpu", "no-such"), "after: GPU 'no-such' is not in the catalogue"),
        (("llama.json", "--after-args=x"), "llama.json is a saved report, and it is the only side"),
        (("llama.json", "qwen.json", "--gpu", "b200"), "both sides are saved reports, and nothing is planned that --gpu could change"),
        (("llama.json", "qwen.json", "--", "-tp", "2"), "both sides are saved reports"),
        (("llama.json", "qwen.json", "--before-gpu", "b200"), "llama.json is a saved report: nothing is planned for it that --before-..."),
        (("llama.json", "qwen.json", "llama.json"), "3 sides are given"),
        (("llama.json", "none.json"), "after: model none.json does not exist"),
        (("llama.json", "old.json"), "old.json has schema_version 0, and this kvdoctor reads 1"),
        (("llama.json", "half.json"), "half.json is not JSON"),
        (("org/model", "--after-args", "'"), 'after: --after-args "\'" cannot be split'),
        (("org/model", "--after-args", "vllm serve x"), "after: a whole command is given where only arguments fit"),
        (("--all", ".", "llama.json", "--after-vllm", "x"), "--all takes its models from DIR, and another is given"),
        (("--all", "."), "there is nothing to compare with"),
        (("--all", "none", "--after-args=x"), "--all none is no directory"),
    ],
)
def test_a_wrong_request_is_told_in_one_line(kvdoctor: Run, reports: Path, arguments: tuple[str, ...], message: str) -> None:
    (reports / "old.json").write_text('{"schema_version": 0}')
    (reports / "half.json").write_text('{"schema_version": 1')
    result = kvdoctor("compare", *arguments, cwd=reports)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr.splitlines()[0]


@pytest.fixture
def folder(tmp_path: Path, config: Path) -> Path:
    models = tmp_path / "models"
    for name in ("alike", "moves", "broken"):
        shutil.copytree(config.parent, models / name)
    (models / "moves/launch.toml").write_text('gpu = "b200"\nargs = ["--of-the-folder"]')
    (models / "broken/launch.toml").write_text("args = 3")
    return models


def test_every_model_of_a_folder_has_a_line(kvdoctor: Run, engine: str, folder: Path) -> None:
    (folder / "broken/launch.toml").unlink()
    result = kvdoctor("compare", "--all", str(folder), "--vllm", engine, "--after-args", "--max-num-seqs 8")
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[4:] == [[name, "ok", "ok", "same"] for name in ("alike", "broken", "moves")]
    assert [request["args"] for request in asked(engine)] == [
        ["--max-num-seqs", "8"],
        ["--max-num-seqs", "8"],
        ["--of-the-folder", "--max-num-seqs", "8"],
        ["--of-the-folder"],
        [],
        [],
    ]
    assert [request["gpu"] for request in asked(engine)].count("b200") == 2
    assert workers_started(engine) == 2


def test_one_worse_model_fails_and_one_that_is_not_assessed_does_not_hide_it(kvdoctor: Run, engine: str, folder: Path) -> None:
    result = kvdoctor("compare", "--all", str(folder), "--vllm", engine, "--after-args", "--plan refused")
    assert result.returncode == 1
    assert "not assessed: " in result.stdout
    assert "now refused" in result.stdout


def test_a_model_that_is_not_assessed_is_code_3(kvdoctor: Run, engine: str, folder: Path) -> None:
    result = kvdoctor("compare", "--all", str(folder), "--vllm", engine, "--after-args", "-x 1", "--format", "json")
    assert result.returncode == 3
    models = {model["name"]: model for model in json.loads(result.stdout)["models"]}
    assert "args is no list of words" in models["broken"]["failure"]
    assert models["alike"]["comparison"]["changes"] == []


def test_a_folder_cannot_permit_its_own_code(kvdoctor: Run, engine: str, folder: Path) -> None:
    (folder / "broken/launch.toml").write_text('args = ["--trust_remote_code"]')
    command = ("compare", "--all", str(folder), "--vllm", engine, "--after-args=--max-num-seqs 8")
    result = kvdoctor(*command)
    assert result.returncode == 3
    assert "launch.toml may let code from the model's repository run, which only --trust-remote-code" in result.stdout
    assert not any("--trust_remote_code" in str(request["args"]) for request in asked(engine))
    assert kvdoctor(*command, "--trust-remote-code").returncode == 0
    assert kvdoctor(*command, "--", "--trust-remote-code").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_both_engines(
    fake_engine: FakeEngine, config: Path, environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    engine = fake_engine('open(os.path.join(HERE, f"pid-{os.getpid()}"), "w"); time.sleep(60)')
    command = [sys.executable, "-m", "kvdoctor", "compare", str(config), "--vllm", engine, "--before-gpu", "h200"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        ends = time.monotonic() + 20
        while len(pids := [path.name[4:] for path in (tmp_path / "engine").glob("pid-*")]) < 2:
            assert time.monotonic() < ends
            time.sleep(0.02)
        process.send_signal(number)
        assert process.communicate(timeout=20) == ("", "kvdoctor: stopped\n")
        assert process.returncode == 128 + number
    assert not any(Path("/proc", pid).exists() for pid in pids)
    assert list((tmp_path / "tmp").iterdir()) == []
