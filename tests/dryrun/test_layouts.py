"""Layouts that vLLM 0.33 is known to build, to the byte."""

from collections import Counter

import pytest

from kvdoctor.plan import Plan
from tests.launches import GIB, Launches

# One entry a page: layers, block size, page bytes.
Pages = list[tuple[int, int, int]]


def groups_of(plan: Plan) -> list[tuple[str, Pages]]:
    """Each group's kind and, by size of the page, its layers."""
    found = []
    for group in plan.groups:
        pages = Counter((layer.block_size, layer.page_bytes) for layer in group.layers)
        found.append((group.kind, [(count, block, page) for (block, page), count in sorted(pages.items())]))
    return found


def block_sizes(plan: Plan) -> tuple[int | None, int | None]:
    return plan.scheduler_block_size, plan.hash_block_size


def assert_launches(plan: Plan) -> None:
    assert plan.refusal is None
    assert {check.outcome for check in plan.checks} == {"passed"}


def test_qwen3_next_pads_three_groups_of_states_to_the_attention_page(launches: Launches) -> None:
    plan = launches.plan("qwen3-next-80b-a3b", kv_cache_memory=40 * GIB)
    assert_launches(plan)
    assert groups_of(plan) == [("mamba", [(12, 576, 1_179_648)])] * 3 + [("full_attention", [(12, 576, 1_179_648)])]
    assert {layer.page_bytes - layer.used_bytes for group in plan.groups[:3] for layer in group.layers} == {81_920}
    assert {layer.page_bytes - layer.used_bytes for layer in plan.groups[3].layers} == {0}
    assert block_sizes(plan) == (576, 576)


def test_gpt_oss_splits_evenly_into_sliding_and_full_attention(launches: Launches) -> None:
    plan = launches.plan("gpt-oss-20b", kv_cache_memory=40 * GIB)
    assert_launches(plan)
    assert groups_of(plan) == [("sliding_window", [(12, 16, 32_768)]), ("full_attention", [(12, 16, 32_768)])]
    assert block_sizes(plan) == (16, 16)


def test_deepseek_v3_is_one_group_of_latent_attention(launches: Launches) -> None:
    plan = launches.plan("deepseek-v3", kv_cache_memory=40 * GIB)
    assert_launches(plan)
    assert groups_of(plan) == [("mla", [(61, 16, 18_432)])]
    assert block_sizes(plan) == (16, 16)


def test_deepseek_v4_has_five_groups_with_blocks_of_their_own(launches: Launches) -> None:
    plan = launches.plan("deepseek-v4-flash", kv_cache_memory=40 * GIB)
    assert_launches(plan)
    assert sorted((len(group.layers), group.block_size) for group in plan.groups) == [(20, 8), (21, 64), (22, 64), (42, 4), (62, 256)]
    assert block_sizes(plan) == (256, 4)
    assert plan.prefix_hit_tokens == 256


def test_gemma_4_gives_each_head_size_a_block_that_fits_the_common_page(launches: Launches) -> None:
    """And the 18 layers that reuse another's cache are in no group."""
    plan = launches.plan("gemma-4-e4b", kv_cache_memory=40 * GIB)
    assert_launches_but_for_the_processor(plan)
    assert groups_of(plan) == [("sliding_window", [(4, 32, 65_536)])] * 5 + [("full_attention", [(4, 16, 65_536)])]
    assert block_sizes(plan) == (32, 16)
    assert sum(len(group.layers) for group in plan.groups) == len(plan.layers) == 24


def test_tensor_and_pipeline_parallelism_plan_every_stage_with_each_gpus_heads(launches: Launches) -> None:
    args = ("--tensor-parallel-size", "4", "--pipeline-parallel-size", "2")
    plan = launches.plan("llama-3.1-8b", args, kv_cache_memory=40 * GIB)
    assert_launches(plan)
    assert groups_of(plan) == [("full_attention", [(32, 16, 16_384)])]
    assert {layer.fields["num_kv_heads"] for layer in plan.groups[0].layers} == {2}
    assert [(stage.index, stage.layer_count, stage.group_layers, stage.bytes_per_block) for stage in plan.stages] == [
        (0, 16, (16,), 262_144),
        (1, 16, (16,), 262_144),
    ]
    assert [layer.name for layer in plan.layers] == [f"model.layers.{index}.self_attn.attn" for index in range(32)]
    assert block_sizes(plan) == (16, 16)


