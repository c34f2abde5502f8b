"""A connector that keeps blocks in host memory asks each worker how many fit there."""

import json

import pytest

from tests.launches import GIB, Launches

SHORT = ("--max-model-len", "8192")
SIMPLE = {"kv_connector": "SimpleCPUOffloadConnector", "kv_role": "kv_both"}


def options(extra: dict[str, object], *, among_others: bool = False) -> tuple[str, ...]:
    connector: dict[str, object] = SIMPLE | {"kv_connector_extra_config": extra}
    if among_others:
        connector = {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"connectors": [connector]}}
    return ("--kv-transfer-config", json.dumps(connector))


@pytest.mark.parametrize("among_others", [False, True])
def test_a_launch_with_blocks_in_host_memory_is_planned(launches: Launches, *, among_others: bool) -> None:
    args = (*SHORT, *options({"cpu_bytes_to_use": 8 * GIB}, among_others=among_others))
    plan = launches.plan("llama-3.1-8b", args, kv_cache_memory=40 * GIB)
    assert (plan.refusal, plan.num_blocks) == (None, 20_480)
    assert [check.name for check in plan.checks if check.outcome == "not_checked" and check.name.startswith("connector ")]


def test_more_blocks_than_the_host_memory_holds_are_vllms_refusal(launches: Launches) -> None:
    """A block of the model takes 2 MiB: 4,096 of them fit."""
    args = (*SHORT, *options({"cpu_bytes_to_use": 8 * GIB, "num_cpu_blocks": 5000}))
    plan = launches.plan("llama-3.1-8b", args, kv_cache_memory=40 * GIB)
    assert plan.refusal is not None
    assert plan.refusal.message == "num_cpu_blocks=5000 must be between 1 and local offload capacity 4096"
