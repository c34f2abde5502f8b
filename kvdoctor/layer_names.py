"""Layer names folded into ranges, ``model.layers.{0-2,4-6}.linear_attn``, and back."""

import itertools
import re
from collections.abc import Iterable

# Only numbers that survive int() and str() are folded: layer "007" keeps its zeros as text.
_NUMBER = re.compile(r"(?<!\d)(0|[1-9][0-9]{0,8})(?!\d)")
_RANGES = re.compile(r"\{([0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*)\}")


def fold_names(names: Iterable[str]) -> tuple[str, ...]:
    """Fold names that differ only in their numbers; equal sets of names give equal text.

    :func:`unfold_names` gives the set back. A name that has braces of its own is passed on as it is, since folding could not be undone.
    """
    folded: dict[tuple[str, ...], set[tuple[frozenset[int], ...]]] = {}
    kept: set[str] = set()
    for name in set(names):
        if "{" in name or "}" in name:
            kept.add(name)
            continue
        parts = _NUMBER.split(name)
        folded.setdefault(tuple(parts[::2]), set()).add(tuple(frozenset({int(number)}) for number in parts[1::2]))
    entries = [(texts, numbers) for texts, rows in folded.items() for numbers in _merge(rows)]
    entries.sort(key=lambda entry: (entry[0], [sorted(position) for position in entry[1]]))
    return (*(_spell(texts, numbers) for texts, numbers in entries), *sorted(kept))


def unfold_names(folded: Iterable[str]) -> set[str]:
    """Expand every range of :func:`fold_names`."""
    names: set[str] = set()
    for pattern in folded:
        parts = _RANGES.split(pattern)
        choices = [_numbers(part) if index % 2 else [part] for index, part in enumerate(parts)]
        names.update("".join(choice) for choice in itertools.product(*choices))
    return names


def _merge(rows: set[tuple[frozenset[int], ...]]) -> set[tuple[frozenset[int], ...]]:
    """Join rows that are equal but for one position, the last position first: layers fold before the modules that hold them."""
    for position in reversed(range(len(next(iter(rows))))):
        joined: dict[tuple[frozenset[int], ...], frozenset[int]] = {}
        for row in rows:
            rest = (*row[:position], *row[position + 1 :])
            joined[rest] = joined.get(rest, frozenset()) | row[position]
        rows = {(*rest[:position], numbers, *rest[position:]) for rest, numbers in joined.items()}
    return rows


def _spell(texts: tuple[str, ...], numbers: tuple[frozenset[int], ...]) -> str:
    spelled = [texts[0]]
    for position, text in zip(numbers, texts[1:], strict=True):
        spelled += [_ranges(sorted(position)), text]
    return "".join(spelled)


def _ranges(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    runs = []
    # Consecutive numbers keep the same distance to their index.
    for _, run in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return "{" + ",".join(runs) + "}"


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for run in ranges.split(","):
        first, _, last = run.partition("-")
        numbers += map(str, range(int(first), int(last or first) + 1))
    return numbers
