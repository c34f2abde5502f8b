"""The report of one launch: the first screen answers what a deployer asks first, and the details say the rest."""

from kvdoctor.diagnosis import Diagnosis, verdict_line
from kvdoctor.layout import GroupLayout
from kvdoctor.left_out import LEFT_OUT
from kvdoctor.plan import Refusal
from kvdoctor.report.block_story import block_story
from kvdoctor.report.details import group_table, group_title, kind_of, sections
from kvdoctor.report.document import Block, Document, Findings, Justify, Line, Pairs, Quote, Table, Tone, Verdict
from kvdoctor.report.request_costs import request_costs
from kvdoctor.rules.numbers import counted, gib, gib_number, grouped, percent
from kvdoctor.waste import empty_percent

_WORDS: dict[str, tuple[str, Tone]] = {
    "ok": ("LAUNCHES", "good"),
    "warning": ("LAUNCHES", "doubtful"),
    "borderline": ("BORDERLINE", "doubtful"),
    "refused": ("REFUSED", "bad"),
    "failed": ("FAILED", "bad"),
    "unassessed": ("NOT ASSESSED", "doubtful"),
}
_KIBI = 1024
_HEADINGS: tuple[tuple[str, Justify], ...] = (
    ("#", "left"),
    ("kind", "left"),
    ("layers", "right"),
    ("block", "right"),
    ("page bytes", "right"),
    ("padding", "right"),
)


def diagnosis_document(diagnosis: Diagnosis) -> Document:
    """Lay the report out."""
    blocks: list[Block] = [_verdict(diagnosis)]
    if (refusal := diagnosis.refusal) is not None:
        blocks.append(Quote(title=f"{how_it_ended(refusal)} at {refusal.stage}", text=f"{refusal.exception}: {refusal.message}"))
    if rows := _summary(diagnosis):
        blocks.append(Pairs(title=None, rows=rows))
    full = group_table(diagnosis)
    if full is not None:
        blocks.append(_folded(diagnosis) if diagnosis.layout.groups else Table(title=full.title, headings=full.headings, rows=full.rows))
    if diagnosis.findings:
        blocks.append(Findings(findings=diagnosis.findings))
    blocks.append(Line(text=_next(diagnosis)))
    story = block_story(diagnosis)
    costs = request_costs(diagnosis)
    details: tuple[Block, ...] = (*(part for part in (full, story, costs) if part is not None), *sections(diagnosis))
    return Document(title=_title(diagnosis), blocks=tuple(blocks), details=details)


def how_it_ended(refusal: Refusal) -> str:
    """Say whose word the exception is: a check of vLLM's refused, or its code failed."""
    return "vLLM's code failed" if refusal.accident else "vLLM refuses"


def model_name(diagnosis: Diagnosis) -> str:
    """Name what was planned."""
    name = diagnosis.request.model or "layer specs given directly"
    revision = diagnosis.request.revision
    return f"{name}@{revision}" if revision else name


def _title(diagnosis: Diagnosis) -> str:
    sizes = {name: size for name, size in _parallel(diagnosis).items() if size > 1}
    gpus = 1
    for size in sizes.values():
        gpus *= size
    ways = f" ({', '.join(f'{name} {size}' for name, size in sizes.items())})" if sizes else ""
    return f"{model_name(diagnosis)} on {gpus} x {diagnosis.gpu.name}{ways}, vLLM {diagnosis.engine.vllm_version}"


def _parallel(diagnosis: Diagnosis) -> dict[str, int]:
    launch = diagnosis.launch
    sizes = {"TP": launch.tensor_parallel_size, "PP": launch.pipeline_parallel_size, "DP": launch.data_parallel_size}
    return {name: size or 1 for name, size in sizes.items()}


def _verdict(diagnosis: Diagnosis) -> Verdict:
    word, tone = _WORDS[diagnosis.verdict]
    memory, length = diagnosis.memory, diagnosis.request.max_model_len
    line = verdict_line(diagnosis)
    if diagnosis.verdict in ("ok", "warning") and diagnosis.layout.groups and memory.kv_cache_bytes is not None:
        has = f"has {_budget(diagnosis)}"
        needed = memory.needed_for_max_model_len_bytes
        if needed is None or length is None:
            return Verdict(word=word, text=has, tone=tone)
        return Verdict(word=word, text=f"needs {gib(needed)} of KV cache for {counted(length, 'token')}, {has}", tone=tone)
    # What vLLM says of itself stands under its own heading; here is the sentence of who refused, and where.
    start = next((start for start in ("borderline: ", "refused ", "will not launch: ", "launches: ") if line.startswith(start)), "")
    return Verdict(word=word, text=line.removeprefix(start), tone=tone)


def _budget(diagnosis: Diagnosis) -> str:
    size = diagnosis.memory.kv_cache_bytes or 0
    return gib(size) if diagnosis.memory.kv_cache_source == "kv_cache_memory" else f"about {gib_number(size)}"


