"""Each rule fires, does not fire, and is skipped when it lacks its inputs."""

import dataclasses
from typing import Any

import pytest

from kvdoctor.diagnosis import diagnose, verdict_line
from kvdoctor.errors import BadRequest
from kvdoctor.left_out import LEFT_OUT
from kvdoctor.plan import NOT_A_PARSER, NOT_ON_THIS_MACHINE, SERVE_ARGUMENTS, Check, LogRecord, Plan, Refusal
from kvdoctor.report import FORMATS
from kvdoctor.rules import RULES, Finding, Rule, choose_rules, find_rule
from kvdoctor.rules.advice import remedy
from kvdoctor.rules.refusal_text import read_refusal
from tests.unit import plans

CONTEXT_REFUSAL = (
    "To serve at least one request with the model's max seq len (131072), (13.32 GiB KV cache is needed, which is larger than the "
    "available KV cache memory (12.0 GiB). Based on the available memory, the estimated maximum model length is 109472. "
    "Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing `max_model_len` "
    "when initializing the engine."
)
SEQUENCES_REFUSAL = (
    "max_num_seqs (1024) exceeds available Mamba cache blocks (758). Each decode sequence requires one Mamba cache block, so CUDA graph "
    "capture cannot proceed. Please lower max_num_seqs to at most 758 or increase gpu_memory_utilization."
)
PAGE_REFUSAL = (
    "Layer draft.layers.0.self_attn.attn: page size is not divisible by the maximum page size and cannot be padded. "
    "Padding is only supported for non-MLA attention layers."
)
REMOTE_CODE_REFUSAL = (
    "Failed to load the model config. If the model is a custom model not yet available in the HuggingFace transformers library, consider "
    "setting `trust_remote_code=True` in LLM or using the `--trust-remote-code` flag in the CLI."
)
NO_MEMORY_REFUSAL = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."


def found(plan: Plan, rule: str, **request: Any) -> list[Finding]:
    return [finding for finding in diagnose(plans.request(**request), plan).findings if finding.rule == rule]


def the(plan: Plan, rule: str, **request: Any) -> Finding:
    """The rule's only finding, which is also the only error."""
    made = diagnose(plans.request(**request), plan).findings
    (finding,) = [finding for finding in made if finding.rule == rule]
    assert [other.rule for other in made if other.severity == "error"] in ([], [rule])
    return finding


def reason(plan: Plan, rule: str) -> str | None:
    """Why the rule was skipped."""
    skipped = diagnose(plans.request(), plan).skipped_rules
    return next((other.reason for other in skipped if other.rule == rule), None)


def settled_but(plan: Plan, **changes: Any) -> Plan:
    return dataclasses.replace(plan, **changes)


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
    words = "Total number of attention heads (40) must be divisible by tensor parallel size (3)."
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
        ("A: [dtype not supported], B: [block_size not supported]", "Change --block-size 8: nothing else keeps B out"),
    ],
)
def test_kv103_names_the_way_to_a_backend_or_says_that_there_is_none(reasons: str, advice: str) -> None:
    words = f"No valid attention backend found for cuda with X. Reasons: {{{reasons}}}."
    assert the(plans.refused(words, given_arguments={"block_size": 8}), "KV103").remediation == advice


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


def test_kv103_names_the_pipeline_stages_without_attention() -> None:
    states = plans.layers("s.{}", range(2), kind="mamba", spec="MambaSpec")
    plan = plans.refused("No common block size for 544", base=plans.plan(plans.group((*states, plans.layer()))))
    stages = tuple(dataclasses.replace(plan.stages[0], index=index, layer_count=count) for index, count in enumerate((2, 1)))
    remediation = the(settled_but(plan, stages=stages), "KV103").remediation
    assert remediation == (
        "Look at --block-size, which vLLM's message is about; pipeline stage 0 has no attention layer: "
        "change --pipeline-parallel-size or VLLM_PP_LAYER_PARTITION"
    )


# KV109 vllm-code-failed


def failed(plan: Plan) -> Plan:
    assert plan.refusal is not None
    return settled_but(plan, refusal=dataclasses.replace(plan.refusal, accident=True))


