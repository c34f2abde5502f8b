"""Which of the launch's arguments a refusal is about, and what to do with them.

What was given is asked of the plan, which has it from vLLM's own parser: nobody is told to pass what is passed already.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kvdoctor.rules.refusal_text import NoAttentionBackend

Given = Mapping[str, Any]

# What vLLM's messages say, and the arguments that they may be about, by the parser's names; upper case is a variable.
_TOPICS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"prefix_match_unit", ("prefix_match_unit",)),
    (r"kv_connector|kv_transfer|KV connector", ("kv_transfer_config",)),
    (r"cannot express this model's mixed page sizes", ("VLLM_KV_CACHE_LAYOUT",)),
    (r"max_num_batched_tokens", ("max_num_batched_tokens",)),
    (r"decode_context_parallel|dcp_size|\bDCP\b", ("decode_context_parallel_size",)),
    (r"tensor[_ ]parallel[_ ]size", ("tensor_parallel_size",)),
    (r"pipeline[_ ]parallel[_ ]size", ("pipeline_parallel_size",)),
    (r"number of available GPUs|World size", ("tensor_parallel_size", "pipeline_parallel_size")),
    (r"[Nn]o common block size|[Bb]lock[_ ]size", ("block_size",)),
    (r"kv[_ ]cache[_ ]dtype|FP8 KV cache|fp8.{0,20}KV cache", ("kv_cache_dtype",)),
    (r"max_model_len|maximum model length", ("max_model_len",)),
    (r"max_num_seqs", ("max_num_seqs",)),
    (r"gpu_memory_utilization", ("gpu_memory_utilization",)),
    (r"quantization", ("quantization",)),
    (r"speculative", ("speculative_config",)),
    (r"cudagraph_mode|CUDA graph", ("compilation_config",)),
    (r"dtype", ("dtype",)),
)
# What can enlarge a recurrent state beyond the page that it was padded to; only what was given can be to blame.
_PADDED_PAGE = re.compile(r"page_size_padded >= ")
_ENLARGES_STATES = ("speculative_config", "mamba_ssm_cache_dtype", "mamba_cache_dtype", "block_size", "mamba_block_size", "kv_cache_dtype")
_HYBRID_MANAGER = re.compile(r"[Hh]ybrid KV cache manager is disabled|Failed to promote local KV cache specs")
_SPELLED = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)+(?![\w-])")

# vLLM's reasons against an attention backend, and the arguments that set what they speak of; a reason that is not here is the model's.
_BACKEND_REASONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"^kv_cache_dtype not|KV cache$", ("kv_cache_dtype",)),
    (r"^dtype not", ("dtype",)),
    (r"^block_size not", ("block_size",)),
    (r"KV connector", ("kv_transfer_config",)),
    (r"\bDCP\b", ("decode_context_parallel_size",)),
    (r"\bPCP\b", ("prefill_context_parallel_size",)),
    (r"non-causal|adaptive verification|query lens mismatch", ("speculative_config",)),
    (r"batch invarian", ("VLLM_BATCH_INVARIANT",)),
)


def flag(name: str, given: Given) -> str:
    """Spell an argument as it was given: ``--block-size 8``; without a value where none is kept."""
    if name.isupper():
        return name
    value = given.get(name)
    if value is False:
        return f"--no-{name.replace('_', '-')}"
    return f"--{name.replace('_', '-')}" + ("" if value is None or value is True else f" {value}")


def remedy(message: str, given: Given) -> str:
    """Say what to do about a refusal: with the argument that it is likely about, one that was given before one that was not."""
    if _HYBRID_MANAGER.search(message):
        return hybrid_manager(given)
    if _PADDED_PAGE.search(message):
        return _padded_page(given)
    if "No available memory" in message and "num_gpu_blocks_override" in given:
        return f"Raise or leave out {flag('num_gpu_blocks_override', given)}: so few blocks leave none beside the one that vLLM keeps"
    spelled = [word for word in _SPELLED.findall(message) if not is_given(word, given)]
    if spelled:
        name = _name(spelled[0])
        return f"Change {flag(name, given)}, which vLLM's message is about" if name in given else _look_at(spelled[0])
    names = [name for pattern, about in _TOPICS if re.search(pattern, message) for name in about]
    # A default seldom breaks a launch: what was given comes first.
    if chosen := [name for name in names if name in given]:
        return f"Change {flag(chosen[0], given)}, which vLLM's message is about"
    topic = next((about for pattern, about in _TOPICS if re.search(pattern, message)), ())
    return _look_at(" or ".join(flag(name, given) for name in topic)) if topic else "Follow vLLM's message, which names no other flag"


def is_given(spelled: str, given: Given) -> bool:
    """Whether a switch as vLLM's message spells it (``--no-enable-prefix-caching``) is among what was given, set that way."""
    off = spelled.startswith("--no-")
    return given.get(_name(spelled)) is (not off)


