"""A sweep for a terminal."""

from rich.text import Text

from kvdoctor.report.page import VERDICT_STYLES, Columns, Page
from kvdoctor.report.sweep_sections import FIGURES, closing_line, figures, reason_number, reasons, text_cells, text_columns, title
from kvdoctor.report.untrusted import one_line
from kvdoctor.sweep import Sweep, SweepRow


def render_sweep_table(sweep: Sweep, *, width: int, color: bool) -> str:
    """Render a row for each launch, ``width`` columns wide where the numbers allow it."""
    page = Page(width=width, color=color)
    page.title(one_line(title(sweep)))
    page.blank()
    table = Columns()
    table.add("", [Text("*" if row.best else "", style="bold green") for row in sweep.rows])
    *names, verdict = text_columns(sweep)
    for at, name in enumerate(names):
        table.add(one_line(name), [Text(one_line(text_cells(sweep, row)[at]), style=_style(row)) for row in sweep.rows], fold=True)
    table.add(verdict, [Text(row.verdict, style=VERDICT_STYLES[row.verdict]) for row in sweep.rows])
    for at, name in enumerate(FIGURES):
        table.add(name, [Text(figures(row)[at], style=_style(row)) for row in sweep.rows], justify="right")
    numbers = reasons(sweep)
    if numbers:
        table.add("reason", [Text(reason_number(row, numbers)) for row in sweep.rows], justify="right")
    page.put_columns(table)
    page.blank()
    for why, number in numbers.items():
        page.put(Text(f"({number}) {one_line(why)}"))
    page.put(Text(closing_line(sweep)))
    return page.text()


def _style(row: SweepRow) -> str:
    return "bold" if row.best else ""
