"""The command line as its users meet it: a process of its own."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from kvdoctor.plain import to_plain
from tests.unit import plans

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_configs"

Run = Callable[..., subprocess.CompletedProcess[str]]
FakeEngine = Callable[[str], str]

FAKE_ENGINE = """\
#!{python} -I
import json, os, signal, subprocess, sys, time
HERE = os.path.dirname(os.path.abspath(__file__))
ASKED = {{}}
def send(**message):
    if message["event"] == "plan": message["plan"]["engine"]["source"] = ASKED.get("source", "?")
    print(json.dumps(message), flush=True)
def receive():
    ASKED.update(json.loads(sys.stdin.readline()))
    return dict(ASKED)
def plan(name): return json.load(open(os.path.join(HERE, name + ".json")))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    return os.environ | {"KVDOCTOR_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def kvdoctor(environment: dict[str, str], tmp_path: Path) -> Run:
    """Run kvdoctor, away from the checkout."""

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kvdoctor", *arguments]
        keywords = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True, "timeout": 240} | options
        return subprocess.run(command, check=False, **keywords)  # type: ignore[call-overload, no-any-return]

    return run


@pytest.fixture
def fake_engine(tmp_path: Path) -> FakeEngine:
    """Make an "interpreter" that speaks the worker's protocol in the given way; the value for ``--vllm``."""
    folder = tmp_path / "engine"
    folder.mkdir()
    for name, plan in {
        "llama": plans.llama(),
        "qwen3_next": plans.qwen3_next(),
        "refused": plans.plan(refusal=plans.HASH_REFUSAL),
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(to_plain(plan)))

    def make(body: str) -> str:
        script = folder / "python"
        script.write_text(FAKE_ENGINE.format(python=sys.executable) + textwrap.dedent(body))
        script.chmod(0o755)
        return f"python:{script}"

    return make


def answers(plan: str, *, before: str = "") -> str:
    """The body of an engine that plans as told."""
    return f"""
send(event="ready", vllm_version="0.33.0")
message = receive()
{before}
send(event="plan", id=message["id"], plan=plan("{plan}"))
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config that passes every check made before vLLM is started."""
    path = tmp_path / "model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    return path
