"""A comparison as Markdown, for a pull request."""

from kvdoctor.compare.interface import Comparison, FindingChange
from kvdoctor.compare.many import ManyComparison, short
from kvdoctor.report.compare_sections import (
    ChangeRow,
    change_rows,
    finding_note,
    layer_lines,
    reason_line,
    regression_line,
    side_rows,
    title,
    unchanged_line,
)
from kvdoctor.report.of_diagnosis import how_it_ended
from kvdoctor.report.untrusted import markdown_block, markdown_code, markdown_link, markdown_text


def render_comparison_markdown(comparison: Comparison) -> str:
    """Render the comparison as GitHub's Markdown, with the verdict first."""
    return "\n\n".join(_comparison(comparison, heading="##")) + "\n"


def render_many_markdown(many: ManyComparison) -> str:
    """Render a line for each model, then the details of those that changed."""
    lines = ["| model | before | after | what changed |", "|:---|:---|:---|:---|"]
    for model in many.models:
        made = model.comparison
        cells = ("-", "-", f"not assessed: {model.failure}") if made is None else (made.before.verdict, made.after.verdict, short(made))
        lines.append(_row((markdown_code(model.name, in_table=True), *map(markdown_text, cells))))
    parts = [f"## kvdoctor: {markdown_code(many.before)} -> {markdown_code(many.after)}", "\n".join(lines)]
    for model in many.models:
        if model.comparison is not None and not model.comparison.same:
            parts += _comparison(model.comparison, heading="###")
    return "\n\n".join(parts) + "\n"


def _comparison(comparison: Comparison, *, heading: str) -> list[str]:
    below = f"{heading}#"
    parts = [f"{heading} kvdoctor: {markdown_code(title(comparison))}", f"**{markdown_text(comparison.verdict)}**"]
    parts.append("\n".join(f"- {label}: {markdown_text(text)}" for label, text in side_rows(comparison)))
    for name, side in (("Before", comparison.before), ("After", comparison.after)):
        if side.refusal is not None:
            parts.append(f"{below} {name}: {how_it_ended(side.refusal)} at {markdown_text(side.refusal.stage)}")
            parts.append(markdown_block(f"{side.refusal.exception}: {side.refusal.message}"))
    if rows := change_rows(comparison):
        parts.append(_changes(rows))
    if lines := layer_lines(comparison):
        parts.append("\n".join(f"- {markdown_text(line)}" for line in lines))
    if line := unchanged_line(comparison):
        parts.append(f"{line}.")
    for name, items in (
        ("What vLLM's log and the arguments say", [markdown_text(reason_line(reason)) for reason in comparison.reasons]),
        ("Findings", [_finding(made) for made in comparison.findings]),
        ("Limits passed", [markdown_text(regression_line(regression)) for regression in comparison.regressions]),
        ("Limits not checked", [markdown_text(text) for text in comparison.unchecked_limits]),
    ):
        if items:
            parts += [f"{below} {name}", "\n".join(f"- {item}" for item in items)]
    return parts


def _changes(rows: tuple[ChangeRow, ...]) -> str:
    lines = ["| what changed | before | after | difference |", "|:---|---:|---:|---:|"]
    for row in rows:
        text = markdown_text(row.label)
        label = f"**{text}**" if row.depth == 0 else "&nbsp;&nbsp;" * (row.depth - 1) + text
        lines.append(_row((label, *(markdown_text(cell) for cell in (row.before, row.after, row.difference)))))
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _finding(made: FindingChange) -> str:
    finding = made.finding
    advice = f" {markdown_text(finding.remediation)}." if made.event == "appeared" else ""
    link, name = markdown_link(finding.rule, finding.url), markdown_text(finding.name)
    return f"{made.event}: **{finding.severity}** {link} {name}: {markdown_text(finding.message + finding_note(made))}.{advice}"
