"""KV3xx: prefix caching is not what the deployer thinks."""

from kvdoctor.rules.interface import Finding, Rule, RuleContext
from kvdoctor.rules.numbers import grouped
from kvdoctor.rules.requirements import GROUPS, HIT_GRAIN, LONGEST_REQUEST, SMALLEST_PREFIX, WITHOUT_DRAFTER, smallest_reusable

COARSE_TOKENS = 256


class BlockExceedsContext(Rule):
    """No prefix can be reused, since the block is larger than the longest request.

    ## What it does
    Compares the smallest reusable prefix with `max_model_len`, when prefix caching is on.

    ## Why it is bad
    A prefix is reused in whole blocks. When not even one fits into a request, prefix caching costs its bookkeeping and never hits.

    ## What to do
    Raise `--max-model-len` above the block size, or turn prefix caching off with `--no-enable-prefix-caching`.

    ## Example
    Nemotron-3-Super with `--max-model-len 4096` and a block of 8,320 tokens: no hit in 10,608 queries; at 16,384 tokens, 16,640.
    """

    id = "KV301"
    name = "block-exceeds-context"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/issues/48401", "https://github.com/vllm-project/vllm/pull/48402")
    requires = (SMALLEST_PREFIX, LONGEST_REQUEST)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Compare the two figures."""
        smallest, longest = smallest_reusable(context.layout), context.plan.launch.max_model_len
        if context.layout.prefix_caching is False or smallest is None or longest is None or smallest <= longest:
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

    ## Example
    Qwen3-Next-80B on 4 GPUs: a shared prefix shorter than 320 tokens is never reused; with `--prefix-match-unit 64`, one of 64 is.
    """

    id = "KV302"
    name = "coarse-prefix-granularity"
    severity = "info"
    urls = ("https://github.com/vllm-project/vllm/issues/54607", "https://github.com/vllm-project/vllm/issues/53749")
    requires = (SMALLEST_PREFIX,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Report a large granularity; one that no request can reach is KV301's."""
        smallest, longest = smallest_reusable(context.layout), context.plan.launch.max_model_len
        if context.layout.prefix_caching is False or smallest is None:
            return ()
        if smallest < COARSE_TOKENS or (longest is not None and smallest > longest):
            return ()
        remediation = f"Start prompts with at least {smallest} shared tokens"
        if context.plan.launch.mamba_cache_mode == "align" and len(context.layout.groups) > 1:
            remediation += f", or compare a --prefix-match-unit that divides {context.layout.hash_block_size or smallest}"
        return (
            self.finding(
                f"a shared prefix shorter than {grouped(smallest)} tokens is never reused",
                remediation=remediation,
                evidence={"min_reusable_prefix_tokens": smallest},
            ),
        )


class PrefixCachingOff(Rule):
    """Prefix caching is off, and nobody turned it off.

    ## What it does
    Reports a model whose KV cache is not reused between requests, unless `--no-enable-prefix-caching` asked for that.

    ## Why it is bad
    vLLM has prefix caching on for most models, so one expects it: here every request computes its whole prompt.

    ## What to do
    Know it. Passing `--enable-prefix-caching` against vLLM's default is refused or unsupported for most such models.

    ## Example
    Falcon-Mamba-7B: a model without attention has prefix caching off by default.
    """

    id = "KV303"
    name = "prefix-caching-off"
    severity = "info"
    urls = ("https://docs.vllm.ai/en/latest/features/automatic_prefix_caching/",)
    requires = (GROUPS,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Look at what vLLM settled, and whether that was asked for."""
        given, kinds = context.plan.given_arguments, {group.kind for group in context.layout.groups}
        if context.layout.prefix_caching is not False or given.get("enable_prefix_caching") is False:
            return ()
        if kinds == {"mamba"}:
            why = "vLLM's default for a model without attention"
        elif "cross_attention" in kinds:
            why = "vLLM's default for an encoder with a decoder"
        else:
            why = "by vLLM's default for this model or by another argument"
        return (
            self.finding(
                f"prefix caching is off, {why}: every request computes its whole prompt",
                remediation="Count on whole prompts being computed, or ask a newer release with --vllm",
                evidence={"kinds": ", ".join(sorted(kinds))},
            ),
        )


class SpeculationGrowsBlock(Rule):
    """The drafter makes the block larger.

    ## What it does
    Plans a model with recurrent states once more without speculation, and compares the blocks.

    ## Why it is bad
    Each speculative token adds to the recurrent state, and the attention block grows until its page holds the state: prefixes are reused
    in larger steps, and the last block of each request is emptier.

    ## What to do
    Know the figure. Where short prefixes matter, pass fewer speculative tokens.

    ## Example
    Qwen3-Next-80B on 4 GPUs with vLLM 0.31: 272 tokens, and 288 with two tokens of multi-token prediction.
    """

    id = "KV305"
    name = "speculation-grows-block"
    severity = "info"
    urls = ("https://github.com/vllm-project/vllm/issues/46480",)
    requires = (WITHOUT_DRAFTER,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Compare the two blocks."""
        plain = context.without_drafter.scheduler_block_size if context.without_drafter else None
        block, method = context.layout.scheduler_block_size, context.plan.launch.speculative_method
        if plain is None or block is None or method is None or block <= plain or context.layout.prefix_caching is False:
            return ()
        return (
            self.finding(
                f"speculation ({method}, {context.plan.launch.num_speculative_tokens} tokens) makes the block {grouped(block)} tokens "
                f"instead of {grouped(plain)}",
                remediation="Pass fewer speculative tokens where short prefixes matter",
                evidence={"block_size": block, "block_size_without": plain},
            ),
        )


class PrefixMatchUnitInert(Rule):
    """Prefix hits are coarser than the `--prefix-match-unit` that was given.

    ## What it does
    Compares the given unit with the multiples on which vLLM's prefix hits land.

    ## Why it is bad
    vLLM hashes prompts in the given unit, and hits still land on whole blocks: the finer unit costs hashing and brings nothing.

    ## What to do
    Leave `--prefix-match-unit` out for this model, or change what makes its blocks large.

    ## Example
    Finer hits came with recurrent states in `align` mode: a model without such states keeps hitting on whole blocks, whatever the unit.
    """

    id = "KV304"
    name = "sub-block-hits-inert"
    severity = "info"
    urls = ("https://github.com/vllm-project/vllm/pull/52244",)
    requires = (HIT_GRAIN,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Compare the unit with the grain of hits."""
        unit, hits = context.plan.given_arguments.get("prefix_match_unit"), context.layout.prefix_hit_tokens
        if not isinstance(unit, int) or hits is None or context.layout.prefix_caching is False or hits <= unit:
            return ()
        return (
            self.finding(
                f"prefix hits land on multiples of {grouped(hits)} tokens, though --prefix-match-unit is {grouped(unit)}",
                remediation=f"Leave out --prefix-match-unit {unit}, which brings no finer hits here",
                evidence={"prefix_match_unit": unit, "prefix_hit_tokens": hits},
            ),
        )
