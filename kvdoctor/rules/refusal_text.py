"""vLLM's refusals, read: the figures in the messages that have a rule of their own.

vLLM refuses in prose, so this reads prose. The texts are 0.33.0's where nothing else is said, and most have not changed since 0.27.1.
A message that no pattern knows is not an error; KV103 reports it in vLLM's own words.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from kvdoctor.plan import SERVE_ARGUMENTS, Refusal


@dataclass(frozen=True, kw_only=True)
class HashDoesNotDivide:
    """The coordinator's assertion; ``None`` where the text has no figures."""

    block_sizes: tuple[int, ...]
    hash_block_size: int | None


@dataclass(frozen=True, kw_only=True)
class PagesNotUnifiable:
    """Page sizes that cannot be brought to one; ``layer`` where vLLM names it, ``page_bytes`` where it gives both."""

    layer: str | None
    page_bytes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RemoteCodeNeeded:
    """The model's repository brings code of its own."""


@dataclass(frozen=True, kw_only=True)
class ContextDoesNotFit:
    """One request of ``max_model_len`` tokens needs more than the budget; figures as far as the text gives them."""

    max_model_len: int
    estimated_max_model_len: int | None


@dataclass(frozen=True, kw_only=True)
class TooManySequences:
    """More sequences than blocks for their Mamba states."""

    max_num_seqs: int
    num_blocks: int


@dataclass(frozen=True, kw_only=True)
class NoMemoryForBlocks:
    """The weights and the working memory left nothing."""


@dataclass(frozen=True, kw_only=True)
class NoAttentionBackend:
    """No attention backend takes a layer, or not the one that was ``selected``; ``reasons`` are vLLM's against each."""

    selected: str | None
    reasons: dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class UnitInvalid:
    """A prefix match unit that does not divide ``block_sizes``."""

    unit: int
    block_sizes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BlockExceedsBatch:
    """Releases up to 0.26: in the align mode, a block larger than a batch."""

    block_size: int
    max_num_batched_tokens: int


@dataclass(frozen=True, kw_only=True)
class HeadsNotDivisible:
    """Heads, or a width of the model, that ``size`` ranks do not divide; ``limit`` where vLLM names the largest size."""

    argument: str
    size: int
    heads: int | None
    what: str
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class NoKernelBlock:
    """No kernel block size serves a group's ``block_size``; ``takes`` is what each backend takes, in vLLM's words."""

    block_size: int
    takes: str


@dataclass(frozen=True, kw_only=True)
class RingDoesNotDivide:
    """A ring of raw keys, sized by the speculative tokens, that does not divide the attention block."""

    capacity: int
    block_size: int


@dataclass(frozen=True, kw_only=True)
class ChunkDoesNotFit:
    """A connector's chunk that is no multiple of the blocks; ``use`` is the one that vLLM proposes."""

    chunk: int
    block_size: int
    use: int


@dataclass(frozen=True, kw_only=True)
class HybridManagerOff:
    """Layers of several kinds, and the manager that they need is off."""


@dataclass(frozen=True, kw_only=True)
class ServeArgumentsRefused:
    """An argument that the plan does not depend on; known by its step."""


RefusalReading = (
    HashDoesNotDivide
    | PagesNotUnifiable
    | RemoteCodeNeeded
    | ContextDoesNotFit
    | TooManySequences
    | NoMemoryForBlocks
    | NoAttentionBackend
    | UnitInvalid
    | BlockExceedsBatch
    | HeadsNotDivisible
    | NoKernelBlock
    | RingDoesNotDivide
    | ChunkDoesNotFit
    | HybridManagerOff
    | ServeArgumentsRefused
)

