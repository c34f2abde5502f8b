"""Any document for a terminal. Everything that holds a number keeps it whole: only names break."""

from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from kvdoctor.report.document import Block, Document, Findings, Line, Pairs, Quote, Table, Verdict
from kvdoctor.report.page import SEVERITY_STYLES, Columns, Page
from kvdoctor.report.suggestions import suggestion_lines
from kvdoctor.report.untrusted import one_line, visible
from kvdoctor.rules import Finding

_TONES = {"good": "bold green", "doubtful": "bold yellow", "bad": "bold red"}
_NAMES_WIDTH = 40
_GAP = 2


def to_terminal(document: Document, *, details: bool, width: int, color: bool) -> str:
    """Render ``document`` as wide as ``width`` where its numbers allow it."""
    page = Page(width=width, color=color)
    page.title(one_line(document.title))
    for block in (*document.blocks, *(document.details if details else ())):
        _put(page, block, details=details)
    return page.text()


def _put(page: Page, block: Block, *, details: bool) -> None:
    match block:
        case Verdict():
            page.blank()
            page.put(Text.assemble((one_line(block.word), _TONES[block.tone]), "  ", one_line(block.text)))
        case Pairs():
            _head(page, block.title)
            page.pairs([(one_line(label), one_line(value)) for label, value in block.rows], indent=2 if block.title else 0)
        case Table():
            _head(page, block.title)
            _put_table(page, block)
        case Quote():
            page.heading(one_line(block.title))
            page.put(Text(visible(block.text), style="red"), indent=2)
        case Findings():
            page.heading("Findings")
            for finding in block.findings:
                _put_finding(page, finding, in_full=details or finding.severity != "info")
        case Line():
            page.blank()
            page.put(Text(one_line(block.text), style="dim"))


def _head(page: Page, title: str | None) -> None:
    if title is None:
        page.blank()
    else:
        page.heading(one_line(title))


def _put_finding(page: Page, finding: Finding, *, in_full: bool) -> None:
    head = ((finding.severity, SEVERITY_STYLES[finding.severity]), f" {finding.rule} ", (finding.name, "bold"))
    page.put(Text.assemble(*head, f": {one_line(finding.message)}"), indent=2)
    if in_full:
        page.put(Text(f"{one_line(finding.remediation)}."), indent=4)
        for line in suggestion_lines(finding):
            page.put(Text(one_line(line)), indent=4)
        page.put(Text(finding.url, style="dim"), indent=4)


def _put_table(page: Page, table: Table) -> None:
    """Put names beside the figures where there is room, under them where there is none."""
    columns = _columns(table)
    if not table.names:
        page.put_columns(columns)
        return
    room = page.width - page.measure(_columns(table).table()).maximum - _GAP
    if room >= _NAMES_WIDTH:
        columns.add_names("layer names", [_names(names, room) for names in table.names], width=room)
        page.put_whole(columns.table())
        return
    page.put_columns(columns)
    page.blank()
    width = max(page.width - 6, 20)
    under = Grid.grid(Column(justify="right", no_wrap=True), Column(max_width=width), padding=(0, 2, 0, 0))
    for row, names in zip(table.rows, table.names, strict=True):
        under.add_row(Text(one_line(row[0])), _names(names, width))
    page.put_whole(under, indent=2)


def _columns(table: Table) -> Columns:
    columns = Columns()
    for at, (heading, justify) in enumerate(table.headings):
        columns.add(heading, [Text(one_line(row[at])) for row in table.rows], justify=justify)
    return columns


def _names(names: tuple[str, ...], width: int) -> Text:
    return Text("\n".join(line for name in names for line in _broken(one_line(name), width)), overflow="fold")


def _broken(name: str, width: int) -> list[str]:
    """Break a name into lines of ``width``, behind a comma or dot where there is one: not inside a layer's number."""
    lines = []
    while len(name) > width:
        at = max(name.rfind(mark, 0, width) for mark in ",.") + 1 or width
        lines.append(name[:at])
        name = name[at:]
    return [*lines, name]