def test_kv109_tells_an_accident_in_vllms_code_from_a_refusal() -> None:
    plan = failed(plans.refused("'NoneType' object has no attribute 'x'", exception="AttributeError"))
    finding = the(plan, "KV109")
    assert finding.message == (
        "the code of vLLM 0.33.0 failed at the KV-cache plan, not by a check: AttributeError: 'NoneType' object has no attribute 'x'; "
        "a boot probably fails there too, but that is not certain"
    )
    diagnosis = diagnose(plans.request(), plan)
    assert diagnosis.verdict == "failed"
    assert "refuse" not in verdict_line(diagnosis)


def test_kv109_is_told_in_every_format_without_a_refusal() -> None:
    diagnosis = diagnose(plans.request(), failed(plans.refused("'x'", exception="KeyError")))
    for render in (FORMATS["table"], FORMATS["markdown"]):
        text = render(diagnosis, width=100, color=False)
        assert "refuse" not in text.replace("has refused this launch", "")
        assert "vLLM's code failed at the KV-cache plan" in text


@pytest.mark.parametrize("plan", [plans.llama(), plans.refused("no")])
def test_kv109_does_not_fire_on_a_launch_or_a_refusal(plan: Plan) -> None:
    assert found(plan, "KV109") == []


# KV108 remote-code-needed


@pytest.mark.parametrize(
    "words",
    [
        REMOTE_CODE_REFUSAL,
        "The repository org/model contains custom code which must be executed to correctly load the model.",
        "Loading org/model requires you to execute the configuration file in that repo on your local machine.",
    ],
)
def test_kv108_fires_when_vllm_asks_for_trust(words: str) -> None:
    assert the(plans.refused(words), "KV108").message == (
        "org/model needs code from its own repository, and --trust-remote-code was not given"
    )


@pytest.mark.parametrize(("asked", "given"), [(True, {}), (False, {"trust_remote_code": True})])
def test_kv108_leaves_the_refusal_to_vllms_words_when_trust_was_given(asked: bool, given: dict[str, Any]) -> None:
    plan = plans.refused(REMOTE_CODE_REFUSAL, given_arguments=given)
    assert found(plan, "KV108", trust_remote_code=asked) == []
    assert len(found(plan, "KV103", trust_remote_code=asked)) == 1


def test_kv108_does_not_fire_on_a_launch() -> None:
    assert found(plans.llama(), "KV108") == []


# KV110 serve-arguments-refused


def test_kv110_quotes_what_vllm_serve_refuses_and_is_the_only_error() -> None:
    refusal = Refusal(stage=SERVE_ARGUMENTS, exception="KeyError", message="invalid tool call parser: nope (chose from { hermes })")
    finding = the(settled_but(plans.llama(), refusal=refusal), "KV110")
    assert finding.message == "vLLM refuses an argument: invalid tool call parser: nope (chose from { hermes })"
    assert (finding.severity, finding.evidence) == ("error", {"exception": "KeyError"})


@pytest.mark.parametrize("note", [NOT_ON_THIS_MACHINE, NOT_A_PARSER])
def test_kv110_warns_of_what_may_be_wrong_on_the_machine_of_the_launch(note: str) -> None:
    check = Check(name="--chat-template /models/a.jinja", outcome="not_checked", note=note)
    made = diagnose(plans.request(), settled_but(plans.llama(), checks=(*plans.llama().checks, check)))
    (finding,) = (finding for finding in made.findings if finding.rule == "KV110")
    assert (finding.severity, finding.message) == ("warning", f"--chat-template /models/a.jinja {note}")
    assert made.verdict == "warning"


def test_kv110_does_not_fire_on_what_is_merely_not_checked() -> None:
    check = Check(name="--middleware a.B", outcome="not_checked", note="code of the launch's own")
    assert found(settled_but(plans.llama(), checks=(check,)), "KV110") == []


# KV201 page-padding


def test_kv201_fires_on_hidden_states_that_waste_a_quarter() -> None:
    finding = the(plans.pull_request_51108(), "KV201")
    assert finding.message.startswith("25.0 % of each page (278,528 of 1,114,112 bytes) is padding in 1 hidden state layer: ")
    assert finding.evidence["wasted_percent"] == 25.0
    assert finding.evidence["groups"] == [2]


def test_kv201_reports_groups_alike_once() -> None:
    states = [plans.group(plans.layers(f"{part}.{{}}", range(3), kind="mamba", used_bytes=20_000)) for part in "ab"]
    finding = the(plans.plan(*states), "KV201")
    assert (finding.evidence["groups"], finding.evidence["layer_count"]) == ([0, 1], 6)
    assert "the recurrent state is padded" in finding.message