def more_memory(given: Given, *, budget_given: bool) -> str:
    """Name what gives the KV cache more memory: not a flag that another, given one puts out of force."""
    if "num_gpu_blocks_override" in given:
        return f"raise or leave out {flag('num_gpu_blocks_override', given)}"
    if budget_given:
        return f"raise --kv-cache-memory{'-bytes' if 'kv_cache_memory_bytes' in given else ''}, or use more GPUs"
    return "raise --gpu-memory-utilization, or use more GPUs"


def backend_remedy(refused: NoAttentionBackend, given: Given) -> str:
    """Say what stands between the layers and the backend that is nearest to taking them."""
    if refused.selected is not None:
        blockers, fixed = _blockers(refused.reasons.get(refused.selected, ()))
        chosen = flag("attention_backend", given) if "attention_backend" in given else f"the choice of {refused.selected}"
        flags = [flag(name, given) for name in blockers if name in given]
        return f"Leave out {chosen}" + (f", or change {' and '.join(flags)}" if flags and not fixed else "")
    open_ways = {tuple(blockers) for blockers, fixed in map(_blockers, refused.reasons.values()) if blockers and not fixed}
    if not open_ways:
        if any("compute capability" in reason for reasons in refused.reasons.values() for reason in reasons):
            return "Launch on another GPU, or ask another release with --vllm: no flag is in the way"
        return "Ask another release with --vllm: no flag is in the way"
    # The way with the fewest arguments that were not given, and then with the fewest.
    way = min(open_ways, key=lambda names: (sum(name not in given for name in names), len(names), names))
    return f"Change {' and '.join(flag(name, given) for name in way)}: nothing else keeps {_and(_kept_out(refused, way))} out"


def nearest_backends(refused: NoAttentionBackend) -> str:
    """Name the backends with the fewest reasons against them, and the reasons; of a selected one, the reasons."""
    if refused.selected is not None:
        return ", ".join(refused.reasons[refused.selected])
    fewest = min((len(reasons) for reasons in refused.reasons.values()), default=0)
    alike: dict[tuple[str, ...], list[str]] = {}
    for backend, reasons in refused.reasons.items():
        if len(reasons) == fewest:
            alike.setdefault(reasons, []).append(backend)
    return "; ".join(f"{', '.join(reasons)} ({', '.join(backends)})" for reasons, backends in alike.items())


def hybrid_manager(given: Given) -> str:
    """Say how to get the hybrid KV-cache manager back."""
    name = "disable_hybrid_kv_cache_manager"
    if given.get(name) is True:
        return f"Leave out {flag(name, given)}: layers of several kinds need the hybrid KV-cache manager"
    turned_off = " and ".join(flag(other, given) for other in ("kv_transfer_config", "kv_events_config") if other in given)
    if name in given:
        return f"Leave out {turned_off}" if turned_off else "Follow vLLM's message, which names no other flag"
    keep = f"--no-{name.replace('_', '-')}"
    return f"Leave out {turned_off}, which turns the hybrid KV-cache manager off, or pass {keep}" if turned_off else f"Pass {keep}"


def _padded_page(given: Given) -> str:
    chosen = [name for name in _ENLARGES_STATES if name in given]
    if not chosen:
        return "Ask another release with --vllm: a recurrent state is larger than the page that vLLM padded for it"
    return f"Leave out {flag(chosen[0], given)}, with which a recurrent state is larger than the page that vLLM padded for it"


def _blockers(reasons: Sequence[str]) -> tuple[list[str], bool]:
    """The arguments that ``reasons`` speak of, and whether one is about the model or the GPU, which no argument changes."""
    names: list[str] = []
    fixed = False
    for reason in reasons:
        about = next((names for pattern, names in _BACKEND_REASONS if re.search(pattern, reason)), None)
        fixed = fixed or about is None
        names += [name for name in about or () if name not in names]
    return names, fixed


def _kept_out(refused: NoAttentionBackend, way: tuple[str, ...]) -> list[str]:
    return [backend for backend, reasons in refused.reasons.items() if _blockers(reasons) == (list(way), False)]


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _name(spelled: str) -> str:
    return spelled.removeprefix("--").removeprefix("no-").replace("-", "_")


def _look_at(flags: str) -> str:
    return f"Look at {flags}, which vLLM's message is about"
