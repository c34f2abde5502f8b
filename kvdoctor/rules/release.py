"""KV9xx: the vLLM release itself."""

from kvdoctor.rules.interface import Finding, Rule, RuleContext, Skipped
from kvdoctor.rules.numbers import counted


class UnknownSpecKind(Rule):
    """vLLM has a kind of KV-cache spec that kvdoctor does not know.

    ## What it does
    Reports layers whose spec class has no name in kvdoctor: their figures are shown, and not interpreted.

    ## Why it is bad
    kvdoctor's own reading (waste and its cause, advice) may be wrong for these layers; vLLM's figures are not touched by that.

    ## What to do
    Trust the figures and be careful with the advice; use a newer kvdoctor.
    """

    id = "KV903"
    name = "unknown-spec-kind"
    severity = "info"
    urls = ("https://docs.vllm.ai/en/latest/api/vllm/v1/kv_cache_interface.html",)

    def check(self, context: RuleContext) -> tuple[Finding, ...] | Skipped:
        """Count the layers whose kind is `other`."""
        if not context.plan.layers:
            return Skipped(reason="no layer specs were settled")
        unknown = [layer for layer in context.plan.layers if layer.kind == "other"]
        if not unknown:
            return ()
        specs = ", ".join(sorted({layer.spec for layer in unknown}))
        return (
            self.finding(
                f"{counted(len(unknown), 'layer')} of a kind that kvdoctor does not know: {specs}",
                remediation="Use a newer kvdoctor, and read these layers' waste with care",
                evidence={"layer_count": len(unknown), "specs": specs},
            ),
        )
