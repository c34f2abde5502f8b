"""KV104 to KV107: a value that vLLM does not take for this model, and those that it takes."""

import math

from kvdoctor.rules.advice import flag
from kvdoctor.rules.interface import Evidence, Finding, Rule, RuleContext
from kvdoctor.rules.numbers import grouped
from kvdoctor.rules.refusal_text import (
    BlockExceedsBatch,
    HeadsNotDivisible,
    NoAttentionBackend,
    NoKernelBlock,
    RingDoesNotDivide,
    UnitInvalid,
)
from kvdoctor.rules.stages import stage_advice

BLOCK_SIZE_REASON = "block_size not supported"


class PrefixMatchUnitInvalid(Rule):
    """`--prefix-match-unit` does not divide the block sizes.

    ## What it does
    Recognises vLLM's refusal of a unit that does not divide the block of every group that prefix caching uses, and names the blocks.

    ## Why it is bad
    The blocks are settled late in the launch, after the weights have been loaded: a unit that looked right ends it there.

    ## What to do
    Pass a unit that divides the blocks of all groups, or leave the flag out.

    ## Example
    `--prefix-match-unit 100` with Qwen3-Next-80B, whose blocks are 320 tokens: 64 and 160 divide them, 100 does not.
    """

    id = "KV104"
    name = "prefix-match-unit-invalid"
    severity = "error"
    urls = ("https://github.com/vllm-project/vllm/pull/45702",)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Recognise the refusal; the blocks are vLLM's."""
        refused = context.refusal
        if not isinstance(refused, UnitInvalid):
            return ()
        sizes = sorted(set(refused.block_sizes))
        evidence: Evidence = {"prefix_match_unit": refused.unit, "block_sizes": sizes}
        message = f"prefix match unit {grouped(refused.unit)} does not divide the model's block sizes"
        advice = "Leave out --prefix-match-unit"
        if sizes:
            largest = math.gcd(*sizes)
            evidence["largest_unit"] = largest
            message = f"prefix match unit {grouped(refused.unit)} does not divide {_blocks(sizes)}"
            # With one group vLLM takes its block and nothing else.
            one_group = len(context.plan.groups) == 1
            advice = f"Pass --prefix-match-unit {largest}" + ("" if one_group else f" or one that divides {largest}") + ", or leave it out"
        return (self.finding(message, remediation=advice, evidence=evidence),)


class BlockExceedsBatchedTokens(Rule):
    """A block of recurrent states is larger than a batch.

    ## What it does
    Recognises the refusal of vLLM up to 0.26: in the `align` mode a batch (`--max-num-batched-tokens`) must hold a whole block.

    ## Why it is bad
    The block of a hybrid model is chosen by vLLM, often 500 to 8,000 tokens: a small batch that serves other models ends the launch.

    ## What to do
    Pass a `--max-num-batched-tokens` of at least the block, or use vLLM 0.27 or newer, which divides a block over batches.

    ## Example
    A block of 2,096 tokens with `--max-num-batched-tokens 2048`: pass 2096 or more.
    """

    id = "KV105"
    name = "block-exceeds-batched-tokens"
    severity = "error"
    urls = ("https://github.com/vllm-project/vllm/issues/34445", "https://github.com/vllm-project/vllm/issues/36734")

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Recognise the refusal; the figures are vLLM's."""
        refused = context.refusal
        if not isinstance(refused, BlockExceedsBatch):
            return ()
        block, batch = refused.block_size, refused.max_num_batched_tokens
        return (
            self.finding(
                f"block {grouped(block)} is larger than a batch of {grouped(batch)} tokens, which the align mode does not allow",
                remediation=f"Pass --max-num-batched-tokens {block} or more, or use vLLM 0.27.1 or newer",
                evidence={"block_size": block, "max_num_batched_tokens": batch},
            ),
        )