def test_a_budget_for_less_than_one_request_is_refused_with_vllms_figures(launches: Launches) -> None:
    plan = launches.plan("gemma-3-12b", ("--max-model-len", "131072"), kv_cache_memory=12 * GIB)
    assert plan.refusal is not None
    assert (plan.refusal.stage, plan.refusal.exception) == ("KV-cache planning", "ValueError")
    assert "(13.32 GiB KV cache is needed" in plan.refusal.message
    assert "the estimated maximum model length is 109472." in plan.refusal.message
    assert (plan.memory.needed_for_max_model_len_bytes, plan.memory.estimated_max_model_len) == (14_299_430_912, 109_472)


def test_a_refusal_for_memory_keeps_the_groups_and_nothing_that_came_later(launches: Launches) -> None:
    plan = launches.plan("gemma-3-12b", ("--max-model-len", "131072"), kv_cache_memory=12 * GIB)
    assert groups_of(plan) == [("sliding_window", [(8, 16, 131_072)])] * 5 + [("full_attention", [(8, 16, 131_072)])]
    assert (plan.num_blocks, plan.kv_cache_tokens, plan.max_concurrency, block_sizes(plan)) == (None, None, None, (None, None))


def test_more_sequences_than_states_are_refused_with_the_plan_kept(launches: Launches) -> None:
    plan = launches.plan("qwen3-next-80b-a3b", kv_cache_memory=10 * GIB)
    assert plan.refusal is not None
    assert (plan.refusal.stage, plan.refusal.exception) == ("CUDA-graph mode", "ValueError")
    assert plan.refusal.message.startswith("max_num_seqs (1024) exceeds available Mamba cache blocks (758).")
    assert (plan.num_blocks, block_sizes(plan), len(plan.groups)) == (758, (576, 576), 4)


def test_blackwell_gets_flashinfer_and_its_layout_without_network(launches: Launches) -> None:
    plan = launches.plan("gpt-oss-20b", gpu="b200", kv_cache_memory=40 * GIB)
    assert_launches(plan)
    assert (plan.engine.attention_backends, plan.engine.kv_cache_layout) == ({"FLASHINFER": 24}, "LBHNC")
    assert groups_of(plan) == [("sliding_window", [(12, 16, 32_768)]), ("full_attention", [(12, 16, 32_768)])]
    assert block_sizes(plan) == (16, 16)


def test_the_specs_of_pull_request_51108_get_blocks_that_divide_each_other(launches: Launches) -> None:
    plan = launches.plan("pr-51108", ("--enable-prefix-caching",), kv_cache_memory=40 * GIB)
    assert plan.refusal is None
    assert groups_of(plan) == [
        ("full_attention", [(1, 544, 1_114_112)]),
        ("mamba", [(1, 544, 1_114_112)]),
        ("hidden_state", [(1, 136, 1_114_112)]),
    ]
    (hidden,) = plan.groups[2].layers
    assert hidden.page_bytes - hidden.used_bytes == 278_528
    assert hidden.page_bytes == 4 * 278_528
    assert block_sizes(plan) == (544, 136)