def test_kv201_judges_a_mixed_group_by_all_its_pages() -> None:
    full, padded = plans.layer("a", page_bytes=80_000, used_bytes=80_000), plans.layer("b", page_bytes=10_000, used_bytes=5_000)
    assert found(plans.plan(plans.group((full, padded))), "KV201") == []
    finding = the(plans.plan(plans.group((plans.layer("c", page_bytes=9_000, used_bytes=9_000), padded))), "KV201")
    assert finding.message.startswith("26.3 % of the pages of 2 full attention layers is padding, at worst 5,000 of 10,000 bytes of a page")


@pytest.mark.parametrize(("used", "count"), [(9_000, 0), (8_999, 1), (10_000, 0)])
def test_kv201_fires_above_ten_percent_only(used: int, count: int) -> None:
    plan = plans.plan(plans.group((plans.layer(page_bytes=10_000, used_bytes=used),)))
    assert len(found(plan, "KV201")) == count


def test_kv201_does_not_fire_on_qwen3_next() -> None:
    assert found(plans.qwen3_next(), "KV201") == []


def test_kv201_is_skipped_without_groups() -> None:
    assert reason(plans.plan(), "KV201") == "no groups were settled"


def test_kv201_does_not_fire_on_a_padded_page_in_a_group_that_takes_little_of_the_pool() -> None:
    state = plans.group((plans.layer("s", kind="mamba", used_bytes=16_384),), blocks_per_request=2)
    attention = plans.group((plans.layer("a"),), blocks_per_request=512)
    assert found(plans.plan(state, attention), "KV201") == []
    wide = settled_but(plans.plan(state, attention), groups=(dataclasses.replace(state, blocks_per_request=None), attention))
    assert len(found(wide, "KV201")) == 1


# KV207 empty-share-of-pool


def test_kv207_adds_up_padding_idle_room_and_room_behind_the_last_token() -> None:
    attention = plans.group(plans.layers("a.{}", range(3), page_bytes=16_000, used_bytes=16_000), blocks_per_request=512)
    # 600 tokens too many for 8,192; two layers' room is idle, and a quarter of the page is padding.
    hidden = plans.group(
        (plans.layer("h", kind="hidden_state", block_size=8, page_bytes=16_000, used_bytes=12_000),), blocks_per_request=1_099
    )
    finding = the(plans.plan(attention, hidden), "KV207")
    assert finding.evidence == {
        "held_bytes": (512 + 1_099) * 48_000,
        "padding_bytes": 1_099 * 4_000,
        "idle_bytes": 1_099 * 32_000,
        "unfilled_bytes": 600 * 1_500,
        "empty_percent": pytest.approx(100 * (1_099 * 36_000 + 900_000) / (1_611 * 48_000)),
    }
    assert finding.message == (
        "52.3 % of the blocks of a request of 8,192 tokens is empty: 5.7 % padding in pages, "
        "45.5 % room left by groups narrower than the block, 1.2 % room behind the last token"
    )
    assert finding.remediation.endswith("and without a draft model if there is one")


def test_kv207_takes_a_block_longer_than_the_request_for_half_empty() -> None:
    plan = plans.plan(plans.group((plans.layer(block_size=16_384),), blocks_per_request=1))
    finding = the(plan, "KV207")
    assert (finding.evidence["empty_percent"], finding.evidence["unfilled_bytes"]) == (50.0, 16_384)
    assert finding.remediation == "Compare the plan under a smaller --block-size, or a longer --max-model-len"


@pytest.mark.parametrize("kind", ["mamba", "cross_attention", "other"])
def test_kv207_counts_no_tokens_where_blocks_hold_none(kind: str) -> None:
    assert found(plans.plan(plans.group((plans.layer(kind=kind, block_size=16_384),), blocks_per_request=1)), "KV207") == []


@pytest.mark.parametrize("plan", [plans.llama(), plans.qwen3_next()])
def test_kv207_does_not_fire_where_nearly_all_is_filled(plan: Plan) -> None:
    assert found(plan, "KV207") == []


def test_kv207_is_skipped_before_a_requests_blocks_are_settled() -> None:
    assert reason(plans.plan(), "KV207") == "what a request holds was not settled"


