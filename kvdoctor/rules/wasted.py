"""KV2xx: bytes that hold nothing."""

from kvdoctor.layout import GroupLayout
from kvdoctor.rules.interface import Finding, Rule, RuleContext, Skipped
from kvdoctor.rules.numbers import counted, grouped, percent

THRESHOLD_PERCENT = 10.0


class PagePadding(Rule):
    """More than 10 % of a group's pages is padding.

    ## What it does
    Compares the bytes of a group's pages with the bytes that their tokens, or their recurrent state, fill.

    ## Why it is bad
    Every block of the group carries the padding, so that share of the KV cache's memory holds nothing: fewer tokens, fewer requests.

    ## What to do
    It depends on the cause, which the finding names. A recurrent state is padded up to the attention page: compare other `--block-size`,
    `--kv-cache-dtype` and `--mamba-ssm-cache-dtype` values. Hidden states get the largest divisor of the common block that fits the
    page: compare other `--block-size` values. Pages of different dtypes are padded to the widest: use one dtype.
    """

    id = "KV201"
    name = "page-padding"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/pull/51108", "https://github.com/vllm-project/vllm/issues/43626")

    def check(self, context: RuleContext) -> tuple[Finding, ...] | Skipped:
        """Report groups alike once. A small padded page beside large full ones is no loss, so a group is judged by all its pages."""
        groups = context.layout.groups
        if not groups:
            return Skipped(reason="no groups were settled")
        padded: dict[tuple[str, int, float], list[GroupLayout]] = {}
        for group in groups:
            if group.wasted_share > THRESHOLD_PERCENT:
                padded.setdefault((group.kind, group.block_size, group.wasted_share), []).append(group)
        return tuple(self._finding(alike) for alike in padded.values())

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
