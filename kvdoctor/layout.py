"""The plan read: bytes used and wasted, padding layers, what one request costs.

vLLM decides the figures of :mod:`kvdoctor.plan`; what is added here is kvdoctor's own reading of them, by integer arithmetic only.
Waste is part of that reading: vLLM has no such figure.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kvdoctor.plan import GroupPlan, LayerPlan, Plan, RequestsAt


@dataclass(frozen=True, kw_only=True)
class PageLayout:
    """The layers of a group whose pages take the same bytes and use the same bytes.

    ``wasted_bytes`` is kvdoctor's reading: the page's bytes less what its tokens (or its state) fill.
    """

    page_bytes: int
    used_bytes: int
    wasted_bytes: int
    wasted_percent: float
    layer_count: int
    layer_names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GroupLayout:
    """One KV-cache group.

    ``pages`` lists the group's different pages, widest first; the group's own ``page_bytes``, ``used_bytes`` and waste are those of the
    widest. A block of the shared pool holds a page of each layer: ``page_bytes_per_block`` in all (over all pipeline stages), of which
    ``wasted_bytes_per_block`` are padding. ``idle_bytes_per_block`` is what the block has beyond that, and ``padding_layers`` the same
    counted in layers: ``None`` where that is no whole number of layers, or layers' pages differ in size.
    ``backends`` maps an attention backend to the group's layers on it.
    """

    index: int
    kind: str
    spec: str
    layer_names: tuple[str, ...]
    layer_count: int
    padding_layers: int | None
    page_bytes_per_block: int
    wasted_bytes_per_block: int
    idle_bytes_per_block: int | None
    block_size: int
    kernel_block_size: int | None
    page_bytes: int
    used_bytes: int
    wasted_bytes: int
    wasted_percent: float
    prefix_cacheable: bool
    blocks_per_request: int | None
    draft: bool
    backends: dict[str, int]
    pages: tuple[PageLayout, ...]

    @property
    def wasted_share(self) -> float:
        """Percent of the group's pages that is padding; with pages of one size, the page's own ``wasted_percent``."""
        return 100 * self.wasted_bytes_per_block / self.page_bytes_per_block if self.page_bytes_per_block else 0.0


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The whole KV cache of one GPU.

    ``blocks_per_request`` sums the groups', which share one pool, for a request of ``max_model_len`` tokens;
    ``bytes_per_request`` is that many blocks of the pool.
    """

    groups: tuple[GroupLayout, ...]
    scheduler_block_size: int | None
    hash_block_size: int | None
    prefix_hit_tokens: int | None
    min_reusable_prefix_tokens: int | None
    prefix_caching: bool | None
    bytes_per_block: int | None
    num_blocks: int | None
    kv_cache_tokens: int | None
    max_concurrency: float | None
    blocks_per_request: int | None
    bytes_per_request: int | None
    padding_layers: int | None
    requests_at: tuple[RequestsAt, ...] = ()


_NO_PAGE = PageLayout(page_bytes=0, used_bytes=0, wasted_bytes=0, wasted_percent=0.0, layer_count=0, layer_names=())


def read_layout(plan: Plan) -> Layout:
    """Read a plan; every figure that vLLM had not settled stays ``None``."""
    groups = tuple(_read_group(plan, index, group) for index, group in enumerate(plan.groups))
    blocks = _sum_of_known(group.blocks_per_request for group in groups) if groups else None
    return Layout(
        groups=groups,
        scheduler_block_size=plan.scheduler_block_size,
        hash_block_size=plan.hash_block_size,
        prefix_hit_tokens=plan.prefix_hit_tokens,
        min_reusable_prefix_tokens=plan.min_reusable_prefix_tokens,
        prefix_caching=plan.launch.prefix_caching,
        bytes_per_block=plan.bytes_per_block,
        num_blocks=plan.num_blocks,
        kv_cache_tokens=plan.kv_cache_tokens,
        max_concurrency=plan.max_concurrency,
        blocks_per_request=blocks,
        bytes_per_request=None if blocks is None or plan.bytes_per_block is None else blocks * plan.bytes_per_block,
        padding_layers=_sum_of_known(group.padding_layers for group in groups) if groups else None,
        requests_at=plan.requests_at if groups else (),
    )


def read_pages(layers: Iterable[LayerPlan]) -> tuple[PageLayout, ...]:
    """Sort layers by the bytes of their pages, widest first."""
    names: dict[tuple[int, int], list[str]] = {}
    for layer in layers:
        names.setdefault((layer.page_bytes, layer.used_bytes), []).append(layer.name)
    return tuple(
        PageLayout(
            page_bytes=page,
            used_bytes=used,
            wasted_bytes=page - used,
            wasted_percent=100 * (page - used) / page if page else 0.0,
            layer_count=len(names[page, used]),
            layer_names=tuple(names[page, used]),
        )
        for page, used in sorted(names, reverse=True)
    )


def _read_group(plan: Plan, index: int, group: GroupPlan) -> GroupLayout:
    pages = read_pages(group.layers)
    # A group without layers holds nothing; vLLM makes none, but a report must not fail on one.
    widest = pages[0] if pages else _NO_PAGE
    return GroupLayout(
        index=index,
        kind=group.kind,
        spec=group.spec,
        layer_names=tuple(layer.name for layer in group.layers),
        layer_count=len(group.layers),
        padding_layers=_padding_layers(plan, index),
        page_bytes_per_block=sum(layer.page_bytes for layer in group.layers),
        wasted_bytes_per_block=sum(layer.page_bytes - layer.used_bytes for layer in group.layers),
        idle_bytes_per_block=_idle_bytes_per_block(plan, group),
        block_size=group.block_size,
        kernel_block_size=group.kernel_block_size,
        page_bytes=widest.page_bytes,
        used_bytes=widest.used_bytes,
        wasted_bytes=widest.wasted_bytes,
        wasted_percent=widest.wasted_percent,
        prefix_cacheable=group.prefix_cacheable,
        blocks_per_request=group.blocks_per_request,
        draft=group.draft,
        backends=dict(Counter(layer.backend for layer in group.layers if layer.backend is not None)),
        pages=pages,
    )


def _padding_layers(plan: Plan, index: int) -> int | None:
    """Count the layers that a block has room for and the group does not have, over all stages.

    All groups draw blocks from one pool, and a block is as wide as the widest group of the stage: a shorter group leaves the rest of
    each of its blocks unused. Counting that rest in layers makes sense only where all pages of the pool have one size. Packed pools
    (DeepSeek-V4, V3.2) mix sizes, and there the answer is ``None``.
    """
    page_sizes = {layer.page_bytes for group in plan.groups for layer in group.layers}
    if len(page_sizes) != 1 or not plan.stages:
        return None
    page = page_sizes.pop()
    padding = 0
    for stage in plan.stages:
        # A backend's alignment may have widened the block beyond whole pages.
        if stage.bytes_per_block is None or not page or stage.bytes_per_block % page:
            return None
        padding += stage.bytes_per_block // page - stage.group_layers[index]
    return padding


def _idle_bytes_per_block(plan: Plan, group: GroupPlan) -> int | None:
    room = _sum_of_known(stage.bytes_per_block for stage in plan.stages) if plan.stages else None
    return None if room is None else room - sum(layer.page_bytes for layer in group.layers)


def _sum_of_known(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
