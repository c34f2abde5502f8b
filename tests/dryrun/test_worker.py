"""The worker with vLLM in it: what it starts, ends, keeps apart and leaves alone."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kvdoctor.diagnosis import diagnose
from kvdoctor.errors import BadRequest, Bug, KvdoctorError, Unassessed
from kvdoctor.plan import Plan
from kvdoctor.workers.client import Worker
from tests.launches import GIB, ROOT, SAMPLES, TIMEOUT_SECONDS, Launches, children_of, is_running, launch_request

BUILDING = "building the model"


@dataclass
class Stopped:
    """The child of a request, stopped at a step: it stays there until it is ended or woken."""

    worker: Worker
    at: str
    pid: int = 0

    def __call__(self, step: str) -> None:
        """Hear the worker's steps."""
        if step == self.at:
            (self.pid,) = children_of(self.worker._process.pid)
            os.kill(self.pid, signal.SIGSTOP)


def wait_until(condition: Callable[[], bool], *, seconds: float = 20) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.02)
    return condition()


@pytest.fixture
def idle(launches: Launches) -> Worker:
    """The shared worker, prepared for its GPU (which takes its own time) and with no request under way."""
    worker = launches.worker()
    worker.plan(launch_request("qwen3-0.6b"), timeout_seconds=TIMEOUT_SECONDS)
    assert wait_until(lambda: children_of(worker._process.pid) == [])
    return worker


def layers_of(answer: Plan | KvdoctorError) -> list[int]:
    assert isinstance(answer, Plan)
    return [len(group.layers) for group in answer.groups]


def test_a_request_that_takes_too_long_is_ended_and_its_step_told(idle: Worker) -> None:
    child = Stopped(idle, at=BUILDING)
    with pytest.raises(Unassessed) as caught:
        idle.plan(launch_request("qwen3-0.6b"), timeout_seconds=3, on_step=child)
    assert caught.value.message == "no answer within 3 s; it was at 'building the model'"
    assert caught.value.hint == "Give it longer with --timeout SECONDS."
    assert not is_running(child.pid)


@pytest.mark.parametrize(
    ("number", "error", "hint"),
    [(signal.SIGKILL, Unassessed, "The machine was probably out of memory"), (signal.SIGSEGV, Bug, "Please report this")],
)
def test_a_child_that_dies_is_a_failure_with_its_step(idle: Worker, number: signal.Signals, error: type[Exception], hint: str) -> None:
    def end(step: str) -> None:
        if step == BUILDING:
            (pid,) = children_of(idle._process.pid)
            os.kill(pid, number)

    with pytest.raises(error) as caught:
        # A large model, so that it is still at the step.
        idle.plan(launch_request("deepseek-v4-flash"), timeout_seconds=TIMEOUT_SECONDS, on_step=end)
    assert isinstance(caught.value, (Unassessed, Bug))
    assert caught.value.message == f"the dry launch died at 'building the model' (signal {number.value})"
    assert caught.value.hint.startswith(hint)


def test_a_worker_serves_on_after_a_time_out(idle: Worker) -> None:
    before = idle.plan(launch_request("llama-3.1-8b"), timeout_seconds=TIMEOUT_SECONDS)
    assert wait_until(lambda: children_of(idle._process.pid) == [])
    with pytest.raises(Unassessed):
        idle.plan(launch_request("llama-3.1-8b"), timeout_seconds=3, on_step=Stopped(idle, at=BUILDING))
    after = idle.plan(launch_request("llama-3.1-8b"), timeout_seconds=TIMEOUT_SECONDS)
    assert (after.groups, after.num_blocks, after.checks) == (before.groups, before.num_blocks, before.checks)
    assert wait_until(lambda: children_of(idle._process.pid) == [])


