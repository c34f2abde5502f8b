"""The bytes of a KV cache that hold nothing, in figures; kvdoctor's own reading, since vLLM has none."""

from dataclasses import dataclass

from kvdoctor.layout import GroupLayout, Layout

# Kinds whose blocks hold tokens, of which a request has no more than ``max_model_len``. A recurrent state fills its page by itself, and
# what cross attention keeps are the encoder's tokens.
_OF_TOKENS = frozenset({"full_attention", "mla", "sliding_window", "sliding_window_mla", "chunked_local", "hidden_state"})


@dataclass(frozen=True, kw_only=True)
class EmptyBytes:
    """What a request of ``max_model_len`` tokens holds on all pipeline stages, and what of it holds neither a token nor a state.

    ``padding_bytes`` are inside pages. ``idle_bytes`` is the room that a group with few or narrow layers leaves in its blocks of the
    shared pool (padding layers, where pages have one size). ``unfilled_bytes`` is the room for tokens beyond the request's last; of a
    group that keeps fewer tokens than the request has, at least that much.
    """

    held_bytes: int
    padding_bytes: int
    idle_bytes: int
    unfilled_bytes: int

    @property
    def percent(self) -> float:
        """The empty share of what is held."""
        return self.share(self.padding_bytes + self.idle_bytes + self.unfilled_bytes)

    def share(self, size: int) -> float:
        """Bytes as percent of what is held."""
        return 100 * size / self.held_bytes if self.held_bytes else 0.0


def read_empty(layout: Layout, max_model_len: int | None) -> EmptyBytes | None:
    """Add up the empty bytes of a full request's blocks; ``None`` where vLLM had not settled what a request holds."""
    held = padding = idle = unfilled = 0
    for group in layout.groups:
        blocks, idle_per_block = group.blocks_per_request, group.idle_bytes_per_block
        if blocks is None or idle_per_block is None:
            return None
        held += blocks * (group.page_bytes_per_block + idle_per_block)
        padding += blocks * group.wasted_bytes_per_block
        idle += blocks * idle_per_block
        unfilled += _unfilled(group, blocks, max_model_len)
    return EmptyBytes(held_bytes=held, padding_bytes=padding, idle_bytes=idle, unfilled_bytes=unfilled) if held else None


def empty_percent(layout: Layout, max_model_len: int | None) -> float | None:
    """Give the percent of the bytes held by a request of ``max_model_len`` tokens that hold neither a token nor a state."""
    empty = read_empty(layout, max_model_len)
    return None if empty is None else empty.percent


def _unfilled(group: GroupLayout, blocks: int, max_model_len: int | None) -> int:
    if max_model_len is None or group.kind not in _OF_TOKENS or not group.block_size:
        return 0
    tokens = max(0, blocks * group.block_size - max_model_len)
    used = group.page_bytes_per_block - group.wasted_bytes_per_block
    return used * tokens // group.block_size
