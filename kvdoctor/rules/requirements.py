"""What rules need of a plan, each with the words that tell of its absence."""

from kvdoctor.layout import Layout
from kvdoctor.rules.interface import Requirement
from kvdoctor.rules.refusal_text import HashDoesNotDivide, NoMemoryForBlocks
from kvdoctor.waste import read_empty

GROUPS = Requirement(met=lambda context: bool(context.layout.groups), reason="no groups were settled")
LAYERS = Requirement(met=lambda context: bool(context.plan.layers), reason="no layer specs were settled")
KV_HEADS = Requirement(
    met=lambda context: context.plan.launch.total_kv_heads is not None and context.plan.launch.tensor_parallel_size is not None,
    reason="the model's KV heads are not known",
)
PARALLEL_SIZES = Requirement(
    met=lambda context: context.plan.launch.decode_context_parallel_size is not None, reason="the parallel sizes were not settled"
)
CONTEXT_PARALLEL_GROUPS = Requirement(
    met=lambda context: context.plan.launch.decode_context_parallel_size == 1 or bool(context.plan.groups), reason=GROUPS.reason
)
STAGE_BUDGETS = Requirement(
    met=lambda context: (
        len(context.plan.stages) == 1
        or (
            bool(context.plan.stages)
            and all(stage.kv_cache_bytes is not None and stage.bytes_per_block is not None for stage in context.plan.stages)
        )
    ),
    reason="the stages' memory was not settled",
)
REQUEST_BLOCKS = Requirement(
    met=lambda context: read_empty(context.layout, context.plan.launch.max_model_len) is not None,
    reason="what a request holds was not settled",
)
CONCURRENCY = Requirement(
    met=lambda context: context.layout.max_concurrency is not None and context.plan.launch.max_model_len is not None,
    reason="the concurrency was not settled",
)
# vLLM is asked for the requests of this length that fit; a launch of shorter ones has no long requests to compare them with.
SHORT_TOKENS = 8192
SHORT_REQUESTS = Requirement(
    met=lambda context: (
        any(at.tokens == SHORT_TOKENS for at in context.layout.requests_at)
        or (context.plan.launch.max_model_len or SHORT_TOKENS + 1) <= SHORT_TOKENS
    ),
    reason="requests of usual lengths were not counted",
)
# With weights that do not fit, the plan's budget is one that was made up to show a layout: its capacity says nothing.
REAL_BUDGET = Requirement(
    met=lambda context: context.plan.memory.weights_fit is not False, reason="the weights do not fit, so there is no real budget to judge"
)
WEIGHTS_COMPARED = Requirement(
    met=lambda context: context.plan.memory.weights_fit is not None or isinstance(context.refusal, NoMemoryForBlocks),
    reason="no weights were compared with the GPU's memory",
)
# Where prefix caching is off there is nothing to miss; a refusal about hashes has its own figures.
SMALLEST_PREFIX = Requirement(
    met=lambda context: context.layout.prefix_caching is False or smallest_reusable(context.layout) is not None,
    reason="the smallest reusable prefix was not settled",
)
LONGEST_REQUEST = Requirement(
    met=lambda context: context.layout.prefix_caching is False or context.plan.launch.max_model_len is not None,
    reason="the longest request was not settled",
)
HIT_GRAIN = Requirement(
    met=lambda context: context.layout.prefix_caching is False or context.layout.prefix_hit_tokens is not None,
    reason="the grain of prefix hits was not settled",
)
OTHER_END = Requirement(
    met=lambda context: context.plan.memory.kv_cache_source != "estimate" or not context.layout.groups or context.other_end is not None,
    reason="the launch was not planned at the other end of the estimated budget",
)
WITHOUT_DRAFTER = Requirement(
    met=lambda context: (
        context.plan.launch.speculative_method is None
        or all(group.kind != "mamba" for group in context.layout.groups)
        or context.without_drafter is not None
    ),
    reason="the plan without the drafter was not made",
)
HASH_BLOCK = Requirement(
    met=lambda context: (
        isinstance(context.refusal, HashDoesNotDivide)
        or context.layout.prefix_caching is False
        or (context.layout.hash_block_size is not None and any(group.prefix_cacheable for group in context.layout.groups))
    ),
    reason="the hash block size was not settled",
)


def smallest_reusable(layout: Layout) -> int | None:
    """The smallest reusable prefix; where there is none at all, the grain that hits would land on says why."""
    return layout.prefix_hit_tokens if layout.min_reusable_prefix_tokens is None else layout.min_reusable_prefix_tokens
