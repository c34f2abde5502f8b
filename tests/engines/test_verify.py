"""Public boots' logs against the plan of the release that each ran."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvdoctor.launches.gpus import find_gpu
from kvdoctor.launches.model_reference import find_model
from kvdoctor.workers.client import Worker
from tests.engines.at_hand import engine_at_hand
from tests.launches import launch_request
from tests.verifying import statuses, verified

TESTS = Path(__file__).parents[1]
SAMPLES = TESTS.parent / "sample_configs"
BOOTS = TESTS / "engines" / "boots"
# The log, the model that stands for the boot's (with its geometry), the GPU, and a figure of the log that is then changed by one.
LOGS = {
    "tp2-0.27.1": (BOOTS / "qwen3-32b", "12.0:48GiB", "67,296"),
    "pp2-0.27.1": (BOOTS / "qwen3-32b", "12.0:48GiB", "56,640"),
    "refused-0.28.0": (SAMPLES / "gpt-oss-20b", "rtx-5090", "122048"),
    "sliding-window-0.28.0": (SAMPLES / "gpt-oss-20b", "rtx-5090", "131,815"),
    "drafter-0.28.0": (SAMPLES / "qwen3.5-27b", "gb10", "52,110"),
    "restarts-0.28.0": (SAMPLES / "qwen3-14b", "8.9:48GiB", "75,824"),
    "hybrid-0.29.0": (SAMPLES / "qwen3.5-27b", "12.0:96GiB", "314,187"),
    "dense-0.31.0": (SAMPLES / "llama-3.1-8b", "a100-80g", "460,496"),
    "fp8-kv-0.25.1": (BOOTS / "qwen3.6-35b-a3b", "rtx-5090", "569,878"),
}


class Workers:
    """A worker for each release and GPU, for all logs of it."""

    def __init__(self, owned: ExitStack) -> None:
        self._owned = owned
        self._workers: dict[tuple[str, str], Worker] = {}

    def of(self, release: str, gpu: str) -> Worker:
        if (release, gpu) not in self._workers:
            worker = Worker(engine_at_hand(release), environment={}, network=False)
            self._workers[release, gpu] = self._owned.enter_context(worker)
        return self._workers[release, gpu]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with ExitStack() as owned:
        yield Workers(owned)


@pytest.mark.parametrize("name", LOGS)
def test_a_public_boots_log_agrees_and_changed_by_one_it_does_not(workers: Workers, name: str) -> None:
    model, gpu, figure = LOGS[name]
    text = (TESTS / "boot_logs" / f"{name}.log").read_text(encoding="utf-8")
    request = launch_request(model, gpu=find_gpu(gpu).name)
    assert request.model == find_model(str(model))
    worker = workers.of(name.rpartition("-")[2], gpu)
    made = verified(text, worker, request)
    assert made.verdict == "agrees", made
    assert "same" in {statuses(made).get(key) for key in ("kv_cache_tokens", "estimated_max_model_len")}
    other = f"{figure[:-1]}{(int(figure[-1]) + 1) % 10}"
    assert verified(text.replace(figure, other), worker, request).verdict == "differs"
