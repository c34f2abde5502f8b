"""KV901: each known bug is met by a launch on an affected release, and not on a fixed one."""

import dataclasses
from typing import Any

import pytest

from kvdoctor.plan import Check, LogRecord, Plan
from kvdoctor.rules.known_bugs import KnownBug, known_bugs
from tests.unit import plans
from tests.unit.rules.findings import found

LOG = "Speculative decoding (method=mtp) is enabled but no KV cache group could be identified as the draft model's, so every group is one."


def on(version: str, plan: Plan, *, runner: str = "V2") -> Plan:
    return dataclasses.replace(plan, engine=dataclasses.replace(plan.engine, vllm_version=version, model_runner=runner))


def speculating(plan: Plan, method: str, **given: Any) -> Plan:
    launch = dataclasses.replace(plan.launch, speculative_method=method)
    return dataclasses.replace(plan, launch=launch, given_arguments={"speculative_config": None, **given})


HYBRID = plans.qwen3_next()
NARROW = plans.pull_request_51108()
# By the number of the issue: a launch that meets the bug, the releases to ask, and the model runner.
MET: dict[str, tuple[Plan, str, str | None, str]] = {
    "51108": (dataclasses.replace(NARROW, refusal=plans.HASH_REFUSAL), "0.27.1", "0.28.0", "V1"),
    "53142": (NARROW, "0.31.0", "0.32.0", "V2"),
    "54076": (NARROW, "0.34.0", None, "V2"),
    "34445": (
        plans.refused("In Mamba cache align mode, block_size (272) must be <= max_num_batched_tokens (256).", base=HYBRID),
        "0.26.0",
        "0.27.1",
        "V1",
    ),
    "40585": (
        plans.refused("Hybrid KV cache groups with multiple block sizes do not support context parallelism (dcp > 1).", base=HYBRID),
        "0.25.1",
        "0.26.0",
        "V1",
    ),
    "55049": (plans.refused("HybridKVCacheCoordinator requires at least one cacheable group."), "0.34.0", None, "V2"),
    "57032": (dataclasses.replace(HYBRID, vllm_log=(LogRecord(level="WARNING", message=LOG),)), "0.30.0", None, "V2"),
    "53912": (speculating(HYBRID, "mtp"), "0.28.0", "0.29.0", "V1"),
    "53505": (speculating(HYBRID, "dflash", kv_transfer_config=None), "0.28.0", "0.29.0", "V2"),
    "4247": (
        dataclasses.replace(HYBRID, checks=(Check(name="connector LMCacheMPConnector", outcome="not_checked", note=None),)),
        "0.26.0",
        "0.25.1",
        "V1",
    ),
    "47174": (
        plans.refused("DeepseekV4 fp8_ds_mla layout only supports fp8 kv-cache, got auto", exception="AssertionError"),
        "0.29.0",
        "0.30.0",
        "V2",
    ),
    "48435": (
        plans.plan(plans.group((plans.layer("w", kind="sliding_window"),)), plans.group((plans.layer("f"),))),
        "0.28.0",
        "0.29.0",
        "V2",
    ),
    "54552": (plans.refused("QSA ring capacity 12 must divide the attention block size 1600"), "0.33.0", None, "V2"),
    "51163": (dataclasses.replace(NARROW, given_arguments={"block_size": 544}), "0.33.0", None, "V2"),
}


def issues(plan: Plan) -> set[str]:
    return {finding.url.rpartition("/")[2] for finding in found(plan, "KV901")}


@pytest.mark.parametrize("number", MET)
def test_a_bug_is_told_on_an_affected_release_and_not_on_a_fixed_one(number: str) -> None:
    plan, affected, fixed, runner = MET[number]
    assert number in issues(on(affected, plan, runner=runner))
    if fixed is not None:
        assert number not in issues(on(fixed, plan, runner=runner))


@pytest.mark.parametrize("bug", known_bugs(), ids=lambda bug: bug.issue.rpartition("/")[2])
def test_every_bug_has_a_launch_that_meets_it_and_healthy_ones_that_do_not(bug: KnownBug) -> None:
    assert bug.issue.rpartition("/")[2] in MET
    assert (bug.fixed is None) != (bug.seen is None)
    for healthy in (plans.llama(), plans.qwen3_next(), plans.deepseek_v3_2()):
        assert issues(on(bug.since, healthy)) == set()


def test_a_finding_says_what_the_release_has_and_since_when_it_is_fixed() -> None:
    (finding,) = (finding for finding in found(on("0.31.0", NARROW), "KV901") if finding.url.endswith("/53142"))
    assert finding.message.startswith("vLLM 0.31.0 has a known bug (fixed in 0.32.0): a request that resumes on a cached prefix")
    assert finding.severity == "warning"
    assert finding.evidence == {"vllm_version": "0.31.0", "since": "0.27.1", "fixed": "0.32.0", "issue": finding.url}


@pytest.mark.parametrize("version", ["0.24.0", "0.1.dev20073+g8e685d198", "0.99.0"])
def test_nothing_is_said_of_a_release_that_was_not_checked(version: str) -> None:
    assert issues(on(version, NARROW)) == set()
