"""A sweep as Markdown."""

from kvdoctor.report.sweep_sections import FIGURES, closing_line, figures, reason_number, reasons, text_cells, text_columns, title
from kvdoctor.report.untrusted import markdown_code, markdown_text
from kvdoctor.sweep import Sweep


def render_sweep_markdown(sweep: Sweep) -> str:
    """Render a row for each launch as a table of GitHub's Markdown."""
    names = text_columns(sweep)
    lines = [_row(("", *map(markdown_text, names), *FIGURES, "reason"))]
    lines.append("|:---|" + ":---|" * len(names) + "---:|" * len(FIGURES) + ":---|")
    numbers = reasons(sweep)
    for row in sweep.rows:
        cells = (r"\*" if row.best else "", *map(markdown_text, (*text_cells(sweep, row), *figures(row), reason_number(row, numbers))))
        lines.append(_row(cells))
    parts = [f"## kvdoctor sweep: {markdown_code(title(sweep))}", "\n".join(lines)]
    parts += [f"({number}) {markdown_text(why)}" for why, number in numbers.items()]
    return "\n\n".join([*parts, markdown_text(closing_line(sweep))]) + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