# KV301 block-exceeds-context, KV302 coarse-prefix-granularity


def reusable(smallest: int | None, *, longest: int | None, caching: bool | None = True, hits: int | None = None) -> Plan:
    plan = plans.plan(plans.group((plans.layer(),)), launch={"max_model_len": longest, "prefix_caching": caching})
    return settled_but(plan, min_reusable_prefix_tokens=smallest, prefix_hit_tokens=hits)


def test_kv301_fires_when_no_request_can_hold_the_smallest_prefix() -> None:
    finding = the(reusable(576, longest=512), "KV301")
    assert finding.message == "the smallest reusable prefix is 576 tokens, and a request has at most 512"
    assert found(reusable(576, longest=512), "KV302") == []


def test_kv301_goes_by_the_grain_of_hits_when_nothing_is_ever_reused() -> None:
    assert the(reusable(None, longest=512, hits=576), "KV301").evidence == {"min_reusable_prefix_tokens": 576, "max_model_len": 512}


@pytest.mark.parametrize("plan", [reusable(576, longest=576), reusable(576, longest=512, caching=False)])
def test_kv301_does_not_fire(plan: Plan) -> None:
    assert found(plan, "KV301") == []


@pytest.mark.parametrize("plan", [reusable(None, longest=512), reusable(576, longest=None)])
def test_kv301_is_skipped_without_its_figures(plan: Plan) -> None:
    assert reason(plan, "KV301") == "the smallest reusable prefix was not settled"


@pytest.mark.parametrize(("smallest", "count"), [(255, 0), (256, 1), (784, 1)])
def test_kv302_fires_from_256_tokens(smallest: int, count: int) -> None:
    assert len(found(reusable(smallest, longest=8192), "KV302")) == count


def test_kv302_advises_a_finer_unit_where_states_are_aligned() -> None:
    assert the(plans.qwen3_next(), "KV302").remediation == (
        "Start prompts with at least 576 shared tokens, or compare a --prefix-match-unit that divides 576"
    )


def test_kv302_does_not_fire_when_prefix_caching_is_off() -> None:
    assert found(reusable(784, longest=8192, caching=False), "KV302") == []


def test_kv302_is_skipped_without_its_figure() -> None:
    assert reason(reusable(None, longest=8192), "KV302") == "the smallest reusable prefix was not settled"


# KV401 context-does-not-fit, KV402 max-num-seqs-exceeds-state-blocks, KV405 weights-do-not-fit


def with_memory(plan: Plan, **changes: Any) -> Plan:
    return settled_but(plan, memory=dataclasses.replace(plan.memory, **changes))


def test_kv401_gives_needed_available_and_largest() -> None:
    plan = with_memory(plans.refused(CONTEXT_REFUSAL), needed_for_max_model_len_bytes=14_302_248_960, kv_cache_bytes=12 * 2**30)
    finding = the(plan, "KV401")
    assert finding.message == "one request of 131,072 tokens needs 13.32 GiB of KV cache, and 12.00 GiB are available"
    assert finding.remediation == ("Pass --max-model-len 109472 or less, raise --gpu-memory-utilization, or use more GPUs")
    assert finding.evidence == {
        "max_model_len": 131_072,
        "needed_bytes": 14_302_248_960,
        "kv_cache_bytes": 12_884_901_888,
        "estimated_max_model_len": 109_472,
    }


def test_kv401_reads_the_older_words_without_figures() -> None:
    words = "The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (2400)."
    assert the(plans.refused(words), "KV401").message == "one request of 8,192 tokens does not fit into the KV cache"


def test_kv402_gives_the_largest_legal_value() -> None:
    finding = the(plans.refused(SEQUENCES_REFUSAL), "KV402")
    assert finding.message == "1,024 sequences exceed the 758 blocks for recurrent states"
    assert finding.remediation == "Pass --max-num-seqs 758 or less, or raise --gpu-memory-utilization, or use more GPUs"


