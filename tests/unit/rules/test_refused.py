"""KV101 to KV103 fire, do not fire, and are skipped when they lack their inputs."""

import dataclasses
from typing import Any

import pytest

from kvdoctor.diagnosis import diagnose
from kvdoctor.plan import Plan
from kvdoctor.rules.advice import remedy
from tests.unit import plans
from tests.unit.rules.findings import (
    CONTEXT_REFUSAL,
    NO_MEMORY_REFUSAL,
    PAGE_REFUSAL,
    REMOTE_CODE_REFUSAL,
    SEQUENCES_REFUSAL,
    found,
    reason,
    settled_but,
    the,
)

# KV101 block-not-divisible-by-hash


def test_kv101_fires_on_the_failure_of_pull_request_51108() -> None:
    plan = settled_but(plans.pull_request_51108(), refusal=plans.HASH_REFUSAL, hash_block_size=None)
    plan = settled_but(plan, engine=dataclasses.replace(plan.engine, vllm_version="0.27.1"))
    finding = the(plan, "KV101")
    assert finding.message == "blocks 181 and 544 are not multiples of hash block 98,464"
    assert finding.evidence == {"block_sizes": [544, 544, 544, 544, 181], "hash_block_size": 98464, "lcm": 98464, "gcd": 1}
    assert finding.remediation == (
        "Use vLLM 0.28.0 or newer, which gives hidden states a block that divides the others, or pass --no-enable-prefix-caching"
    )


def test_kv101_fires_on_the_plans_own_figures_when_vllm_gives_none() -> None:
    plan = plans.refused("Each KV cache group's real block_size must be divisible by hash_block_size", base=plans.pull_request_51108())
    finding = the(settled_but(plan, hash_block_size=272), "KV101")
    assert finding.message == "block 136 is not a multiple of hash block 272"


def test_kv101_fires_without_any_figures() -> None:
    plan = plans.refused("Each KV cache group's real block_size must be divisible by hash_block_size.", base=plans.plan())
    assert the(plan, "KV101").message == "a block size is not a multiple of the hash block size"


def test_kv101_advises_the_align_mode_where_another_is_used() -> None:
    plan = plans.plan(plans.group(plans.layers("a.{}", range(2))), launch={"mamba_cache_mode": "all"}, hash_block_size=32)
    assert the(plan, "KV101").remediation == "Pass --mamba-cache-mode align, or pass --no-enable-prefix-caching"


@pytest.mark.parametrize("plan", [plans.llama(), plans.qwen3_next(), plans.pull_request_51108()])
def test_kv101_does_not_fire_where_the_hash_block_divides(plan: Plan) -> None:
    assert found(plan, "KV101") == []


def test_kv101_does_not_fire_where_nothing_is_hashed() -> None:
    plan = plans.plan(plans.group(plans.layers("a.{}", range(2))), launch={"prefix_caching": False}, hash_block_size=32)
    assert found(plan, "KV101") == []


def test_kv101_does_not_fire_on_a_group_that_opts_out_of_prefix_caching() -> None:
    ring = plans.group((plans.layer("ring", block_size=12),), prefix_cacheable=False)
    assert found(plans.plan(plans.group((plans.layer(),)), ring, hash_block_size=16), "KV101") == []


def test_kv101_is_skipped_before_the_hash_block_is_settled() -> None:
    assert reason(settled_but(plans.llama(), hash_block_size=None), "KV101") == "the hash block size was not settled"


# KV102 page-sizes-not-unifiable


def mixed_pages() -> Plan:
    target = plans.layers("model.layers.{}.attn", range(2), page_bytes=73_728, used_bytes=73_728)
    draft = plans.layer("draft.layers.0.self_attn.attn", page_bytes=20_000, used_bytes=20_000, draft=True)
    return settled_but(plans.plan(), layers=(*target, draft))


def test_kv102_names_the_two_layers_and_their_bytes() -> None:
    finding = the(plans.refused(PAGE_REFUSAL, exception="NotImplementedError", base=mixed_pages()), "KV102")
    assert finding.message == (
        "page of draft.layers.0.self_attn.attn (20,000 bytes) cannot be brought to that of model.layers.0.attn (73,728 bytes)"
    )
    assert finding.evidence == {
        "layer": "draft.layers.0.self_attn.attn",
        "page_bytes": 20_000,
        "widest_layer": "model.layers.0.attn",
        "widest_page_bytes": 73_728,
    }
    assert finding.remediation.startswith("Launch without the draft model")


