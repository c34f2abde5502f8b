"""The diagnosis has the contract's shape, and its verdict follows from the refusal and the findings."""

import dataclasses

import pytest

from kvdoctor import __version__
from kvdoctor.diagnosis import Verdict, diagnose, verdict_line
from kvdoctor.errors import BadRequest
from kvdoctor.plan import Check, Plan
from tests.unit import plans


def weights_do_not_fit() -> Plan:
    made = plans.llama()
    memory = dataclasses.replace(made.memory, weights_fit=False, weights_bytes=150 * 2**30, kv_cache_bytes=None)
    return dataclasses.replace(made, memory=memory, num_blocks=None, kv_cache_tokens=None, max_concurrency=None)


def nothing_checked() -> Plan:
    return dataclasses.replace(plans.llama(), checks=(Check(name="the scheduler", outcome="not_checked", note="needs a tokenizer"),))


@pytest.mark.parametrize(
    ("plan", "verdict", "line"),
    [
        (plans.llama(), "ok", "launches: block 16, hash block 16; 0.0 % of a full request's blocks is empty"),
        (plans.qwen3_next(), "ok", "launches: block 576, hash block 576; 0.3 % of a full request's blocks is empty"),
        (plans.pull_request_51108(), "warning", "launches: block 544, hash block 136; 20.0 % of a full request's blocks is empty"),
        (plans.plan(), "ok", "launches: the model has no KV cache"),
        (
            plans.refused("It\nis  Tuesday.", stage="KV-cache planning"),
            "refused",
            "refused at KV-cache planning: ValueError: It is Tuesday.",
        ),
        (
            dataclasses.replace(plans.pull_request_51108(), refusal=plans.HASH_REFUSAL),
            "refused",
            "refused at the scheduler (AssertionError): blocks 181 and 544 are not multiples of hash block 98,464",
        ),
        (plans.refused("", exception="AssertionError"), "refused", "refused at the KV-cache plan: AssertionError"),
        (
            weights_do_not_fit(),
            "refused",
            (
                "will not launch: the weights take 150.00 GiB per GPU, and nothing of 73.28 GiB is left for a KV cache "
                "with an allowance of 3.00 GiB"
            ),
        ),
        (nothing_checked(), "unassessed", "not assessed: no step of the launch could be checked"),
    ],
)
def test_the_verdict_and_its_line(plan: Plan, verdict: Verdict, line: str) -> None:
    diagnosis = diagnose(plans.request(), plan)
    assert (diagnosis.verdict, verdict_line(diagnosis)) == (verdict, line)


def test_the_verdict_gives_the_empty_share_of_the_pool_and_not_of_the_worst_page() -> None:
    pages = [plans.group((plans.layer(name, page_bytes=1000, used_bytes=used),)) for name, used in (("a", 999), ("b", 950))]
    assert verdict_line(diagnose(plans.request(), plans.plan(*pages))).endswith("; 2.5 % of a full request's blocks is empty")


def test_the_empty_share_of_pages_of_several_sizes_is_that_of_all_their_bytes() -> None:
    mixed = (plans.layer("a", page_bytes=9_000, used_bytes=9_000), plans.layer("b", page_bytes=1_000, used_bytes=500))
    assert verdict_line(diagnose(plans.request(), plans.plan(plans.group(mixed)))).endswith("; 5.0 % of a full request's blocks is empty")


def test_findings_are_listed_worst_first() -> None:
    made = dataclasses.replace(plans.pull_request_51108(), refusal=plans.HASH_REFUSAL)
    assert [finding.rule for finding in diagnose(plans.request(), made).findings] == ["KV101", "KV201", "KV207", "KV302", "KV901"]
    refused = dataclasses.replace(weights_do_not_fit(), groups=plans.qwen3_next().groups, min_reusable_prefix_tokens=576)
    assert [finding.severity for finding in diagnose(plans.request(), refused).findings] == ["error", "info", "info"]


def test_a_share_that_is_not_zero_never_reads_as_zero() -> None:
    page = plans.group((plans.layer(page_bytes=1_000_000, used_bytes=999_999),))
    assert verdict_line(diagnose(plans.request(), plans.plan(page))).endswith("; < 0.1 % of a full request's blocks is empty")


def test_a_refusal_is_refused_whatever_rules_are_ignored() -> None:
    diagnosis = diagnose(plans.request(), plans.refused("It is Tuesday."), ignore=["KV"])
    assert (diagnosis.verdict, diagnosis.findings) == ("refused", ())


def test_a_refusal_keeps_what_was_settled_before_it() -> None:
    diagnosis = diagnose(plans.request(), dataclasses.replace(plans.pull_request_51108(), refusal=plans.HASH_REFUSAL))
    assert [group.block_size for group in diagnosis.layout.groups] == [544, 544, 136]
    assert diagnosis.refusal == plans.HASH_REFUSAL


def test_select_runs_only_the_rules_it_names() -> None:
    diagnosis = diagnose(plans.request(), plans.pull_request_51108(), select=["KV302"])
    assert [finding.rule for finding in diagnosis.findings] == ["KV302"]
    assert (diagnosis.verdict, diagnosis.skipped_rules) == ("ok", ())


def test_a_rule_that_does_not_exist_is_a_wrong_request() -> None:
    with pytest.raises(BadRequest, match="KV777"):
        diagnose(plans.request(), plans.llama(), ignore=["KV777"])


def test_the_request_is_what_the_user_asked_and_what_vllm_settled() -> None:
    made = plans.plan(plans.group((plans.layer(),)), launch={"tensor_parallel_size": 4, "max_model_len": 4096})
    diagnosis = diagnose(plans.request(vllm_args=("--tensor-parallel-size", "4"), environment={"VLLM_X": "1"}), made)
    report = diagnosis.request
    assert (report.model, report.gpu, report.vllm_args) == ("org/model", "h100-80g", ("--tensor-parallel-size", "4"))
    assert (report.tensor_parallel_size, report.pipeline_parallel_size, report.max_model_len) == (4, 1, 4096)
    assert (report.environment, report.specs_given) == ({"VLLM_X": "1"}, False)
    assert (diagnosis.gpu.compute_capability, diagnosis.schema_version, diagnosis.kvdoctor_version) == ("9.0", 1, __version__)


def test_specs_given_directly_have_no_model() -> None:
    diagnosis = diagnose(plans.request(model=None, specs={"layers": {}}), plans.pull_request_51108())
    assert (diagnosis.request.model, diagnosis.request.revision, diagnosis.request.specs_given) == (None, None, True)


def test_backends_are_listed_and_counted() -> None:
    engine = diagnose(plans.request(), plans.qwen3_next()).engine
    assert engine.attention_backends == ("GDN_ATTN", "FLASH_ATTN")
    assert engine.attention_backend_layers == {"GDN_ATTN": 36, "FLASH_ATTN": 12}