def test_kv401_gives_figures_that_differ_and_are_those_that_vllm_compares() -> None:
    plan = with_memory(plans.refused(CONTEXT_REFUSAL), needed_for_max_model_len_bytes=4_700_000_000, kv_cache_bytes=4_700_000_000)
    plan = settled_but(plan, usable_kv_cache_bytes=4_700_000_000 - 3_670_016)
    assert the(plan, "KV401").message.endswith("needs 4.38 GiB of KV cache, and 4.37 GiB are available")
    plan = settled_but(plan, usable_kv_cache_bytes=4_700_000_000 - 2**20)
    assert the(plan, "KV401").message.endswith("needs 4.377 GiB of KV cache, and 4.376 GiB are available")
    plan = settled_but(plan, usable_kv_cache_bytes=4_700_000_000 - 1)
    assert the(plan, "KV401").message.endswith("needs 4,700,000,000 bytes of KV cache, and 4,699,999,999 bytes are available")


@pytest.mark.parametrize(
    ("given", "source", "advice"),
    [
        ({"num_gpu_blocks_override": 100}, "estimate", "raise or leave out --num-gpu-blocks-override 100"),
        ({"kv_cache_memory_bytes": 5}, "kv_cache_memory", "raise --kv-cache-memory-bytes, or use more GPUs"),
        ({}, "kv_cache_memory", "raise --kv-cache-memory, or use more GPUs"),
    ],
)
def test_kv401_and_kv402_advise_no_flag_that_is_out_of_force(given: dict[str, Any], source: str, advice: str) -> None:
    for words, rule in ((CONTEXT_REFUSAL, "KV401"), (SEQUENCES_REFUSAL, "KV402")):
        plan = with_memory(plans.refused(words, given_arguments=given), kv_cache_source=source)
        assert the(plan, rule).remediation.endswith(advice)


@pytest.mark.parametrize("rule", ["KV401", "KV402"])
def test_capacity_rules_do_not_fire_on_a_launch(rule: str) -> None:
    assert found(plans.llama(), rule) == []


@pytest.mark.parametrize(("words", "rule"), [(CONTEXT_REFUSAL, "KV401"), (SEQUENCES_REFUSAL, "KV402")])
def test_capacity_rules_are_skipped_on_a_made_up_budget(words: str, rule: str) -> None:
    plan = with_memory(plans.refused(words), weights_fit=False)
    assert reason(plan, rule) == "the weights do not fit, so there is no real budget to judge"


def test_kv405_fires_when_the_weights_leave_nothing() -> None:
    finding = the(with_memory(plans.llama(), weights_fit=False, weights_bytes=150 * 2**30), "KV405")
    assert finding.message == (
        "the weights take 150.00 GiB per GPU, and nothing of 73.28 GiB is left for a KV cache with an allowance of 3.00 GiB"
    )
    assert finding.evidence["weights_bytes"] == 150 * 2**30


def test_kv405_does_not_blame_weights_for_a_given_budget() -> None:
    plan = with_memory(plans.refused(NO_MEMORY_REFUSAL), kv_cache_source="kv_cache_memory", weights_fit=None)
    assert the(plan, "KV405").remediation == "Pass a larger --kv-cache-memory"


def test_kv405_does_not_blame_weights_for_blocks_that_were_counted_out() -> None:
    plan = plans.refused(NO_MEMORY_REFUSAL, given_arguments={"num_gpu_blocks_override": 1})
    assert found(plan, "KV405") == []
    assert the(plan, "KV103").remediation.startswith("Raise or leave out --num-gpu-blocks-override 1: ")


def test_a_refusal_about_made_up_memory_is_not_vllms_word_about_the_deployment() -> None:
    plan = with_memory(plans.refused(CONTEXT_REFUSAL), weights_fit=False, estimated_max_model_len=9)
    plan = settled_but(plan, vllm_log=(LogRecord(level="INFO", message="GPU KV cache size: 9 tokens"), plans.LOG_RECORD))
    diagnosis = diagnose(plans.request(), plan)
    assert [finding.rule for finding in diagnosis.findings if finding.severity == "error"] == ["KV405"]
    assert (diagnosis.refusal, diagnosis.memory.estimated_max_model_len, diagnosis.vllm_log) == (None, None, (plans.LOG_RECORD,))
    assert [(check.outcome, check.note) for check in diagnosis.checks if check not in LEFT_OUT] == [
        ("not_checked", "the weights do not fit, so there is no real memory to check")
    ]
    assert verdict_line(diagnosis).startswith("will not launch: the weights take ")


def test_kv405_does_not_fire_when_the_weights_fit() -> None:
    assert found(plans.llama(), "KV405") == []


