"""The figures that vLLM logs while it starts: read alike from a boot's log and from the log that a plan keeps.

The texts are those of 0.25.1 to 0.34.0. Until 0.27 tokens and concurrency stood on two lines, since 0.28 on one; since 0.30 the
device's name stands in front, since 0.33 with "+ host" behind it for some models.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

Value = int | float | str


@dataclass(frozen=True, kw_only=True)
class LoggedFigure:
    """A figure that vLLM logs: the key and label that a report shows, and the pattern whose first group holds it."""

    key: str
    label: str
    pattern: re.Pattern[str]


def _figure(key: str, label: str, pattern: str) -> LoggedFigure:
    return LoggedFigure(key=key, label=label, pattern=re.compile(pattern, re.ASCII))


# In the order of a boot. A part of a line can hold one, so the texts are searched for, not matched.
FIGURES = (
    _figure("max_model_len", "longest request", r"Using max model len (\d{1,12})"),
    _figure("max_num_batched_tokens", "batched tokens", r"Chunked prefill is enabled with max_num_batched_tokens=(\d{1,12})"),
    _figure(
        "attention_backend", "attention backend", r"Using (?:AttentionBackendEnum\.)?(\w{1,60}) attention backend out of potential backends"
    ),
    _figure("attention_block_size", "attention block", r"Setting attention block size to (\d{1,12}) tokens"),
    _figure("mamba_padding_percent", "padding of state pages, %", r"Padding mamba page size by (\d{1,9}\.\d\d)%"),
    _figure("padding_layers", "padding layers", r"Add (\d{1,6}) padding layers, may waste at most"),
    _figure("kv_cache_layout", "KV-cache layout", r"Using (\w{1,20}) KV cache layout\."),
    _figure("kv_cache_tokens", "tokens", r"KV cache size: ([\d,]{1,20}) tokens"),
    _figure("concurrency_length", "tokens of a full request", r"Maximum concurrency for ([\d,]{1,20}) tokens per request: \d"),
    _figure("max_concurrency", "concurrency", r"Maximum concurrency for [\d,]{1,20} tokens per request: (\d{1,12}\.\d\d)x"),
    _figure("num_blocks", "blocks", r"(?:after num_gpu_blocks is: |# GPU blocks: )(\d{1,12})"),
)
# The last of these counts where vLLM says more than once: it settles the block size in steps.
_LAST_COUNTS = {"attention_block_size", "mamba_padding_percent", "padding_layers"}


def read_figures(texts: Iterable[str]) -> dict[str, tuple[Value, ...]]:
    """Read every figure: its distinct values in order, for ranks can differ; a key is missing where nothing was logged."""
    found: dict[str, list[Value]] = {}
    for text in texts:
        for figure in FIGURES:
            if match := figure.pattern.search(text):
                found.setdefault(figure.key, []).append(number(match[1]))
    return {key: tuple(values[-1:] if key in _LAST_COUNTS else dict.fromkeys(values)) for key, values in found.items()}


def number(text: str) -> Value:
    """Read a number as vLLM writes it; what is none stays text."""
    bare = text.replace(",", "")
    if re.fullmatch(r"\d{1,20}", bare, re.ASCII):
        return int(bare)
    return float(bare) if re.fullmatch(r"\d{1,12}\.\d{1,6}", bare, re.ASCII) else text
