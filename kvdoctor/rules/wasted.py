"""KV2xx: bytes that hold nothing."""

from kvdoctor.layout import GroupLayout, PageLayout
from kvdoctor.rules.interface import Finding, Rule, RuleContext, Skipped
from kvdoctor.rules.numbers import counted, grouped, percent

THRESHOLD_PERCENT = 10.0


class PagePadding(Rule):
    """More than 10 % of a page is padding.

    ## What it does
    Compares the bytes of each page with the bytes that its tokens, or its recurrent state, fill.

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
        """Report each kind of padded page once, with the groups that have it."""
        groups = context.layout.groups
        if not groups:
            return Skipped(reason="no groups were settled")
        padded: dict[tuple[str, int, int, int], list[tuple[GroupLayout, PageLayout]]] = {}
        for group in groups:
            for page in group.pages:
                if page.wasted_percent > THRESHOLD_PERCENT:
                    padded.setdefault((group.kind, group.block_size, page.page_bytes, page.used_bytes), []).append((group, page))
        return tuple(self._finding(found) for found in padded.values())

    def _finding(self, found: list[tuple[GroupLayout, PageLayout]]) -> Finding:
        group, page = found[0]
        layers = sum(page.layer_count for _, page in found)
        cause, remediation = _CAUSES.get(group.kind, _OTHER_CAUSE)
        return self.finding(
            f"{percent(page.wasted_percent)} of each page ({grouped(page.wasted_bytes)} of {grouped(page.page_bytes)} bytes) is padding in "
            f"{counted(layers, group.kind.replace('_', ' ') + ' layer')}: {cause}",
            remediation=remediation,
            evidence={
                "groups": [group.index for group, _ in found],
                "layer_count": layers,
                "block_size": group.block_size,
                "page_bytes": page.page_bytes,
                "used_bytes": page.used_bytes,
                "wasted_bytes": page.wasted_bytes,
                "wasted_percent": page.wasted_percent,
                "cause": cause,
            },
        )


_CAUSES = {
    "mamba": (
        "the recurrent state is padded to the page of the attention layers",
        "Compare other --block-size, --kv-cache-dtype and --mamba-ssm-cache-dtype values",
    ),
    "hidden_state": (
        "the block of the hidden states is the largest divisor of the common block that fits the common page",
        "Compare other --block-size values, whose divisors may fill the page better",
    ),
}
_OTHER_CAUSE = (
    "the page is padded to the widest page or to the backend's alignment",
    "Compare one --kv-cache-dtype for all layers, and other --block-size values",
)
