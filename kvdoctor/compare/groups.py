"""Which groups of one report belong to which of the other, and what differs between them."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kvdoctor.compare.figures import change, count_alike
from kvdoctor.compare.interface import Change, GroupChange, GroupComparison, GroupEvent, Unit, Value
from kvdoctor.diagnosis import Diagnosis
from kvdoctor.layout import GroupLayout
from kvdoctor.plan import LayerPlan

SECTION = "KV-cache groups"
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, kw_only=True)
class _Group:
    """One side's group, or the layer specs that stand in for one. ``values`` has a value for each of ``_FIGURES``."""

    index: int
    kind: str
    layers: frozenset[str]
    values: dict[str, Value]


_Match = tuple[list[_Group], list[_Group]]

_FIGURES: tuple[tuple[str, str, Unit | None], ...] = (
    ("layers", "layer_count", "layers"),
    ("block", "block_size", "tokens"),
    ("kernel block", "kernel_block_size", "tokens"),
    ("page bytes", "page_bytes", "bytes"),
    ("used bytes", "used_bytes", "bytes"),
    ("wasted bytes", "wasted_bytes", "bytes"),
    ("wasted", "wasted_percent", "percent"),
    ("padding layers", "padding_layers", "layers"),
    ("blocks per full request", "blocks_per_request", "blocks"),
    ("prefix cacheable", "prefix_cacheable", None),
    ("backends", "backends", None),
    ("spec", "spec", None),
)


def compare_groups(before: Diagnosis, after: Diagnosis) -> GroupComparison:
    """Match the groups of two reports by their layers, and compare those that belong together."""
    ungrouped = any(not side.layout.groups and side.layers for side in (before, after)) and bool(before.layers and after.layers)
    read = _read_specs if ungrouped else _read_groups
    changes: list[GroupChange] = []
    unchanged = 0
    for old, new in _match(read(before), read(after)):
        made = _compare(old, new)
        if made is None:
            unchanged += 1
        else:
            changes.append(made)
    return GroupComparison(basis="layer specs" if ungrouped else "groups", changes=_told_once(changes), unchanged=unchanged)


def _read_groups(diagnosis: Diagnosis) -> list[_Group]:
    return [_read_group(group) for group in diagnosis.layout.groups]


def _read_group(group: GroupLayout) -> _Group:
    # Pages of several sizes (packed pools) are told one by one, widest first.
    pages = {
        name: getattr(group, name) if len(group.pages) <= 1 else ", ".join(str(getattr(page, name)) for page in group.pages)
        for name in ("page_bytes", "used_bytes", "wasted_bytes", "wasted_percent")
    }
    return _Group(
        index=group.index,
        kind=_kind(group),
        layers=frozenset(group.layer_names),
        values={
            **pages,
            "layer_count": group.layer_count,
            "block_size": group.block_size,
            "kernel_block_size": group.kernel_block_size,
            "padding_layers": group.padding_layers,
            "blocks_per_request": group.blocks_per_request,
            "prefix_cacheable": group.prefix_cacheable,
            "backends": ", ".join(sorted(group.backends)) or None,
            "spec": group.spec,
        },
    )


def _read_specs(diagnosis: Diagnosis) -> list[_Group]:
    alike: dict[tuple[str, str, int, int, int], list[LayerPlan]] = {}
    for layer in diagnosis.layers:
        alike.setdefault((_kind(layer), layer.spec, layer.block_size, layer.page_bytes, layer.used_bytes), []).append(layer)
    return [
        _Group(
            index=index,
            kind=kind,
            layers=frozenset(layer.name for layer in layers),
            values={
                "layer_count": len(layers),
                "block_size": block_size,
                "page_bytes": page_bytes,
                "used_bytes": used_bytes,
                "wasted_bytes": page_bytes - used_bytes,
                "wasted_percent": 100 * (page_bytes - used_bytes) / page_bytes if page_bytes else 0.0,
                "backends": ", ".join(sorted({layer.backend for layer in layers if layer.backend is not None})) or None,
                "spec": spec,
            },
        )
        for index, ((kind, spec, block_size, page_bytes, used_bytes), layers) in enumerate(alike.items())
    ]


def _kind(item: GroupLayout | LayerPlan) -> str:
    return (item.spec if item.kind == "other" else item.kind) + (" (draft)" if item.draft else "")


