"""A boot's log beside its plan, for a terminal and as Markdown. Strings in here are untrusted: each is made safe where it is shown."""

import shlex

from rich.text import Text

from kvdoctor.report.page import Columns, Page
from kvdoctor.report.untrusted import markdown_block, markdown_code, markdown_text, one_line
from kvdoctor.rules.numbers import gib
from kvdoctor.verify import Compared, Verification
from kvdoctor.vllm_text.figures import Value

_STATUS = {"same": "same", "not_same": "NOT the same", "not_comparable": "not comparable"}
_STYLES = {"same": "green", "not_same": "bold red", "not_comparable": "yellow"}
_VERDICT_STYLES = {"agrees": "bold green", "differs": "bold red", "unassessed": "bold yellow"}
_HEADINGS = ("figure", "the log", "the plan", "", "why")
_ABSENT = "-"


def render_table(verification: Verification, *, width: int, color: bool) -> str:
    """Render a row for each figure, ``width`` columns wide where the numbers allow it."""
    page = Page(width=width, color=color)
    page.title(one_line(_title(verification)))
    page.pairs([(label, one_line(text)) for label, text in _pairs(verification)])
    for heading, text in _refusals(verification):
        page.heading(heading)
        page.put(Text(one_line(text), style="red"), indent=2)
    page.blank()
    columns = Columns()
    rows = [(_cells(figure), _STYLES[figure.status]) for figure in verification.figures]
    for at, heading in enumerate(_HEADINGS):
        justify = "right" if at in (1, 2) else "left"
        cells = [Text(one_line(cells[at]), style=style if at == 3 else "") for cells, style in rows]  # noqa: PLR2004 - the status
        columns.add(heading, cells, justify="right" if justify == "right" else "left", fold=at == len(_HEADINGS) - 1)
    if rows:
        page.put_columns(columns)
        page.blank()
    for note in verification.notes:
        page.put(Text(f"note: {one_line(note)}"))
    page.put(Text(one_line(verification.summary), style=_VERDICT_STYLES[verification.verdict]))
    return page.text()


def render_markdown(verification: Verification) -> str:
    """Render it as GitHub's Markdown: what to paste into a report when the plan is wrong."""
    parts = [f"## kvdoctor verify: {markdown_code(_title(verification))}", f"**{markdown_text(verification.summary)}**"]
    parts.append("\n".join(f"- {label}: {markdown_text(text)}" for label, text in _pairs(verification)))
    for heading, text in _refusals(verification):
        parts += [f"### {heading}", markdown_block(text)]
    lines = ["| " + " | ".join(_HEADINGS) + " |", "|:---|---:|---:|:---|:---|"]
    lines += ["| " + " | ".join(map(markdown_text, _cells(figure))) + " |" for figure in verification.figures]
    parts.append("\n".join(lines))
    parts += [markdown_text(f"note: {note}") for note in verification.notes]
    return "\n\n".join(parts) + "\n"


def _title(verification: Verification) -> str:
    return f"{verification.log.name}: {verification.log.model or verification.plan.model}"


def _pairs(verification: Verification) -> list[tuple[str, str]]:
    log, plan = verification.log, verification.plan
    used = "" if plan.kv_cache_bytes is None else f"; planned with {gib(plan.kv_cache_bytes)} ({plan.kv_cache_bytes:,} bytes)"
    return [
        ("log", f"vLLM {log.vllm_version or 'of an unknown version'}"),
        ("plan", f"vLLM {plan.vllm_version} ({plan.source}); {plan.gpu}; {shlex.join((plan.model, *plan.vllm_args))}"),
        ("budget", f"{plan.budget}{used}; {plan.plans} plan{'' if plan.plans == 1 else 's'}"),
    ]


def _refusals(verification: Verification) -> list[tuple[str, str]]:
    both = (("The log's refusal", verification.log_refusal), ("The plan's refusal", verification.plan_refusal))
    return [(heading, text) for heading, text in both if text]


def _cells(figure: Compared) -> tuple[str, ...]:
    # A refusal's words stand above the table.
    log, ours = (_text(values, words=figure.key == "refusal") for values in (figure.log, figure.ours))
    return figure.label, log, ours, _STATUS[figure.status], figure.why or ""


def _text(values: tuple[Value, ...] | None, *, words: bool) -> str:
    if not values:
        return _ABSENT
    return ", ".join(str(value).partition(":")[0] if words else _number(value) for value in values)


def _number(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else value
