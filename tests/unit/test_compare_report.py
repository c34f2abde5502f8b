"""The formats of a comparison: the same facts in each, whole numbers at any width, and nothing in them acts on a terminal or a page."""

import dataclasses
import json
import re

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from kvdoctor.compare import Comparison, Limits, compare
from kvdoctor.compare.interface import SCHEMA_VERSION
from kvdoctor.compare.many import ManyComparison, ModelComparison
from kvdoctor.diagnosis import diagnose
from kvdoctor.plan import LogRecord, Plan
from kvdoctor.report import render_comparison, render_many
from kvdoctor.report.compare_sections import change_rows, side_rows
from kvdoctor.report.plain_json import load_schema_of
from kvdoctor.rules import Finding
from tests.unit import plans
from tests.unit.strategies import any_plans
from tests.unit.test_compare import before_pull_request_51108, compared
from tests.unit.test_report_text import HOSTILE, hostile

VALIDATOR = Draft202012Validator(load_schema_of("compare"))
VALIDATOR_OF_MANY = Draft202012Validator(load_schema_of("compare_all"))
FORMATS = ("table", "markdown")


def founding_case() -> Comparison:
    return compared(before_pull_request_51108(), plans.pull_request_51108())


def render(comparison: Comparison, report_format: str, *, width: int = 100) -> str:
    return render_comparison(comparison, report_format, width=width, color=False)


def many(*models: ModelComparison) -> ManyComparison:
    return ManyComparison(schema_version=SCHEMA_VERSION, kvdoctor_version="0.0.0", before="vLLM 1", after="vLLM 2", models=models)


def three_models() -> ManyComparison:
    same = compared(plans.llama(), plans.llama())
    return many(
        ModelComparison(name="changed", comparison=founding_case(), failure=None),
        ModelComparison(name="alike", comparison=same, failure=None),
        ModelComparison(name="broken", comparison=None, failure="after: no answer within 3 s"),
    )


def test_the_schemas_are_schemas() -> None:
    for what in ("compare", "compare_all", "sweep"):
        Draft202012Validator.check_schema(load_schema_of(what))


@given(any_plans(), any_plans())
def test_any_comparison_fits_the_schema_and_can_be_rendered(before: Plan, after: Plan) -> None:
    made = compared(before, after)
    text = render(made, "json")
    assert [error.message for error in VALIDATOR.iter_errors(json.loads(text))] == []
    text.encode("ascii")
    for report_format in FORMATS:
        assert render(made, report_format, width=60).endswith("\n")


def test_many_fit_the_schema() -> None:
    data = json.loads(render_many(three_models(), "json", width=1, color=False))
    assert [error.message for error in VALIDATOR_OF_MANY.iter_errors(data)] == []


@pytest.mark.parametrize("report_format", FORMATS)
@pytest.mark.parametrize(
    "fact",
    [
        "block_sizes=[544, 544, 544, 544, 181], hash_block_size=98464",
        "544 x 2, 181",
        "544 x 2, 136",
        "98,464",
        "278,528",
        "KV101",
        "20.0 % of a full request is empty",
    ],
)
def test_the_founding_case_has_both_sides_in_full(report_format: str, fact: str) -> None:
    assert fact in render(founding_case(), report_format)


def test_the_verdict_is_the_tables_last_line_and_stands_first_in_markdown() -> None:
    made = founding_case()
    assert render(made, "table").splitlines()[-1] == made.verdict
    assert made.verdict.replace("->", r"-\>") in render(made, "markdown").splitlines()[2]


def test_each_change_is_a_row_with_both_values_and_the_difference() -> None:
    lines = [line.split() for line in render(founding_case(), "table").splitlines()]
    assert ["hash", "block", "98,464", "136", "-98,328", "(-99.9", "%)"] in lines
    assert ["wasted", "0.2", "%", "25.0", "%", "+24.8", "points"] in lines


def test_no_number_is_cut_in_a_narrow_terminal() -> None:
    words = {word.rstrip(";:") for word in render(founding_case(), "table", width=30).split()}
    assert {"98,464", "-98,328", "1,112,064", "835,584"} <= words