def _match(before: list[_Group], after: list[_Group]) -> list[_Match]:
    """Join groups that share layers; then, among the rest, those whose layers only have other names; what is left has no counterpart."""
    joined = _share_layers(before, after)
    matches = [match for match in joined if match[0] and match[1]]
    old = [group for match in joined if not match[1] for group in match[0]]
    new = [group for match in joined if not match[0] for group in match[1]]
    for alike in (_same_numbers, _same_count, _same_kind):
        for left in list(old):
            right = next((group for group in new if alike(left, group)), None)
            if right is not None:
                matches.append(([left], [right]))
                old.remove(left)
                new.remove(right)
    matches += [([group], []) for group in old] + [([], [group]) for group in new]
    return sorted(matches, key=lambda match: min(group.index for group in match[0] or match[1]))


def _share_layers(before: list[_Group], after: list[_Group]) -> list[_Match]:
    matches: list[_Match] = [([group], []) for group in before]
    for group in after:
        touching = [match for match in matches if any(group.layers & old.layers for old in match[0])]
        merged: _Match = ([old for match in touching for old in match[0]], [new for match in touching for new in match[1]])
        merged[1].append(group)
        matches = [match for match in matches if match not in touching] + [merged]
    return matches


def _same_numbers(left: _Group, right: _Group) -> bool:
    def numbers(group: _Group) -> list[tuple[str, ...]]:
        return sorted(tuple(_NUMBER.findall(name)) for name in group.layers)

    return _same_kind(left, right) and numbers(left) == numbers(right)


def _same_count(left: _Group, right: _Group) -> bool:
    return _same_kind(left, right) and len(left.layers) == len(right.layers)


def _same_kind(left: _Group, right: _Group) -> bool:
    return left.kind == right.kind


def _compare(before: list[_Group], after: list[_Group]) -> GroupChange | None:
    figures = tuple(made for name, key, unit in _FIGURES if (made := _figure(name, key, unit, before, after)) is not None)
    old, new = _names(before), _names(after)
    kinds = [_joined(", ".join, (group.kind for group in groups)) for groups in (before, after) if groups]
    if not figures and old == new and len(set(kinds)) == 1:
        return None
    return GroupChange(
        event=_event(before, after),
        kind=" -> ".join(dict.fromkeys(kinds)),
        before=tuple(group.index for group in before),
        after=tuple(group.index for group in after),
        figures=figures,
        layers_gone=tuple(sorted(old - new)) if before and after else (),
        layers_new=tuple(sorted(new - old)) if before and after else (),
    )


def _event(before: list[_Group], after: list[_Group]) -> GroupEvent:
    if not before or not after:
        return "added" if after else "removed"
    if len(before) > 1 or len(after) > 1:
        return "regrouped"
    return "changed" if before[0].layers & after[0].layers else "renamed"


def _figure(name: str, key: str, unit: Unit | None, before: list[_Group], after: list[_Group]) -> Change | None:
    old, new = _value(key, before), _value(key, after)
    if old == new:
        return None
    return change(section=SECTION, name=name, key=key, unit=unit, before=old, after=new)


def _value(key: str, groups: Sequence[_Group]) -> Value:
    """Give the groups' common value; several values are told in one text, and layers are told group by group."""
    values = [group.values.get(key) for group in groups]
    if len(values) == 1 or (len(set(values)) == 1 and key not in ("layer_count", "blocks_per_request", "padding_layers")):
        return values[0]
    return count_alike("-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value) for value in values) or None


def _joined(join: Callable[[Iterable[str]], str], texts: Iterable[str]) -> str:
    return join(dict.fromkeys(texts))


def _names(groups: list[_Group]) -> frozenset[str]:
    return frozenset().union(*(group.layers for group in groups))


def _told_once(changes: list[GroupChange]) -> tuple[GroupChange, ...]:
    """Join pairs of groups that changed alike: a hybrid model has the same group of states several times."""
    told: dict[tuple[object, ...], GroupChange] = {}
    for made in changes:
        key: tuple[object, ...] = (made.event, made.kind, made.figures)
        if made.event == "regrouped":
            key = (id(made),)
        first = told.get(key)
        told[key] = (
            made
            if first is None
            else dataclasses.replace(
                first,
                before=first.before + made.before,
                after=first.after + made.after,
                layers_gone=first.layers_gone + made.layers_gone,
                layers_new=first.layers_new + made.layers_new,
            )
        )
    return tuple(told.values())