@pytest.mark.parametrize(
    "words",
    [
        "The page size of the layer is not divisible by the maximum page size. Cannot unify by adjusting block_size.",
        "assert new_spec.page_size_bytes == max_page_size",
    ],
)
def test_kv102_finds_the_layer_that_vllm_does_not_name(words: str) -> None:
    assert the(plans.refused(words, base=mixed_pages()), "KV102").evidence["layer"] == "draft.layers.0.self_attn.attn"


def test_kv102_gives_vllms_bytes_when_no_layer_is_known() -> None:
    finding = the(plans.refused("Page size mismatch after block_size adjust: 1136064 != 3408192", base=plans.plan()), "KV102")
    assert finding.message == "a page of 1,136,064 bytes cannot be brought to 3,408,192 bytes"
    assert finding.evidence == {"page_bytes": 1136064, "widest_page_bytes": 3408192}


def test_kv102_fires_with_vllms_words_alone() -> None:
    assert the(plans.refused(PAGE_REFUSAL, base=plans.plan()), "KV102").evidence == {"layer": "draft.layers.0.self_attn.attn"}


def test_kv102_does_not_fire_on_pages_that_vllm_accepts() -> None:
    assert found(plans.deepseek_v3_2(), "KV102") == []


# KV103 launch-refused


def test_kv103_quotes_vllm_and_names_the_likely_flag() -> None:
    words = "tensor_parallel_size must be a power of two for this model."
    finding = the(plans.refused(words, stage="the configuration"), "KV103")
    assert finding.message == f"vLLM refuses at the configuration: ValueError: {words[:-1]}"
    assert finding.remediation == "Look at --tensor-parallel-size, which vLLM's message is about"
    assert finding.evidence == {"stage": "the configuration", "exception": "ValueError"}


def test_kv103_says_when_vllms_message_names_no_flag() -> None:
    assert the(plans.refused("It is Tuesday."), "KV103").remediation == "Follow vLLM's message, which names no other flag"


def test_kv103_fires_on_a_refusal_without_words() -> None:
    assert the(plans.refused(""), "KV103").message == "vLLM refuses at the KV-cache plan: ValueError: no message"


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (plans.HASH_REFUSAL.message, "KV101"),
        (PAGE_REFUSAL, "KV102"),
        (REMOTE_CODE_REFUSAL, "KV108"),
        (CONTEXT_REFUSAL, "KV401"),
        (SEQUENCES_REFUSAL, "KV402"),
        (NO_MEMORY_REFUSAL, "KV405"),
    ],
)
def test_a_refusal_with_a_rule_of_its_own_is_reported_once(words: str, rule: str) -> None:
    errors = [finding.rule for finding in diagnose(plans.request(), plans.refused(words)).findings if finding.severity == "error"]
    assert errors == [rule]


def test_kv103_does_not_fire_on_a_launch() -> None:
    assert found(plans.llama(), "KV103") == []


@pytest.mark.parametrize(
    ("words", "given", "advice"),
    [
        ("use the `--kv-cache-dtype-skip-layers` flag", {}, "Look at --kv-cache-dtype-skip-layers, which vLLM's message is about"),
        ("No common block size for 544 (FLASH_ATTN: [16])", {}, "Look at --block-size, which vLLM's message is about"),
        ("No common block size", {"block_size": 8}, "Change --block-size 8, which vLLM's message is about"),
        ("Invalid prefix_match_unit=7; group block sizes", {}, "Look at --prefix-match-unit, which vLLM's message is about"),
        ("max_num_batched_tokens (512) must be at least block_size", {}, "Look at --max-num-batched-tokens, which vLLM's message is about"),
        ("max_num_batched_tokens < block_size", {"block_size": 64}, "Change --block-size 64, which vLLM's message is about"),
        (
            "'block_size'=20 in kv_connector_extra_config must be a multiple of the GPU KV cache block size",
            {"kv_transfer_config": None, "block_size": 16},
            "Change --kv-transfer-config, which vLLM's message is about",
        ),
        ("World size (3) is larger", {}, "Look at --tensor-parallel-size or --pipeline-parallel-size, which vLLM's message is about"),
        ("the model's own --flag", {}, "Follow vLLM's message, which names no other flag"),
        ("a table\n-----------\nof things", {}, "Follow vLLM's message, which names no other flag"),
    ],
)
def test_the_advice_is_about_a_flag_that_was_given_before_one_that_was_not(words: str, given: dict[str, Any], advice: str) -> None:
    assert remedy(words, given) == advice


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("try `--enforce-eager`", {"enforce_eager": True}),
        ("pass --no-enable-prefix-caching", {"enable_prefix_caching": False}),
    ],
)
def test_nobody_is_told_to_pass_what_is_passed(words: str, given: dict[str, Any]) -> None:
    assert remedy(words, given) == "Follow vLLM's message, which names no other flag"


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({}, "Pass --no-disable-hybrid-kv-cache-manager"),
        (
            {"disable_hybrid_kv_cache_manager": True},
            "Leave out --disable-hybrid-kv-cache-manager: layers of several kinds need the hybrid KV-cache manager",
        ),
        (
            {"kv_transfer_config": None},
            "Leave out --kv-transfer-config, which turns the hybrid KV-cache manager off, or pass --no-disable-hybrid-kv-cache-manager",
        ),
        ({"kv_events_config": None, "disable_hybrid_kv_cache_manager": False}, "Leave out --kv-events-config"),
        ({"disable_hybrid_kv_cache_manager": False}, "Follow vLLM's message, which names no other flag"),
    ],
)
def test_the_hybrid_manager_is_turned_on_where_it_was_turned_off(given: dict[str, Any], advice: str) -> None:
    assert remedy("Failed to promote local KV cache specs to one unified type.", given) == advice


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (
            {"speculative_config": None},
            "Leave out --speculative-config, with which a recurrent state is larger than the page that vLLM padded for it",
        ),
        ({}, "Ask another release with --vllm: a recurrent state is larger than the page that vLLM padded for it"),
    ],
)
def test_a_state_that_outgrew_its_page_is_told_with_what_enlarged_it(given: dict[str, Any], advice: str) -> None:
    assert remedy("assert self.page_size_padded >= page_size (vllm/v1/kv_cache_interface.py:1127)", given) == advice