def test_kv405_is_skipped_when_no_weights_were_compared() -> None:
    assert reason(with_memory(plans.llama(), weights_fit=None), "KV405") == "no weights were compared with the GPU's memory"


# KV403 low-concurrency


@pytest.mark.parametrize(("concurrency", "count"), [(1.0, 1), (1.99, 1), (2.0, 0)])
def test_kv403_fires_below_two_requests(concurrency: float, count: int) -> None:
    assert len(found(settled_but(plans.llama(), max_concurrency=concurrency), "KV403")) == count


def test_kv403_gives_vllms_figure() -> None:
    finding = the(settled_but(plans.llama(), max_concurrency=1.125), "KV403")
    assert finding.message == "1.12 requests of 8,192 tokens fit into the KV cache at once"


def test_kv403_is_skipped_without_a_concurrency() -> None:
    assert reason(settled_but(plans.llama(), max_concurrency=None), "KV403") == "the concurrency was not settled"


# KV504 dcp-inflates-block


def test_kv504_gives_the_block_before_and_after() -> None:
    group = plans.group((plans.layer(),), block_size=64)
    finding = the(plans.plan(group, launch={"decode_context_parallel_size": 4}), "KV504")
    assert finding.message == "decode context parallelism over 4 ranks multiplies the block: 16 -> 64 tokens"


def test_kv504_does_not_fire_without_context_parallelism_or_where_nothing_grows() -> None:
    assert found(plans.plan(plans.group((plans.layer(),), block_size=64)), "KV504") == []
    assert found(plans.plan(plans.group((plans.layer(),)), launch={"decode_context_parallel_size": 4}), "KV504") == []


@pytest.mark.parametrize(("size", "why"), [(None, "the parallel sizes were not settled"), (2, "no groups were settled")])
def test_kv504_is_skipped_without_its_figures(size: int | None, why: str) -> None:
    assert reason(plans.plan(launch={"decode_context_parallel_size": size}), "KV504") == why


# KV903 unknown-spec-kind


def test_kv903_names_the_spec_class() -> None:
    plan = plans.plan(plans.group((plans.layer(kind="other", spec="WavefrontSpec"),)))
    assert the(plan, "KV903").message == "1 layer of a kind that kvdoctor does not know: WavefrontSpec"


def test_kv903_does_not_fire_on_known_kinds() -> None:
    assert found(plans.qwen3_next(), "KV903") == []


def test_kv903_is_skipped_without_specs() -> None:
    assert reason(plans.plan(), "KV903") == "no layer specs were settled"


# The registry


def test_ids_are_unique_and_in_order() -> None:
    ids = [rule.id for rule in RULES]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_documents_what_why_and_what_to_do(rule: Rule) -> None:
    headings = [line for line in rule.documentation.splitlines() if line.startswith("## ")]
    assert headings == ["## What it does", "## Why it is bad", "## What to do"]
    assert rule.summary.endswith(".")
    assert all(url.startswith("https://") for url in rule.urls)


@pytest.mark.parametrize(
    ("select", "ignore", "chosen"),
    [
        (["KV101"], [], ["KV101"]),
        (["kv10"], ["KV103", "remote-code-needed"], ["KV101", "KV102", "KV109"]),
        (["page-padding"], [], ["KV201"]),
        ([], ["KV1", "KV2", "KV3", "KV4", "KV5"], ["KV903"]),
        (["KV1"], ["KV"], []),
    ],
)
def test_rules_are_chosen_by_id_prefix_or_name(select: list[str], ignore: list[str], chosen: list[str]) -> None:
    assert [rule.id for rule in choose_rules(select=select, ignore=ignore)] == chosen


@pytest.mark.parametrize("selector", ["KV999", "", "padding", "X"])
def test_a_selector_that_matches_nothing_is_refused(selector: str) -> None:
    with pytest.raises(BadRequest):
        choose_rules(select=[selector])


def test_a_rule_is_found_by_id_or_name_in_any_case() -> None:
    assert find_rule("kv201") is find_rule("page-padding") is find_rule("Page-Padding")
    with pytest.raises(BadRequest):
        find_rule("KV2")


def test_a_refusal_that_speaks_of_nothing_known_is_not_read() -> None:
    assert read_refusal(Refusal(stage="x", exception="ValueError", message="the config has trust_remote_code=False")) is None
    assert read_refusal(None) is None
