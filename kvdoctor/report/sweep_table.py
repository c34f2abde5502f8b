"""A sweep for a terminal."""

from rich.style import Style
from rich.table import Table
from rich.text import Text

from kvdoctor.report.page import HEAD_LINE, VERDICT_STYLES, Page
from kvdoctor.report.sweep_sections import FIGURES, closing_line, figures, reason_number, reasons, text_cells, text_columns, title
from kvdoctor.report.untrusted import one_line
from kvdoctor.sweep import Sweep


def render_sweep_table(sweep: Sweep, *, width: int, color: bool) -> str:
    """Render a row for each launch, ``width`` columns wide where the numbers allow it."""
    page = Page(width=width, color=color)
    page.title(one_line(title(sweep)))
    page.blank()
    table = Table(box=HEAD_LINE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style=Style(dim=True))
    table.add_column("", no_wrap=True)
    for name in text_columns(sweep):
        table.add_column(Text(one_line(name)), no_wrap=name == "verdict")
    for name in FIGURES:
        table.add_column(name, justify="right", no_wrap=True)
    numbers = reasons(sweep)
    if numbers:
        table.add_column("reason", justify="right", no_wrap=True)
    for row in sweep.rows:
        *texts, verdict = text_cells(sweep, row)
        cells = [Text("*" if row.best else "", style="bold green"), *(Text(one_line(text)) for text in texts)]
        cells += [Text(verdict, style=VERDICT_STYLES[row.verdict]), *map(Text, figures(row))]
        table.add_row(*cells, *([Text(reason_number(row, numbers))] if numbers else []), style="bold" if row.best else None)
    page.put(table)
    page.blank()
    for why, number in numbers.items():
        page.put(Text(f"({number}) {one_line(why)}"))
    page.put(Text(closing_line(sweep)))
    return page.text()
