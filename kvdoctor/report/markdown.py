"""The report as Markdown, for a pull request or a wiki."""

from kvdoctor.diagnosis import Diagnosis, verdict_line
from kvdoctor.report.sections import FIGURES, GroupRow, group_rows, group_title, how_it_ended, model_name, sections
from kvdoctor.report.suggestions import suggestion_lines
from kvdoctor.report.untrusted import markdown_block, markdown_code, markdown_text
from kvdoctor.rules import Finding


def render_markdown(diagnosis: Diagnosis) -> str:
    """Render the report as GitHub's Markdown, with the verdict where a reader of a pull request looks first."""
    parts = [f"## kvdoctor: {markdown_code(model_name(diagnosis))}", f"**{markdown_text(verdict_line(diagnosis))}**"]
    if refusal := diagnosis.refusal:
        parts.append(f"### {how_it_ended(refusal)} at {markdown_text(refusal.stage)}")
        parts.append(markdown_block(f"{refusal.exception}: {refusal.message}"))
    if rows := group_rows(diagnosis):
        parts += [f"### {group_title(diagnosis)}", _groups(rows)]
    for section in sections(diagnosis, in_full=True):
        parts += [f"### {section.title}", "\n".join(_labelled(label, value) for label, value in section.rows)]
    if diagnosis.findings:
        parts += ["### Findings", "\n".join(_finding(finding) for finding in diagnosis.findings)]
    return "\n\n".join(parts) + "\n"


def _labelled(label: str, value: str) -> str:
    return f"- {label}: {markdown_text(value)}" if label else f"- {markdown_text(value)}"


def _groups(rows: tuple[GroupRow, ...]) -> str:
    header = ("#", "kind", *FIGURES, "layer names")
    lines = [_row(header), "|---:|:---|" + "---:|" * len(FIGURES) + ":---|"]
    for row in rows:
        names = " ".join(markdown_code(name, in_table=True) for name in row.names)
        lines.append(_row((row.index, markdown_text(row.kind), *row.figures, names)))
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _finding(finding: Finding) -> str:
    link = f"[{finding.rule}]({finding.url})"
    tried = "".join(f"\n  - {markdown_text(line)}" for line in suggestion_lines(finding))
    advice = markdown_text(finding.remediation)
    return f"- **{finding.severity}** {link} {finding.name}: {markdown_text(finding.message)}. {advice}.{tried}"
