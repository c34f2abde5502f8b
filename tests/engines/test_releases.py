"""The same promises of every supported release, over ten samples."""

from collections.abc import Iterator

import pytest

from kvdoctor.diagnosis import diagnose
from kvdoctor.engines.releases import TESTED
from kvdoctor.engines.worker import Worker
from kvdoctor.plan import Plan
from tests.engines.at_hand import engine_at_hand
from tests.launches import launch_request

GIB = 2**30
# Each with the kinds of its groups, which no release changes.
SAMPLES = {
    "llama-3.1-8b": {"full_attention"},
    "gpt-oss-20b": {"sliding_window", "full_attention"},
    "deepseek-v3": {"mla"},
    "gemma-3-12b": {"sliding_window", "full_attention"},
    "llama-4-scout": {"chunked_local", "full_attention"},
    "falcon-mamba-7b": {"mamba"},
    "granite-4.0-h-tiny": {"mamba", "full_attention"},
    "qwen3-next-80b-a3b": {"mamba", "full_attention"},
    "qwen3.5-0.8b": {"mamba", "full_attention"},
    "whisper-large-v3": {"full_attention", "cross_attention"},
}


@pytest.fixture(scope="module", params=TESTED)
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    release = request.param
    with Worker(engine_at_hand(release), environment={}, network=False) as worker:
        yield worker
    assert worker.vllm_version == release


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_is_planned_to_the_end(worker: Worker, sample: str) -> None:
    request = launch_request(sample, ("--max-num-seqs", "64", "--max-model-len", "8192"), kv_cache_memory=60 * GIB)
    if sample == "whisper-large-v3":
        request = launch_request(sample, ("--max-num-seqs", "64"), kv_cache_memory=60 * GIB)
    plan = worker.plan(request, timeout_seconds=300)

    assert plan.refusal is None
    assert plan.engine.vllm_version == worker.vllm_version
    assert {group.kind for group in plan.groups} == SAMPLES[sample]
    _assert_whole(plan)
    assert diagnose(request, plan).verdict in {"ok", "warning"}


def _assert_whole(plan: Plan) -> None:
    """Every layer is in one group, and every figure of an accepted launch is settled."""
    grouped = [layer.name for group in plan.groups for layer in group.layers]
    assert sorted(grouped) == sorted({layer.name for layer in plan.layers})
    assert all(layer.used_bytes <= layer.page_bytes for group in plan.groups for layer in group.layers)
    settled = (
        plan.scheduler_block_size,
        plan.hash_block_size,
        plan.prefix_hit_tokens,
        plan.num_blocks,
        plan.bytes_per_block,
        plan.kv_cache_tokens,
        plan.max_concurrency,
        plan.engine.model_runner,
    )
    assert None not in settled
    assert plan.memory.kv_cache_bytes == 60 * GIB
    assert {check.name for check in plan.checks if check.outcome == "passed"} >= {
        "engine configuration",
        "building the model",
        "KV-cache planning",
        "kernel block sizes",
        "CUDA-graph mode",
        "KV-cache buffers",
        "scheduler",
    }
