"""Many launches planned by as few workers as can be, against real processes that speak the protocol."""

import json
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvdoctor.engines.interface import Engine
from kvdoctor.errors import Bug, KvdoctorError, Unassessed
from kvdoctor.launches.gpus import find_gpu
from kvdoctor.plain import to_plain
from kvdoctor.plan import Plan
from kvdoctor.workers import client as worker_module
from kvdoctor.workers import pool as pool_module
from kvdoctor.workers.machine import Room
from kvdoctor.workers.pool import Launch, Listener, Outcome, Pool
from tests.unit import plans
from tests.unit.test_worker import PROLOGUE, is_running, wait_until

# Every worker leaves a line for itself and one for each request that it begins and ends.
SERVE = """
    LOG = open(os.path.join(os.path.dirname(__file__), "log"), "a")
    def log(*words): print(os.getpid(), *words, file=LOG, flush=True)
    log("started")
    send(event="ready", vllm_version="0.33.0")
    for line in sys.stdin:
        message = json.loads(line)
        args = message["request"]["vllm_args"]
        log("begins", *args)
        send(event="step", id=message["id"], step="at it")
        if "fail" in args:
            send(event="failure", id=message["id"], failure={"kind": "unassessed", "message": "no", "hint": "h"})
        elif "die" in args:
            os._exit(3)
        elif "hang" in args:
            time.sleep(60)
        else:
            PLAN["engine"]["source"] = message["source"]
            send(event="plan", id=message["id"], plan=PLAN)
"""


class Heard:
    def __init__(self) -> None:
        self.steps: list[tuple[int, str]] = []
        self.notes: list[str] = []
        self.logs: list[str] = []

    @property
    def listener(self) -> Listener:
        return Listener(step=lambda job, step: self.steps.append((job, step)), note=self.notes.append, log=self.logs.append)


