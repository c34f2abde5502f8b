"""A comparison for a terminal."""

from rich.style import Style
from rich.table import Table
from rich.text import Text

from kvdoctor.compare.interface import Comparison, FindingChange
from kvdoctor.compare.many import ManyComparison, short
from kvdoctor.report.compare_sections import (
    change_rows,
    finding_note,
    layer_lines,
    reason_line,
    regression_line,
    side_rows,
    title,
    unchanged_line,
)
from kvdoctor.report.page import HEAD_LINE, SEVERITY_STYLES, VERDICT_STYLES, Page
from kvdoctor.report.untrusted import one_line, visible

_BAD = "bold red"
_COLUMNS = ("before", "after", "difference")


def render_comparison_table(comparison: Comparison, *, width: int, color: bool) -> str:
    """Render the comparison ``width`` columns wide where its numbers allow it."""
    page = Page(width=width, color=color)
    _put_comparison(page, comparison)
    return page.text()


def render_many_table(many: ManyComparison, *, width: int, color: bool) -> str:
    """Render a line for each model, then the details of those that changed."""
    page = Page(width=width, color=color)
    page.title(one_line(f"{many.before} -> {many.after}"))
    page.blank()
    table = _table()
    for heading in ("model", "before", "after"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what changed", overflow="fold")
    for model in many.models:
        made = model.comparison
        if made is None:
            table.add_row(
                Text(one_line(model.name)), Text("-"), Text("-"), Text(f"not assessed: {one_line(model.failure or '')}", style=_BAD)
            )
        else:
            sides = [Text(side.verdict, style=VERDICT_STYLES[side.verdict]) for side in (made.before, made.after)]
            table.add_row(Text(one_line(model.name)), *sides, Text(one_line(short(made)), style="dim" if made.same else ""))
    page.put(table)
    for model in many.models:
        if model.comparison is not None and not model.comparison.same:
            page.blank()
            page.heading("-" * 20)
            _put_comparison(page, model.comparison)
    return page.text()


def _put_comparison(page: Page, comparison: Comparison) -> None:
    page.title(one_line(title(comparison)))
    page.pairs([(label, one_line(text)) for label, text in side_rows(comparison)])
    for name, side in (("Before", comparison.before), ("After", comparison.after)):
        if side.refusal is not None:
            page.heading(f"{name}: vLLM refuses at {one_line(side.refusal.stage)}")
            page.put(Text(f"{visible(side.refusal.exception)}: {visible(side.refusal.message)}", style="red"), indent=2)
    page.blank()
    _put_changes(page, comparison)
    for line in layer_lines(comparison):
        page.put(Text(one_line(line), overflow="fold"), indent=2)
    if line := unchanged_line(comparison):
        page.put(Text(line, style="dim"))
    if comparison.reasons:
        page.heading("What vLLM's log and the arguments say")
        for reason in comparison.reasons:
            page.put(Text(one_line(reason_line(reason))), indent=2)
    if comparison.findings:
        page.heading("Findings")
        for made in comparison.findings:
            _put_finding(page, made)
    _put_judgement(page, comparison)


def _put_changes(page: Page, comparison: Comparison) -> None:
    rows = change_rows(comparison)
    if not rows:
        return
    table = _table()
    table.add_column("what changed", no_wrap=True)
    for heading in _COLUMNS:
        table.add_column(heading, justify="right", no_wrap=heading == "difference")
    for row in rows:
        label = Text("  " * row.depth + one_line(row.label), style="bold blue" if row.depth == 0 else "")
        table.add_row(label, *(Text(one_line(cell)) for cell in (row.before, row.after, row.difference)))
    page.put(table)


def _put_finding(page: Page, made: FindingChange) -> None:
    finding = made.finding
    went = made.event == "went"
    page.put(
        Text.assemble(
            f"{made.event} ",
            (finding.severity, "dim" if went else SEVERITY_STYLES[finding.severity]),
            f" {finding.rule} ",
            (finding.name, "bold"),
            f": {one_line(finding.message + finding_note(made))}",
        ),
        indent=2,
    )
    if made.event == "appeared":
        page.put(Text(f"{one_line(finding.remediation)}."), indent=4)
        page.put(Text(finding.url, style="dim"), indent=4)


def _put_judgement(page: Page, comparison: Comparison) -> None:
    if comparison.regressions:
        page.heading("Limits passed")
        for regression in comparison.regressions:
            page.put(Text(regression_line(regression), style=_BAD), indent=2)
    if comparison.unchecked_limits:
        page.heading("Limits not checked")
        for text in comparison.unchecked_limits:
            page.put(Text(text), indent=2)
    page.blank()
    worse = comparison.new_errors or comparison.regressions
    page.put(Text(one_line(comparison.verdict), style=_BAD if worse else VERDICT_STYLES[comparison.after.verdict]))


def _table() -> Table:
    return Table(box=HEAD_LINE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style=Style(dim=True))