NO_BACKEND = (
    "No valid attention backend found for cuda with AttentionSelectorConfig(head_size=576, kv_cache_dtype=fp8_e5m2). Reasons: "
    "{FLASHMLA: [kv_cache_dtype not supported], TRITON_MLA: [kv_cache_dtype not supported], "
    "FLASHINFER_MLA: [kv_cache_dtype not supported, compute capability not supported], "
    "SPARSE: [kv_cache_dtype not supported, non-sparse not supported, currently supports only FP16/BF16 KV cache]}."
)


def test_kv103_reads_vllms_reasons_against_each_backend() -> None:
    plan = plans.refused(NO_BACKEND, stage="building the model", given_arguments={"kv_cache_dtype": "fp8_e5m2"})
    finding = the(plan, "KV103")
    assert finding.message == (
        "no attention backend takes the model's layers under these settings: kv_cache_dtype not supported (FLASHMLA, TRITON_MLA)"
    )
    assert finding.remediation == "Change --kv-cache-dtype fp8_e5m2: nothing else keeps FLASHMLA and TRITON_MLA out"


@pytest.mark.parametrize(
    ("reasons", "advice"),
    [
        ("A: [compute capability not supported]", "Launch on another GPU, or ask another release with --vllm: no flag is in the way"),
        ("A: [head_size not supported]", "Ask another release with --vllm: no flag is in the way"),
        ("A: [dtype not supported], B: [kv_cache_dtype not supported]", "Change --kv-cache-dtype fp8: nothing else keeps B out"),
    ],
)
def test_kv103_names_the_way_to_a_backend_or_says_that_there_is_none(reasons: str, advice: str) -> None:
    words = f"No valid attention backend found for cuda with X. Reasons: {{{reasons}}}."
    assert the(plans.refused(words, given_arguments={"kv_cache_dtype": "fp8"}), "KV103").remediation == advice


def test_kv103_says_what_the_backend_that_was_given_does_not_take() -> None:
    words = (
        "Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. "
        "Reason: ['kv_cache_dtype not supported', 'block_size not supported']"
    )
    given = {"attention_backend": "FLASHINFER", "kv_cache_dtype": "fp8_ds_mla"}
    finding = the(plans.refused(words, given_arguments=given), "KV103")
    assert finding.message == (
        "the attention backend FLASHINFER does not take the model's layers under these settings: "
        "kv_cache_dtype not supported, block_size not supported"
    )
    assert finding.remediation == "Leave out --attention-backend FLASHINFER, or change --kv-cache-dtype fp8_ds_mla"


def test_kv107_names_the_pipeline_stages_without_attention() -> None:
    states = plans.layers("s.{}", range(2), kind="mamba", spec="MambaSpec")
    plan = plans.refused("No common block size for 544", base=plans.plan(plans.group((*states, plans.layer()))))
    stages = tuple(dataclasses.replace(plan.stages[0], index=index, layer_count=count) for index, count in enumerate((2, 1)))
    remediation = the(settled_but(plan, stages=stages), "KV107").remediation
    assert remediation == (
        "Pass another --block-size; pipeline stage 0 has no attention layer: change --pipeline-parallel-size or VLLM_PP_LAYER_PARTITION"
    )
