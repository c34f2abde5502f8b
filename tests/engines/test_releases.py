"""The same promises of every supported release, over ten samples."""

import json
from collections.abc import Iterator

import pytest

from kvdoctor.diagnosis import diagnose
from kvdoctor.engines.releases import TESTED
from kvdoctor.plan import Plan
from kvdoctor.workers.client import Worker
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


def test_sparse_latent_attention_is_planned_to_the_end(worker: Worker) -> None:
    """It wants DeepGEMM, whose library is another one for each Python up to 0.31, and loaded by its path since 0.32."""
    args = ("--tensor-parallel-size", "8", "--max-model-len", "8192", "--kv-cache-dtype", "fp8")
    plan = worker.plan(launch_request("deepseek-v3.2", args, gpu="h100-80g", kv_cache_memory=60 * GIB), timeout_seconds=300)
    assert plan.refusal is None
    assert plan.engine.attention_backends == {"DEEPSEEK_V32_INDEXER": 61, "FLASHMLA_SPARSE": 61}
    _assert_whole(plan)


def test_a_drafter_of_a_multimodal_target_embeds_a_token_without_a_gpu(worker: Worker) -> None:
    """Up to 0.27.1 through a compiled function, for whose sake Dynamo would ask the driver."""
    args = ("--tensor-parallel-size", "2", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}')
    plan = worker.plan(launch_request("qwen3.5-0.8b", args, kv_cache_memory=60 * GIB), timeout_seconds=300)
    assert plan.refusal is None
    assert [layer.name for layer in plan.layers if layer.draft] == ["mtp.layers.0.self_attn.attn"]


def test_hidden_states_that_no_page_of_the_model_holds_are_vllms_refusal(worker: Worker) -> None:
    """The last release with the old grouping pads a page to less than its content, and asserts (vLLM pull request 51108)."""
    if worker.vllm_version != "0.27.1":
        pytest.skip("later releases group hidden states otherwise")
    speculation = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [1, 11, 23]}},
    }
    connector = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": "hidden_states"},
    }
    options = ("--speculative-config", json.dumps(speculation), "--kv-transfer-config", json.dumps(connector))
    request = launch_request("gpt-oss-20b", ("--tensor-parallel-size", "4", *options), kv_cache_memory=60 * GIB)
    plan = worker.plan(request, timeout_seconds=300)
    assert plan.refusal is not None
    assert (plan.refusal.stage, plan.refusal.exception, plan.refusal.accident) == ("KV-cache planning", "AssertionError", False)
    assert plan.refusal.message.startswith("assert self.page_size_padded >= self.unpadded_page_size_bytes")
    assert [(group.kind, len(group.layers)) for group in plan.groups] == [("sliding_window", 12), ("full_attention", 12)]


def test_a_spec_that_refines_a_known_one_has_its_kind(worker: Worker) -> None:
    """Quantised this way the layers have a spec class of their own in some releases (``TQFullAttentionSpec``)."""
    args = ("--max-model-len", "8192", "--kv-cache-dtype", "turboquant_k8v4")
    plan = worker.plan(launch_request("llama-3.1-8b", args, kv_cache_memory=60 * GIB), timeout_seconds=300)
    assert plan.refusal is None
    assert {layer.kind for layer in plan.layers} == {group.kind for group in plan.groups} == {"full_attention"}
    assert {layer.backend for layer in plan.layers} >= {"TURBOQUANT"}


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
