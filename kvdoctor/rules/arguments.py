"""KV110: the arguments of ``vllm serve`` that have nothing to do with the KV cache."""

import dataclasses

from kvdoctor.plan import NOT_A_PARSER, NOT_ON_THIS_MACHINE, Check
from kvdoctor.rules.interface import Finding, Rule, RuleContext
from kvdoctor.rules.refusal_text import ServeArgumentsRefused

_ADVICE = {
    NOT_ON_THIS_MACHINE: "See that it is on the machine of the launch: vLLM does not start without it",
    NOT_A_PARSER: "Pass the name of one of vLLM's tool parsers, and --enable-auto-tool-choice where tools are to be called",
}


class ServeArgumentsAreRefused(Rule):
    """vLLM refuses an argument of the launch that the KV-cache plan does not depend on.

    ## What it does
    Runs the checks that `vllm serve` makes of its own arguments (parsers, load format, chat template, adapters, port, classes to import,
    memory utilization) with the code of the chosen release, and reports what they refuse. A file that is not on this machine, and may be
    on that of the launch, is a warning, and so is the name of a parser that nothing asks for.

    ## Why it is bad
    The layout may be right, and the server still does not start; some of these checks come after the weights have been loaded.

    ## What to do
    Follow vLLM's message. For a file that is not here, see that it is there where the launch will run.

    ## Example
    `--enable-auto-tool-choice` without `--tool-call-parser`.
    """

    id = "KV110"
    name = "serve-arguments-refused"
    severity = "error"
    urls = ("https://docs.vllm.ai/en/latest/configuration/serve_args/",)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Quote the refusal, and name each file that is not here."""
        found = tuple(self._doubt(check) for check in context.plan.checks if check.note in _ADVICE)
        refusal = context.plan.refusal
        if refusal is None or not isinstance(context.refusal, ServeArgumentsRefused):
            return found
        words = " ".join(refusal.message.split()).rstrip(".") or "no message"
        refused = self.finding(
            f"vLLM refuses an argument: {words}",
            remediation="Change the argument that vLLM's message is about",
            evidence={"exception": refusal.exception},
        )
        return (refused, *found)

    def _doubt(self, check: Check) -> Finding:
        finding = self.finding(f"{check.name} {check.note}", remediation=_ADVICE[check.note or ""], evidence={"argument": check.name})
        return dataclasses.replace(finding, severity="warning")
