"""The rules as a whole: ids, documentation, choosing."""

import pytest

from kvdoctor.errors import BadRequest
from kvdoctor.plan import Refusal
from kvdoctor.rules import RULES, Rule, choose_rules, find_rule
from kvdoctor.rules.refusal_text import read_refusal


def test_ids_are_unique_and_in_order() -> None:
    ids = [rule.id for rule in RULES]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_documents_what_why_and_what_to_do(rule: Rule) -> None:
    headings = [line for line in rule.documentation.splitlines() if line.startswith("## ")]
    assert headings == ["## What it does", "## Why it is bad", "## What to do", "## Example"]
    assert rule.summary.endswith(".")
    assert all(url.startswith("https://") for url in rule.urls)


@pytest.mark.parametrize(
    ("select", "ignore", "chosen"),
    [
        (["KV101"], [], ["KV101"]),
        (["kv10"], ["KV103", "remote-code-needed"], ["KV101", "KV102", "KV104", "KV105", "KV106", "KV107", "KV109"]),
        (["page-padding"], [], ["KV201"]),
        ([], ["KV1", "KV2", "KV3", "KV4", "KV5"], ["KV901", "KV902", "KV903"]),
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
