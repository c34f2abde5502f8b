"""KV406: the verdict rests on an estimate."""

from kvdoctor.rules.interface import Finding, Rule, RuleContext
from kvdoctor.rules.numbers import gib, gib_apart
from kvdoctor.rules.requirements import OTHER_END


class BorderlineMemory(Rule):
    """Whether it launches depends on how far the estimated memory budget is off.

    ## What it does
    Plans a launch whose budget is an estimate once more, with the reserve for activations, graphs and libraries left out (where vLLM
    refused) or taken twice (where it did not), and compares the two answers.

    ## Why it is bad
    Only a boot measures what is left for the KV cache. Where the answer changes within what the estimate may be off, neither answer can be
    relied on.

    ## What to do
    Give the budget that a boot logs (`Available KV cache memory`) with `--kv-cache-memory`, or leave a margin: a shorter context, fewer
    sequences, more GPUs.

    ## Example
    A model that needs 15.3 GiB for one request, with 14.9 GiB estimated: refused, and not if the reserve of 3.3 GiB is a fifth too large.
    """

    id = "KV406"
    name = "borderline-memory"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/issues/57475",)
    requires = (OTHER_END,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Compare the answers at the estimate and at the other end."""
        other, memory = context.other_end, context.plan.memory
        refused = context.plan.refusal is not None or memory.weights_fit is False
        if other is None or other.launches != refused:
            return ()
        estimated = memory.kv_cache_bytes or 0
        one, two = gib_apart(estimated, other.kv_cache_bytes)
        answers = ("refused", "launches") if refused else ("launches", "refused")
        reserve = memory.allowance_bytes or 0
        return (
            self.finding(
                f"{answers[0]} with the estimated {one} for the KV cache, {answers[1]} with {two}: "
                f"the reserve of {gib(reserve)} is estimated",
                remediation="Give the budget that a boot logs with --kv-cache-memory, or leave a margin",
                evidence={"estimated_bytes": estimated, "other_end_bytes": other.kv_cache_bytes, "reserve_bytes": reserve},
            ),
        )
