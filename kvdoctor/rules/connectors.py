"""KV501 and KV503: what a connector does to the layout."""

from kvdoctor.rules.advice import flag, hybrid_manager
from kvdoctor.rules.interface import Finding, Rule, RuleContext
from kvdoctor.rules.numbers import grouped
from kvdoctor.rules.refusal_text import ChunkDoesNotFit, HybridManagerOff

_TURNED_OFF = "Hybrid KV cache manager is disabled for this hybrid model"
# The arguments that turn it off: the switch itself, a connector without support for it, and in releases up to 0.27 KV events.
_SWITCHES = ("disable_hybrid_kv_cache_manager", "kv_transfer_config", "kv_events_config")


class HybridManagerDisabled(Rule):
    """The hybrid KV-cache manager is off for a model whose layers differ.

    ## What it does
    Recognises, by vLLM's refusal or its log, that an argument turned the hybrid manager off, and names the argument: the switch itself, a
    KV connector that does not support it, or, in older releases, KV events.

    ## Why it is bad
    Without it all layers share one kind of cache. A model with recurrent states does not launch. Sliding windows and chunks keep every
    token like full attention, which costs a multiple of the memory.

    ## What to do
    Leave the argument out, choose a connector that supports the hybrid manager, or pass `--no-disable-hybrid-kv-cache-manager` where
    the connector takes it.

    ## Example
    gemma-3-12b with `--disable-hybrid-kv-cache-manager`: a request of full length needs 60.0 GiB of KV cache instead of 15.3.
    """

    id = "KV501"
    name = "hybrid-manager-disabled"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/issues/42911", "https://github.com/ai-dynamo/dynamo/issues/10741")

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Look for the refusal, or for vLLM's warning that it makes a difference to this model."""
        refused = isinstance(context.refusal, HybridManagerOff)
        if not refused and not any(_TURNED_OFF in record.message for record in context.plan.vllm_log):
            return ()
        given = context.plan.given_arguments
        switches = [flag(name, given) for name in _SWITCHES if name in given and given[name] is not False]
        who = f"{' and '.join(switches)} turns" if switches else "the launch turns"
        what = "the model's layers need it" if refused else "windowed layers keep every token, as full attention does"
        return (
            self.finding(
                f"{who} the hybrid KV-cache manager off, and {what}",
                remediation=hybrid_manager(given),
                evidence={"arguments": ", ".join(switches)},
                severity="error" if refused else None,
            ),
        )


class ConnectorChunkMismatch(Rule):
    """A connector's chunk is not a multiple of the model's blocks.

    ## What it does
    Recognises the refusal of a chunk (`block_size` in `kv_connector_extra_config`) that the blocks of the KV cache do not divide.

    ## Why it is bad
    Connectors store whole blocks. The blocks of models with recurrent states are of odd sizes that nobody guesses.

    ## What to do
    Pass a chunk that is a multiple of the block, or give it in blocks with `blocks_per_chunk`.

    ## Example
    OffloadingConnector with chunks of 48 tokens for Qwen3-Next-80B, whose blocks are 320: 320 or 640 is taken.
    """

    id = "KV503"
    name = "connector-chunk-mismatch"
    severity = "error"
    urls = ("https://github.com/LMCache/LMCache/issues/3571",)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Recognise the refusal; the figures are vLLM's."""
        refused = context.refusal
        if not isinstance(refused, ChunkDoesNotFit):
            return ()
        return (
            self.finding(
                f"the connector's chunk of {grouped(refused.chunk)} tokens is not a multiple of the block of {grouped(refused.block_size)}",
                remediation=f"Set block_size to {refused.use} in kv_connector_extra_config of --kv-transfer-config",
                evidence={"chunk": refused.chunk, "block_size": refused.block_size, "legal_chunk": refused.use},
            ),
        )