def test_the_model_of_pull_request_51108_gets_the_layout_of_its_specs(launches: Launches) -> None:
    speculative = '{"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}}}'  # noqa: E501  # one JSON text, as it is given
    transfer = '{"kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer", "kv_connector_extra_config": {"shared_storage_path": "x"}}'  # noqa: E501
    args = ("--enable-prefix-caching", "--speculative-config", speculative, "--kv-transfer-config", transfer)
    plan = launches.plan("qwen3.5-0.8b-hidden-states", args, gpu="a100-80g", kv_cache_memory=40 * GIB)
    assert_launches_but_for_the_processor(plan)
    assert groups_of(plan) == [
        *[("mamba", [(6, 544, 1_114_112)])] * 3,
        ("full_attention", [(6, 544, 1_114_112)]),
        ("hidden_state", [(1, 136, 1_114_112)]),
    ]
    assert [group.draft for group in plan.groups] == [False, False, False, False, True]
    assert block_sizes(plan) == (544, 136)


def test_an_encoder_decoder_model_caches_its_encoder_beside_its_decoder(launches: Launches) -> None:
    plan = launches.plan("whisper-large-v3", kv_cache_memory=40 * GIB)
    assert_launches_but_for_the_processor(plan)
    assert groups_of(plan) == [("full_attention", [(32, 16, 81_920)]), ("cross_attention", [(32, 16, 81_920)])]
    assert [group.blocks_per_request for group in plan.groups] == [28, 512]


@pytest.mark.parametrize("model", ["falcon-mamba-7b", "jamba-1.5-mini"])
def test_mamba_1_states_are_bound_like_those_of_a_real_worker(launches: Launches, model: str) -> None:
    """Their shape depends on the tensor-parallel rank, also when buffers are bound."""
    assert_launches(launches.plan(model, kv_cache_memory=40 * GIB))


def test_a_model_without_kv_cache_launches_with_no_groups(launches: Launches) -> None:
    plan = launches.plan("all-minilm-l6", kv_cache_memory=40 * GIB)
    assert_launches(plan)
    assert (plan.groups, plan.layers) == ((), ())


def test_context_parallelism_multiplies_the_block_of_the_scheduler_and_not_the_page(launches: Launches) -> None:
    args = ("--tensor-parallel-size", "8", "--decode-context-parallel-size", "8")
    plan = launches.plan("deepseek-v3", args, kv_cache_memory=40 * GIB)
    assert_launches(plan)
    assert groups_of(plan) == [("mla", [(61, 16, 18_432)])]
    assert [group.block_size for group in plan.groups] == [128]
    assert (plan.num_blocks, plan.kv_cache_tokens) == (38_199, 4_889_472)


def test_weights_count_a_shared_embedding_once_and_the_draft_by_itself(launches: Launches) -> None:
    alone = launches.plan("llama-3.1-8b", kv_cache_memory=40 * GIB)
    (stage,) = alone.stages
    assert (stage.weights_bytes, stage.draft_weights_bytes) == (16_094_077_440, 0)
    speculative = '{"method": "eagle3", "model": "sample_configs/llama-3.1-8b-eagle3-draft", "num_speculative_tokens": 3}'
    drafted = launches.plan("llama-3.1-8b", ("--speculative-config", speculative), kv_cache_memory=40 * GIB)
    (stage,) = drafted.stages
    assert stage.weights_bytes - stage.draft_weights_bytes == 16_094_077_440
    assert [layer.name for layer in drafted.layers if layer.draft] == ["model.layers.32.self_attn.attn"]


def test_weights_that_do_not_fit_leave_the_layout_and_take_the_capacity(launches: Launches) -> None:
    plan = launches.plan("deepseek-v3")
    assert (plan.memory.kv_cache_source, plan.memory.weights_fit, plan.memory.kv_cache_bytes) == ("estimate", False, None)
    assert groups_of(plan) == [("mla", [(61, 16, 18_432)])]
    assert (plan.num_blocks, plan.kv_cache_tokens, plan.max_concurrency) == (None, None, None)


def assert_launches_but_for_the_processor(plan: Plan) -> None:
    """The samples bring no preprocessor: what the scheduler asks it for is not checked, and the report says so."""
    assert plan.refusal is None
    assert [(check.name, check.outcome) for check in plan.checks if check.outcome != "passed"] == [
        ("multimodal budget of the scheduler", "not_checked")
    ]
