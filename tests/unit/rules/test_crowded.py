"""KV202 to KV206: what makes blocks hold less than they could."""

import dataclasses

import pytest

from kvdoctor.plan import Plan
from tests.unit import plans
from tests.unit.rules.findings import found, reason, the


def groups_of(*counts: int) -> Plan:
    """Full-attention groups with that many layers each."""
    made = [plans.group(plans.layers(f"g{count}.{{}}", range(count)), blocks_per_request=512) for count in counts]
    return plans.plan(*made)


def test_kv202_gives_the_share_of_padding_layers() -> None:
    finding = the(groups_of(10, 8), "KV202")
    assert finding.message == "2 padding layers in 1 group: 10.0 % of a full request's blocks"
    assert finding.remediation == "Compare the plan under other releases with --vllm"
    assert finding.evidence == {"padding_layers": 2, "groups": [1], "share_percent": 10.0}


def test_kv202_speaks_of_the_draft_model_where_there_is_one() -> None:
    plan = groups_of(10, 8)
    drafted = dataclasses.replace(plan, layers=(dataclasses.replace(plan.layers[0], draft=True), *plan.layers[1:]))
    assert the(drafted, "KV202").remediation == "Compare the plan without the draft model, or under other releases with --vllm"


@pytest.mark.parametrize("counts", [(10, 10), (10, 9, 10), (10, 2)])
def test_kv202_does_not_fire_on_equal_groups_a_small_share_or_a_narrow_group(counts: tuple[int, ...]) -> None:
    assert found(groups_of(*counts), "KV202") == []


def hybrid(block: int, given: int | None) -> Plan:
    state = plans.layer("s", spec="MambaSpec", kind="mamba", block_size=block)
    arguments = {} if given is None else {"block_size": given}
    return plans.plan(plans.group((state,)), plans.group((plans.layer("a", block_size=block),)), given_arguments=arguments)


def test_kv203_gives_the_block_that_came_of_the_given_one() -> None:
    finding = the(hybrid(1088, 272), "KV203")
    assert finding.message == "--block-size 272 became 1,088 tokens, since the attention page must hold a recurrent state"
    assert finding.evidence == {"given_block_size": 272, "block_size": 1088}


@pytest.mark.parametrize(
    "plan",
    [
        hybrid(512, 512),
        hybrid(320, None),
        dataclasses.replace(plans.llama(), given_arguments={"block_size": 8}),
        dataclasses.replace(hybrid(1024, 512), launch=dataclasses.replace(plans.LAUNCH, decode_context_parallel_size=2)),
    ],
)
def test_kv203_does_not_fire_where_the_block_is_the_given_one(plan: Plan) -> None:
    assert found(plan, "KV203") == []


def over_ranks(plan: Plan, *, heads: int | None, ranks: int, context: int = 1) -> Plan:
    launch = dataclasses.replace(plan.launch, total_kv_heads=heads, tensor_parallel_size=ranks, decode_context_parallel_size=context)
    return dataclasses.replace(plan, launch=launch)


def test_kv204_counts_the_copies() -> None:
    finding = the(over_ranks(plans.llama(), heads=8, ranks=16), "KV204")
    assert finding.message == "each of 8 KV heads is stored 2 times over 16 tensor-parallel ranks"
    assert finding.evidence == {"kv_heads": 8, "tensor_parallel_size": 16, "copies": 2}


def test_kv204_knows_that_latent_attention_has_one_cache() -> None:
    finding = the(over_ranks(plans.deepseek_v3_2(), heads=128, ranks=8), "KV204")
    assert finding.message == "the latent cache is stored 8 times over 8 tensor-parallel ranks"


@pytest.mark.parametrize(("heads", "ranks", "context"), [(8, 8, 1), (8, 4, 1), (8, 16, 2), (8, 1, 1)])
def test_kv204_does_not_fire_without_copies(heads: int, ranks: int, context: int) -> None:
    assert found(over_ranks(plans.llama(), heads=heads, ranks=ranks, context=context), "KV204") == []


def test_kv204_does_not_fire_on_a_model_of_states_alone() -> None:
    states = plans.plan(plans.group((plans.layer("s", spec="MambaSpec", kind="mamba"),)))
    assert found(over_ranks(states, heads=1, ranks=8), "KV204") == []


def test_kv205_says_how_wide_the_blocks_of_a_narrow_group_are() -> None:
    finding = the(groups_of(6, 1), "KV205")
    assert finding.message == "1 full attention layer in blocks as wide as 6 layers: the rest, 41.7 % of a full request's blocks, is empty"
    assert finding.evidence["groups"] == [1]


@pytest.mark.parametrize("counts", [(6, 6), (6, 4), (6, 6, 3)])
def test_kv205_does_not_fire_on_groups_that_fill_half_their_blocks(counts: tuple[int, ...]) -> None:
    assert found(groups_of(*counts), "KV205") == []


def test_kv205_does_not_fire_on_a_narrow_group_of_few_blocks() -> None:
    wide = plans.group(plans.layers("w.{}", range(6)), blocks_per_request=512)
    states = plans.group((plans.layer("s", spec="MambaSpec", kind="mamba"),), blocks_per_request=2)
    assert found(plans.plan(wide, states), "KV205") == []


def test_kv206_says_what_the_shortest_request_takes() -> None:
    finding = the(groups_of(*[1] * 70), "KV206")
    assert finding.message == "70 layers in 70 groups: the shortest request takes 70 blocks, 7.0 % of the pool"
    assert finding.evidence == {"group_count": 70, "layer_count": 70}


@pytest.mark.parametrize("counts", [[1] * 15, [2] * 16, [4] * 10])
def test_kv206_does_not_fire_on_few_groups_or_on_groups_of_more_layers(counts: list[int]) -> None:
    assert found(groups_of(*counts), "KV206") == []


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("KV202", "what a request holds was not settled"),
        ("KV203", "no groups were settled"),
        ("KV204", "no groups were settled"),
        ("KV205", "what a request holds was not settled"),
        ("KV206", "no groups were settled"),
    ],
)
def test_rules_about_groups_are_skipped_without_any(rule: str, why: str) -> None:
    assert reason(plans.plan(), rule) == why


def test_kv204_is_skipped_on_specs_without_a_model() -> None:
    assert reason(plans.pull_request_51108(), "KV204") == "the model's KV heads are not known"
