"""KV5xx: parallelism."""

from kvdoctor.rules.interface import Finding, Rule, RuleContext, Skipped
from kvdoctor.rules.numbers import grouped


class ContextParallelismInflatesBlock(Rule):
    """Decode context parallelism multiplies the block size.

    ## What it does
    Reports groups whose block, as the scheduler hands it out, is larger than what a GPU keeps of it, since its tokens are spread over
    the ranks of decode context parallelism.

    ## Why it is bad
    Prefixes are reused, and requests charged, in blocks that many times larger: a short request wastes more of its last block.

    ## What to do
    Know the figure. Where short prefixes matter, compare the plan under a smaller `--decode-context-parallel-size`.
    """

    id = "KV504"
    name = "dcp-inflates-block"
    severity = "info"
    urls = ("https://docs.vllm.ai/en/latest/serving/context_parallel_deployment/",)

    def check(self, context: RuleContext) -> tuple[Finding, ...] | Skipped:
        """Compare each group's block with that of its layers."""
        ranks = context.plan.launch.decode_context_parallel_size
        if ranks is None:
            return Skipped(reason="the parallel sizes were not settled")
        if ranks == 1:
            return ()
        if not context.plan.groups:
            return Skipped(reason="no groups were settled")
        grown = sorted(
            {
                (group.block_size, layer.block_size)
                for group in context.plan.groups
                for layer in group.layers
                if group.block_size > layer.block_size
            }
        )
        if not grown:
            return ()
        sizes = ", ".join(f"{grouped(own)} -> {grouped(block)} tokens" for block, own in grown)
        return (
            self.finding(
                f"decode context parallelism over {ranks} ranks multiplies the block: {sizes}",
                remediation="Compare the plan under a smaller --decode-context-parallel-size where short prefixes matter",
                evidence={"decode_context_parallel_size": ranks, "block_sizes": [block for block, _ in grown]},
            ),
        )
