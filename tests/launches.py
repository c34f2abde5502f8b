"""Dry launches for tests: one worker a GPU, started when first needed and shared by all tests of a run."""

import contextlib
import functools
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from kvdoctor.engines.find import find_engine
from kvdoctor.launches.gpus import find_gpu
from kvdoctor.launches.request import LaunchRequest, ModelReference
from kvdoctor.plain import from_plain, to_plain
from kvdoctor.plan import Plan
from kvdoctor.workers.client import Worker

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_configs"
GIB = 2**30
TIMEOUT_SECONDS = 240.0

Libraries = Literal["own", "none"]


def sample_launch(name: str) -> dict[str, Any]:
    """The ``launch.toml`` of a sample."""
    with (SAMPLES / name / "launch.toml").open("rb") as file:
        return tomllib.load(file)


def launched_samples() -> list[str]:
    """The samples that are launched by themselves: drafters come with their targets."""
    names = sorted(path.parent.name for path in SAMPLES.glob("*/launch.toml"))
    return [name for name in names if "draft_for" not in sample_launch(name)]


def sample_specs(name: str) -> dict[str, Any] | None:
    """The layer specs of a sample that has them in place of a model."""
    file = sample_launch(name).get("specs")
    if file is None:
        return None
    specs: dict[str, Any] = json.loads((SAMPLES / name / file).read_text(encoding="utf-8"))
    return specs


def launch_request(
    model: str | Path,
    args: tuple[str, ...] = (),
    *,
    gpu: str = "h100-80g",
    kv_cache_memory: int | None = None,
    usage: Literal["serve", "llm"] = "serve",
    trust_remote_code: bool = False,
    environment: Mapping[str, str] | None = None,
) -> LaunchRequest:
    """The request for ``model``: a sample's name, or a directory anywhere."""
    specs = sample_specs(model) if isinstance(model, str) else None
    # As the command line gives it from the root of a checkout.
    text = f"sample_configs/{model}" if isinstance(model, str) else str(model)
    reference = ModelReference(text=text, kind="directory", path=str((ROOT / text).resolve()), revision=None)
    return LaunchRequest(
        model=None if specs is not None else reference,
        specs=specs,
        vllm_args=tuple(args),
        environment=dict(environment or {}),
        gpu=find_gpu(gpu),
        usage=usage,
        kv_cache_memory_bytes=kv_cache_memory,
        trust_remote_code=trust_remote_code,
        offline=True,
    )


class Launches:
    """The workers of a test run, and the plans that they have made: a plan asked for twice is made once."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._owned = ExitStack()
        self._workers: dict[tuple[str, Libraries], Worker] = {}
        self._plans = functools.cache(self._make)

    def close(self) -> None:
        """End every worker."""
        self._owned.close()

    def plan(self, model: str | Path, args: tuple[str, ...] = (), *, libraries: Libraries = "own", **options: Any) -> Plan:
        """Plan a launch; the options are those of :func:`launch_request`."""
        return self._plans(model, tuple(args), libraries, tuple(sorted(options.items())))

    def worker(self, gpu: str = "h100-80g", *, libraries: Libraries = "own") -> Worker:
        """The shared worker for a GPU, with vLLM imported."""
        key = (gpu, libraries)
        if key not in self._workers:
            worker = new_worker(cache=self._cache, variables={"KVDOCTOR_LIBRARIES": libraries})
            self._workers[key] = self._owned.enter_context(worker)
        return self._workers[key]

    def _make(self, model: str | Path, args: tuple[str, ...], libraries: Libraries, options: tuple[tuple[str, Any], ...]) -> Plan:
        request = launch_request(model, args, **dict(options))
        return self.worker(request.gpu.name, libraries=libraries).plan(request, timeout_seconds=TIMEOUT_SECONDS)


@contextmanager
def new_worker(*, cache: Path, variables: Mapping[str, str] | None = None, given: Mapping[str, str] | None = None) -> Iterator[Worker]:
    """Start a worker of the installed vLLM as the command line does, in the checkout.

    ``variables`` are those of the shell around it, ``given`` the ``VLLM_*`` variables of the launch.
    """
    with ExitStack() as owned:
        # Inside the patch only while the process starts: what it inherits is settled then.
        with pytest.MonkeyPatch.context() as patch, contextlib.chdir(ROOT):
            patch.setenv("KVDOCTOR_CACHE_DIR", str(cache))
            for name, value in (variables or {}).items():
                patch.setenv(name, value)
            worker = owned.enter_context(Worker(find_engine(None), environment=given or {}, network=False))
        yield worker


def children_of(pid: int) -> list[int]:
    """The processes whose parent is ``pid``."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [child for child in pids if _parent(child) == pid]


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _parent(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[1])


def without_paths(plan: Plan) -> Plan:
    """The plan as it would be in any checkout: vLLM's words may hold the path of this one."""

    def shorten(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shorten(item) for key, item in value.items()}
        if isinstance(value, list):
            return [shorten(item) for item in value]
        return value.replace(f"{ROOT}{os.sep}", "") if isinstance(value, str) else value

    return from_plain(Plan, shorten(to_plain(plan)))
