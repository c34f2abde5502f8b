"""The details of a report: everything that the first screen leaves out."""

from collections.abc import Iterator

from kvdoctor.diagnosis import Diagnosis
from kvdoctor.layer_names import fold_names
from kvdoctor.layout import GroupLayout, Layout, read_pages
from kvdoctor.plan import LayerPlan
from kvdoctor.report.document import Justify, Pairs, Table
from kvdoctor.rules.numbers import counted, gib, grouped, percent
from kvdoctor.waste import read_empty

NOT_SETTLED = "not settled"


_FIGURES = ("layers", "block", "page bytes", "used bytes", "wasted", "wasted %")
_HEADINGS: tuple[tuple[str, Justify], ...] = (("#", "right"), ("kind", "left"), *((figure, "right") for figure in _FIGURES))


def group_table(diagnosis: Diagnosis) -> Table | None:
    """One row a group, and under it one for each further size of page; the layers' specs where vLLM refused before grouping."""
    rows = [*_group_rows(diagnosis)] if diagnosis.layout.groups else [*_spec_rows(diagnosis.layers)]
    if not rows:
        return None
    return Table(
        title=group_title(diagnosis),
        headings=_HEADINGS,
        rows=tuple(cells for cells, _ in rows),
        names=tuple(fold_names(names) for _, names in rows),
    )


def group_title(diagnosis: Diagnosis) -> str:
    """Say what the rows are."""
    if diagnosis.layout.groups:
        return "KV-cache groups"
    if diagnosis.refusal is None:
        return "Layer specs"
    return f"Layer specs; vLLM {'failed' if diagnosis.refusal.accident else 'refused'} before it grouped them"


def sections(diagnosis: Diagnosis) -> tuple[Pairs, ...]:
    """Everything between the groups and the findings."""
    found = (
        Pairs(title="Block sizes", rows=_block_sizes(diagnosis)),
        Pairs(title="Capacity per GPU", rows=_capacity(diagnosis)),
        Pairs(title="Memory per GPU", rows=_memory(diagnosis)),
        Pairs(title="Launch", rows=_launch(diagnosis)),
        Pairs(title="Launch steps", rows=_checks(diagnosis)),
    )
    return tuple(section for section in found if section.rows)


def _group_rows(diagnosis: Diagnosis) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    for group in diagnosis.layout.groups:
        for position, page in enumerate(group.pages):
            head = (str(group.index), kind_of(group)) if position == 0 else ("", "")
            figures = _figures(page.layer_count, group.block_size, page.page_bytes, page.used_bytes, page.wasted_percent)
            yield (*head, *figures), page.layer_names