_HASH = re.compile(
    r"block_size must be divisible by\s+hash_block_size"
    r"(?:.*?block_sizes=\[(?P<sizes>[\d,\s]+)\],\s*hash_block_size=(?P<hash>\d+))?",
    re.DOTALL,
)
_PAGE = re.compile(
    r"Layer (?P<layer>\S+): page size is not divisible by the\s+maximum page size"
    r"|page size of the layer is not divisible by the\s+maximum page size"  # older releases, as in issue 40388
    r"|Page size mismatch after block_size adjust: (?P<page>\d+) != (?P<widest>\d+)"  # a worker's check, as in issue 43626
    r"|page_size_bytes == max_page_size"  # a bare assert, where the message is its source line
)
_SEQUENCES = re.compile(r"max_num_seqs \((?P<seqs>\d+)\) exceeds available Mamba cache\s+blocks \((?P<blocks>\d+)\)")
_CONTEXT = re.compile(
    r"max seq len \((?P<length>\d+)\)(?:,? .*?KV\s+cache is needed| is larger than the maximum number of tokens)"
    r"(?:.*?estimated maximum model length is (?P<largest>\d+))?",
    re.DOTALL,
)
_BACKENDS = re.compile(
    r"No valid attention backend found for .*?Reasons: \{(?P<all>.*)\}"
    r"|Selected backend (?:AttentionBackendEnum\.)?(?P<selected>\w+) is not valid for.*?Reason: \[(?P<reasons>.*)\]",
    re.DOTALL,
)
_REASONS = re.compile(r"(?P<backend>\w+): \[(?P<reasons>.*?)\](?=, \w+: \[|$)", re.DOTALL)
_UNIT = re.compile(
    r"Invalid prefix_match_unit=(?P<unit>\d+);(?:.*?prefix-cacheable=\[(?P<sizes>[\d,\s]+)\]|.*?block size \((?P<size>\d+)\))?", re.DOTALL
)
_BATCH = re.compile(r"align mode, block_size \((?P<block>\d+)\) must be <=\s+max_num_batched_tokens \((?P<batch>\d+)\)")
_HEADS = re.compile(r"number of attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<tp>\d+)\)")
_WIDTH = re.compile(r"^(?P<width>\d+) is not divisible by (?P<tp>\d+)$")
_CONTEXT_RANKS = re.compile(
    r"tp_size=(?P<tp>\d+) must be divisible by dcp_size=(?P<dcp>\d+)"
    r"|query heads per KV head \((?P<queries>\d+)\) must be divisible by `--decode-context-parallel-size` \((?P<over>\d+)\)"
    r"|`--decode-context-parallel-size` \((?P<most>\d+)\) exceeds the maximum supported value \((?P<limit>\d+)\)"
    r"|requires `--tensor-parallel-size` \((?P<few>\d+)\) to be greater than the model's total number of KV heads \((?P<kv>\d+)\)"
)
_KERNEL = re.compile(r"No common block size for (?P<block>\d+)(?: \((?P<takes>.*)\))?", re.DOTALL)
_RING = re.compile(r"ring capacity (?P<ring>\d+) must divide the attention block size (?P<block>\d+)")
_CHUNK = re.compile(
    r"'block_size'=(?P<chunk>\d+) in kv_connector_extra_config must be a multiple of the GPU KV cache block size "
    r"\((?P<block>\d+) tokens\)\. Use (?P<use>\d+)"
)
_HYBRID_MANAGER = re.compile(
    r"Failed to promote local KV cache specs|Hybrid KV cache manager is disabled but failed to convert the KV cache specs"
)
_NO_MEMORY = re.compile(r"No available memory for the cache blocks")
_REMOTE_CODE = re.compile(
    r"trust_remote_code=True|--trust-remote-code"
    r"|requires you to execute the configuration file|contains custom code which must be\s+executed"
)


def read_refusal(refusal: Refusal | None) -> RefusalReading | None:
    """Recognise a refusal by its step or its text."""
    if refusal is None:
        return None
    if refusal.stage == SERVE_ARGUMENTS:
        return ServeArgumentsRefused()
    for pattern, read in _READERS:
        if found := pattern.search(refusal.message):
            return read(found)
    return None


