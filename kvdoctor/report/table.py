"""The report for a terminal.

Everything that holds a number keeps it whole: a table that is wider than the terminal overflows, and only layer names fold.
"""

import io

from rich.box import Box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from kvdoctor.diagnosis import Diagnosis, verdict_line
from kvdoctor.report.sections import FIGURES, GroupRow, group_rows, group_title, model_name, sections
from kvdoctor.report.untrusted import one_line, visible

# A line under the header and nothing else, in ASCII: it survives any encoding, and a copy into a ticket.
_HEAD_LINE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_NAMES_WIDTH = 40
_GAP = 2
_NO_LIMIT = 1_000_000
_SEVERITY = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_VERDICT = {"ok": "bold green", "warning": "bold yellow", "refused": "bold red", "unassessed": "bold yellow"}


def render_table(diagnosis: Diagnosis, *, width: int, color: bool) -> str:
    """Render the report ``width`` columns wide where its numbers allow it."""
    page = _Page(width=width, color=color)
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
                    (finding.severity, _SEVERITY[finding.severity]),
                    f" {finding.rule} ",
                    (finding.name, "bold"),
                    f": {one_line(finding.message)}",
                ),
                indent=2,
            )
            page.put(Text(f"{one_line(finding.remediation)}."), indent=4)
            page.put(Text(finding.url, style="dim"), indent=4)
    page.blank()
    page.put(Text(one_line(verdict_line(diagnosis)), style=_VERDICT[diagnosis.verdict]))
    return page.text()


class _Page:
    """Collects rendered parts, each as wide as the page or as its longest word, whichever is more."""

    def __init__(self, *, width: int, color: bool) -> None:
        self.width = max(width, 1)
        self._file = io.StringIO()
        # The caller has asked the environment (COLUMNS, NO_COLOR, TERM); with all of it given, the text is the same everywhere.
        self._console = Console(
            file=self._file,
            width=self.width,
            height=100,
            no_color=not color,
            color_system="standard" if color else None,
            force_terminal=color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            force_jupyter=False,
        )
        self._empty = True

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._file.getvalue().split("\n"))

    def put(self, part: RenderableType, *, indent: int = 0) -> None:
        """Print a part as wide as the page, or as its longest word where that is more."""
        self._print(part, self.measure(part).minimum, indent)

    def put_whole(self, part: RenderableType, *, indent: int = 0) -> None:
        """Print a part in its full width, however narrow the page."""
        self._print(part, self.measure(part).maximum, indent)

    def measure(self, part: RenderableType) -> Measurement:
        return Measurement.get(self._console, self._console.options.update(max_width=_NO_LIMIT), part)

    def _print(self, part: RenderableType, minimum: int, indent: int) -> None:
        self._console.width = max(self.width, minimum + indent)
        self._console.print(Padding(part, (0, 0, 0, indent)))
        self._empty = False

    def blank(self) -> None:
        if not self._empty:
            self._file.write("\n")

    def title(self, text: str) -> None:
        self.put(Text(text, style="bold"))

    def heading(self, text: str) -> None:
        self.blank()
        self.put(Text(text, style="bold blue"))

    def pairs(self, rows: list[tuple[str, str]]) -> None:
        label_width = max(len(label) for label, _ in rows)
        grid = Table.grid(Column(no_wrap=True, min_width=label_width, style="dim"), Column(), padding=(0, 2, 0, 0), pad_edge=False)
        for label, value in rows:
            grid.add_row(Text(label), Text(value))
        self.put(grid, indent=2)


def _put_groups(page: _Page, rows: tuple[GroupRow, ...]) -> None:
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
    table = Table(box=_HEAD_LINE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style=Style(dim=True))
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
