"""KV3xx: prefix caching is not what the deployer thinks."""

from kvdoctor.rules.interface import Finding, Rule, RuleContext, Skipped
from kvdoctor.rules.numbers import grouped

COARSE_TOKENS = 256


class BlockExceedsContext(Rule):
    """No prefix can be reused, since the block is larger than the longest request.

    ## What it does
    Compares the smallest reusable prefix with `max_model_len`, when prefix caching is on.

    ## Why it is bad
    A prefix is reused in whole blocks. When not even one fits into a request, prefix caching costs its bookkeeping and never hits.

    ## What to do
    Raise `--max-model-len` above the block size, or turn prefix caching off with `--no-enable-prefix-caching`.
    """

    id = "KV301"
    name = "block-exceeds-context"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/issues/48401", "https://github.com/vllm-project/vllm/pull/48402")

    def check(self, context: RuleContext) -> tuple[Finding, ...] | Skipped:
        """Compare the two figures."""
        smallest, longest = _smallest(context), context.plan.launch.max_model_len
        if context.layout.prefix_caching is False:
            return ()
        if smallest is None or longest is None:
            return Skipped(reason="the smallest reusable prefix was not settled")
        if smallest <= longest:
            return ()
        return (
            self.finding(
                f"the smallest reusable prefix is {grouped(smallest)} tokens, and a request has at most {grouped(longest)}",
                remediation=f"Pass --max-model-len above {smallest}, or --no-enable-prefix-caching",
                evidence={"min_reusable_prefix_tokens": smallest, "max_model_len": longest},
            ),
        )


class CoarsePrefixGranularity(Rule):
    """The smallest reusable prefix is 256 tokens or more.

    ## What it does
    Reports the smallest prefix that prefix caching can reuse, when it is large.

    ## Why it is bad
    A shared prompt that is shorter is computed anew for every request: a system prompt of 240 tokens under a block of 784 never hits.

    ## What to do
    Put what requests share first, and make it longer than the block. On models with recurrent states, a `--prefix-match-unit` that
    divides the block sizes may allow shorter hits: plan again with it and compare.
    """

    id = "KV302"
    name = "coarse-prefix-granularity"
    severity = "info"
    urls = ("https://github.com/vllm-project/vllm/issues/54607", "https://github.com/vllm-project/vllm/issues/53749")

    def check(self, context: RuleContext) -> tuple[Finding, ...] | Skipped:
        """Report a large granularity; one that no request can reach is KV301's."""
        smallest, longest = _smallest(context), context.plan.launch.max_model_len
        if context.layout.prefix_caching is False:
            return ()
        if smallest is None:
            return Skipped(reason="the smallest reusable prefix was not settled")
        if smallest < COARSE_TOKENS or (longest is not None and smallest > longest):
            return ()
        remediation = f"Start prompts with at least {smallest} shared tokens"
        if context.plan.launch.mamba_cache_mode == "align" and len(context.layout.groups) > 1:
            remediation += f", or compare a --prefix-match-unit that divides {smallest}"
        return (
            self.finding(
                f"a shared prefix shorter than {grouped(smallest)} tokens is never reused",
                remediation=remediation,
                evidence={"min_reusable_prefix_tokens": smallest},
            ),
        )


def _smallest(context: RuleContext) -> int | None:
    """The smallest reusable prefix; where there is none at all, the grain that hits would land on says why."""
    layout = context.layout
    return layout.prefix_hit_tokens if layout.min_reusable_prefix_tokens is None else layout.min_reusable_prefix_tokens
