"""Where a dry launch could differ from a boot on a GPU, and must not.

W1 to W13 number the wrong answers that a first, hand-made dry launch gave, found by reading vLLM's source.
"""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvdoctor.plan import Plan
from tests.launches import GIB, TIMEOUT_SECONDS, Launches, launch_request, new_worker

SHORT = ("--max-model-len", "8192")


def batch(plan: Plan) -> tuple[int | None, int | None]:
    return plan.launch.max_num_batched_tokens, plan.launch.max_num_seqs


def pages(plan: Plan) -> list[dict[int, int]]:
    """For each group, how many layers have a page of so many bytes."""
    return [dict(Counter(layer.page_bytes for layer in group.layers)) for group in plan.groups]


@pytest.mark.parametrize(
    ("gpu", "serve", "llm"),
    [
        ("h100-80g", (8192, 1024), (16384, 1024)),
        ("b200", (16384, 1024), (16384, 1024)),
        ("a100-80g", (2048, 256), (8192, 256)),
        ("rtx-5090", (2048, 256), (8192, 256)),
    ],
)
def test_w1_batch_defaults_are_those_of_vllm_serve_or_of_the_llm_class(
    launches: Launches, gpu: str, serve: tuple[int, int], llm: tuple[int, int]
) -> None:
    assert batch(launches.plan("llama-3.1-8b", SHORT, gpu=gpu, kv_cache_memory=40 * GIB)) == serve
    assert batch(launches.plan("llama-3.1-8b", SHORT, gpu=gpu, kv_cache_memory=40 * GIB, usage="llm")) == llm


@pytest.mark.parametrize(
    ("model", "tokens", "concurrency"),
    [("deepseek-v4-flash", 104_355, 12.74), ("gpt-oss-20b", 872_955, 106.56), ("gemma-3-12b", 109_049, 13.31)],
)
def test_w1_the_batch_decides_what_windows_and_states_keep_of_a_request(
    launches: Launches, model: str, tokens: int, concurrency: float
) -> None:
    plan = launches.plan(model, SHORT, kv_cache_memory=40 * GIB)
    assert (plan.kv_cache_tokens, round(plan.max_concurrency or 0, 2)) == (tokens, concurrency)


def test_w1_the_same_blocks_hold_more_requests_with_smaller_batches(launches: Launches) -> None:
    h100, rtx_5090 = (launches.plan("gpt-oss-20b", SHORT, gpu=gpu, kv_cache_memory=40 * GIB) for gpu in ("h100-80g", "rtx-5090"))
    assert h100.num_blocks == rtx_5090.num_blocks == 109_226
    assert (h100.kv_cache_tokens, rtx_5090.kv_cache_tokens) == (872_955, 1_151_582)


def test_w2_the_blocks_for_states_are_held_against_max_num_seqs(launches: Launches) -> None:
    refused = launches.plan("qwen3-next-80b-a3b", kv_cache_memory=10 * GIB)
    assert refused.refusal is not None
    assert "max_num_seqs (1024) exceeds available Mamba cache blocks (758)" in refused.refusal.message
    accepted = launches.plan("qwen3-next-80b-a3b", ("--max-num-seqs", "758"), kv_cache_memory=10 * GIB)
    assert (accepted.refusal, accepted.num_blocks) == (None, 758)


@pytest.mark.parametrize(("gpu", "layout"), [("b200", "LBHNC"), ("rtx-5090", "LBNHC")])
def test_w3_attention_sinks_run_on_flashinfer_whose_kernels_are_taken_as_there(launches: Launches, gpu: str, layout: str) -> None:
    plan = launches.plan("gpt-oss-20b", SHORT, gpu=gpu, kv_cache_memory=40 * GIB)
    assert (plan.engine.attention_backends, plan.engine.kv_cache_layout) == ({"FLASHINFER": 24}, layout)


