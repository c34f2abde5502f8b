"""What one rule made of a report: its findings with all their figures, or why there are none."""

from kvdoctor.diagnosis import Diagnosis
from kvdoctor.report.suggestions import suggestion_lines
from kvdoctor.report.untrusted import one_line
from kvdoctor.rules import Finding
from kvdoctor.rules.numbers import grouped


def rule_in_report(rule: str, diagnosis: Diagnosis) -> str:
    """Say what the rule found in the report, in Markdown."""
    findings = [finding for finding in diagnosis.findings if finding.rule == rule]
    if findings:
        return "\n".join(_finding(finding) for finding in findings)
    reason = next((skipped.reason for skipped in diagnosis.skipped_rules if skipped.rule == rule), None)
    if reason is not None:
        return f"The rule could not look: {one_line(reason)}.\n"
    return "Nothing: the rule did not fire, or was not asked.\n"


def _finding(finding: Finding) -> str:
    figures = [f"- {name}: {_figure(value)}" for name, value in finding.evidence.items()]
    tried = [f"- {one_line(line)}" for line in suggestion_lines(finding)]
    return "\n".join([f"{finding.severity}: {one_line(finding.message)}. {one_line(finding.remediation)}.", *figures, *tried, ""])


def _figure(value: float | str | list[int]) -> str:
    if isinstance(value, list):
        return ", ".join(map(grouped, value))
    if isinstance(value, int):
        return grouped(value)
    return f"{value:.1f}" if isinstance(value, float) else one_line(value)
