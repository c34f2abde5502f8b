"""KV9xx: the release."""

import dataclasses

import pytest

from tests.unit import plans
from tests.unit.rules.findings import found, reason, settled_but, the

# KV903 unknown-spec-kind


def test_kv903_names_the_spec_class() -> None:
    plan = plans.plan(plans.group((plans.layer(kind="other", spec="WavefrontSpec"),)))
    assert the(plan, "KV903").message == "1 layer of a kind that kvdoctor does not know: WavefrontSpec"


def test_kv903_does_not_fire_on_known_kinds() -> None:
    assert found(plans.qwen3_next(), "KV903") == []


def test_kv903_is_skipped_without_specs() -> None:
    assert reason(plans.plan(), "KV903") == "no layer specs were settled"


# KV902 untested-release


@pytest.mark.parametrize("version", ["0.25.1", "0.99.0", "0.1.dev20073+g8e685d198"])
def test_kv902_names_a_release_outside_the_tested_ones(version: str) -> None:
    engine = dataclasses.replace(plans.llama().engine, vllm_version=version)
    finding = the(settled_but(plans.llama(), engine=engine), "KV902")
    assert version in finding.message
    assert finding.evidence == {"vllm_version": version}


def test_kv902_does_not_fire_on_a_tested_release() -> None:
    assert found(plans.llama(), "KV902") == []