def test_sides_say_what_differs_once_and_what_both_have_once() -> None:
    before = diagnose(plans.request(vllm_args=("--dtype", "auto", "--max-num-seqs", "8")), plans.llama())
    after = diagnose(plans.request(vllm_args=("--dtype", "auto", "--max-num-seqs", "16")), plans.llama())
    assert side_rows(compare(before, after)) == (
        ("before", "--max-num-seqs 8"),
        ("after", "--max-num-seqs 16"),
        ("both", "vLLM 0.33.0 (installed); h100-80g; --dtype auto"),
    )


def test_a_side_without_arguments_says_so() -> None:
    before, after = diagnose(plans.request(), plans.llama()), diagnose(plans.request(vllm_args=("-tp", "2")), plans.llama())
    assert side_rows(compare(before, after))[:2] == (("before", "no arguments"), ("after", "-tp 2"))


def test_two_sizes_that_round_to_one_text_are_written_out() -> None:
    before = plans.plan(*plans.llama().groups, memory={"weights_bytes": 2_446_232_336})
    after = plans.plan(*plans.llama().groups, memory={"weights_bytes": 2_446_232_320})
    (row,) = [row for row in change_rows(compared(before, after)) if row.label == "weights"]
    assert (row.before, row.after) == ("2,446,232,336", "2,446,232,320")


def test_vllms_own_words_are_quoted_and_attributed() -> None:
    line = "Using FLASHINFER attention backend"
    after = dataclasses.replace(plans.qwen3_next(), vllm_log=(LogRecord(level="INFO", message=line),))
    assert f'after: vLLM says "{line}"' in render(compared(plans.llama(), after), "table")


def test_a_passed_limit_is_told_with_its_figures() -> None:
    after = dataclasses.replace(plans.llama(), kv_cache_tokens=8_000)
    made = compared(plans.llama(), after, Limits(max_token_loss_percent=5))
    assert "--max-token-loss 5: tokens 16,000 -> 8,000, 50.0 % lost" in render(made, "table")


def test_many_have_a_line_each_and_the_details_of_those_that_changed() -> None:
    lines = render_many(three_models(), "table", width=200, color=False).splitlines()
    assert [line.split()[:4] for line in lines[4:7]] == [
        ["changed", "refused", "warning", "now"],
        ["alike", "ok", "ok", "same"],
        ["broken", "-", "-", "not"],
    ]
    assert lines[6].endswith("not assessed: after: no answer within 3 s")
    assert lines[-1] == founding_case().verdict
    assert sum("hash block" in line for line in lines[7:]) == 3  # the table, the finding that went, the verdict


@pytest.mark.parametrize("report_format", FORMATS)
def test_an_edited_reports_findings_do_not_act(report_format: str) -> None:
    evil = Finding(rule=HOSTILE, name=HOSTILE, severity="error", message=HOSTILE, remediation=HOSTILE, evidence={}, url=f"x) {HOSTILE}")
    before = diagnose(plans.request(), plans.llama())
    text = render(compare(before, dataclasses.replace(before, findings=(evil,))), report_format)
    assert "appeared" in text
    assert not set("\x1b\x07") & set(text)
    if report_format == "markdown":
        assert not any(line.startswith("# heading") for line in text.splitlines())
        assert " <script>" not in text


@pytest.mark.parametrize("report_format", FORMATS)
def test_nothing_acts_on_a_terminal_or_a_page(report_format: str) -> None:
    before = diagnose(plans.request(vllm_args=(HOSTILE,)), hostile())
    after = diagnose(
        plans.request(), dataclasses.replace(plans.llama(), vllm_log=(LogRecord(level="WARNING", message=f"block_size {HOSTILE}"),))
    )
    text = render(compare(before, after), report_format)
    text += render_many(many(ModelComparison(name=HOSTILE, comparison=None, failure=HOSTILE)), report_format, width=80, color=False)
    assert "\x1b" not in text
    assert "\x07" not in text
    if report_format == "markdown":
        outside = "".join(text.split("```")[::2])  # a refusal's own words stand in a fence
        assert not any(line.startswith("# heading") for line in outside.splitlines())
        assert " <script>" not in re.sub("`` .*? ``", "", outside)
