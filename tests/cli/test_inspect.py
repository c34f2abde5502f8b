import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import FakeEngine, Run, answers


def test_the_report_goes_to_stdout_and_nothing_else_does(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    result = kvdoctor("inspect", str(config), "--vllm", fake_engine(answers("llama")))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "Exact with --kv-cache-memory SIZE (a boot logs it); --details shows the rest"
    assert "\x1b" not in result.stdout


def test_json(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    engine = fake_engine(answers("llama"))
    report = json.loads(kvdoctor("inspect", str(config), "--vllm", engine, "--format", "json").stdout)
    assert (report["schema_version"], report["verdict"], report["request"]["model"]) == (1, "ok", str(config))
    assert report["engine"]["source"] == engine


def test_markdown(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    result = kvdoctor("inspect", str(config), "--vllm", fake_engine(answers("llama")), "--format", "markdown")
    assert result.returncode == 0
    assert result.stdout.startswith("#")


@pytest.mark.parametrize(("options", "code"), [((), 1), (("--fail-on", "warning"), 1), (("--fail-on", "never"), 0)])
def test_a_refusal_is_an_assessment(kvdoctor: Run, fake_engine: FakeEngine, config: Path, options: tuple[str, ...], code: int) -> None:
    result = kvdoctor("inspect", str(config), "--vllm", fake_engine(answers("refused")), *options)
    assert (result.returncode, result.stderr) == (code, "")
    assert "KV101" in result.stdout


def test_rules_can_be_chosen(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    result = kvdoctor("inspect", str(config), "--vllm", fake_engine(answers("refused")), "--ignore", "KV1,KV2", "--ignore", "KV3")
    assert result.returncode == 1  # what was ignored is the finding, not vLLM's refusal
    assert "KV101" not in result.stdout


SHOW_REQUEST = """
shown = {name: message["request"][name] for name in json.loads(os.environ["VLLM_SHOW"])}
send(event="failure", id=message["id"], failure={"kind": "unassessed", "message": json.dumps(shown), "hint": "h"})
time.sleep(60)
"""


def requested(kvdoctor: Run, engine: str, names: list[str], *arguments: str) -> dict[str, object]:
    """What of the request reaches the worker; the variable in front of the command carries which fields to show."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    given = [*arguments[:at], "--vllm", engine, "--", f"VLLM_SHOW={json.dumps(names)}", *arguments[at + 1 :]]
    result = kvdoctor("inspect", *given)
    assert (result.returncode, result.stdout) == (3, "")
    shown: dict[str, object] = json.loads(result.stderr.splitlines()[0].removeprefix("kvdoctor: "))
    return shown


def test_options_become_the_request(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    engine = fake_engine(answers("llama", before=SHOW_REQUEST))
    names = ["vllm_args", "usage", "kv_cache_memory_bytes", "trust_remote_code", "offline", "gpu", "model"]
    options = ["--gpu", "b200", "--kv-cache-memory", "40GiB", "--usage", "llm", "--trust-remote-code", "--offline"]
    shown = requested(kvdoctor, engine, names, str(config), *options, "--", "--max-model-len", "8k")
    gpu, model = shown.pop("gpu"), shown.pop("model")
    assert shown == {
        "vllm_args": ["--max-model-len", "8k"],
        "usage": "llm",
        "kv_cache_memory_bytes": 42_949_672_960,
        "trust_remote_code": True,
        "offline": True,
    }
    assert isinstance(gpu, dict)
    assert gpu["name"] == "b200"
    assert model == {"text": str(config), "kind": "file", "path": str(config.parent), "revision": None, "config": None}


def test_a_pasted_command_becomes_the_request(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    engine = fake_engine(answers("llama", before=SHOW_REQUEST))
    pasted = ["vllm", "serve", str(config.parent), "--trust-remote-code", "-tp", "2"]
    shown = requested(kvdoctor, engine, ["model", "vllm_args"], "--", *pasted)
    assert shown == {
        "model": {"text": str(config.parent), "kind": "directory", "path": str(config.parent), "revision": None, "config": None},
        "vllm_args": ["--trust-remote-code", "-tp", "2"],
    }


def test_specs_stand_in_for_a_model(kvdoctor: Run, fake_engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "specs.json").write_text('{"layers": {"a": 1}}')
    shown = requested(kvdoctor, fake_engine(answers("llama", before=SHOW_REQUEST)), ["model", "specs"], "--specs", "specs.json")
    assert shown == {"model": None, "specs": {"layers": {"a": 1}}}


def test_a_report_is_written_to_a_file_whole_with_usual_permissions(
    kvdoctor: Run, fake_engine: FakeEngine, config: Path, tmp_path: Path
) -> None:
    target = tmp_path / "report.json"
    result = kvdoctor("inspect", str(config), "--vllm", fake_engine(answers("llama")), "--format", "json", "-o", str(target), umask=0o022)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert json.loads(target.read_text())["verdict"] == "ok"
    assert target.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir() if "report" in entry.name] == ["report.json"]


def test_a_failed_run_leaves_the_old_report_alone(kvdoctor: Run, fake_engine: FakeEngine, config: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    assert kvdoctor("inspect", str(config), "--vllm", fake_engine("os._exit(1)"), "-o", str(target)).returncode == 3
    assert target.read_text() == "old"


def test_a_reader_that_leaves_early_is_no_error(fake_engine: FakeEngine, config: Path, environment: dict[str, str]) -> None:
    engine = fake_engine(answers("llama", before="time.sleep(0.3)"))
    command = [sys.executable, "-m", "kvdoctor", "inspect", str(config), "--vllm", engine]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_vllms_chatter_is_shown_only_when_asked_for(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    engine = fake_engine(answers("llama", before='print("INFO loading", file=sys.stderr, flush=True)'))
    assert kvdoctor("inspect", str(config), "--vllm", engine).stderr == ""
    assert kvdoctor("inspect", str(config), "--vllm", engine, "-v").stderr == "  | INFO loading\n"


def test_notes_can_be_silenced(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    engine = fake_engine(answers("llama"))
    pasted = ("--", "CUDA_VISIBLE_DEVICES=0", "vllm", "serve", str(config))
    assert (
        kvdoctor("inspect", "--vllm", engine, *pasted).stderr
        == "kvdoctor: note: not vLLM's, and left out of account: CUDA_VISIBLE_DEVICES\n"
    )
    assert kvdoctor("inspect", "--vllm", engine, "-q", *pasted).stderr == ""


def test_a_cache_directory_that_cannot_be_written_is_a_note(
    kvdoctor: Run, fake_engine: FakeEngine, config: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["KVDOCTOR_CACHE_DIR"] = str(config / "below-a-file")
    result = kvdoctor("inspect", str(config), "--vllm", fake_engine(answers("llama")))
    assert result.returncode == 0
    assert result.stderr.startswith("kvdoctor: note: the cache directory ")
    assert result.stderr.count("\n") == 1
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_step_is_shown_on_a_terminal(fake_engine: FakeEngine, config: Path, environment: dict[str, str]) -> None:
    engine = fake_engine(answers("llama", before='send(event="step", id=message["id"], step="building [the] model"); time.sleep(0.5)'))
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "kvdoctor", "inspect", str(config), "--vllm", engine]
    result = subprocess.run(command, env=environment | {"TERM": "xterm"}, stdout=subprocess.PIPE, stderr=follower, check=True, timeout=60)
    os.close(follower)
    assert b"building [the] model" in os.read(leader, 2**16)
    os.close(leader)
    assert b"LAUNCHES" in result.stdout
    assert b"building" not in result.stdout


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_is_for_terminals_that_want_it(
    fake_engine: FakeEngine, config: Path, environment: dict[str, str], variables: dict[str, str], coloured: bool
) -> None:
    environment = {name: value for name, value in environment.items() if name != "NO_COLOR"} | {"TERM": "xterm"} | variables
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "kvdoctor", "inspect", str(config), "--vllm", fake_engine(answers("llama"))]
    subprocess.run(command, env=environment, stdout=follower, check=True, timeout=60)
    os.close(follower)
    assert (b"\x1b[" in os.read(leader, 2**16)) is coloured
    os.close(leader)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_engine_too(
    fake_engine: FakeEngine, config: Path, environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    pids = tmp_path / "engine" / "pids"
    engine = fake_engine(f"""
    child = subprocess.Popen([{sys.executable!r}, "-c", "import time; time.sleep(60)"])
    open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}} .")
    time.sleep(60)
    """)
    command = [sys.executable, "-m", "kvdoctor", "inspect", str(config), "--vllm", engine]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        ends = time.monotonic() + 20
        while not (pids.exists() and pids.read_text().endswith(".")):
            assert time.monotonic() < ends
            time.sleep(0.02)
        process.send_signal(number)
        assert process.communicate(timeout=20) == ("", "kvdoctor: stopped\n")
        assert process.returncode == 128 + number
    engine_pid, child_pid = pids.read_text().split()[:2]
    assert not Path("/proc", engine_pid).exists()
    ends = time.monotonic() + 10
    while (status := Path("/proc", child_pid, "status")).exists() and "\nState:\tZ" not in status.read_text():
        assert time.monotonic() < ends
        time.sleep(0.02)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_bug_says_so_with_the_versions_to_paste(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    result = kvdoctor("inspect", str(config), "--vllm", fake_engine('print("garbage", flush=True); time.sleep(60)'))
    assert (result.returncode, result.stdout) == (70, "")
    assert "not its protocol: garbage" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_args_file_stands_before_what_follows_the_dashes(kvdoctor: Run, fake_engine: FakeEngine, config: Path, tmp_path: Path) -> None:
    (tmp_path / "args.txt").write_text('# as deployed\n--max-model-len 8k \\\n  --hf-overrides \'{"a": "b # c"}\'  # quoted\n')
    engine = fake_engine(answers("llama", before=SHOW_REQUEST.replace('os.environ["VLLM_SHOW"]', "'[\"vllm_args\"]'")))
    result = kvdoctor("inspect", str(config), "--vllm", engine, "--args-file", "args.txt", "--", "--seed", "1")
    shown = json.loads(result.stderr.splitlines()[0].removeprefix("kvdoctor: "))
    assert shown == {"vllm_args": ["--max-model-len", "8k", "--hf-overrides", '{"a": "b # c"}', "--seed", "1"]}


def test_what_is_not_taken_is_named_once_and_no_value_is_shown(
    kvdoctor: Run, fake_engine: FakeEngine, config: Path, environment: dict[str, str]
) -> None:
    environment |= {"VLLM_API_KEY": "hidden", "VLLM_PP_LAYER_PARTITION": "1,2", "VLLM_X": "3"}
    (config.parent / "launch.toml").write_text('gpu = "h200"\nargs = ["-tp", "8"]')
    engine = fake_engine(answers("llama"))
    stderr = kvdoctor("inspect", "--vllm", engine, "--gpu", "h100", "--", "VLLM_X=4", "vllm", "serve", str(config)).stderr
    assert stderr.splitlines() == [
        (
            "kvdoctor: note: not taken from this shell: VLLM_API_KEY, VLLM_PP_LAYER_PARTITION "
            "(a launch's variables stand after --, in front of its arguments)"
        ),
        "kvdoctor: note: --gpu h100 is taken for h100-80g: NVIDIA H100 80GB HBM3, 79.19 GiB",
        "kvdoctor: note: not taken from the launch.toml beside the model, which `compare --all` reads: gpu, args",
    ]


def test_a_containers_image_names_the_engine_unless_another_is_given(kvdoctor: Run, fake_engine: FakeEngine, config: Path) -> None:
    pasted = ("--", "docker", "run", "--gpus", "all", "vllm/vllm-openai:v0.11.0", str(config))
    named = kvdoctor("inspect", "--offline", *pasted)
    assert named.returncode == 3
    assert named.stderr.splitlines()[0] == "kvdoctor: note: vLLM 0.11.0 answers, as the image vllm/vllm-openai:v0.11.0 says"
    assert "vLLM 0.11.0 is not in the engine cache, and --offline was given" in named.stderr
    given = kvdoctor("inspect", "--vllm", fake_engine(answers("llama")), *pasted)
    assert given.returncode == 0
    assert given.stderr.startswith("kvdoctor: note: the image vllm/vllm-openai:v0.11.0 is left out of account, for --vllm python:")


def test_a_hub_that_cannot_be_reached_is_given_up_at_once(
    kvdoctor: Run, fake_engine: FakeEngine, environment: dict[str, str], tmp_path: Path
) -> None:
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hub")}
    engine = fake_engine(answers("llama"))
    began = time.monotonic()
    result = kvdoctor("inspect", "org/name", "--vllm", engine)
    assert time.monotonic() - began < 5
    assert result.returncode == 3
    assert result.stderr.splitlines()[0] == (
        "kvdoctor: http://127.0.0.1:9 cannot be reached (Connection refused), and org/name is not in the hub's cache"
    )
    (tmp_path / "hub/hub/models--org--name").mkdir(parents=True)
    cached = kvdoctor("inspect", "org/name", "--vllm", engine)
    assert cached.returncode == 0
    assert cached.stderr.endswith("org/name is read from the hub's cache\n")
