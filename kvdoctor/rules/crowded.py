"""KV202 to KV206: what makes blocks hold less than they could."""

from kvdoctor.layout import GroupLayout
from kvdoctor.rules.interface import Finding, Rule, RuleContext
from kvdoctor.rules.numbers import counted, grouped, percent
from kvdoctor.rules.requirements import GROUPS, KV_HEADS, REQUEST_BLOCKS
from kvdoctor.waste import read_empty

POOL_PERCENT = 5.0
# A group with less than half of the widest group's bytes is billed for another's width; above, it lacks a layer or two.
NARROW_SHARE = 0.5
MANY_GROUPS = 16
FEW_LAYERS = 2


class PaddingLayers(Rule):
    """Groups lack layers to be as wide as the widest.

    ## What it does
    vLLM splits layers into groups of one size and fills up those that have fewer with padding layers. The share of a full request's
    blocks that these take is reported above 5 %.

    ## Why it is bad
    All groups draw blocks of one width from one pool: the padding layers' part of each block holds nothing.

    ## What to do
    The number of layers decides: compare the plan without a draft model, whose few layers may be what does not divide, and other
    releases with `--vllm`, which group differently.

    ## Example
    gpt-oss-120b with an EAGLE-3 drafter before pull request 29303: 19 full and 18 windowed layers in groups of 18, with 17 padding layers.
    """

    id = "KV202"
    name = "padding-layers"
    severity = "info"
    urls = ("https://github.com/vllm-project/vllm/pull/29303", "https://github.com/vllm-project/vllm/issues/49472")
    requires = (REQUEST_BLOCKS,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Add up the idle bytes of groups that nearly fill their blocks."""
        short = [group for group in context.layout.groups if (group.padding_layers or 0) > 0 and not _is_narrow(group)]
        share = _idle_share(context, short)
        if share <= POOL_PERCENT:
            return ()
        layers = sum(group.padding_layers or 0 for group in short)
        return (
            self.finding(
                f"{counted(layers, 'padding layer')} in {counted(len(short), 'group')}: {percent(share)} of a full request's blocks",
                remediation="Compare the plan "
                + ("without the draft model, or " if _has_draft(context) else "")
                + "under other releases with --vllm",
                evidence={"padding_layers": layers, "groups": [group.index for group in short], "share_percent": share},
            ),
        )


class BlockSizeInflated(Rule):
    """The given `--block-size` was raised.

    ## What it does
    In a model with recurrent states, vLLM takes `--block-size` as the grain in which it raises the attention block until its page holds a
    state. Reports the block that came of it when that is not the given one.

    ## Why it is bad
    A grain that does not suit the state makes the block much larger than vLLM's own choice: prefixes are reused in larger steps, and
    pages are padded.

    ## What to do
    Leave `--block-size` out for such models, or pass the block that you want to have.

    ## Example
    Qwen3-Next-80B on 4 GPUs has blocks of 320 tokens; `--block-size 272` makes that 1,088.
    """

    id = "KV203"
    name = "user-block-size-inflates"
    severity = "info"
    urls = ("https://github.com/vllm-project/vllm/pull/54076",)
    requires = (GROUPS,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Compare the given block with that of the attention groups."""
        given = context.plan.given_arguments.get("block_size")
        if not isinstance(given, int) or not any(group.kind == "mamba" for group in context.layout.groups):
            return ()
        ranks = context.plan.launch.decode_context_parallel_size or 1
        raised = max((group.block_size for group in context.layout.groups if group.kind != "mamba"), default=0) // ranks
        if raised <= given:
            return ()
        return (
            self.finding(
                f"--block-size {given} became {grouped(raised)} tokens, since the attention page must hold a recurrent state",
                remediation=f"Leave out --block-size {given}, or pass the block that you want",
                evidence={"given_block_size": given, "block_size": raised},
            ),
        )


class KvHeadsReplicated(Rule):
    """Tensor-parallel ranks store copies of the same KV heads.

    ## What it does
    Compares the tensor-parallel size with the model's KV heads. Latent attention (MLA) has one latent cache, which every rank stores.

    ## Why it is bad
    More GPUs bring no more room for tokens once each has one KV head: the rest are copies.

    ## What to do
    `--decode-context-parallel-size` spreads the tokens over the copies where the model and the backend take it; `--data-parallel-size`
    makes each replica cache other requests.

    ## Example
    Llama-3.1-8B has 8 KV heads: on 16 GPUs each is stored twice, and `--decode-context-parallel-size 2` doubles the tokens.
    """

    id = "KV204"
    name = "kv-heads-replicated"
    severity = "info"
    urls = ("https://docs.vllm.ai/en/latest/serving/context_parallel_deployment/",)
    requires = (GROUPS, KV_HEADS)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Compare ranks with heads, less what context parallelism spreads."""
        launch, kinds = context.plan.launch, {group.kind for group in context.layout.groups}
        heads, ranks = launch.total_kv_heads, launch.tensor_parallel_size
        if heads is None or ranks is None or not kinds - {"mamba"}:
            return ()
        latent = bool(kinds & {"mla", "sliding_window_mla"})
        copies = ranks // ((1 if latent else heads) * (launch.decode_context_parallel_size or 1))
        if copies <= 1:
            return ()
        what = "the latent cache" if latent else f"each of {counted(heads, 'KV head')}"
        return (
            self.finding(
                f"{what} is stored {copies} times over {ranks} tensor-parallel ranks",
                remediation=f"Compare --decode-context-parallel-size up to {copies}, where the model takes it, or more replicas with "
                "--data-parallel-size instead of ranks",
                evidence={"kv_heads": heads, "tensor_parallel_size": ranks, "copies": copies},
            ),
        )


class NarrowGroupIsBilledWide(Rule):
    """A group of few layers takes blocks of the widest group's width.

    ## What it does
    Reports groups that fill less than half of their blocks, when the empty rest is more than 5 % of a full request's blocks.

    ## Why it is bad
    All groups draw blocks of one width from one pool. One hidden-state layer, or a draft of one layer, is charged for as many layers as
    the widest group has.

    ## What to do
    Compare the plan without the drafter or the extraction of hidden states, and under a larger `--block-size`, of which the narrow group
    takes fewer.

    ## Example
    Qwen3.5-0.8B with extracted hidden states: one layer of them is charged for six, 66.4 % of a full request's blocks.
    """

    id = "KV205"
    name = "group-billed-at-widest"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/issues/56774", "https://github.com/vllm-project/vllm/issues/53243")
    requires = (REQUEST_BLOCKS,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Add up the idle bytes of the narrow groups."""
        narrow = [group for group in context.layout.groups if _is_narrow(group)]
        share = _idle_share(context, narrow)
        if share <= POOL_PERCENT:
            return ()
        layers = sum(group.layer_count for group in narrow)
        width = max(group.layer_count for group in context.layout.groups)
        kinds = " and ".join(sorted({group.kind.replace("_", " ") for group in narrow}))
        return (
            self.finding(
                f"{counted(layers, f'{kinds} layer')} in blocks as wide as {counted(width, 'layer')}: the rest, {percent(share)} of a full "
                "request's blocks, is empty",
                remediation="Compare the plan without the draft model or the extraction that brings these layers",
                evidence={"groups": [group.index for group in narrow], "layer_count": layers, "share_percent": share},
            ),
        )


class ManySmallGroups(Rule):
    """The layers fell into many groups of one or two.

    ## What it does
    Reports 16 groups or more with fewer than two layers each on average.

    ## Why it is bad
    A group takes at least a block of its own from the pool for every request, and more for states: short requests cost as much as long
    ones. One odd layer (a drafter's) can make vLLM choose groups of one layer for the whole model.

    ## What to do
    Compare the plan without the draft model, or with one whose layers are like the target's.

    ## Example
    Qwen3.5-27B with a DFlash drafter: 70 groups instead of 4.
    """

    id = "KV206"
    name = "group-explosion"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/issues/49730", "https://github.com/vllm-project/vllm/issues/54458")
    requires = (GROUPS,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Count groups and their layers."""
        groups, blocks = context.layout.groups, context.layout.num_blocks
        layers = sum(group.layer_count for group in groups)
        if len(groups) < MANY_GROUPS or layers >= FEW_LAYERS * len(groups):
            return ()
        share = f", {percent(100 * len(groups) / blocks)} of the pool" if blocks else ""
        return (
            self.finding(
                f"{counted(layers, 'layer')} in {len(groups)} groups: the shortest request takes {len(groups)} blocks{share}",
                remediation="Compare the plan without the draft model, or with one whose layers are like the target's",
                evidence={"group_count": len(groups), "layer_count": layers},
            ),
        )


def _has_draft(context: RuleContext) -> bool:
    return any(layer.draft for layer in context.plan.layers)


def _is_narrow(group: GroupLayout) -> bool:
    idle = group.idle_bytes_per_block or 0
    return group.page_bytes_per_block < NARROW_SHARE * (group.page_bytes_per_block + idle)


def _idle_share(context: RuleContext, groups: list[GroupLayout]) -> float:
    empty = read_empty(context.layout, context.plan.launch.max_model_len)
    idle = sum((group.idle_bytes_per_block or 0) * (group.blocks_per_request or 0) for group in groups)
    return 0.0 if empty is None else empty.share(idle)