def test_w3_a_four_bit_kv_cache_is_accepted_on_blackwell(launches: Launches) -> None:
    plan = launches.plan("qwen3-14b", (*SHORT, "--kv-cache-dtype", "nvfp4"), gpu="b200", kv_cache_memory=40 * GIB)
    assert (plan.refusal, plan.engine.attention_backends) == (None, {"FLASHINFER": 40})
    # Half a byte an element and a scale of one byte for each 16 of them: 2 x 16 tokens x 8 heads x 128 x 9/16.
    assert pages(plan) == [{18_432: 40}]
    assert (plan.num_blocks, plan.kv_cache_tokens) == (58_254, 932_064)


def test_w3_a_model_of_36_such_layers_gets_the_tokens_that_vllm_gives_qwen3_8b(launches: Launches) -> None:
    args = (*SHORT, "--kv-cache-dtype", "nvfp4", "--hf-overrides", '{"num_hidden_layers": 36}')
    plan = launches.plan("qwen3-14b", args, gpu="b200", kv_cache_memory=40 * GIB)
    assert (plan.num_blocks, plan.kv_cache_tokens) == (64_726, 1_035_616)


@pytest.mark.parametrize(("ranks", "backend"), [("1", "FLASHMLA_SPARSE"), ("8", "FLASH_ATTN_MLA_SPARSE_FA4")])
def test_w4_sparse_latent_attention_is_planned_on_blackwell(launches: Launches, ranks: str, backend: str) -> None:
    plan = launches.plan("deepseek-v3.2", (*SHORT, "--tensor-parallel-size", ranks), gpu="b200", kv_cache_memory=40 * GIB)
    assert plan.refusal is None
    assert plan.engine.attention_backends == {"DEEPSEEK_V32_INDEXER": 61, backend: 61}
    assert [group.block_size for group in plan.groups] == [64]


def test_w5_sparse_latent_attention_on_a_consumer_gpu_has_a_backend_and_a_format_of_its_own(launches: Launches) -> None:
    plan = launches.plan("deepseek-v3.2", SHORT, gpu="rtx-5090", kv_cache_memory=40 * GIB)
    assert plan.refusal is None
    assert plan.engine.attention_backends == {"DEEPSEEK_V32_INDEXER": 61, "FLASHINFER_MLA_SPARSE_SM120": 61}
    assert (plan.launch.kv_cache_dtype, pages(plan)) == ("fp8_ds_mla", [{8_448: 61, 41_984: 61}])
    assert [group.block_size for group in plan.groups] == [64]


def test_w5_the_format_that_layers_settle_is_told_with_tensor_parallelism_too(launches: Launches) -> None:
    """Each worker then has a configuration of its own, and the engine's still says ``auto``."""
    plan = launches.plan("deepseek-v4-flash", (*SHORT, "--tensor-parallel-size", "4"), kv_cache_memory=40 * GIB)
    assert plan.launch.kv_cache_dtype == "fp8_ds_mla"


def test_w5_the_compilers_of_the_checking_machine_decide_nothing(launches: Launches, tmp_path: Path) -> None:
    request = launch_request("deepseek-v3.2", SHORT, gpu="rtx-5090", kv_cache_memory=40 * GIB)
    (tmp_path / "empty").mkdir()
    bare = {"PATH": str(tmp_path / "empty"), "CUDA_HOME": "/nonexistent"}
    with new_worker(cache=tmp_path / "cache", variables=bare) as worker:
        plan = worker.plan(request, timeout_seconds=TIMEOUT_SECONDS)
    here = launches.plan("deepseek-v3.2", SHORT, gpu="rtx-5090", kv_cache_memory=40 * GIB)
    assert replace(plan, vllm_log=()) == replace(here, vllm_log=())  # the log tells how long steps took


