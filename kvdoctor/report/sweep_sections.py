"""What the readable formats of a sweep show, as rows of text. Strings in here may be untrusted; the renderers escape them."""

import shlex

from kvdoctor.rules.numbers import counted, grouped, percent
from kvdoctor.sweep import Sweep, SweepRow

FIGURES = ("block", "hash", "waste", "tokens", "concurrency")
ABSENT = "-"


def text_columns(sweep: Sweep) -> tuple[str, ...]:
    """Name the columns before the figures: the model where there are several, what varies, the verdict."""
    model = ("model",) if len(sweep.models) > 1 else ()
    return (*model, *sweep.varied, "verdict")


def text_cells(sweep: Sweep, row: SweepRow) -> tuple[str, ...]:
    """Fill the columns before the figures."""
    model = (row.model,) if len(sweep.models) > 1 else ()
    return (*model, *(row.values[name] for name in sweep.varied), row.verdict)


def figures(row: SweepRow) -> tuple[str, ...]:
    """Fill the columns of ``FIGURES``."""
    return (
        _count(row.block_size),
        _count(row.hash_block_size),
        ABSENT if row.wasted_percent is None else percent(row.wasted_percent),
        _count(row.kv_cache_tokens),
        ABSENT if row.max_concurrency is None else f"{row.max_concurrency:,.2f}",
    )


def reasons(sweep: Sweep) -> dict[str, int]:
    """Number the reasons why launches have no figures, each once: a grid refuses for the same reason many times."""
    told = dict.fromkeys(row.summary for row in sweep.rows if _failed(row))
    return {summary: number for number, summary in enumerate(told, start=1)}


def reason_number(row: SweepRow, numbers: dict[str, int]) -> str:
    """Refer to a row's reason; nothing where it has figures."""
    return f"({numbers[row.summary]})" if _failed(row) else ""


def _failed(row: SweepRow) -> bool:
    return row.verdict in ("refused", "failed", "unassessed")


def title(sweep: Sweep) -> str:
    """Say what is swept."""
    return " ".join([", ".join(sweep.models), *([f"-- {shlex.join(sweep.vllm_args)}"] if sweep.vllm_args else [])])


def closing_line(sweep: Sweep) -> str:
    """Count the launches, and say which is best."""
    launches = sum(row.verdict in ("ok", "warning") for row in sweep.rows)
    counts = f"{launches} of {counted(len(sweep.rows), 'row')} launch" + ("es" if launches == 1 else "")
    if len(sweep.rows) < sweep.planned:
        counts += f" (stopped: {grouped(sweep.planned - len(sweep.rows))} of {grouped(sweep.planned)} not planned)"
    marked = sum(row.best for row in sweep.rows)
    if not marked:
        return counts
    meaning = {"waste": "least waste", "block": "smallest block"}.get(sweep.best_by, f"most {sweep.best_by}")
    return f"{counts}; * {meaning}{' of each model' if len(sweep.models) > 1 else ''}"


def _count(value: int | None) -> str:
    return ABSENT if value is None else grouped(value)
