"""What 0.34 changed on the way to a plan: the extensible KV cache, the utilisation it resolves, the default block."""

from collections.abc import Iterator

import pytest

from kvdoctor.plan import Plan
from kvdoctor.workers.client import Worker
from tests.engines.at_hand import engine_at_hand
from tests.launches import GIB, launch_request


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(engine_at_hand("0.34.0"), environment={}, network=False) as worker:
        yield worker


def planned(worker: Worker, *args: str, sample: str = "qwen3-0.6b", kv_cache_memory: int | None = None) -> Plan:
    return worker.plan(launch_request(sample, args, kv_cache_memory=kv_cache_memory), timeout_seconds=300)


def sizing(plan: Plan) -> tuple[bool | None, float | None]:
    return plan.launch.extensible_kv_cache, plan.memory.gpu_memory_utilization


@pytest.mark.parametrize(
    ("args", "extensible", "utilization"),
    [
        ((), True, 1.0),
        (("--no-enable-extensible-kv-cache",), False, 0.92),
        (("--num-gpu-blocks-override", "4096"), False, 0.92),
        (("--kv-cache-memory-bytes", "8G"), False, 0.92),
        (("--gpu-memory-utilization", "0.8"), True, 0.8),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_the_utilisation_is_the_one_that_the_way_of_sizing_resolves(
    worker: Worker, args: tuple[str, ...], extensible: bool, utilization: float
) -> None:
    assert sizing(planned(worker, *args)) == (extensible, utilization)


def test_a_given_budget_holds_as_many_blocks_as_fit_whichever_way_the_cache_is_sized(worker: Worker) -> None:
    extensible = planned(worker, kv_cache_memory=8 * GIB)
    profiled = planned(worker, "--no-enable-extensible-kv-cache", kv_cache_memory=8 * GIB)
    assert extensible.bytes_per_block == 7_340_032  # 28 layers of 64 tokens, 8 heads of 128 in two bytes, keys and values
    assert (extensible.num_blocks, profiled.num_blocks) == (8 * GIB // 7_340_032, 8 * GIB // 7_340_032)
    assert (extensible.kv_cache_tokens, profiled.kv_cache_tokens) == (74_880, 74_880)


def test_the_default_block_is_64_and_the_scheduler_reuses_one(worker: Worker) -> None:
    plan = planned(worker, kv_cache_memory=8 * GIB)
    assert [group.block_size for group in plan.groups] == [64]
    assert (plan.scheduler_block_size, plan.hash_block_size, plan.min_reusable_prefix_tokens) == (64, 64, 64)


def test_an_unset_utilisation_of_all_memory_leaves_the_margin_that_vllm_keeps(worker: Worker) -> None:
    memory = planned(worker).memory
    assert memory.allowance_source is not None
    assert memory.allowance_source.endswith("1.50 GiB for CUDA's context and the margin of the extensible KV cache")
