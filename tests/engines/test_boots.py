"""Other people's boots, to the token, each on the release that it ran."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvdoctor.launches.gpus import find_gpu
from kvdoctor.launches.model_reference import find_model
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.plan import Plan
from kvdoctor.workers.client import Worker
from tests.engines.at_hand import engine_at_hand

HERE = Path(__file__).parent / "boots"
SAMPLES = Path(__file__).parents[2] / "sample_configs"
BOOTS = json.loads((HERE / "boots.json").read_text())
# vLLM printed its budget with two decimals: the true one lies within this of it.
ROUNDING_GIB = 0.005


@pytest.mark.parametrize("boot", BOOTS, ids=[boot["id"] for boot in BOOTS])
def test_a_public_boot_is_reproduced_to_the_token(boot: dict[str, Any]) -> None:
    with Worker(engine_at_hand(boot["release"]), environment={}, network=False) as worker:
        plans = list(_possible_plans(worker, boot))
    assert all(plan.refusal is None for plan in plans)
    matches = [plan for plan in plans if "tokens" not in boot or _figures(plan) == (boot["tokens"], boot["concurrency"])]
    assert matches, [_figures(plan) for plan in plans]
    plan = matches[0]
    expected = {name: boot[name] for name in ("block_sizes", "layers", "scheduler_block_size", "hash_block_size") if name in boot}
    assert expected == {name: value for name, value in _layout(plan).items() if name in expected}
    assert any(record.message.startswith(boot.get("log", "")) for record in plan.vllm_log)


def _possible_plans(worker: Worker, boot: dict[str, Any]) -> Iterator[Plan]:
    """The plans of every block count within the rounding of the printed budget."""
    if "kv_gib" not in boot:
        yield _plan(worker, boot, boot["num_blocks"])
        return
    plan = _plan(worker, boot, None)
    assert plan.bytes_per_block is not None
    low, high = (math.floor((boot["kv_gib"] + sign * ROUNDING_GIB) * 2**30) // plan.bytes_per_block for sign in (-1, 1))
    counts = [plan.num_blocks] if "tokens" not in boot else range(low, high + 1)
    for count in counts:
        yield _plan(worker, boot, count)


def _plan(worker: Worker, boot: dict[str, Any], num_blocks: int | None) -> Plan:
    override = () if num_blocks is None else ("--num-gpu-blocks-override", str(num_blocks))
    own = HERE / boot["model"]
    request = LaunchRequest(
        model=find_model(str(own if own.is_dir() else SAMPLES / boot["model"])),
        specs=None,
        vllm_args=(*(argument.replace("{models}", str(HERE)) for argument in boot["args"]), *override),
        environment={},
        gpu=find_gpu(boot["gpu"]),
        usage="serve",
        kv_cache_memory_bytes=int(boot.get("kv_gib", 64) * 2**30),
        trust_remote_code=False,
        offline=True,
    )
    return worker.plan(request, timeout_seconds=300)


def _figures(plan: Plan) -> tuple[int | None, float | None]:
    return plan.kv_cache_tokens, None if plan.max_concurrency is None else round(plan.max_concurrency, 2)


def _layout(plan: Plan) -> dict[str, Any]:
    return {
        "block_sizes": [group.block_size for group in plan.groups],
        "layers": [len(group.layers) for group in plan.groups],
        "scheduler_block_size": plan.scheduler_block_size,
        "hash_block_size": plan.hash_block_size,
    }
