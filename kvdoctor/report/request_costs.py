"""What a request costs at several lengths: which groups grow with it, and which take the same whatever its length."""

from itertools import groupby

from kvdoctor.diagnosis import Diagnosis
from kvdoctor.report.document import Justify, Table
from kvdoctor.rules.numbers import gib, grouped


def request_costs(diagnosis: Diagnosis) -> Table | None:
    """Show the blocks of a request by group and length, and the bytes of them all; nothing where they were not counted."""
    layout = diagnosis.layout
    counted = [at for at in layout.requests_at if len(at.group_blocks) == len(layout.groups)]
    if not counted or layout.bytes_per_block is None:
        return None
    headings: list[tuple[str, Justify]] = [
        ("blocks of a request of", "left"),
        *((f"{grouped(at.tokens)} tokens", "right") for at in counted),
    ]
    rows = []
    for _, alike in groupby(layout.groups, key=lambda group: (group.kind, *(at.group_blocks[group.index] for at in counted))):
        run = list(alike)
        indices = str(run[0].index) if len(run) == 1 else f"{run[0].index}-{run[-1].index}, each"
        cells = [grouped(at.group_blocks[run[0].index]) for at in counted]
        rows.append((f"{run[0].kind} {indices}", *cells))
    rows.append(("all groups", *(gib(sum(at.group_blocks) * layout.bytes_per_block) for at in counted)))
    return Table(title="What a request costs", headings=tuple(headings), rows=tuple(rows))