def test_two_requests_under_way_get_their_own_answers(idle: Worker) -> None:
    """The first is held at a step until the second is answered."""
    answers: dict[int, Plan | KvdoctorError] = {}
    held: list[int] = []

    def hear(identity: int, step: str) -> None:
        if (identity, step) == (first, BUILDING):
            held.extend(children_of(idle._process.pid))
            os.kill(held[0], signal.SIGSTOP)

    def receive_until(condition: Callable[[], bool]) -> None:
        while not condition():
            assert select.select([idle], [], [], TIMEOUT_SECONDS)[0]
            answers.update(idle.receive(hear))

    first = idle.submit(launch_request("gpt-oss-20b", kv_cache_memory=40 * GIB), timeout_seconds=TIMEOUT_SECONDS)
    receive_until(lambda: bool(held))
    second = idle.submit(launch_request("llama-3.1-8b", kv_cache_memory=40 * GIB), timeout_seconds=TIMEOUT_SECONDS)
    receive_until(lambda: second in answers)
    assert first not in answers
    os.kill(held[0], signal.SIGCONT)
    receive_until(lambda: first in answers)
    assert [layers_of(answers[identity]) for identity in (first, second)] == [[12, 12], [32]]


def test_a_request_for_another_gpu_is_not_answered_for_this_one(idle: Worker) -> None:
    with pytest.raises(Bug, match="this worker stands for h100-80g, not b200"):
        idle.plan(launch_request("qwen3-0.6b", gpu="b200"), timeout_seconds=TIMEOUT_SECONDS)


def test_one_request_leaves_nothing_to_the_next(launches: Launches) -> None:
    """vLLM holds global state (process groups, layouts, caches by model): the same request gets the same plan whatever came between."""
    worker = launches.worker()
    requests = [
        launch_request("deepseek-v3.2", ("--tensor-parallel-size", "8"), kv_cache_memory=40 * GIB),
        launch_request("mimo-v2-flash", ("--tensor-parallel-size", "4"), kv_cache_memory=40 * GIB),
        launch_request("qwen3-14b", ("--no-such-flag",)),
    ]
    plain = launch_request("gpt-oss-20b", kv_cache_memory=40 * GIB)
    first = worker.plan(plain, timeout_seconds=TIMEOUT_SECONDS)
    for request in requests[:2]:
        assert worker.plan(request, timeout_seconds=TIMEOUT_SECONDS).refusal is None
    with pytest.raises(BadRequest, match="unrecognized arguments: --no-such-flag"):
        worker.plan(requests[2], timeout_seconds=TIMEOUT_SECONDS)
    again = worker.plan(plain, timeout_seconds=TIMEOUT_SECONDS)
    assert replace(again, vllm_log=()) == replace(first, vllm_log=())  # the log tells how long steps took


@pytest.mark.parametrize("sample", ["qwen3-next-80b-a3b", "deepseek-v3.2", "gemma-3-12b"])
def test_a_plan_is_the_same_whether_its_modules_were_shared_or_not(launches: Launches, sample: str) -> None:
    """A worker imports what a child had to, so that the second plan starts further on: nothing in it may tell, the log included."""
    request = launch_request(sample, kv_cache_memory=40 * GIB)
    first, second = (launches.worker().plan(request, timeout_seconds=TIMEOUT_SECONDS) for _ in range(2))
    assert first == second


def test_steps_come_in_the_order_of_a_boot(launches: Launches) -> None:
    steps: list[str] = []
    launches.worker().plan(launch_request("qwen3-0.6b"), timeout_seconds=TIMEOUT_SECONDS, on_step=steps.append)
    order = [
        "reading the arguments",
        "serve arguments",
        "engine configuration",
        BUILDING,
        "KV-cache planning",
        "kernel block sizes",
        "CUDA-graph mode",
        "context parallelism",
        "KV-cache buffers",
        "scheduler",
        "smallest reusable prefix",
        "serve arguments",  # what the workers and the server check of them
    ]
    assert [step for step in steps if step != "importing vLLM"] == order


CLIENT = """
import sys
from pathlib import Path
from kvdoctor.engines.find import find_engine
from kvdoctor.workers.client import Worker
from tests.launches import launch_request
with Worker(find_engine(None), environment={}, network=False) as worker:
    worker.plan(launch_request(Path(sys.argv[1]), trust_remote_code=True), timeout_seconds=200)
"""


