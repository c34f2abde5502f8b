"""KV4xx: it does not fit."""

from kvdoctor.rules.advice import more_memory
from kvdoctor.rules.interface import Evidence, Finding, Rule, RuleContext
from kvdoctor.rules.numbers import gib, gib_apart, grouped
from kvdoctor.rules.refusal_text import ContextDoesNotFit, NoMemoryForBlocks, TooManySequences
from kvdoctor.rules.requirements import CONCURRENCY, REAL_BUDGET, WEIGHTS_COMPARED

_TWO_REQUESTS = 2.0


class MaxModelLenDoesNotFit(Rule):
    """One request of `max_model_len` tokens does not fit into the KV cache.

    ## What it does
    Recognises vLLM's refusal, with the bytes needed, the bytes there are, and the largest context that fits.

    ## Why it is bad
    vLLM starts only if it can serve one request of full length.

    ## What to do
    Pass a smaller `--max-model-len`, raise `--gpu-memory-utilization`, use more GPUs, or a smaller `--kv-cache-dtype`.

    ## Example
    gemma-3-12b with `--max-num-batched-tokens 65536` on an H100: 50.32 GiB needed, 42.01 available, at most 114,704 tokens.
    """

    id = "KV401"
    name = "context-does-not-fit"
    severity = "error"
    urls = ("https://docs.vllm.ai/en/latest/configuration/conserving_memory/", "https://github.com/vllm-project/vllm/issues/34076")
    requires = (REAL_BUDGET,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Recognise the refusal; the figures are vLLM's."""
        refused, memory = context.refusal, context.plan.memory
        if not isinstance(refused, ContextDoesNotFit):
            return ()
        # What vLLM compares is a block less than the budget, or the blocks of an override.
        needed, available = memory.needed_for_max_model_len_bytes, context.plan.usable_kv_cache_bytes or memory.kv_cache_bytes
        largest = refused.estimated_max_model_len or memory.estimated_max_model_len
        message = f"one request of {grouped(refused.max_model_len)} tokens does not fit into the KV cache"
        evidence: Evidence = {"max_model_len": refused.max_model_len}
        if needed is not None and available is not None:
            needs, has = gib_apart(needed, available)
            message = f"one request of {grouped(refused.max_model_len)} tokens needs {needs} of KV cache, and {has} are available"
            evidence |= {"needed_bytes": needed, "kv_cache_bytes": available}
        more = _more_memory(context)
        remediation = f"Lower --max-model-len, {more}"
        if largest:
            evidence["estimated_max_model_len"] = largest
            remediation = f"Pass --max-model-len {largest} or less, {more}"
        return (self.finding(message, remediation=remediation, evidence=evidence),)


class TooManySequencesForStates(Rule):
    """`max_num_seqs` is above the number of blocks for recurrent states.

    ## What it does
    Recognises vLLM's refusal, with both figures.

    ## Why it is bad
    Each sequence being decoded needs a block for its state. vLLM refuses to capture CUDA graphs for more sequences than it has blocks.

    ## What to do
    Pass a `--max-num-seqs` no larger than the number of blocks, or give the KV cache more memory with `--gpu-memory-utilization`.

    ## Example
    Qwen3.5-27B on a 96 GB GPU: the default of 1,024 sequences, and 650 blocks.
    """

    id = "KV402"
    name = "max-num-seqs-exceeds-state-blocks"
    severity = "error"
    urls = ("https://github.com/vllm-project/vllm/issues/49064",)
    requires = (REAL_BUDGET,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Recognise the refusal; the figures are vLLM's."""
        refused = context.refusal
        if not isinstance(refused, TooManySequences):
            return ()
        return (
            self.finding(
                f"{grouped(refused.max_num_seqs)} sequences exceed the {grouped(refused.num_blocks)} blocks for recurrent states",
                remediation=f"Pass --max-num-seqs {refused.num_blocks} or less, or {_more_memory(context)}",
                evidence={"max_num_seqs": refused.max_num_seqs, "num_blocks": refused.num_blocks},
            ),
        )


class LowConcurrency(Rule):
    """Fewer than two requests of full length fit into the KV cache.

    ## What it does
    Reports how many requests of `max_model_len` tokens the KV cache holds at once, when it is less than two.

    ## Why it is bad
    It launches, but two long requests at the same time do not fit: vLLM preempts one and computes it anew.

    ## What to do
    Give the KV cache more memory or GPUs, or lower `--max-model-len` to what requests need; short requests are not affected.

    ## Example
    1.20 requests of 262,144 tokens: a second long one waits, or displaces the first.
    """

    id = "KV403"
    name = "low-concurrency"
    severity = "info"
    urls = ("https://docs.vllm.ai/en/latest/configuration/optimization/",)
    requires = (CONCURRENCY,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Look at vLLM's figure; a launch that is refused serves nothing."""
        concurrency, longest = context.layout.max_concurrency, context.plan.launch.max_model_len
        if (
            concurrency is None
            or longest is None
            or concurrency >= _TWO_REQUESTS
            or context.plan.refusal is not None
            or not context.layout.groups
        ):
            return ()
        return (
            self.finding(
                f"{concurrency:.2f} requests of {grouped(longest)} tokens fit into the KV cache at once",
                remediation=f"Lower --max-model-len to what requests need, or {_more_memory(context)}",
                evidence={"max_concurrency": concurrency, "max_model_len": longest},
            ),
        )


def _more_memory(context: RuleContext) -> str:
    return more_memory(context.plan.given_arguments, budget_given=context.plan.memory.kv_cache_source == "kv_cache_memory")


class WeightsDoNotFit(Rule):
    """The weights leave no room for a KV cache.

    ## What it does
    Compares the weights of one GPU, summed from the model that vLLM builds, with the memory that vLLM may use.

    ## Why it is bad
    Loading the weights ends in an out-of-memory error, or vLLM finds no memory for blocks.

    ## What to do
    Raise `--tensor-parallel-size` or `--pipeline-parallel-size`, use a quantised checkpoint, a GPU with more memory, or raise
    `--gpu-memory-utilization`.

    ## Example
    A model of 140 GB in BF16 on one GPU with 80 GB.
    """

    id = "KV405"
    name = "weights-do-not-fit"
    severity = "error"
    urls = ("https://docs.vllm.ai/en/latest/configuration/conserving_memory/",)
    requires = (WEIGHTS_COMPARED,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Take the plan's answer, or vLLM's refusal."""
        memory = context.plan.memory
        if memory.weights_fit and not isinstance(context.refusal, NoMemoryForBlocks):
            return ()
        evidence: Evidence = {"gpu_bytes": memory.gpu_bytes}
        if memory.kv_cache_source == "kv_cache_memory":
            return (
                self.finding("the given KV-cache memory holds no block", remediation="Pass a larger --kv-cache-memory", evidence=evidence),
            )
        usable = memory.gpu_bytes if memory.gpu_memory_utilization is None else int(memory.gpu_bytes * memory.gpu_memory_utilization)
        message = f"nothing of {gib(usable)} per GPU is left for a KV cache"
        evidence["usable_bytes"] = usable
        if memory.weights_bytes is not None:
            message = f"the weights take {gib(memory.weights_bytes)} per GPU, and nothing of {gib(usable)} is left for a KV cache"
            evidence["weights_bytes"] = memory.weights_bytes
        if memory.allowance_bytes is not None:
            message += f" with an allowance of {gib(memory.allowance_bytes)}"
            evidence["allowance_bytes"] = memory.allowance_bytes
        remediation = "Raise --tensor-parallel-size, or use a quantised checkpoint or a GPU with more memory"
        return (self.finding(message, remediation=remediation, evidence=evidence),)
