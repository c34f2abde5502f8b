"""The client's side of the protocol, against real processes that speak it well or badly."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvdoctor.engines.interface import Engine
from kvdoctor.errors import BadRequest, Bug, KvdoctorError, Unassessed
from kvdoctor.plain import to_plain
from kvdoctor.workers import client as worker_module
from kvdoctor.workers.client import Worker
from tests.unit import plans

ENGINE = Engine(python=sys.executable, source="python:here", vllm_version=None, notes=(), dependency_notes=("torch 2 is installed",))

PROLOGUE = """
import json, os, signal, subprocess, sys, time
def send(**message): print(json.dumps(message), flush=True)
def receive(): return json.loads(sys.stdin.readline())
PLAN = json.loads(open(os.path.join(os.path.dirname(__file__), "plan.json")).read())
"""

Fake = Callable[[str], Worker]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Make a worker whose process runs the given body instead of vLLM."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(worker_module, "WORKER_MODULE", "a_fake_worker")
    monkeypatch.setattr(worker_module, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(worker_module, "_FAREWELL_SECONDS", 0.2)
    (tmp_path / "plan.json").write_text(json.dumps(to_plain(plans.llama())))

    def make(body: str) -> Worker:
        (tmp_path / "a_fake_worker.py").write_text(PROLOGUE + textwrap.dedent(body))
        return Worker(ENGINE, environment={"VLLM_GIVEN": "yes"}, network=False)

    return make


def failure(worker: Worker, *, timeout_seconds: float = 20.0) -> KvdoctorError:
    with pytest.raises(KvdoctorError) as caught, worker:
        worker.plan(plans.request(), timeout_seconds=timeout_seconds)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool]) -> bool:
    ends = time.monotonic() + 10
    while not condition() and time.monotonic() < ends:
        time.sleep(0.02)
    return condition()


ANSWER = """
    send(event="ready", vllm_version="0.33.0")
    while True:
        message = receive()
        send(event="step", id=message["id"], step="building the model")
        PLAN["engine"]["source"], PLAN["assumptions"] = message["source"], message["notes"]
        send(event="plan", id=message["id"], plan=PLAN)