def test_a_client_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    """Neither the worker, nor the child that was at a request: here at code of the model's, which does not end."""
    pid_file = tmp_path / "pid"
    model = write_remote_model(
        tmp_path / "model", f"import os, time\nPath({str(pid_file)!r}).write_text(f'{{os.getpid()}} {{os.getppid()}} .')\ntime.sleep(240)"
    )
    environment = os.environ | {"KVDOCTOR_CACHE_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", CLIENT, str(model)], cwd=ROOT, env=environment) as client:
        waited = wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("."), seconds=120)
        client.kill()
    assert waited
    pids = [int(word) for word in pid_file.read_text().split()[:2]]
    assert wait_until(lambda: not any(map(is_running, pids)))


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One run of the command line on a model that vLLM has much to say about, in a home of its own."""
    home = tmp_path_factory.mktemp("home")
    places = {"HOME": "user", "XDG_CACHE_HOME": "xdg-cache", "XDG_CONFIG_HOME": "xdg-config", "VLLM_CACHE_ROOT": "vllm-cache",
              "VLLM_CONFIG_ROOT": "vllm-config", "HF_HOME": "hf", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor",
              "FLASHINFER_WORKSPACE_BASE": "flashinfer", "TMPDIR": "tmp", "KVDOCTOR_CACHE_DIR": "kvdoctor"}  # fmt: skip
    for folder in places.values():
        (home / folder).mkdir()
    environment = os.environ | {name: str(home / folder) for name, folder in places.items()}
    arguments = ["inspect", str(SAMPLES / "qwen3.5-0.8b"), "--format", "json", "--gpu", "h100-80g"]
    result = subprocess.run(
        [sys.executable, "-m", "kvdoctor", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    return result, home


def test_nothing_that_vllm_prints_reaches_the_streams_of_the_command(command: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    result, _ = command
    assert (result.returncode, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert report["verdict"] == "ok"
    assert any("Setting attention block size to 576" in record["message"] for record in report["vllm_log"])


def test_the_users_caches_and_temporary_files_are_left_alone(command: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    _, home = command
    written = {path.relative_to(home).parts[0] for path in home.rglob("*") if path.is_file()}
    assert written <= {"kvdoctor"}


REMOTE_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 128,
    "max_position_embeddings": 1024,
    "torch_dtype": "bfloat16",
    "auto_map": {"AutoConfig": "configuration_remote.RemoteConfig"},
}
REMOTE_CODE = """
from pathlib import Path
from transformers import LlamaConfig
{statement}
class RemoteConfig(LlamaConfig):
    model_type = {model_type!r}
"""


def write_remote_model(folder: Path, statement: str, *, model_type: str = "of_its_own") -> Path:
    """A small model whose folder holds Python code; ``statement`` is what runs when it does."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(REMOTE_CONFIG | {"model_type": model_type}))
    (folder / "configuration_remote.py").write_text(REMOTE_CODE.format(statement=statement, model_type=model_type))
    return folder


@dataclass(frozen=True, kw_only=True)
class RemoteModel:
    """A model whose code leaves a marker when it runs; ``known`` if transformers has its type, and needs no code to read its config."""

    folder: Path
    marker: Path
    known: bool


@pytest.fixture(params=["of_its_own", "llama"])
def remote_model(tmp_path: Path, request: pytest.FixtureRequest) -> RemoteModel:
    marker = tmp_path / "marker"
    folder = write_remote_model(tmp_path / "model", f"Path({str(marker)!r}).write_text('executed')", model_type=request.param)
    return RemoteModel(folder=folder, marker=marker, known=request.param == "llama")


def test_code_of_a_model_never_runs_unasked(launches: Launches, remote_model: RemoteModel) -> None:
    request = launch_request(remote_model.folder, kv_cache_memory=GIB)
    plan = launches.worker().plan(request, timeout_seconds=TIMEOUT_SECONDS)
    assert not remote_model.marker.exists()
    # A type that transformers knows needs no code; any other ends in vLLM's refusal, with the advice to read the code and trust it.
    assert (plan.refusal is None) is remote_model.known
    findings = [finding.rule for finding in diagnose(request, plan).findings]
    assert ("KV108" in findings) is not remote_model.known


@pytest.mark.parametrize("by", ["option", "vllm's flag"])
def test_code_of_a_model_runs_when_it_is_trusted(launches: Launches, remote_model: RemoteModel, by: str) -> None:
    args = () if by == "option" else ("--trust-remote-code",)
    request = launch_request(remote_model.folder, args, kv_cache_memory=GIB, trust_remote_code=by == "option")
    plan = launches.worker().plan(request, timeout_seconds=TIMEOUT_SECONDS)
    assert remote_model.marker.read_text() == "executed"
    assert (plan.refusal, [len(group.layers) for group in plan.groups]) == (None, [2])