@pytest.mark.parametrize(
    ("gpu", "device"),
    [
        ("h100-80g", "NVIDIA H100 80GB HBM3: compute capability 9.0, 79.19 GiB, 132 SMs"),
        ("a100-80g", "NVIDIA A100-SXM4-80GB: compute capability 8.0, 79.25 GiB, 108 SMs"),
        ("b200", "NVIDIA B200: compute capability 10.0, 178.36 GiB, 148 SMs"),
        ("rtx-5090", "NVIDIA GeForce RTX 5090: compute capability 12.0, 31.36 GiB, 170 SMs"),
    ],
)
def test_w6_the_whole_device_is_assumed_and_told(launches: Launches, gpu: str, device: str) -> None:
    plan = launches.plan("llama-3.1-8b", SHORT, gpu=gpu, kv_cache_memory=40 * GIB)
    assert plan.assumptions[0].startswith(device)
    assert plan.engine.compute_capability == device.partition("capability ")[2].partition(",")[0]


def test_w7_a_separate_draft_model_is_built_beside_its_target(launches: Launches) -> None:
    speculative = '{"method": "draft_model", "model": "sample_configs/qwen3-0.6b", "num_speculative_tokens": 3}'
    plan = launches.plan("qwen3-14b", (*SHORT, "--speculative-config", speculative), kv_cache_memory=40 * GIB)
    assert plan.refusal is None
    assert [layer.name for layer in plan.layers if layer.draft] == [f"draft_model.model.layers.{i}.self_attn.attn" for i in range(28)]
    assert [len(group.layers) for group in plan.groups] == [40 + 28]
    alone = launches.plan("qwen3-0.6b", SHORT, kv_cache_memory=40 * GIB)
    # Both rotate with one table of 40,960 positions by 128 elements of two bytes, which is the target's already.
    assert plan.stages[0].draft_weights_bytes == alone.stages[0].weights_bytes - 40_960 * 128 * 2


def test_w8_a_non_causal_draft_gets_a_backend_of_its_own(launches: Launches) -> None:
    speculative = '{"method": "dflash", "model": "sample_configs/qwen3-4b-dflash-draft", "num_speculative_tokens": 15}'
    plan = launches.plan("qwen3-4b-dflash", (*SHORT, "--speculative-config", speculative), gpu="b200", kv_cache_memory=40 * GIB)
    assert plan.refusal is None
    assert Counter((layer.draft, layer.backend) for layer in plan.layers) == {(False, "FLASHINFER"): 36, (True, "FLASH_ATTN"): 5}


def test_w9_a_group_tells_every_size_of_page_in_it(launches: Launches) -> None:
    """vLLM's own configuration for its scheduler keeps the page of a group's first layer only."""
    sparse = launches.plan("deepseek-v3.2", SHORT, kv_cache_memory=40 * GIB)
    assert pages(sparse) == [{8_448: 61, 73_728: 61}]
    compressed = launches.plan("deepseek-v4-flash", SHORT, kv_cache_memory=40 * GIB)
    assert {8_640: 21, 37_440: 21, 1_728: 20} in pages(compressed)


def test_w10_what_only_the_scheduler_refuses_is_refused(launches: Launches) -> None:
    plan = launches.plan("gpt-oss-20b", (*SHORT, "--prefix-cache-retention-interval", "100"), kv_cache_memory=40 * GIB)
    assert plan.refusal is not None
    assert plan.refusal.stage == "scheduler"
    assert plan.refusal.message == "prefix_cache_retention_interval (100) must be non-negative and a multiple of scheduler_block_size (16)."
    assert [check.outcome for check in plan.checks] == ["passed"] * (len(plan.checks) - 1) + ["refused"]
    accepted = launches.plan("gpt-oss-20b", (*SHORT, "--prefix-cache-retention-interval", "160"), kv_cache_memory=40 * GIB)
    assert accepted.refusal is None


def test_w12_the_capability_and_not_flashinfer_decides_the_block_of_a_gated_delta_net(launches: Launches) -> None:
    blocks = {
        gpu: launches.plan("qwen3-next-80b-a3b", SHORT, gpu=gpu, kv_cache_memory=40 * GIB).scheduler_block_size
        for gpu in ("h100-80g", "a100-80g")
    }
    assert blocks == {"h100-80g": 576, "a100-80g": 544}


