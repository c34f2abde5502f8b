"""How the block sizes came about: what a block of each group holds, how the groups' blocks make the others, and what vLLM logged of it."""

import math
import re
from itertools import groupby

from kvdoctor.diagnosis import Diagnosis
from kvdoctor.layout import GroupLayout
from kvdoctor.report.document import Pairs
from kvdoctor.rules.numbers import counted, grouped, percent

# vLLM's log lines that say what it did to blocks and pages, over the releases.
_SAID = re.compile(r"block size|page size|padding layers|Padding|page alignment", re.IGNORECASE)
_PLAIN = re.compile(r"kv cache group sizes|kv lcm block sizes")  # repeats what the groups show


def block_story(diagnosis: Diagnosis) -> Pairs | None:
    """Tell it; nothing where no groups were settled."""
    groups = diagnosis.layout.groups
    if not groups:
        return None
    rows = []
    for _, alike in groupby(groups, key=lambda group: (group.kind, group.block_size, group.page_bytes, group.used_bytes)):
        run = list(alike)
        indices = str(run[0].index) if len(run) == 1 else f"{run[0].index}-{run[-1].index}"
        rows.append((f"{'group' if len(run) == 1 else 'groups'} {indices}", _group(run[0])))
    rows += _common(diagnosis, [group.block_size for group in groups if group.prefix_cacheable] or [group.block_size for group in groups])
    said = dict.fromkeys(
        record.message for record in diagnosis.vllm_log if _SAID.search(record.message) and not _PLAIN.search(record.message)
    )
    rows += [("vLLM says" if number == 0 else "", message) for number, message in enumerate(said)]
    return Pairs(title="How the block sizes came about", rows=tuple(rows))


def _group(group: GroupLayout) -> str:
    kind, block = group.kind.replace("_", " "), counted(group.block_size, "token")
    if group.kind == "mamba":
        told = f"a state of {grouped(group.used_bytes)} bytes in a page of {grouped(group.page_bytes)}"
    elif group.block_size and group.used_bytes % group.block_size == 0:
        told = f"{grouped(group.used_bytes // group.block_size)} bytes a token make a page of {grouped(group.page_bytes)}"
    else:
        told = f"{grouped(group.used_bytes)} bytes in a page of {grouped(group.page_bytes)}"
    padding = f", {percent(group.wasted_percent)} of it padding" if group.wasted_bytes else ""
    return f"{kind}: {block}; {told}{padding}"


def _common(diagnosis: Diagnosis, blocks: list[int]) -> list[tuple[str, str]]:
    layout, rows = diagnosis.layout, []
    every = [group.block_size for group in layout.groups]
    if layout.scheduler_block_size is not None:
        why = ", the least common multiple of the groups' blocks" if layout.scheduler_block_size == math.lcm(*every) else ""
        rows.append(("scheduler block", counted(layout.scheduler_block_size, "token") + why))
    if layout.hash_block_size is not None:
        why = ", their greatest common divisor" if layout.hash_block_size == math.gcd(*blocks) else ""
        rows.append(("hash block", counted(layout.hash_block_size, "token") + why))
    return rows
