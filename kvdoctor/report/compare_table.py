"""A comparison for a terminal."""

from rich.text import Text

from kvdoctor.compare.interface import Comparison, FindingChange, Side
from kvdoctor.compare.many import ManyComparison, ModelComparison, short
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
from kvdoctor.report.of_diagnosis import how_it_ended
from kvdoctor.report.page import SEVERITY_STYLES, VERDICT_STYLES, Columns, Page
from kvdoctor.report.untrusted import one_line, visible

_BAD = "bold red"


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
    table = Columns()
    table.add("model", [Text(one_line(model.name)) for model in many.models])
    made = [model.comparison for model in many.models]
    table.add("before", [Text("-") if comparison is None else _verdict(comparison.before) for comparison in made])
    table.add("after", [Text("-") if comparison is None else _verdict(comparison.after) for comparison in made])
    table.add("what changed", [_what_changed(model) for model in many.models], fold=True)
    page.put_columns(table)
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
            page.heading(f"{name}: {how_it_ended(side.refusal)} at {one_line(side.refusal.stage)}")
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
    table = Columns()
    labels = [("  " * row.depth + one_line(row.label), "bold blue" if row.depth == 0 else "") for row in rows]
    table.add("what changed", [Text(text, style=style) for text, style in labels])
    table.add("before", [Text(one_line(row.before)) for row in rows], justify="right", fold=True)
    table.add("after", [Text(one_line(row.after)) for row in rows], justify="right", fold=True)
    table.add("difference", [Text(one_line(row.difference)) for row in rows], justify="right")
    page.put_columns(table)


def _put_finding(page: Page, made: FindingChange) -> None:
    finding = made.finding
    went = made.event == "went"
    page.put(
        Text.assemble(
            f"{made.event} ",
            (finding.severity, "dim" if went else SEVERITY_STYLES[finding.severity]),
            f" {one_line(finding.rule)} ",
            (one_line(finding.name), "bold"),
            f": {one_line(finding.message + finding_note(made))}",
        ),
        indent=2,
    )
    if made.event == "appeared":
        page.put(Text(f"{one_line(finding.remediation)}."), indent=4)
        page.put(Text(one_line(finding.url), style="dim"), indent=4)


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


def _verdict(side: Side) -> Text:
    return Text(side.verdict, style=VERDICT_STYLES[side.verdict])


def _what_changed(model: ModelComparison) -> Text:
    if model.comparison is None:
        return Text(f"not assessed: {one_line(model.failure or '')}", style=_BAD)
    return Text(one_line(short(model.comparison)), style="dim" if model.comparison.same else "")
