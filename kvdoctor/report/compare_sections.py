"""What the readable formats of a comparison show, in order, as rows of text.

Strings in here may be untrusted; the renderers escape them.
"""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from kvdoctor.compare.interface import Change, Comparison, FindingChange, GroupChange, Reason, Regression, Side, Unit, Value
from kvdoctor.layer_names import fold_names
from kvdoctor.rules.numbers import GIB, counted, gib, grouped, percent

ABSENT = "-"


@dataclass(frozen=True, kw_only=True)
class ChangeRow:
    """A row of the table of changes. A heading has no values; ``depth`` says under how many headings a row stands."""

    label: str
    depth: int
    before: str = ""
    after: str = ""
    difference: str = ""


def title(comparison: Comparison) -> str:
    """Name the model, or both."""
    return " -> ".join(dict.fromkeys(map(_model, (comparison.before, comparison.after))))


def side_rows(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """Say what each side is, and what both are."""
    before, after = _facts(comparison.before), _facts(comparison.after)
    shared = _shared_words(comparison.before.vllm_args, comparison.after.vllm_args)
    for facts, side in ((before, comparison.before), (after, comparison.after)):
        facts["arguments"] = shlex.join(side.vllm_args[shared:])
    own = {key: [facts[key] for facts in (before, after)] for key in before if before[key] != after[key]}
    both = [text for key, text in before.items() if key not in own and text and key not in ("model", "start", *_BACKGROUND)]
    rows = [
        (side, "; ".join(texts[at] or f"no {'more ' if key == 'arguments' and shared else ''}{key}" for key, texts in own.items()))
        for at, side in enumerate(("before", "after"))
    ]
    both += [shlex.join(comparison.before.vllm_args[:shared])] if shared else []
    return tuple((label, text) for label, text in (*rows, ("both", "; ".join(both))) if text)


def change_rows(comparison: Comparison) -> tuple[ChangeRow, ...]:
    """Give the table of what changed, section by section."""
    rows: list[ChangeRow] = []
    sections: dict[str, list[Change]] = {}
    for made in comparison.changes:
        sections.setdefault(made.section, []).append(made)
    groups = _group_rows(comparison)
    for name, changes in sections.items():
        if name != "Block sizes" and groups:
            rows, groups = rows + groups, []
        rows.append(ChangeRow(label=name, depth=0))
        rows += [_row(made, depth=1) for made in changes]
    return (*rows, *groups)


def layer_lines(comparison: Comparison) -> tuple[str, ...]:
    """Name the layers of matched groups that one side alone has; these do not fit into a table."""
    return tuple(
        f"{_which(made)} {made.kind}: layers only {side}: {' '.join(fold_names(layers))}"
        for made in comparison.groups.changes
        for side, layers in (("before", made.layers_gone), ("after", made.layers_new))
        if layers
    )


def unchanged_line(comparison: Comparison) -> str:
    """Count what is not in the table."""
    same = [counted(comparison.unchanged, "figure")] if comparison.unchanged else []
    if comparison.groups.unchanged:
        noun = "group" if comparison.groups.basis == "groups" else "layer spec"
        same.append(counted(comparison.groups.unchanged, noun))
    return f"The same on both sides: {' and '.join(same)}" if same else ""


def reason_line(reason: Reason) -> str:
    """Quote vLLM, or tell what the arguments show."""
    return reason.text if reason.source == "arguments" else f'{reason.side}: vLLM says "{reason.text}"'


def regression_line(regression: Regression) -> str:
    """Say which limit was passed, and by how much."""
    if regression.figure == "waste":
        found = f"{percent(regression.before)} -> {percent(regression.after)}, {regression.found:.1f} points more"
    else:
        word = "lost" if regression.figure == "tokens" else "more"
        found = f"{regression.before:,} -> {regression.after:,}, {percent(regression.found)} {word}"
    return f"{regression.limit} {regression.allowed:g}: {regression.figure} {found}"


def finding_note(made: FindingChange) -> str:
    """Say what the finding's message was before, or why the rule could not look on the other side."""
    if made.skipped is not None:
        return f" ({'before' if made.event == 'appeared' else 'after'}: not checked, {made.skipped})"
    return "" if made.message_before is None else f" (before: {made.message_before})"


# Which torch is beside vLLM matters only where it is another one.
_BACKGROUND = ("torch", "transformers", "vLLM's libraries")


def _facts(side: Side) -> dict[str, str]:
    environment = " ".join(f"{name}={shlex.quote(value)}" for name, value in side.environment.items())
    return {
        "model": _model(side),
        "vLLM": f"vLLM {side.vllm_version} ({side.source})",
        "GPU": side.gpu,
        "torch": f"torch {side.torch_version}",
        "transformers": f"transformers {side.transformers_version}",
        "vLLM's libraries": f"vLLM's compiled libraries: {side.libraries}",
        "start": "vllm serve" if side.usage == "serve" else "LLM()",
        "given budget": "" if side.kv_cache_memory_bytes is None else f"KV cache of {gib(side.kv_cache_memory_bytes)}",
        "environment": environment,
    }


def _shared_words(before: tuple[str, ...], after: tuple[str, ...]) -> int:
    """Count the words that both begin with, without parting an option from its values."""
    count = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), min(len(before), len(after)))
    while count and not all(words[count].startswith("-") for words in (before, after) if count < len(words)):
        count -= 1
    return count


