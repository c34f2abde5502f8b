"""One figure for the bytes of a KV cache that hold nothing; kvdoctor's own reading, since vLLM has none."""

from kvdoctor.layout import Layout


def empty_percent(layout: Layout) -> float | None:
    """Give the percent of the bytes held by a request of ``max_model_len`` tokens that hold neither a token nor a state.

    Padding inside pages counts, and so does the room that a group with few layers leaves in each of its blocks. ``None`` where vLLM had
    not settled what a request holds.
    """
    held = empty = 0
    for group in layout.groups:
        blocks, idle = group.blocks_per_request, group.idle_bytes_per_block
        if blocks is None or idle is None:
            return None
        held += blocks * (group.page_bytes_per_block + idle)
        empty += blocks * (group.wasted_bytes_per_block + idle)
    return 100 * empty / held if held else None
