"""The layout is exact integer arithmetic on vLLM's figures."""

import dataclasses

from hypothesis import given

from kvdoctor.layout import Layout, read_layout
from kvdoctor.plan import Plan, StagePlan
from tests.unit import plans
from tests.unit.strategies import layout_plans


def test_qwen3_next_mamba_pages_waste_81920_bytes() -> None:
    layout = read_layout(plans.qwen3_next())
    read = [(g.kind, g.layer_count, g.block_size, g.page_bytes, g.used_bytes, g.wasted_bytes) for g in layout.groups]
    mamba = ("mamba", 12, 576, 1_179_648, 1_097_728, 81_920)
    assert read == [mamba, mamba, mamba, ("full_attention", 12, 576, 1_179_648, 1_179_648, 0)]
    assert [g.padding_layers for g in layout.groups] == [0, 0, 0, 0]
    assert layout.padding_layers == 0


def test_one_request_costs_the_blocks_of_all_groups() -> None:
    layout = read_layout(plans.qwen3_next())
    assert layout.blocks_per_request == 2 + 2 + 2 + 456
    assert layout.bytes_per_request == 462 * 12 * 1_179_648


def test_the_hidden_states_of_pull_request_51108_waste_a_quarter() -> None:
    hidden = read_layout(plans.pull_request_51108()).groups[2]
    assert (hidden.page_bytes, hidden.used_bytes, hidden.wasted_bytes, hidden.wasted_percent) == (1_114_112, 835_584, 278_528, 25.0)


def test_a_group_with_two_page_sizes_shows_both_widest_first() -> None:
    group = read_layout(plans.deepseek_v3_2()).groups[0]
    assert [(page.page_bytes, page.layer_count) for page in group.pages] == [(73_728, 2), (8448, 2)]
    assert (group.page_bytes, group.layer_count) == (73_728, 4)


def test_padding_layers_fill_the_shorter_group_up_to_the_widest() -> None:
    wide = plans.group(plans.layers("a.{}", range(13)))
    narrow = plans.group(plans.layers("b.{}", range(12)))
    assert [group.padding_layers for group in read_layout(plans.plan(wide, narrow)).groups] == [0, 1]


def test_padding_layers_are_counted_in_every_pipeline_stage() -> None:
    made = plans.plan(plans.group(plans.layers("a.{}", range(3))), plans.group(plans.layers("b.{}", range(4))))
    first, second = _stage(made, 0, (2, 2), layers_wide=2), _stage(made, 1, (1, 2), layers_wide=2)
    layout = read_layout(dataclasses.replace(made, stages=(first, second)))
    assert [group.padding_layers for group in layout.groups] == [1, 0]
    assert [group.idle_bytes_per_block for group in layout.groups] == [32_768, 0]


def test_padding_layers_are_unknown_where_pages_differ() -> None:
    indexer = plans.group(plans.layers("a.{}", range(2), page_bytes=8448, used_bytes=8448))
    latent = plans.group(plans.layers("b.{}", range(2), page_bytes=73_728, used_bytes=73_728))
    layout = read_layout(plans.plan(indexer, latent))
    assert [group.padding_layers for group in layout.groups] == [None, None]
    assert [group.idle_bytes_per_block for group in layout.groups] == [2 * (73_728 - 8448), 0]


def test_padding_layers_are_unknown_where_alignment_widens_the_block() -> None:
    made = plans.llama()
    stage = dataclasses.replace(made.stages[0], bytes_per_block=32 * 65_536 + 256)
    assert read_layout(dataclasses.replace(made, stages=(stage,))).groups[0].padding_layers is None


def test_padding_layers_are_unknown_before_the_pool_is_sized() -> None:
    made = plans.llama()
    stage = dataclasses.replace(made.stages[0], bytes_per_block=None, group_layers=())
    layout = read_layout(dataclasses.replace(made, stages=(stage,), bytes_per_block=None))
    assert (layout.padding_layers, layout.bytes_per_request) == (None, None)


def test_backends_are_counted_by_layer() -> None:
    members = (*plans.layers("a.{}", range(2)), plans.layer("b", backend="TRITON_ATTN"), plans.layer("c", backend=None))
    assert read_layout(plans.plan(plans.group(members))).groups[0].backends == {"FLASH_ATTN": 2, "TRITON_ATTN": 1}


def test_a_model_without_a_kv_cache_has_an_empty_layout() -> None:
    layout = read_layout(plans.plan())
    assert (layout.groups, layout.blocks_per_request, layout.bytes_per_request, layout.padding_layers) == ((), None, None, None)


def test_figures_that_were_not_settled_stay_unknown() -> None:
    known = plans.group(plans.layers("a.{}", range(2)), blocks_per_request=4)
    unknown = plans.group(plans.layers("b.{}", range(2)), blocks_per_request=None)
    assert read_layout(plans.plan(known, unknown)).blocks_per_request is None


@given(layout_plans())
def test_waste_is_page_less_used_and_never_negative(plan: Plan) -> None:
    for group in read_layout(plan).groups:
        for page in group.pages:
            assert page.wasted_bytes == page.page_bytes - page.used_bytes >= 0
            assert 0 <= page.wasted_percent <= 100
        assert (group.wasted_bytes, group.wasted_percent) == (group.pages[0].wasted_bytes, group.pages[0].wasted_percent)
        assert group.wasted_bytes_per_block == sum(page.wasted_bytes * page.layer_count for page in group.pages)
        assert group.page_bytes_per_block == sum(page.page_bytes * page.layer_count for page in group.pages)
        assert 0 <= group.wasted_share <= 100
        assert group.page_bytes == max(page.page_bytes for page in group.pages)


@given(layout_plans())
def test_every_layer_is_in_exactly_one_page_of_its_group(plan: Plan) -> None:
    for group, planned in zip(read_layout(plan).groups, plan.groups, strict=True):
        names = [name for page in group.pages for name in page.layer_names]
        assert sorted(names) == sorted(group.layer_names) == sorted(layer.name for layer in planned.layers)
        assert group.layer_count == len(names) == sum(page.layer_count for page in group.pages)


@given(layout_plans())
def test_padding_layers_are_the_idle_bytes_in_layers(plan: Plan) -> None:
    layout = read_layout(plan)
    for group in layout.groups:
        assert group.idle_bytes_per_block is None or group.idle_bytes_per_block >= 0
        if group.padding_layers is not None:
            assert group.padding_layers * group.page_bytes == group.idle_bytes_per_block
    assert layout.padding_layers == _sum([group.padding_layers for group in layout.groups])


@given(layout_plans())
def test_a_request_costs_the_sum_of_its_groups(plan: Plan) -> None:
    layout = read_layout(plan)
    assert layout.blocks_per_request == _sum([group.blocks_per_request for group in layout.groups])
    assert layout.bytes_per_request == _product(layout)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def _product(layout: Layout) -> int | None:
    if layout.blocks_per_request is None or layout.bytes_per_block is None:
        return None
    return layout.blocks_per_request * layout.bytes_per_block


def _stage(plan: Plan, index: int, group_layers: tuple[int, ...], *, layers_wide: int) -> StagePlan:
    return dataclasses.replace(
        plan.stages[0], index=index, layer_count=sum(group_layers), group_layers=group_layers, bytes_per_block=layers_wide * 32_768
    )
