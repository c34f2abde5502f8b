"""The report for a terminal.

Everything that holds a number keeps it whole: only layer names break.
"""

from rich.table import Column, Table
from rich.text import Text

from kvdoctor.diagnosis import Diagnosis, verdict_line
from kvdoctor.report.page import SEVERITY_STYLES, VERDICT_STYLES, Columns, Page
from kvdoctor.report.sections import FIGURES, GroupRow, group_rows, group_title, how_it_ended, model_name, sections
from kvdoctor.report.suggestions import suggestion_lines
from kvdoctor.report.untrusted import one_line, visible

_NAMES_WIDTH = 40
_GAP = 2


def render_table(diagnosis: Diagnosis, *, width: int, color: bool) -> str:
    """Render the report ``width`` columns wide where its numbers allow it."""
    page = Page(width=width, color=color)
    page.title(one_line(model_name(diagnosis)))
    if diagnosis.refusal is not None:
        page.heading(f"{how_it_ended(diagnosis.refusal)} at {one_line(diagnosis.refusal.stage)}")
        page.put(Text(f"{visible(diagnosis.refusal.exception)}: {visible(diagnosis.refusal.message)}", style="red"), indent=2)
    if rows := group_rows(diagnosis):
        page.heading(group_title(diagnosis))
        _put_groups(page, rows)
    for section in sections(diagnosis, in_full=False):
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
            for line in suggestion_lines(finding):
                page.put(Text(one_line(line)), indent=4)
            page.put(Text(finding.url, style="dim"), indent=4)
    page.blank()
    page.put(Text(one_line(verdict_line(diagnosis)), style=VERDICT_STYLES[diagnosis.verdict]))
    return page.text()


def _put_groups(page: Page, rows: tuple[GroupRow, ...]) -> None:
    """Put the layer names beside the figures where there is room, under them where there is none."""
    room = page.width - page.measure(_group_columns(rows).table()).maximum - _GAP
    if room >= _NAMES_WIDTH:
        columns = _group_columns(rows)
        columns.add_names("layer names", [_names(row, room) for row in rows], width=room)
        page.put_whole(columns.table())
        return
    page.put_columns(_group_columns(rows))
    page.blank()
    width = max(page.width - 6, 20)
    names = Table.grid(Column(justify="right", no_wrap=True), Column(max_width=width), padding=(0, 2, 0, 0))
    for row in rows:
        names.add_row(Text(row.index), _names(row, width))
    page.put_whole(names, indent=2)


def _group_columns(rows: tuple[GroupRow, ...]) -> Columns:
    columns = Columns()
    columns.add("#", [Text(row.index) for row in rows], justify="right")
    columns.add("kind", [Text(one_line(row.kind)) for row in rows])
    for at, figure in enumerate(FIGURES):
        columns.add(figure, [Text(row.figures[at]) for row in rows], justify="right")
    return columns


def _names(row: GroupRow, width: int) -> Text:
    return Text("\n".join(line for name in row.names for line in _broken(one_line(name), width)), overflow="fold")


def _broken(name: str, width: int) -> list[str]:
    """Break a name into lines of ``width``, behind a comma or dot where there is one: not inside a layer's number."""
    lines = []
    while len(name) > width:
        at = max(name.rfind(mark, 0, width) for mark in ",.") + 1 or width
        lines.append(name[:at])
        name = name[at:]
    return [*lines, name]
