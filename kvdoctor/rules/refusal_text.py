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
    (_SEQUENCES, _sequences),
    (_CONTEXT, _context),
    (_NO_MEMORY, lambda _: NoMemoryForBlocks()),
    (_REMOTE_CODE, lambda _: RemoteCodeNeeded()),
)