def _model(side: Side) -> str:
    name = side.model or "layer specs given directly"
    return f"{name}@{side.revision}" if side.revision else name


def _group_rows(comparison: Comparison) -> list[ChangeRow]:
    groups = comparison.groups
    if not groups.changes:
        return []
    specs = groups.basis == "layer specs"
    heading = "Layer specs (vLLM refused one side before it grouped them)" if specs else "KV-cache groups"
    rows = [ChangeRow(label=heading, depth=0)]
    for made in groups.changes:
        rows.append(ChangeRow(label=f"{_which(made)} {made.kind}", depth=1, difference="" if made.event == "changed" else made.event))
        one_sided = made.event in ("added", "removed")
        rows += [_row(figure, depth=2) for figure in made.figures if not one_sided or figure.key in _IN_SHORT]
    return rows


# What is told of a group that one side alone has.
_IN_SHORT = ("layer_count", "block_size", "page_bytes", "wasted_percent", "blocks_per_request")


def _which(made: GroupChange) -> str:
    before, after = _indexes(made.before), _indexes(made.after)
    if not before or not after or before == after:
        return before or after
    return f"{before} -> {after}"


def _indexes(numbers: Iterable[int]) -> str:
    listed = sorted(numbers)
    if len(listed) > 1 and listed[-1] - listed[0] == len(listed) - 1:
        return f"{listed[0]}-{listed[-1]}"
    return ",".join(map(str, listed))


def _row(made: Change, *, depth: int) -> ChangeRow:
    before, after = _spell(made.before, made.unit), _spell(made.after, made.unit)
    difference = _spell_difference(made)
    if before == after:  # differ by less than the rounding shows
        before, after = _exact(made.before, made.unit), _exact(made.after, made.unit)
    return ChangeRow(label=made.name, depth=depth, before=before, after=after, difference=difference)


def _spell(value: Value, unit: Unit | None) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "on" if value else "off"
    return value if isinstance(value, str) else _spell_number(value, unit)


def _spell_number(value: float, unit: Unit | None) -> str:
    if unit == "percent":
        return percent(value)
    if isinstance(value, int):
        return gib(value) if unit == "bytes" and value >= GIB else grouped(value)
    return f"{value:,.2f}" if unit == "requests" else f"{value:g}"


def _exact(value: Value, unit: Unit | None) -> str:
    if isinstance(value, float):
        return f"{value:,.4g} %" if unit == "percent" else f"{value:,.6g}"
    return grouped(value) if isinstance(value, int) and not isinstance(value, bool) else _spell(value, unit)


def _spell_difference(made: Change) -> str:
    if made.difference is None:
        return ""
    if made.unit == "percent":
        return f"{made.difference:+,.1f} points"
    if isinstance(made.difference, int):
        large = made.unit == "bytes" and abs(made.difference) >= GIB // 100
        amount = f"{made.difference / GIB:+,.2f} GiB" if large and _in_gib(made) else f"{made.difference:+,}"
    else:
        amount = f"{made.difference:+,.2f}"
    return amount if made.difference_percent is None else f"{amount} ({made.difference_percent:+,.1f} %)"


def _in_gib(made: Change) -> bool:
    return all(isinstance(value, int) and value >= GIB for value in (made.before, made.after))
