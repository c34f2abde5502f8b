"""Groups of two reports belong together by their layers, whatever vLLM did to their number, order and names."""

import dataclasses
from typing import Any

from kvdoctor.compare.groups import compare_groups
from kvdoctor.compare.interface import GroupChange, GroupComparison
from kvdoctor.diagnosis import diagnose
from kvdoctor.plan import LayerPlan, Plan
from tests.unit import plans

NAME = "model.layers.{}.self_attn.attn"


def attention(numbers: range, name: str = NAME, **changes: Any) -> tuple[LayerPlan, ...]:
    return plans.layers(name, numbers, **changes)


def states(numbers: range, **changes: Any) -> tuple[LayerPlan, ...]:
    return plans.layers("model.layers.{}.mamba", numbers, kind="mamba", spec="MambaSpec", backend="MAMBA2_ATTN", **changes)


def plan(*groups: tuple[LayerPlan, ...]) -> Plan:
    return plans.plan(*(plans.group(layers) for layers in groups))


def compared(before: Plan, after: Plan) -> GroupComparison:
    return compare_groups(diagnose(plans.request(), before), diagnose(plans.request(), after))


def figures(change: GroupChange) -> dict[str, tuple[object, object]]:
    return {figure.key: (figure.before, figure.after) for figure in change.figures}


def test_groups_in_another_order_are_the_same() -> None:
    made = compared(plan(attention(range(4)), states(range(4, 8))), plan(states(range(4, 8)), attention(range(4))))
    assert (made.changes, made.unchanged) == ((), 2)


def test_a_group_that_gained_layers_is_matched() -> None:
    (change,) = compared(plan(attention(range(4))), plan(attention(range(5)))).changes
    assert (change.event, change.kind, change.before, change.after) == ("changed", "full_attention", (0,), (0,))
    assert figures(change) == {"layer_count": (4, 5)}
    assert (change.layers_gone, change.layers_new) == ((), ("model.layers.4.self_attn.attn",))


def test_groups_that_changed_alike_are_told_once() -> None:
    before = plan(states(range(2)), states(range(2, 4)), attention(range(4, 6)))
    after = plan(states(range(2), block_size=32), states(range(2, 4), block_size=32), attention(range(4, 6)))
    made = compared(before, after)
    (change,) = made.changes
    assert (change.before, change.after, figures(change), made.unchanged) == ((0, 1), (0, 1), {"block_size": (16, 32)}, 1)


def test_a_group_that_was_split_is_regrouped() -> None:
    (change,) = compared(plan(attention(range(6))), plan(attention(range(4)), attention(range(4, 6)))).changes
    assert (change.event, change.before, change.after) == ("regrouped", (0,), (0, 1))
    assert figures(change) == {"layer_count": (6, "4, 2"), "blocks_per_request": (512, "512 x 2"), "padding_layers": (0, "0, 2")}
    assert (change.layers_gone, change.layers_new) == ((), ())


def test_groups_that_were_merged_and_changed_their_kind_are_regrouped() -> None:
    windowed = attention(range(2, 4), kind="sliding_window", spec="SlidingWindowSpec")
    (change,) = compared(plan(attention(range(2)), windowed), plan(attention(range(4)))).changes
    assert (change.event, change.kind) == ("regrouped", "full_attention, sliding_window -> full_attention")
    assert figures(change)["spec"] == ("FullAttentionSpec, SlidingWindowSpec", "FullAttentionSpec")


def test_layers_under_other_names_are_renamed_not_replaced() -> None:
    other = attention(range(4), name="language_model.layers.{}.attn")
    (change,) = compared(plan(attention(range(4)), states(range(4, 6))), plan(states(range(4, 6)), other)).changes
    assert (change.event, change.before, change.after, change.figures) == ("renamed", (0,), (1,), ())
    assert (len(change.layers_gone), len(change.layers_new)) == (4, 4)


def test_a_group_that_one_side_alone_has_is_added_or_removed() -> None:
    small, large = plan(attention(range(4))), plan(attention(range(4)), states(range(4, 6)))
    (added,) = compared(small, large).changes
    (removed,) = compared(large, small).changes
    assert (added.event, added.before, added.after, figures(added)["layer_count"]) == ("added", (), (1,), (None, 2))
    assert (removed.event, removed.before, removed.after, figures(removed)["layer_count"]) == ("removed", (1,), (), (2, None))


def test_pages_of_several_sizes_are_told_one_by_one() -> None:
    before = plans.deepseek_v3_2()
    narrow = tuple(dataclasses.replace(layer, page_bytes=8704) if layer.page_bytes == 8448 else layer for layer in before.layers)
    (change,) = compared(before, plans.plan(plans.group(narrow))).changes
    assert figures(change)["page_bytes"] == ("73728, 8448", "73728, 8704")


def test_layer_specs_stand_in_where_one_side_was_refused_before_grouping() -> None:
    grouped = plan(attention(range(4)), states(range(4, 6)))
    made = compared(grouped, dataclasses.replace(plans.refused("no", base=grouped), groups=()))
    assert (made.basis, made.changes, made.unchanged) == ("layer specs", (), 2)
    fp8 = plan(attention(range(4), page_bytes=16_384, used_bytes=16_384), states(range(4, 6)))
    (change,) = compared(grouped, dataclasses.replace(plans.refused("no", base=fp8), groups=())).changes
    assert figures(change) == {"page_bytes": (32_768, 16_384), "used_bytes": (32_768, 16_384)}


def test_groups_are_shown_where_the_other_side_has_not_even_layers() -> None:
    nothing = dataclasses.replace(plans.refused("no"), groups=(), layers=(), stages=())
    made = compared(nothing, plans.llama())
    assert (made.basis, [change.event for change in made.changes]) == ("groups", ["added"])