"""


def test_a_plan_comes_back_whole_and_its_steps_are_heard(fake: Fake) -> None:
    steps: list[str] = []
    with fake(ANSWER) as worker:
        plan = worker.plan(plans.request(), timeout_seconds=20, on_step=steps.append)
    known = {"engine": None, "assumptions": None}
    assert to_plain(plan) | known == to_plain(plans.llama()) | known
    assert (plan.engine.source, plan.assumptions) == ("python:here", ("torch 2 is installed",))
    assert steps == ["importing vLLM", "building the model"]


def test_one_worker_plans_many_requests(fake: Fake) -> None:
    with fake(ANSWER) as worker:
        first, second = (worker.plan(plans.request(), timeout_seconds=20) for _ in range(2))
    assert first == second


def test_the_worker_gets_the_request_as_it_is(fake: Fake) -> None:
    body = """
    send(event="ready", vllm_version="0.33.0")
    message = receive()
    request = message["request"]
    shown = json.dumps([message["id"], message["timeout_seconds"], request["gpu"]["name"], request["specs"]["blob"][:3]])
    send(event="failure", id=message["id"], failure={"kind": "bad_request", "message": shown, "hint": "h"})
    """
    request = plans.request(specs={"blob": "é" * 2_000_000})  # larger than any pipe
    with pytest.raises(BadRequest) as caught, fake(body) as worker:
        worker.plan(request, timeout_seconds=20)
    assert json.loads(caught.value.message) == [1, 20, "h100-80g", "ééé"]


@pytest.mark.parametrize(("kind", "error"), [("bad_request", BadRequest), ("unassessed", Unassessed), ("bug", Bug)])
def test_a_failure_keeps_its_kind_and_words(fake: Fake, kind: str, error: type[KvdoctorError]) -> None:
    caught = failure(
        fake(f"""
        send(event="ready", vllm_version="0.33.0")
        send(event="failure", id=receive()["id"], failure={{"kind": "{kind}", "message": "what", "hint": "next"}})
        """)
    )
    assert (type(caught), caught.message, caught.hint) == (error, "what", "next")


def test_a_failure_to_import_is_not_assessed(fake: Fake) -> None:
    caught = failure(fake('send(event="failure", id=None, failure={"kind": "unassessed", "message": "no torch", "hint": "install it"})'))
    assert (type(caught), caught.message) == (Unassessed, "no torch")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "raise ImportError('libfoo.so is missing')",
            "the worker ended with exit code 1 while importing vLLM: ImportError: libfoo.so is missing",
        ),
        ("os._exit(7)", "the worker ended with exit code 7 while importing vLLM: it wrote nothing to stderr"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the worker ended by signal SIGSEGV while importing vLLM: it wrote nothing to stderr"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the worker was killed while importing vLLM, likely because memory ran out"),
        (
            'send(event="ready", vllm_version="0.33.0"); receive(); os._exit(3)',
            "the worker ended with exit code 3 while planning: it wrote nothing to stderr",
        ),
    ],
)
def test_a_death_is_told_with_its_cause(fake: Fake, body: str, message: str) -> None:
    caught = failure(fake(body))
    assert (type(caught), caught.message) == (Unassessed, message)


def test_a_hang_while_importing_ends_at_the_time_out(fake: Fake) -> None:
    caught = failure(fake("time.sleep(60)"), timeout_seconds=0.5)
    assert (type(caught), caught.message) == (Unassessed, "importing vLLM took more than 0.5 seconds")


def test_a_worker_that_does_not_keep_its_time_out_is_given_up(fake: Fake) -> None:
    caught = failure(fake('send(event="ready", vllm_version="0.33.0"); receive(); time.sleep(60)'), timeout_seconds=1)
    assert (type(caught), caught.message) == (Unassessed, "planning took more than 1 seconds")


@pytest.mark.parametrize("line", ["INFO 12-01 loading", "[]", "null", "{}", '{\\"event\\": ', "\\xff\\xfe"])
def test_garbage_on_the_wire_is_a_bug(fake: Fake, line: str) -> None:
    caught = failure(fake(f'sys.stdout.buffer.write(b"{line}\\n"); sys.stdout.flush(); time.sleep(60)'))
    assert type(caught) is Bug
    assert caught.message.startswith("the worker sent something that is not its protocol")


def test_a_plan_of_another_shape_is_a_bug(fake: Fake) -> None:
    caught = failure(
        fake('send(event="ready", vllm_version="0.33.0"); send(event="plan", id=receive()["id"], plan={"engine": 3}); time.sleep(60)')
    )
    assert type(caught) is Bug
    assert "Planned.plan lacks launch" in caught.message


def test_replies_to_other_requests_do_not_disturb(fake: Fake) -> None:
    body = ANSWER.replace("message = receive()", 'message = receive(); send(event="step", id=99, step="x")')
    with fake(body) as worker:
        assert worker.plan(plans.request(), timeout_seconds=20).groups


def test_the_worker_starts_in_a_clean_environment(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LEAK", "1")
    body = """
    seen = [os.environ.get(name) for name in ("VLLM_LEAK", "VLLM_GIVEN", "CUDA_VISIBLE_DEVICES")]
    send(event="failure", id=None, failure={"kind": "bug", "message": json.dumps(seen), "hint": "h"})
    """
    assert json.loads(failure(fake(body)).message) == [None, "yes", ""]


def test_the_working_directory_cannot_be_imported_from(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/torch_like_module.py").write_text("raise SystemExit('imported from the working directory')")
    (tmp_path / "here/kvdoctor.py").write_text("raise SystemExit('imported from the working directory')")
    monkeypatch.chdir(tmp_path / "here")
    body = """
    import importlib.util, kvdoctor.plan
    found = importlib.util.find_spec("torch_like_module")
    send(event="failure", id=None, failure={"kind": "bug", "message": f"{found} {kvdoctor.__file__}", "hint": "h"})
    """
    assert failure(fake(body)).message == f"None {Path(worker_module.__file__).parents[1] / '__init__.py'}"


def test_what_the_worker_prints_is_kept_for_who_asks(fake: Fake) -> None:
    with fake('print("chatter", file=sys.stderr, flush=True)\n' + textwrap.dedent(ANSWER)) as worker:
        worker.plan(plans.request(), timeout_seconds=20)
        assert worker.stderr() == "chatter\n"


def test_nothing_is_left_behind(fake: Fake, tmp_path: Path) -> None:
    """Neither the worker, nor a process it started, nor its temporary files."""
    body = """
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open(os.path.join(os.environ["TMPDIR"], "left"), "w").close()
    send(event="failure", id=None, failure={"kind": "bug", "message": f"{os.getpid()} {child.pid}", "hint": "h"})
    time.sleep(60)
    """
    pids = [int(word) for word in failure(fake(body)).message.split()]
    assert wait_until(lambda: not any(map(is_running, pids)))
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name.startswith("kvdoctor-")) == []


def test_a_worker_that_serves_may_see_its_own_children_off(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_FAREWELL_SECONDS", 20)
    body = (
        ANSWER.replace("while True:", "for _ in range(1):")
        + '    sys.stdin.read(); open(os.path.join(os.path.dirname(__file__), "farewell"), "w")\n'
    )
    with fake(body) as worker:
        worker.plan(plans.request(), timeout_seconds=20)
    assert (tmp_path / "farewell").exists()


def test_a_client_that_is_killed_takes_its_worker_along(fake: Fake, tmp_path: Path) -> None:
    fake('open(os.path.join(os.path.dirname(__file__), "pid"), "w").write(str(os.getpid())); time.sleep(60)')
    client = textwrap.dedent("""
        import sys, time
        from kvdoctor.workers import client
        from kvdoctor.engines.interface import Engine
        client.WORKER_MODULE = "a_fake_worker"
        with client.Worker(Engine(python=sys.executable, source="x", vllm_version=None, notes=()), environment={}, network=False):
            time.sleep(60)
    """)
    root = str(Path(worker_module.__file__).parents[2])
    process = subprocess.Popen([sys.executable, "-c", client], env=os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{tmp_path}"})
    try:
        assert wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    pid = int((tmp_path / "pid").read_text())
    assert wait_until(lambda: not is_running(pid))


def test_an_interpreter_that_cannot_be_started_is_not_assessed(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("not a program")
    script.chmod(0o755)
    engine = Engine(python=str(script), source="x", vllm_version=None, notes=())
    with pytest.raises(Unassessed, match="could not be started: Exec format error"), Worker(engine, environment={}, network=False):
        pass