Run = Callable[..., dict[int, Outcome]]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard) -> Run:
    """Plan jobs with workers whose processes run the given body instead of vLLM."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(worker_module, "WORKER_MODULE", "a_fake_worker")
    monkeypatch.setattr(pool_module, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(worker_module, "_FAREWELL_SECONDS", 0.2)
    (tmp_path / "plan.json").write_text(json.dumps(to_plain(plans.llama())))

    def plan(*jobs: Launch, body: str = SERVE, timeout_seconds: float = 20, workers: int = 2, at_once: int = 2) -> dict[int, Outcome]:
        (tmp_path / "a_fake_worker.py").write_text(PROLOGUE + textwrap.dedent(body))
        room = Room(workers=workers, plans=at_once)
        with Pool(timeout_seconds=timeout_seconds, room=room, listener=heard.listener) as pool:
            for one in jobs:
                pool.submit(one)
            return dict(pool.outcomes())

    return plan


def job(*arguments: str, source: str = "one", **request: Any) -> Launch:
    engine = Engine(python=sys.executable, source=source, vllm_version=None, notes=("a note of the engine",))
    return Launch(engine=engine, request=plans.request(vllm_args=arguments, **request))


def log(tmp_path: Path) -> list[list[str]]:
    return [line.split() for line in (tmp_path / "log").read_text().splitlines()]


def workers_started(tmp_path: Path) -> int:
    return sum(words[1] == "started" for words in log(tmp_path))


def test_no_jobs_need_no_worker(run: Run) -> None:
    assert run() == {}


def test_launches_of_one_engine_gpu_and_environment_share_a_worker(run: Run, tmp_path: Path) -> None:
    outcomes = run(*(job(str(number)) for number in range(5)))
    assert sorted(outcomes) == [0, 1, 2, 3, 4]
    assert all(isinstance(outcome, Plan) for outcome in outcomes.values())
    assert workers_started(tmp_path) == 1


def test_each_engine_gpu_and_environment_has_its_own(run: Run, tmp_path: Path) -> None:
    jobs = (job(), job(source="another"), job(gpu=find_gpu("b200")), job(environment={"VLLM_X": "1"}), job(), job(offline=False))
    assert len(run(*jobs)) == 6
    assert workers_started(tmp_path) == 5


def test_a_plan_says_which_engine_made_it(run: Run) -> None:
    outcomes = run(job(source="one"), job(source="another"))
    assert [outcome.engine.source for _, outcome in sorted(outcomes.items()) if isinstance(outcome, Plan)] == ["one", "another"]


def test_no_more_workers_live_at_once_than_there_is_room_for(run: Run, tmp_path: Path) -> None:
    body = SERVE + '    log("ended")\n'
    assert len(run(*(job(source=str(number)) for number in range(3)), body=body, workers=1)) == 3
    alive = 0
    for words in log(tmp_path):
        alive += {"started": 1, "ended": -1}.get(words[1], 0)
        assert alive <= 1


def test_several_launches_are_under_way_in_one_worker(run: Run) -> None:
    body = """
    send(event="ready", vllm_version="0.33.0")
    messages = [receive(), receive()]  # an answer to the first only after the second came
    for message in messages:
        send(event="plan", id=message["id"], plan=PLAN)
    sys.stdin.read()
    """
    assert sorted(run(job("a"), job("b"), body=body, at_once=2)) == [0, 1]


def test_no_more_launches_are_under_way_than_there_is_room_for(run: Run) -> None:
    body = """
    import select
    send(event="ready", vllm_version="0.33.0")
    for line in iter(sys.stdin.readline, ""):
        waiting = select.select([sys.stdin], [], [], 0.1)[0]
        kind = {"kind": "unassessed", "message": "two at once" if waiting else "alone", "hint": "h"}
        send(event="failure", id=json.loads(line)["id"], failure=kind)
    """
    outcomes = run(job("a"), job("b"), job("c"), body=body, at_once=1)
    assert [str(outcome) for outcome in outcomes.values()] == ["alone", "alone", "alone"]


def test_a_launch_that_fails_is_one_failed_launch(run: Run) -> None:
    outcomes = run(job("a"), job("fail"), job("b"))
    assert [type(outcomes[number]) for number in range(3)] == [Plan, Unassessed, Plan]


def test_a_worker_that_dies_fails_its_launches_and_no_others(run: Run) -> None:
    outcomes = run(job("die"), job("a"), job("b", source="another"), at_once=1)
    assert [type(outcomes[number]) for number in range(3)] == [Unassessed, Unassessed, Plan]
    assert "ended with exit code 3 while planning" in str(outcomes[0])


def test_a_worker_that_cannot_import_vllm_fails_its_launches(run: Run) -> None:
    body = 'send(event="failure", id=None, failure={"kind": "unassessed", "message": "no torch", "hint": "install it"})'
    assert {number: str(outcome) for number, outcome in run(job("a"), job("b"), body=body).items()} == {0: "no torch", 1: "no torch"}


def test_an_interpreter_that_cannot_be_started_fails_its_launches(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("not a program")
    script.chmod(0o755)
    broken = Launch(engine=Engine(python=str(script), source="x", vllm_version=None, notes=()), request=plans.request())
    outcomes = run(broken, job("a"))
    assert "could not be started" in str(outcomes[0])
    assert isinstance(outcomes[1], Plan)


def test_a_hang_while_importing_ends_at_the_time_out(run: Run) -> None:
    (outcome,) = run(job(), body="time.sleep(60)", timeout_seconds=0.5).values()
    assert (type(outcome), str(outcome)) == (Unassessed, "importing vLLM took more than 0.5 seconds")


def test_a_worker_that_does_not_keep_its_time_out_is_given_up(run: Run) -> None:
    outcomes = run(job("hang"), job("a"), timeout_seconds=1, at_once=1)
    assert {str(outcome) for outcome in outcomes.values()} == {"planning took more than 1 seconds"}


def test_garbage_on_the_wire_is_a_bug(run: Run) -> None:
    (outcome,) = run(job(), body='print("garbage", flush=True); time.sleep(60)').values()
    assert isinstance(outcome, Bug)


def test_steps_notes_and_logs_are_heard(run: Run, heard: Heard) -> None:
    run(job("a"), job("b", source="another"), body='print("chatter", file=sys.stderr, flush=True)\n' + textwrap.dedent(SERVE))
    assert sorted(heard.steps) == [(0, "at it"), (0, "importing vLLM"), (1, "at it"), (1, "importing vLLM")]
    assert heard.notes == ["a note of the engine"]
    assert heard.logs == ["chatter\n", "chatter\n"]


def test_leaving_early_leaves_nothing_behind(tmp_path: Path, heard: Heard, run: Run) -> None:
    run(job())  # writes the fake worker
    room = Room(workers=2, plans=4)
    jobs = [job("a"), job("hang"), job("hang", source="another")]
    with Pool(timeout_seconds=20, room=room, listener=heard.listener) as pool:
        for one in jobs:
            pool.submit(one)
        assert next(pool.outcomes())[0] == 0
        assert wait_until(lambda: workers_started(tmp_path) == 3)
    pids = {int(words[0]) for words in log(tmp_path)}
    assert wait_until(lambda: not any(map(is_running, pids)))
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("kvdoctor-")] == []


def test_a_launch_that_comes_later_finds_the_worker_that_was_kept(tmp_path: Path, heard: Heard, run: Run) -> None:
    run(job())  # writes the fake worker, and starts one
    with Pool(timeout_seconds=20, room=Room(workers=1, plans=1), listener=heard.listener) as pool:
        assert [pool.submit(job("a")), *dict(pool.outcomes())] == [0, 0]
        assert [pool.submit(job("b")), *dict(pool.outcomes())] == [1, 1]
        assert workers_started(tmp_path) == 2
        pool.submit(job("c", source="another"))  # there is room for one worker: the idle one goes
        assert [number for number, outcome in pool.outcomes() if isinstance(outcome, Plan)] == [2]
        assert workers_started(tmp_path) == 3


def test_a_hundred_launches_cost_little_beyond_their_planning(run: Run) -> None:
    started = time.monotonic()
    assert len(run(*(job(str(number)) for number in range(100)))) == 100
    assert time.monotonic() - started < 10


def test_an_error_is_one_of_ours(run: Run) -> None:
    (outcome,) = run(job("fail")).values()
    assert isinstance(outcome, KvdoctorError)
