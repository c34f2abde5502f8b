"""KV2xx: bytes that hold nothing."""

from kvdoctor.layout import GroupLayout
from kvdoctor.rules.interface import Finding, Rule, RuleContext
from kvdoctor.rules.numbers import counted, grouped, percent
from kvdoctor.rules.requirements import GROUPS, REQUEST_BLOCKS
from kvdoctor.waste import EmptyBytes, read_empty

THRESHOLD_PERCENT = 10.0
# A padded page of a group that takes little of the pool is no loss: Kimi-Linear pads 8.0 % of a page and 0.04 % of the pool.
POOL_PERCENT = 1.0


class PagePadding(Rule):
    """More than 10 % of a group's pages is padding.

    ## What it does
    Compares the bytes of a group's pages with the bytes that their tokens, or their recurrent state, fill. Padding that is less than
    1 % of all that a full request holds is not reported.

    ## Why it is bad
    Every block of the group carries the padding, so that share of the KV cache's memory holds nothing: fewer tokens, fewer requests.

    ## What to do
    It depends on the cause, which the finding names. A recurrent state is padded up to the attention page: compare other `--block-size`,
    `--kv-cache-dtype` and `--mamba-ssm-cache-dtype` values. Hidden states get the largest divisor of the common block that fits the
    page: compare other `--block-size` values. Pages of different dtypes are padded to the widest: use one dtype.

    ## Example
    Hidden states in a hybrid with blocks of 544 tokens: 136 of them take 835,584 of 1,114,112 bytes, so 25 % of each page is padding.
    """

    id = "KV201"
    name = "page-padding"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/pull/51108", "https://github.com/vllm-project/vllm/issues/43626")
    requires = (GROUPS,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Report groups alike once. A small padded page beside large full ones is no loss, so a group is judged by all its pages."""
        groups = context.layout.groups
        empty = read_empty(context.layout, context.plan.launch.max_model_len)
        padded: dict[tuple[str, int, float], list[GroupLayout]] = {}
        for group in groups:
            if group.wasted_share > THRESHOLD_PERCENT:
                padded.setdefault((group.kind, group.block_size, group.wasted_share), []).append(group)
        return tuple(self._finding(alike) for alike in padded.values() if _matters(alike, groups, empty))

    def _finding(self, alike: list[GroupLayout]) -> Finding:
        group = alike[0]
        # Of a group with pages of several sizes, the page that wastes the most is the one to look at.
        page = max(group.pages, key=lambda page: page.wasted_bytes * page.layer_count)
        layers = sum(member.layer_count for member in alike)
        cause, remediation = _CAUSES.get(group.kind, _OTHER_CAUSE)
        wasted = f"{grouped(page.wasted_bytes)} of {grouped(page.page_bytes)} bytes"
        where = counted(layers, group.kind.replace("_", " ") + " layer")
        message = f"{percent(group.wasted_share)} of each page ({wasted}) is padding in {where}: {cause}"
        if len(group.pages) > 1:
            message = f"{percent(group.wasted_share)} of the pages of {where} is padding, at worst {wasted} of a page: {cause}"
        return self.finding(
            message,
            remediation=remediation,
            evidence={
                "groups": [member.index for member in alike],
                "layer_count": layers,
                "block_size": group.block_size,
                "page_bytes": page.page_bytes,
                "used_bytes": page.used_bytes,
                "wasted_bytes": page.wasted_bytes,
                "wasted_percent": group.wasted_share,
                "cause": cause,
            },
        )


def _matters(alike: list[GroupLayout], groups: tuple[GroupLayout, ...], empty: EmptyBytes | None) -> bool:
    """Whether the groups' padding is a part of a full request worth a word; where that is not settled, it is.

    Before the pool is settled, a request's pages stand in for its blocks.
    """
    padding = sum(group.wasted_bytes_per_block * (group.blocks_per_request or 0) for group in alike)
    if empty is not None:
        return empty.share(padding) > POOL_PERCENT
    pages = [group.page_bytes_per_block * group.blocks_per_request for group in groups if group.blocks_per_request is not None]
    return len(pages) < len(groups) or 100 * padding > POOL_PERCENT * sum(pages)


class EmptyShareOfPool(Rule):
    """More than 10 % of the blocks of a full-length request is empty.

    ## What it does
    Adds up what the blocks of a request of `max_model_len` tokens hold, and what of it is empty: padding inside pages, room that groups
    with few or narrow layers leave in their blocks (padding layers among it), and room for tokens in the last, half-filled blocks.

    ## Why it is bad
    All groups draw blocks of one size from one pool, so that share of the KV cache's memory serves no request. This is the figure that
    costs requests; a padded page in a group that takes little of the pool does not.

    ## What to do
    It depends on the largest part, which the finding names: compare other `--block-size` and `--kv-cache-dtype` values, or plan without
    a draft model, whose few layers take whole blocks.

    ## Example
    DeepSeek-V4-Flash: 13.6 % of a full request is empty, though no page loses more than 1.7 %.
    """

    id = "KV207"
    name = "empty-share-of-pool"
    severity = "info"
    urls = ("https://github.com/vllm-project/vllm/pull/29303", "https://github.com/vllm-project/vllm/pull/51108")
    requires = (REQUEST_BLOCKS,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Report the share with its parts, the largest of which decides the advice."""
        longest = context.plan.launch.max_model_len
        empty = read_empty(context.layout, longest)
        if empty is None or empty.percent <= THRESHOLD_PERCENT:
            return ()
        parts = {"padding": empty.padding_bytes, "idle": empty.idle_bytes, "unfilled": empty.unfilled_bytes}
        told = ", ".join(f"{percent(empty.share(size))} {_PARTS[part][0]}" for part, size in parts.items() if size)
        request = "full length" if longest is None else counted(longest, "token")
        return (
            self.finding(
                f"{percent(empty.percent)} of the blocks of a request of {request} is empty: {told}",
                remediation=_PARTS[max(parts, key=lambda part: parts[part])][1],
                evidence={
                    "held_bytes": empty.held_bytes,
                    "padding_bytes": empty.padding_bytes,
                    "idle_bytes": empty.idle_bytes,
                    "unfilled_bytes": empty.unfilled_bytes,
                    "empty_percent": empty.percent,
                },
            ),
        )


_PARTS = {
    "padding": ("padding in pages", "Compare the plan under other values of --block-size and --kv-cache-dtype"),
    "idle": (
        "room left by groups narrower than the block",
        "Compare the plan under other values of --block-size, and without a draft model if there is one",
    ),
    "unfilled": ("room behind the last token", "Compare the plan under a smaller --block-size, or a longer --max-model-len"),
}
_CAUSES = {
    "mamba": (
        "the recurrent state is padded to the page of the attention layers",
        "Compare the plan under other values of --block-size, --kv-cache-dtype and --mamba-ssm-cache-dtype",
    ),
    "hidden_state": (
        "the block of the hidden states is the largest divisor of the common block that fits the common page",
        "Compare the plan under other values of --block-size, whose divisors may fill the page better",
    ),
}
_OTHER_CAUSE = (
    "the page is padded to the widest page or to the backend's alignment",
    "Compare the plan under one --kv-cache-dtype for all layers, and under other values of --block-size",
)