def _summary(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    rows = [
        ("Memory per GPU", _memory(diagnosis)),
        ("Requests at once", _requests(diagnosis)),
        ("Prefix caching", _prefix(diagnosis)),
        ("Empty space", _empty(diagnosis)),
        ("Not checked", _not_checked(diagnosis)),
    ]
    return tuple((label, value) for label, value in rows if value)


def _memory(diagnosis: Diagnosis) -> str:
    memory = diagnosis.memory
    if not memory.weights_bytes:
        return ""
    parts = [f"weights {gib_number(memory.weights_bytes)}"]
    if memory.kv_cache_bytes is not None:
        about = "" if memory.kv_cache_source == "kv_cache_memory" else "~"
        parts.append(f"KV cache {about}{gib_number(memory.kv_cache_bytes)}")
    if memory.allowance_bytes is not None:
        parts.append(f"reserve {gib_number(memory.allowance_bytes)}")
    parts.append(f"of {gib(int(memory.gpu_bytes * (memory.gpu_memory_utilization or 1)))}")
    return " | ".join(parts)


def _requests(diagnosis: Diagnosis) -> str:
    known = diagnosis.layout.requests_at
    if not known:
        return ""
    told = " | ".join(f"{_length(at.tokens)}: {_count(at.requests)}" for at in known)
    sizes = _parallel(diagnosis)
    gpus = sizes["TP"] * sizes["PP"]
    whose = [f"all {gpus} GPUs together"] if gpus > 1 else []
    whose += [f"each of {sizes['DP']} replicas"] if sizes["DP"] > 1 else []
    return told + (f" ({', '.join(whose)})" if whose else "")


def _length(tokens: int) -> str:
    return f"{tokens // _KIBI}k" if tokens >= _KIBI and tokens % _KIBI == 0 else grouped(tokens)


def _count(requests: float) -> str:
    """Whole requests are what a server can hold; below ten the rest tells how near the next one is."""
    return grouped(int(requests)) if requests >= 10 else f"{requests:.2f}"  # noqa: PLR2004 - two digits


def _prefix(diagnosis: Diagnosis) -> str:
    layout = diagnosis.layout
    if not layout.groups or layout.prefix_caching is None:
        return ""
    if not layout.prefix_caching:
        return "off"
    hits, smallest = layout.prefix_hit_tokens, layout.min_reusable_prefix_tokens
    if hits is None:
        return "on"
    if smallest is None:
        return f"on; multiples of {counted(hits, 'token')}" + (", but no prefix can be reused" if diagnosis.refusal is None else "")
    shorter = "nothing shorter" if smallest == hits else f"nothing shorter than {grouped(smallest)}"
    return f"on; reuses multiples of {counted(hits, 'token')}, {shorter}"


def _empty(diagnosis: Diagnosis) -> str:
    share = empty_percent(diagnosis.layout, diagnosis.launch.max_model_len)
    return "" if share is None else f"{percent(share)} of a full request"


def _not_checked(diagnosis: Diagnosis) -> str:
    """Name what this report leaves open beyond what every one does."""
    left = [check.name for check in diagnosis.checks if check.outcome == "not_checked" and check not in LEFT_OUT]
    return ", ".join([*left, "what needs the weights or the GPU"])


def _folded(diagnosis: Diagnosis) -> Table:
    """Groups that follow one another and are alike share a row."""
    rows: list[tuple[str, ...]] = []
    runs: list[list[GroupLayout]] = []
    for group in diagnosis.layout.groups:
        if runs and _shape(runs[-1][-1]) == _shape(group):
            runs[-1].append(group)
        else:
            runs.append([group])
    for run in runs:
        first, last = run[0], run[-1]
        index = str(first.index) if first is last else f"{first.index}-{last.index}"
        for position, page in enumerate(first.pages):
            layers = grouped(page.layer_count) if first is last else f"{len(run)} x {grouped(page.layer_count)}"
            figures = (layers, grouped(first.block_size), grouped(page.page_bytes), percent(page.wasted_percent))
            rows.append(((index, kind_of(first)) if position == 0 else ("", "")) + figures)
    return Table(title=group_title(diagnosis), headings=_HEADINGS, rows=tuple(rows))


def _shape(group: GroupLayout) -> tuple[object, ...]:
    pages = tuple((page.layer_count, page.page_bytes, page.used_bytes) for page in group.pages)
    return kind_of(group), group.block_size, pages


def _next(diagnosis: Diagnosis) -> str:
    memory = diagnosis.memory
    if diagnosis.verdict in ("ok", "warning") and memory.kv_cache_source == "estimate" and memory.kv_cache_bytes is not None:
        return "Exact with --kv-cache-memory SIZE (a boot logs it); --details shows the rest"
    return "--details shows layer names, settings, assumptions and steps"
