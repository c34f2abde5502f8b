"""Any document as GitHub's Markdown, for a pull request or a wiki: the verdict first, the details folded."""

from collections.abc import Iterator

from kvdoctor.report.document import Block, Document, Findings, Line, Pairs, Quote, Table, Verdict
from kvdoctor.report.suggestions import suggestion_lines
from kvdoctor.report.untrusted import markdown_block, markdown_code, markdown_text
from kvdoctor.rules import Finding


def to_markdown(document: Document) -> str:
    """Render ``document``."""
    parts = [f"## kvdoctor: {markdown_code(document.title)}"]
    for block in document.blocks:
        parts += _parts(block)
    if document.details:
        parts.append("<details><summary>Details</summary>")
        for block in document.details:
            parts += _parts(block)
        parts.append("</details>")
    return "\n\n".join(parts) + "\n"


def _parts(block: Block) -> Iterator[str]:
    title = getattr(block, "title", None)
    if title is not None:
        yield f"### {markdown_text(title)}"
    match block:
        case Verdict():
            yield f"**{markdown_text(f'{block.word}: {block.text}')}**"
        case Pairs():
            yield "\n".join(_labelled(label, value) for label, value in block.rows)
        case Table():
            yield _table(block)
        case Quote():
            yield markdown_block(block.text)
        case Findings():
            yield "### Findings"
            yield "\n".join(_finding(finding) for finding in block.findings)
        case Line():
            yield markdown_text(block.text)


def _labelled(label: str, value: str) -> str:
    return f"- {markdown_text(label)}: {markdown_text(value)}" if label else f"- {markdown_text(value)}"


def _table(table: Table) -> str:
    headings = [heading for heading, _ in table.headings] + (["layer names"] if table.names else [])
    marks = ["---:" if justify == "right" else ":---" for _, justify in table.headings] + ([":---"] if table.names else [])
    lines = [_row(headings), f"|{'|'.join(marks)}|"]
    for at, row in enumerate(table.rows):
        names = [" ".join(markdown_code(name, in_table=True) for name in table.names[at])] if table.names else []
        lines.append(_row([*map(markdown_text, row), *names]))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _finding(finding: Finding) -> str:
    link = f"[{finding.rule}]({finding.url})"
    tried = "".join(f"\n  - {markdown_text(line)}" for line in suggestion_lines(finding))
    advice = markdown_text(finding.remediation)
    return f"- **{finding.severity}** {link} {finding.name}: {markdown_text(finding.message)}. {advice}.{tried}"
