"""KV9xx: the vLLM release itself."""

from kvdoctor.engines import releases
from kvdoctor.rules.interface import Finding, Rule, RuleContext
from kvdoctor.rules.numbers import counted
from kvdoctor.rules.requirements import LAYERS


class UntestedRelease(Rule):
    """kvdoctor was not tested with this release of vLLM.

    ## What it does
    Compares the release that answered with those that kvdoctor was tested with.

    ## Why it is bad
    vLLM's figures are its own in any release. Where its code has moved, kvdoctor may fail to ask, or miss a step of the launch.

    ## What to do
    Run `kvdoctor engines test` on the release: it says how far it can be used. Or use a newer kvdoctor.

    ## Example
    vLLM 0.25.1 is older than the releases that are supported: some models cannot be assessed with it.
    """

    id = "KV902"
    name = "untested-release"
    severity = "info"
    urls = ("https://github.com/vllm-project/vllm/releases",)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Look the release up."""
        version = context.plan.engine.vllm_version
        return tuple(
            self.finding(note, remediation=f"Run kvdoctor engines test {version}", evidence={"vllm_version": version})
            for note in releases.notes(version)
        )


class UnknownSpecKind(Rule):
    """vLLM has a kind of KV-cache spec that kvdoctor does not know.

    ## What it does
    Reports layers whose spec class has no name in kvdoctor: their figures are shown, and not interpreted.

    ## Why it is bad
    kvdoctor's own reading (waste and its cause, advice) may be wrong for these layers; vLLM's figures are not touched by that.

    ## What to do
    Trust the figures and be careful with the advice; use a newer kvdoctor.

    ## Example
    A release with a new kind of cache: its layers are shown as `other`, with vLLM's bytes and blocks.
    """

    id = "KV903"
    name = "unknown-spec-kind"
    severity = "info"
    urls = ("https://docs.vllm.ai/en/latest/api/vllm/v1/kv_cache_interface.html",)
    requires = (LAYERS,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Count the layers whose kind is `other`."""
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