class RanksDoNotDivide(Rule):
    """The tensor-parallel or context-parallel size does not divide the model.

    ## What it does
    Recognises vLLM's refusal to split attention heads, or a width of the model, over the given number of GPUs, and names what can not
    be divided.

    ## Why it is bad
    Each rank takes an equal part of the heads. A size that does not divide them never launches, on any GPU.

    ## What to do
    Pass a size that divides the heads.

    ## Example
    32 attention heads with `--tensor-parallel-size 3`: 2 and 4 divide them.
    """

    id = "KV106"
    name = "heads-not-divisible"
    severity = "error"
    urls = ("https://github.com/vllm-project/vllm/issues/52535", "https://github.com/vllm-project/vllm/issues/40585")

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Recognise the refusal; the figures are vLLM's."""
        refused = context.refusal
        if not isinstance(refused, HeadsNotDivisible):
            return ()
        option = f"--{refused.argument.replace('_', '-')}"
        evidence: Evidence = {"argument": option, "size": refused.size}
        if refused.heads is None:
            message = f"{option} {refused.size} is more than the model's KV heads allow under this tensor-parallel size"
            advice = f"Pass {option} {refused.limit} or less"
            evidence["largest"] = refused.limit or 0
        elif refused.what == "KV heads":
            message = (
                f"context parallelism needs more tensor-parallel ranks than the {refused.heads} KV heads, and there are {refused.size}"
            )
            advice = f"Pass --decode-context-parallel-size 1, or a {option} that is a multiple of {refused.heads} and larger"
            evidence["kv_heads"] = refused.heads
        else:
            message = f"{option} {refused.size} does not divide the model's {grouped(refused.heads)} {refused.what}"
            advice = f"Pass a {option} that divides {refused.heads}"
            evidence["divided"] = refused.heads
        return (self.finding(message, remediation=advice, evidence=evidence),)


class KernelBlockMismatch(Rule):
    """No attention kernel takes the block size.

    ## What it does
    Recognises that nothing but the block size keeps the layers from their attention backends, that the backends of a group share no
    kernel block size, or that a ring of raw keys does not divide the block.

    ## Why it is bad
    Kernels are written for certain block sizes; vLLM's argument takes any number and fails when layers ask for their backend.

    ## What to do
    Leave `--block-size` out, or pass a size that the backends take. A ring is sized by the speculative tokens: pass fewer.

    ## Example
    Llama-3.1-8B with `--block-size 8`: FlashAttention, FlashInfer and Triton take multiples of 16.
    """

    id = "KV107"
    name = "kernel-block-mismatch"
    severity = "error"
    urls = ("https://github.com/vllm-project/vllm/issues/42510", "https://github.com/vllm-project/vllm/issues/54552")

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Recognise the three refusals."""
        refused, given = context.refusal, context.plan.given_arguments
        advice = f"Leave out {flag('block_size', given)}" if "block_size" in given else "Pass another --block-size"
        match refused:
            case NoAttentionBackend() if only_the_block(refused):
                who = sorted(name for name, reasons in refused.reasons.items() if reasons == (BLOCK_SIZE_REASON,))
                block = given.get("block_size")
                size = f"a block of {block} tokens" if block else "the block size"
                evidence: Evidence = {"backends": ", ".join(who)}
                if isinstance(block, int):
                    evidence["block_size"] = block
                return (self.finding(f"{size} is all that keeps {', '.join(who)} out", remediation=advice, evidence=evidence),)
            case NoKernelBlock(block_size=block, takes=takes):
                message = f"the attention backends of a group share no kernel block size for a block of {grouped(block)} tokens"
                evidence = {"block_size": block}
                if takes:
                    evidence["backends"] = takes
                advice += stage_advice(context.plan, "block")
                return (self.finding(f"{message}: {takes}" if takes else message, remediation=advice, evidence=evidence),)
            case RingDoesNotDivide(capacity=ring, block_size=block):
                return (
                    self.finding(
                        f"a ring of {ring} raw keys, sized by the speculative tokens, does not divide the block of {grouped(block)} tokens",
                        remediation="Lower num_speculative_tokens in --speculative-config",
                        evidence={"ring_capacity": ring, "block_size": block},
                    ),
                )
        return ()


def only_the_block(refused: NoAttentionBackend) -> bool:
    """Whether a backend would take the layers but for the block size; of one that was chosen, that one."""
    return any(reasons == (BLOCK_SIZE_REASON,) for reasons in refused.reasons.values())


def _blocks(sizes: list[int]) -> str:
    return f"the block of {grouped(sizes[0])} tokens" if len(sizes) == 1 else f"the blocks of {', '.join(map(grouped, sizes))} tokens"