def test_w13_as_many_gpus_are_assumed_as_the_launch_asks_for(launches: Launches) -> None:
    args = ("--tensor-parallel-size", "8", "--pipeline-parallel-size", "4")
    plan = launches.plan("llama-3.1-8b", args, kv_cache_memory=40 * GIB)
    assert plan.refusal is None
    assert [(stage.layer_count, stage.bytes_per_block) for stage in plan.stages] == [(8, 65_536)] * 4
    assert "as many as the launch asks for" in plan.assumptions[0]


def test_a_gpu_that_no_backend_supports_is_vllms_refusal(launches: Launches) -> None:
    plan = launches.plan("deepseek-v3.2", SHORT, gpu="a100-80g", kv_cache_memory=40 * GIB)
    assert plan.refusal is not None
    assert (plan.refusal.stage, plan.refusal.exception) == ("building the model", "ValueError")
    assert plan.refusal.message.startswith("No valid attention backend found for cuda")


@pytest.mark.parametrize(("attends_both_ways", "backend"), [(None, "FLASH_ATTN"), ("vision", "TRITON_FLASH_ATTN")])
def test_a_multimodal_model_without_its_tokenizer_is_not_planned_as_a_text_model(
    launches: Launches, attends_both_ways: str | None, backend: str
) -> None:
    """A boot has the tokenizer, and picks a backend for images that attend both ways (as the larger Gemma 4 models have them)."""
    overrides = json.dumps({"text_config": {"use_bidirectional_attention": attends_both_ways}})
    plan = launches.plan("gemma-4-e4b", (*SHORT, "--hf-overrides", overrides), kv_cache_memory=40 * GIB)
    assert plan.refusal is None
    assert plan.engine.attention_backends == {backend: 24}
    assert [record.message for record in plan.vllm_log if "text-only" in record.message] == []


def test_a_multimodal_model_that_is_told_to_take_no_images_is_planned_as_a_text_model(launches: Launches) -> None:
    overrides = json.dumps({"text_config": {"use_bidirectional_attention": "vision"}})
    args = (*SHORT, "--hf-overrides", overrides, "--language-model-only")
    plan = launches.plan("gemma-4-e4b", args, kv_cache_memory=40 * GIB)
    assert plan.refusal is None
    assert plan.engine.attention_backends == {"FLASH_ATTN": 24}


def test_what_vllm_logs_is_part_of_the_plan(launches: Launches) -> None:
    plan = launches.plan("qwen3-next-80b-a3b", kv_cache_memory=40 * GIB)
    messages = [(record.level, record.message) for record in plan.vllm_log]
    block = "Setting attention block size to 576 tokens to ensure that attention page size is >= mamba page size."
    assert ("INFO", block) in messages
    assert any(level == "WARNING" for level, _ in messages)


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """A local server that counts who connects, for use as everybody's proxy."""
    callers: list[tuple[str, int]] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection, caller = server.accept()
                except OSError:
                    return
                callers.append(caller)
                connection.close()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", callers
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_w3_no_network_is_touched_even_where_vllm_asks_for_it(tmp_path: Path, proxy: tuple[str, list[tuple[str, int]]]) -> None:
    """Told that no kernels are installed, vLLM asks an artifact server on Blackwell, and gets the answer of a machine without network."""
    address, callers = proxy
    variables = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), address)
    given = {"VLLM_HAS_FLASHINFER_CUBIN": "0"}
    request = launch_request("gpt-oss-20b", SHORT, gpu="b200", kv_cache_memory=40 * GIB, environment=given)
    with new_worker(cache=tmp_path, variables=variables | {"NO_PROXY": "", "no_proxy": ""}, given=given) as worker:
        plan = worker.plan(request, timeout_seconds=TIMEOUT_SECONDS)
    assert plan.refusal is None
    assert plan.engine.attention_backends == {"FLASH_ATTN": 24}
    assert any("NVIDIA artifactory" in record.message for record in plan.vllm_log)
    assert callers == []
