"""``kvdoctor explain RULE --with REPORT``: the rule on a report's figures."""

import json
from pathlib import Path

import pytest

from kvdoctor.cli import main
from kvdoctor.diagnosis import diagnose
from kvdoctor.report import FORMATS
from kvdoctor.report.rule_in_report import rule_in_report
from tests.unit import plans


def test_a_finding_is_told_with_all_its_figures() -> None:
    told = rule_in_report("KV201", diagnose(plans.request(), plans.pull_request_51108()))
    assert told.startswith("warning: 25.0 % of each page (278,528 of 1,114,112 bytes) is padding in 1 hidden state layer")
    assert "- groups: 2\n- layer_count: 1\n- block_size: 136\n" in told
    assert "- wasted_percent: 25.0\n" in told


def test_a_rule_that_found_nothing_or_could_not_look_says_which() -> None:
    report = diagnose(plans.request(), plans.plan())
    assert rule_in_report("KV101", diagnose(plans.request(), plans.llama())) == "Nothing: the rule did not fire, or was not asked.\n"
    assert rule_in_report("KV201", report) == "The rule could not look: no groups were settled.\n"


def test_explain_shows_the_rule_and_then_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_text(FORMATS["json"](diagnose(plans.request(), plans.pull_request_51108()), width=80, color=False))
    assert main.run(["explain", "KV201", "--with", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# KV201 page-padding (warning)")
    assert "## In this report\nwarning: 25.0 %" in printed


def test_explain_refuses_what_is_no_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"schema_version": 1}))
    assert main.run(["explain", "KV201", "--with", str(path)]) == 2
