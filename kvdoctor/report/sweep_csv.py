"""A sweep as CSV: whole numbers without separators, nothing where a figure is not known."""

import csv
import io

from kvdoctor.report.untrusted import one_line
from kvdoctor.sweep import Sweep

_FIGURES = ("verdict", "block_size", "hash_block_size", "wasted_percent", "kv_cache_tokens", "max_concurrency", "best", "summary")


def render_sweep_csv(sweep: Sweep) -> str:
    """Render a line for each launch under a line of names, which are those of the JSON."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_cell(name) for name in ("model", *sweep.varied, *_FIGURES)])
    for row in sweep.rows:
        figures = (getattr(row, name) for name in _FIGURES)
        writer.writerow([_cell(value) for value in (row.model, *(row.values[name] for name in sweep.varied), *figures)])
    return file.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return one_line(value) if isinstance(value, str) else value