def _hash(found: re.Match[str]) -> RefusalReading:
    sizes = tuple(int(size) for size in re.findall(r"\d+", found["sizes"] or ""))
    return HashDoesNotDivide(block_sizes=sizes, hash_block_size=_number(found["hash"]))


def _page(found: re.Match[str]) -> RefusalReading:
    return PagesNotUnifiable(layer=found["layer"], page_bytes=tuple(int(page) for page in (found["page"], found["widest"]) if page))


def _sequences(found: re.Match[str]) -> RefusalReading:
    return TooManySequences(max_num_seqs=int(found["seqs"]), num_blocks=int(found["blocks"]))


def _context(found: re.Match[str]) -> RefusalReading:
    return ContextDoesNotFit(max_model_len=int(found["length"]), estimated_max_model_len=_number(found["largest"]))


def _unit(found: re.Match[str]) -> RefusalReading:
    return UnitInvalid(
        unit=int(found["unit"]), block_sizes=tuple(int(size) for size in re.findall(r"\d+", found["sizes"] or found["size"] or ""))
    )


def _heads(found: re.Match[str]) -> RefusalReading:
    return HeadsNotDivisible(argument="tensor_parallel_size", size=int(found["tp"]), heads=int(found["heads"]), what="attention heads")


def _width(found: re.Match[str]) -> RefusalReading:
    return HeadsNotDivisible(argument="tensor_parallel_size", size=int(found["tp"]), heads=int(found["width"]), what="rows of a matrix")


def _context_ranks(found: re.Match[str]) -> RefusalReading:
    argument = "decode_context_parallel_size"
    if found["dcp"]:
        return HeadsNotDivisible(argument=argument, size=int(found["dcp"]), heads=int(found["tp"]), what="tensor-parallel ranks")
    if found["over"]:
        return HeadsNotDivisible(argument=argument, size=int(found["over"]), heads=int(found["queries"]), what="query heads per KV head")
    if found["most"]:
        return HeadsNotDivisible(argument=argument, size=int(found["most"]), heads=None, what="", limit=int(found["limit"]))
    return HeadsNotDivisible(argument="tensor_parallel_size", size=int(found["few"]), heads=int(found["kv"]), what="KV heads")


def _backends(found: re.Match[str]) -> RefusalReading:
    if found["selected"]:
        return NoAttentionBackend(selected=found["selected"], reasons={found["selected"]: _reasons(found["reasons"])})
    each = _REASONS.finditer(found["all"])
    return NoAttentionBackend(selected=None, reasons={reason["backend"]: _reasons(reason["reasons"]) for reason in each})


def _reasons(text: str) -> tuple[str, ...]:
    # A reason of its own may go on behind a comma; what follows names nothing new.
    parts = (part.strip(" '\"") for part in text.split(", "))
    return tuple(part for part in parts if part and not part.startswith("this is "))


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


# The first match wins: a text that speaks of remote code in passing is the last to be looked for.
_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], RefusalReading]], ...] = (
    (_HASH, _hash),
    (_PAGE, _page),
    (_BACKENDS, _backends),
    (_UNIT, _unit),
    (_BATCH, lambda found: BlockExceedsBatch(block_size=int(found["block"]), max_num_batched_tokens=int(found["batch"]))),
    (_HEADS, _heads),
    (_WIDTH, _width),
    (_CONTEXT_RANKS, _context_ranks),
    (_KERNEL, lambda found: NoKernelBlock(block_size=int(found["block"]), takes=found["takes"] or "")),
    (_RING, lambda found: RingDoesNotDivide(capacity=int(found["ring"]), block_size=int(found["block"]))),
    (_CHUNK, lambda found: ChunkDoesNotFit(chunk=int(found["chunk"]), block_size=int(found["block"]), use=int(found["use"]))),
    (_HYBRID_MANAGER, lambda _: HybridManagerOff()),
    (_SEQUENCES, _sequences),
    (_CONTEXT, _context),
    (_NO_MEMORY, lambda _: NoMemoryForBlocks()),
    (_REMOTE_CODE, lambda _: RemoteCodeNeeded()),
)
