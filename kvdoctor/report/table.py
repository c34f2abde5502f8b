"""The report for a terminal.

Everything that holds a number keeps it whole: a table that is wider than the terminal overflows, and only layer names fold.
"""

from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from kvdoctor.diagnosis import Diagnosis, verdict_line
from kvdoctor.report.page import HEAD_LINE, SEVERITY_STYLES, VERDICT_STYLES, Page
from kvdoctor.report.sections import FIGURES, GroupRow, group_rows, group_title, model_name, sections
from kvdoctor.report.untrusted import one_line, visible

_NAMES_WIDTH = 40
_GAP = 2


def render_table(diagnosis: Diagnosis, *, width: int, color: bool) -> str:
    """Render the report ``width`` columns wide where its numbers allow it."""
    page = Page(width=width, color=color)
    page.title(one_line(model_name(diagnosis)))
    if diagnosis.refusal is not None:
        page.heading(f"vLLM refuses at {one_line(diagnosis.refusal.stage)}")
        page.put(Text(f"{visible(diagnosis.refusal.exception)}: {visible(diagnosis.refusal.message)}", style="red"), indent=2)
    if rows := group_rows(diagnosis):
        page.heading(group_title(diagnosis))
        _put_groups(page, rows)
    for section in sections(diagnosis):
        page.heading(section.title)
        page.pairs([(label, one_line(value)) for label, value in section.rows])
    if diagnosis.findings:
        page.heading("Findings")
        for finding in diagnosis.findings:
            page.put(
                Text.assemble(
                    (finding.severity, SEVERITY_STYLES[finding.severity]),
                    f" {finding.rule} ",
                    (finding.name, "bold"),
                    f": {one_line(finding.message)}",
                ),
                indent=2,
            )
            page.put(Text(f"{one_line(finding.remediation)}."), indent=4)
            page.put(Text(finding.url, style="dim"), indent=4)
    page.blank()
    page.put(Text(one_line(verdict_line(diagnosis)), style=VERDICT_STYLES[diagnosis.verdict]))
    return page.text()


def _put_groups(page: Page, rows: tuple[GroupRow, ...]) -> None:
    """Put the layer names beside the figures where there is room, under them where there is none."""
    room = page.width - page.measure(_group_table(rows)).maximum - _GAP
    if room >= _NAMES_WIDTH:
        page.put_whole(_group_table(rows, names_width=room))
        return
    page.put_whole(_group_table(rows))
    page.blank()
    names = Table.grid(Column(justify="right", no_wrap=True), Column(max_width=max(page.width - 6, 20)), padding=(0, 2, 0, 0))
    for row in rows:
        names.add_row(Text(row.index), _names(row))
    page.put_whole(names, indent=2)


def _group_table(rows: tuple[GroupRow, ...], *, names_width: int | None = None) -> Table:
    table = Table(box=HEAD_LINE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style=Style(dim=True))
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    for figure in FIGURES:
        table.add_column(figure, justify="right", no_wrap=True)
    if names_width is not None:
        table.add_column("layer names", overflow="fold", max_width=names_width)
    for row in rows:
        cells = [Text(row.index), Text(one_line(row.kind)), *map(Text, row.figures)]
        table.add_row(*cells, *([] if names_width is None else [_names(row)]))
    return table


def _names(row: GroupRow) -> Text:
    return Text("\n".join(one_line(name) for name in row.names), overflow="fold")
