"""KV5xx: parallelism."""

from kvdoctor.plan import Plan
from kvdoctor.rules.interface import Evidence, Finding, Rule, RuleContext
from kvdoctor.rules.numbers import counted, gib, grouped, percent
from kvdoctor.rules.requirements import CONTEXT_PARALLEL_GROUPS, PARALLEL_SIZES, STAGE_BUDGETS

IDLE_STAGE_PERCENT = 10.0


class PipelineStageBottleneck(Rule):
    """One pipeline stage leaves the others' memory idle.

    ## What it does
    Compares how many blocks each pipeline stage has memory for. All stages take as many as the smallest, and the rest of their memory
    stays empty. More than 10 % of all KV-cache memory is reported.

    ## Why it is bad
    The stage with the most KV layers, or the least memory, sets the capacity of all: the GPUs of the other stages are paid for and idle.

    ## What to do
    Move layers away from that stage with `VLLM_PP_LAYER_PARTITION`, so that memory and layers are in proportion.

    ## Example
    24 and 8 of 32 layers on two equal GPUs (`VLLM_PP_LAYER_PARTITION=24,8`): 40,650 blocks on both, where the second has memory for
    135,263.
    """

    id = "KV502"
    name = "pipeline-stage-bottleneck"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/issues/34076", "https://github.com/vllm-project/vllm/issues/42927")
    requires = (STAGE_BUDGETS,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Compare the stages' blocks."""
        blocks = stage_blocks(context.plan)
        if len(blocks) < 2 or context.plan.memory.weights_fit is False:  # noqa: PLR2004 - one stage has no other to wait for
            return ()
        fewest = min(blocks)
        stages = context.plan.stages
        budget = sum(stage.kv_cache_bytes or 0 for stage in stages)
        idle = sum((count - fewest) * (stage.bytes_per_block or 0) for count, stage in zip(blocks, stages, strict=True))
        share = 100 * idle / budget if budget else 0.0
        if share <= IDLE_STAGE_PERCENT:
            return ()
        slow = stages[blocks.index(fewest)]
        evidence: Evidence = {
            "stage": slow.index,
            "stage_layers": [stage.layer_count for stage in stages],
            "stage_blocks": list(blocks),
            "idle_bytes": idle,
            "idle_percent": share,
        }
        message = (
            f"pipeline stage {slow.index} with {counted(slow.layer_count, 'KV layer')} has memory for {grouped(fewest)} blocks, "
            f"another for {grouped(max(blocks))}: {gib(idle)}, {percent(share)} of the KV cache's memory, stays empty"
        )
        advice = f"Give stage {slow.index} fewer layers with VLLM_PP_LAYER_PARTITION"
        return (self.finding(message, remediation=advice, evidence=evidence),)


def stage_blocks(plan: Plan) -> tuple[int, ...]:
    """The blocks that each stage has memory for; none where a stage has no KV layer or no budget."""
    counts = [
        stage.kv_cache_bytes // stage.bytes_per_block for stage in plan.stages if stage.kv_cache_bytes is not None and stage.bytes_per_block
    ]
    return tuple(counts) if len(counts) == len(plan.stages) else ()


class ContextParallelismInflatesBlock(Rule):
    """Decode context parallelism multiplies the block size.

    ## What it does
    Reports groups whose block, as the scheduler hands it out, is larger than what a GPU keeps of it, since its tokens are spread over
    the ranks of decode context parallelism.

    ## Why it is bad
    Prefixes are reused, and requests charged, in blocks that many times larger: a short request wastes more of its last block.

    ## What to do
    Know the figure. Where short prefixes matter, compare the plan under a smaller `--decode-context-parallel-size`.

    ## Example
    Llama-3.1-8B on 16 GPUs with `--decode-context-parallel-size 2`: 16 -> 32 tokens.
    """

    id = "KV504"
    name = "dcp-inflates-block"
    severity = "info"
    urls = ("https://docs.vllm.ai/en/latest/serving/context_parallel_deployment/",)
    requires = (PARALLEL_SIZES, CONTEXT_PARALLEL_GROUPS)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Compare each group's block with that of its layers."""
        ranks = context.plan.launch.decode_context_parallel_size
        if ranks is None or ranks == 1:
            return ()
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
