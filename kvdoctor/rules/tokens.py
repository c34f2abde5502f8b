"""KV404 and KV407: what a request costs beside its tokens."""

from kvdoctor.rules.interface import Finding, Rule, RuleContext
from kvdoctor.rules.numbers import gib, grouped, percent
from kvdoctor.rules.refusal_text import ContextDoesNotFit
from kvdoctor.rules.requirements import REQUEST_BLOCKS, SHORT_REQUESTS, SHORT_TOKENS

# What a request holds of these does not grow with its length once the window is full.
BOUNDED = frozenset({"mamba", "sliding_window", "sliding_window_mla", "chunked_local", "cross_attention"})
_WINDOWS = frozenset({"sliding_window", "sliding_window_mla", "chunked_local"})
MISLEADING_FACTOR = 2.0
WINDOWS_PERCENT = 25.0


class TokensFigureMisleads(Rule):
    """The KV cache holds far fewer tokens of short requests than vLLM's figure says.

    ## What it does
    vLLM's "GPU KV cache size" is the number of full-length requests that fit, times `max_model_len`. Each request of a model with
    recurrent states or windows has a part that does not depend on its length. Reports when requests of 8,192 tokens hold less than half
    of the tokens of that figure.

    ## Why it is bad
    Whoever divides the figure by the length of their requests plans for more requests than fit at once.

    ## What to do
    Plan with the requests of your own length; lower `--max-model-len` to what they need to see vLLM's figure for it.

    ## Example
    Nemotron-Nano-12B-v2: 1,788,277 tokens at full length, and about a third of that in requests of 8,192 tokens.
    """

    id = "KV404"
    name = "tokens-figure-misleads"
    severity = "info"
    urls = ("https://github.com/vllm-project/vllm/issues/51041", "https://github.com/vllm-project/vllm/issues/43308")
    requires = (SHORT_REQUESTS, REQUEST_BLOCKS)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Compare vLLM's tokens with those of the short requests that it counts."""
        layout, longest, tokens = context.layout, context.plan.launch.max_model_len, context.layout.kv_cache_tokens
        short = next((at for at in layout.requests_at if at.tokens == SHORT_TOKENS), None)
        if short is None or longest is None or not tokens or layout.bytes_per_block is None or context.plan.refusal is not None:
            return ()
        held = int(short.requests * short.tokens)
        if not held or tokens < MISLEADING_FACTOR * held:
            return ()
        bounded = layout.bytes_per_block * sum(group.blocks_per_request or 0 for group in layout.groups if group.kind in BOUNDED)
        return (
            self.finding(
                f"the KV cache holds {grouped(tokens)} tokens in requests of {grouped(longest)}, and {grouped(held)} in requests "
                f"of {grouped(short.tokens)}: up to {gib(bounded)} of a request does not depend on its length",
                remediation="Count on requests of your own length, and not on the tokens figure",
                evidence={
                    "kv_cache_tokens": tokens,
                    "short_tokens": short.tokens,
                    "short_kv_cache_tokens": held,
                    "bounded_bytes": bounded,
                },
            ),
        )


class BatchInflatesWindows(Rule):
    """A request's windows are sized by the batch, and it does not fit.

    ## What it does
    While a prompt is computed, a sliding window, chunk or compressed state keeps the tokens of the batches in flight beside its own. When
    one request of full length does not fit and such layers take more than a quarter of it, this names the batch.

    ## Why it is bad
    The large batch that makes prefill fast makes every request larger, by gigabytes on models with many windowed layers.

    ## What to do
    Lower `--max-num-batched-tokens`.

    ## Example
    DeepSeek-V4-Flash on 4 H100 with `--max-num-batched-tokens 65536`: 53.55 GiB are needed for its full context, and 32.0 are there.
    """

    id = "KV407"
    name = "batch-inflates-windows"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/issues/49878",)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Look at the windows' share of a request that is refused."""
        batch = context.plan.launch.max_num_batched_tokens
        if not isinstance(context.refusal, ContextDoesNotFit) or batch is None:
            return ()
        windows = [
            group
            for group in context.plan.groups
            if group.kind in _WINDOWS and group.layers and 0 < _window(group.layers[0].fields) < batch
        ]
        total = sum(_bytes(group.blocks_per_request, group.layers) for group in context.plan.groups)
        share = 100 * sum(_bytes(group.blocks_per_request, group.layers) for group in windows) / total if total else 0.0
        if share <= WINDOWS_PERCENT:
            return ()
        widest = max(_window(group.layers[0].fields) for group in windows)
        return (
            self.finding(
                f"{percent(share)} of the request is windows of at most {grouped(widest)} tokens, "
                f"which are sized by the {grouped(batch)} tokens of a batch",
                remediation=f"Lower --max-num-batched-tokens {batch}",
                evidence={"max_num_batched_tokens": batch, "window_tokens": widest, "windows_percent": share},
            ),
        )


def _window(fields: dict[str, object]) -> int:
    window = fields.get("sliding_window") or fields.get("attention_chunk_size")
    return window if isinstance(window, int) else 0


def _bytes(blocks: int | None, layers: tuple[object, ...]) -> int:
    return (blocks or 0) * len(layers)
