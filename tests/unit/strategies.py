"""Plans of any shape, for property tests."""

import dataclasses

from hypothesis import strategies as st

from kvdoctor.plan import Check, GroupPlan, LayerPlan, LogRecord, Plan, Refusal, StagePlan
from tests.unit import plans

CLASSES = (
    ("full_attention", "FullAttentionSpec", "FLASH_ATTN", False),
    ("full_attention", "FullAttentionSpec", "FLASH_ATTN", True),
    ("mamba", "MambaSpec", "GDN_ATTN", False),
    ("hidden_state", "HiddenStateCacheSpec", None, False),
    ("other", "NewSpec", None, False),
)

sizes = st.integers(min_value=0, max_value=2**45)
counts = st.integers(min_value=1, max_value=2**20)
maybe_counts = st.none() | counts
texts = st.text(max_size=30)
# Unique by number, so that no two layers of a plan have one name.
tidy_names = st.builds("model.layers.{}.attn".format, st.integers(0, 999))
wild_names = st.builds("{1}.{0}{2}".format, st.sampled_from(("model.layers.", "x|`[red]")), st.integers(0, 999), texts)


@st.composite
def layer_plans(draw: st.DrawFn, names: st.SearchStrategy[str]) -> LayerPlan:
    page = draw(sizes)
    kind, spec, backend, draft = draw(st.sampled_from(CLASSES))
    return plans.layer(
        draw(names),
        kind=kind,
        spec=spec,
        backend=backend,
        draft=draft,
        page_bytes=page,
        used_bytes=draw(st.just(page) | st.integers(min_value=0, max_value=page)),
        fields={"num_kv_heads": 8, "dtype": "bfloat16", "shapes": [[4, 2], []], "page_size_padded": None},
    )


@st.composite
def group_plans(draw: st.DrawFn, names: st.SearchStrategy[str]) -> GroupPlan:
    members = tuple(draw(st.lists(layer_plans(names), min_size=1, max_size=4, unique_by=lambda layer: layer.name)))
    prefix_cacheable, draft = draw(st.sampled_from(((True, False), (False, False), (True, True))))
    return plans.group(
        members, block_size=draw(counts), prefix_cacheable=prefix_cacheable, draft=draft, blocks_per_request=draw(maybe_counts)
    )


@st.composite
def layout_plans(draw: st.DrawFn, names: st.SearchStrategy[str] = tidy_names) -> Plan:
    """Any groups on one to three pipeline stages, some figures not settled."""
    groups = tuple(draw(st.lists(group_plans(names), max_size=4)))
    stages = _deal(groups, draw(st.integers(min_value=1, max_value=3)), spare_bytes=draw(st.sampled_from((0, 0, 256, None))))
    return dataclasses.replace(
        plans.plan(*groups),
        stages=stages,
        bytes_per_block=max((stage.bytes_per_block for stage in stages if stage.bytes_per_block is not None), default=None),
        num_blocks=draw(maybe_counts),
        hash_block_size=draw(maybe_counts),
        min_reusable_prefix_tokens=draw(maybe_counts),
    )


def _deal(groups: tuple[GroupPlan, ...], count: int, *, spare_bytes: int | None) -> tuple[StagePlan, ...]:
    """Deal each group's layers out to the stages; a block is as wide as the stage's widest group, or wider for alignment."""
    stages = []
    for index in range(count):
        held = [made.layers[index::count] for made in groups]
        widest = max((sum(layer.page_bytes for layer in layers) for layers in held), default=0)
        stages.append(
            dataclasses.replace(
                plans.llama().stages[0],
                index=index,
                layer_count=sum(map(len, held)),
                group_layers=tuple(map(len, held)),
                bytes_per_block=None if spare_bytes is None else widest + spare_bytes,
            )
        )
    return tuple(stages)


@st.composite
def any_plans(draw: st.DrawFn) -> Plan:
    """Any layout, with any text wherever text comes from outside, and any memory figures."""
    made = draw(layout_plans(wild_names))
    text = draw(texts)
    memory = dataclasses.replace(
        made.memory,
        weights_bytes=draw(st.none() | sizes),
        kv_cache_bytes=draw(st.none() | sizes),
        kv_cache_source=draw(st.sampled_from(("estimate", "kv_cache_memory"))),
        weights_fit=draw(st.sampled_from((None, True, False))),
        needed_for_max_model_len_bytes=draw(st.none() | sizes),
        allowance_source=text,
    )
    launch = dataclasses.replace(
        made.launch,
        architecture=text,
        max_model_len=draw(maybe_counts),
        prefix_caching=draw(st.sampled_from((None, True, False))),
        mamba_cache_mode=draw(st.sampled_from((None, "none", "align"))),
    )
    words = st.sampled_from((plans.HASH_REFUSAL.message, text, ""))
    return dataclasses.replace(
        made,
        memory=memory,
        launch=launch,
        engine=dataclasses.replace(made.engine, source=text, attention_backends={text: 3}),
        max_concurrency=draw(st.none() | st.floats(min_value=0, max_value=1e9)),
        checks=(Check(name=text, outcome=draw(st.sampled_from(("passed", "not_checked"))), note=text),),
        assumptions=(text,),
        refusal=draw(st.none() | st.builds(Refusal, stage=st.just(text), exception=st.just("ValueError"), message=words)),
        vllm_log=(LogRecord(level="WARNING", message=text),),
    )