def _spec_rows(layers: tuple[LayerPlan, ...]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    alike: dict[tuple[str, int, bool], list[LayerPlan]] = {}
    for layer in layers:
        alike.setdefault((layer.kind if layer.kind != "other" else layer.spec, layer.block_size, layer.draft), []).append(layer)
    for (kind, block_size, draft), members in alike.items():
        for page in read_pages(members):
            figures = _figures(page.layer_count, block_size, page.page_bytes, page.used_bytes, page.wasted_percent)
            yield ("-", kind + (" (draft)" if draft else ""), *figures), page.layer_names


def _figures(layers: int, block_size: int, page: int, used: int, share: float) -> tuple[str, ...]:
    return (grouped(layers), grouped(block_size), grouped(page), grouped(used), grouped(page - used), percent(share))


def kind_of(group: GroupLayout) -> str:
    """Name a group's kind."""
    # A spec class that kvdoctor does not know is best named by vLLM's own name.
    kind = group.spec if group.kind == "other" else group.kind
    return kind + (" (draft)" if group.draft else "")


def _block_sizes(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    layout = diagnosis.layout
    if not layout.groups:
        return ()
    hits, smallest = layout.prefix_hit_tokens, layout.min_reusable_prefix_tokens
    rows = [
        ("scheduler block", None if layout.scheduler_block_size is None else counted(layout.scheduler_block_size, "token")),
        ("hash block", None if layout.hash_block_size is None else counted(layout.hash_block_size, "token")),
    ]
    if layout.prefix_caching is False:
        rows.append(("prefix caching", "off"))
    else:
        nothing = "none can be reused" if diagnosis.refusal is None else None
        rows += [
            ("prefix hits land on", None if hits is None else f"multiples of {counted(hits, 'token')}"),
            ("smallest reusable prefix", nothing if smallest is None else counted(smallest, "token")),
        ]
    kernels = sorted({(group.block_size, group.kernel_block_size) for group in layout.groups if group.kernel_block_size is not None})
    sizes = ", ".join(f"{grouped(kernel)} (in blocks of {grouped(block)})" for block, kernel in kernels)
    return _settled(*rows, ("kernel block", sizes or None)) or (("scheduler block", NOT_SETTLED),)


def _capacity(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    layout = diagnosis.layout
    concurrency = layout.max_concurrency
    return _settled(
        # vLLM plans one block for a model with nothing to cache.
        ("blocks", None if layout.num_blocks is None or not layout.groups else grouped(layout.num_blocks)),
        ("bytes per block", None if layout.bytes_per_block is None else grouped(layout.bytes_per_block)),
        ("tokens", None if layout.kv_cache_tokens is None else grouped(layout.kv_cache_tokens)),
        ("concurrency", None if concurrency is None else f"{concurrency:,.2f} requests of {_longest(diagnosis)}"),
        (f"a request of {_longest(diagnosis)} costs", _cost(layout)),
        ("of that empty", _empty(diagnosis)),
        (
            "padding layers",
            f"{grouped(layout.padding_layers)}: room in the pool's blocks that shorter groups leave empty"
            if layout.padding_layers
            else None,
        ),
    )


def _cost(layout: Layout) -> str | None:
    if layout.blocks_per_request is None:
        return None
    cost = counted(layout.blocks_per_request, "block")
    if layout.bytes_per_request is not None:
        cost += f", {gib(layout.bytes_per_request)}"
    by_group = [grouped(group.blocks_per_request) for group in layout.groups if group.blocks_per_request is not None]
    return f"{cost} ({' + '.join(by_group)} by group)" if len(by_group) > 1 else cost


def _empty(diagnosis: Diagnosis) -> str | None:
    empty = read_empty(diagnosis.layout, diagnosis.launch.max_model_len)
    if empty is None:
        return None
    parts = {
        "padding": empty.padding_bytes,
        "room beside narrow groups": empty.idle_bytes,
        "room behind the last token": empty.unfilled_bytes,
    }
    told = ", ".join(f"{percent(empty.share(size))} {part}" for part, size in parts.items() if size)
    return percent(empty.percent) + (f": {told}" if told else "")


def _longest(diagnosis: Diagnosis) -> str:
    length = diagnosis.request.max_model_len
    return "full length" if length is None else counted(length, "token")


def _settled(*rows: tuple[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Drop what vLLM had not settled; the verdict says why."""
    return tuple((label, value) for label, value in rows if value)


def _memory(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    memory, stages = diagnosis.memory, diagnosis.stages
    rows: list[tuple[str, str]] = []
    if memory.weights_bytes:
        draft = max((stage.draft_weights_bytes for stage in stages), default=0)
        rows.append(("weights", gib(memory.weights_bytes) + (f", {gib(draft)} of it the draft model's" if draft else "")))
    if len(stages) > 1:
        rows += [
            (
                f"pipeline stage {stage.index}",
                f"{gib(stage.weights_bytes)} weights, {counted(stage.layer_count, 'KV layer')}"
                + ("" if stage.bytes_per_block is None else f", {grouped(stage.bytes_per_block)} bytes per block"),
            )
            for stage in stages
        ]
    if memory.weights_fit is False:
        rows.append(("KV cache", f"none: the weights do not fit in {_usable(diagnosis)}; the layout is planned as if they did"))
    elif memory.kv_cache_bytes is None:
        rows.append(("KV cache", NOT_SETTLED))
    elif memory.kv_cache_source == "kv_cache_memory":
        rows.append(("KV cache", f"{gib(memory.kv_cache_bytes)}, as given"))
    else:
        rows.append(("KV cache", f"about {gib(memory.kv_cache_bytes)}, an estimate: {_estimate(diagnosis)}"))
        if memory.allowance_source:
            rows.append(("allowance", memory.allowance_source))
    if memory.needed_for_max_model_len_bytes is not None:
        needed = f"{gib(memory.needed_for_max_model_len_bytes)} for one request of {_longest(diagnosis)}"
        largest = memory.estimated_max_model_len
        rows.append(("needed", needed if largest is None else f"{needed}; the largest that fits: {counted(largest, 'token')}"))
    return tuple(rows)


def _usable(diagnosis: Diagnosis) -> str:
    memory = diagnosis.memory
    share = memory.gpu_memory_utilization
    return gib(memory.gpu_bytes) + ("" if share is None else f" x {share:g}")


def _estimate(diagnosis: Diagnosis) -> str:
    memory = diagnosis.memory
    parts = [_usable(diagnosis)]
    if memory.weights_bytes is not None:
        parts.append(f"{gib(memory.weights_bytes)} weights")
    if memory.allowance_bytes is not None:
        parts.append(f"{gib(memory.allowance_bytes)} allowance")
    return " - ".join(parts)


def _launch(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    engine, gpu, launch = diagnosis.engine, diagnosis.gpu, diagnosis.launch
    backends = ", ".join(f"{name} ({counted(layers, 'layer')})" for name, layers in engine.attention_backend_layers.items())
    sizes = {
        "TP": launch.tensor_parallel_size,
        "PP": launch.pipeline_parallel_size,
        "DCP": launch.decode_context_parallel_size,
        "DP": launch.data_parallel_size,
    }
    parallel = ", ".join(f"{name} {size}" for name, size in sizes.items() if size and size > 1)
    limits = {
        "max_model_len": launch.max_model_len,
        "max_num_seqs": launch.max_num_seqs,
        "max_num_batched_tokens": launch.max_num_batched_tokens,
    }
    settings = {
        **{name: None if size is None else grouped(size) for name, size in limits.items()},
        "dtype": launch.dtype,
        "kv_cache_dtype": launch.kv_cache_dtype,
        "quantization": launch.quantization,
        "mamba_cache_mode": launch.mamba_cache_mode,
        "speculative method": launch.speculative_method,
    }
    rows = [
        ("attention backends", backends),
        ("KV-cache layout", engine.kv_cache_layout or ""),
        ("vLLM", f"{engine.vllm_version} ({engine.source})"),
        ("assumed GPU", f"{gpu.name}: {gpu.device_name}, capability {gpu.compute_capability}, {gib(gpu.memory_bytes)}, {gpu.sm_count} SMs"),
        ("settings", ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None)),
        ("parallelism", parallel),
    ]
    rows += [("assumed" if index == 0 else "", assumption) for index, assumption in enumerate(diagnosis.assumptions)]
    return _settled(*rows)


def _checks(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    passed = [check.name for check in diagnosis.checks if check.outcome == "passed"]
    rows = [("passed", ", ".join(passed))] if passed else []
    ended = "failed" if diagnosis.refusal is not None and diagnosis.refusal.accident else "refused"
    rows += [(ended, check.name) for check in diagnosis.checks if check.outcome == "refused"]
    left = [check for check in diagnosis.checks if check.outcome == "not_checked"]
    rows += [("not checked", check.name + (f": {check.note}" if check.note else "")) for check in left]
    return tuple(rows)
