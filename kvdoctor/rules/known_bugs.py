"""KV901: bugs of a release that this layout meets, from ``known_bugs.toml``."""

import functools
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from kvdoctor.engines import releases
from kvdoctor.rules.interface import Finding, Rule, RuleContext, Severity


@dataclass(frozen=True, kw_only=True)
class KnownBug:
    """A bug, the releases that have it, and the clauses under which a launch meets it (all must hold).

    ``fixed`` is the first release without it; without one, ``seen`` is the newest that was checked or that the report is about.
    """

    issue: str
    since: str
    what: str
    do: str
    fixed: str | None = None
    seen: str | None = None
    severity: Severity = "warning"
    when: dict[str, Any] = field(default_factory=dict)

    def affects(self, version: str) -> bool:
        """Whether the release is known to have the bug."""
        number = releases.order(version)[0]
        if number < releases.order(self.since)[0]:
            return False
        if self.fixed is not None:
            return number < releases.order(self.fixed)[0]
        return number <= releases.order(self.seen or self.since)[0]

    def met_by(self, context: RuleContext) -> bool:
        """Whether the launch meets every clause."""
        return all(_CLAUSES[name](context, wanted) for name, wanted in self.when.items())


class KnownBugInRelease(Rule):
    """The layout meets a known bug of this release.

    ## What it does
    Compares the release, the layout and the launch with a list of bugs from vLLM's issues. Each entry was checked in the releases that it
    names, by planning with them or in their source; reports that could not be checked are held to the release they are about.

    ## Why it is bad
    Some of these end the launch. The others are silent: it starts, and answers wrongly or slowly.

    ## What to do
    Use a release that has the fix, or the way around that the finding names.

    ## Example
    Recurrent states beside a group with a smaller block on vLLM 0.31: a request that resumes on a cached prefix reads a wrong state. 0.32
    has the fix.
    """

    id = "KV901"
    name = "known-bug-in-release"
    severity = "warning"
    urls = ("https://github.com/vllm-project/vllm/issues",)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Go through the list."""
        version = context.plan.engine.vllm_version
        return tuple(self._finding(bug, version) for bug in known_bugs() if bug.affects(version) and bug.met_by(context))

    def _finding(self, bug: KnownBug, version: str) -> Finding:
        until = f"fixed in {bug.fixed}" if bug.fixed else "no fixed release is known"
        evidence = {"vllm_version": version, "since": bug.since, "fixed": bug.fixed or "", "issue": bug.issue}
        message = f"vLLM {version} has a known bug ({until}): {bug.what}"
        return self.finding(message, remediation=bug.do, evidence={**evidence}, severity=bug.severity, url=bug.issue)


@functools.cache
def known_bugs() -> tuple[KnownBug, ...]:
    """Read the list."""
    text = resources.files("kvdoctor.rules").joinpath("known_bugs.toml").read_text(encoding="utf-8")
    return tuple(KnownBug(**entry) for entry in tomllib.loads(text)["bug"])


def _kinds(context: RuleContext, wanted: list[str]) -> bool:
    return set(wanted) <= {layer.kind for layer in context.plan.layers}


def _refusal(context: RuleContext, wanted: str) -> bool:
    refusal = context.plan.refusal
    return refusal is not None and re.search(wanted, refusal.message) is not None


def _block_below_state(context: RuleContext, wanted: bool) -> bool:
    """A group that takes part in prefix caching has a smaller block than the recurrent states."""
    states = [group.block_size for group in context.layout.groups if group.kind == "mamba"]
    blocks = [group.block_size for group in context.layout.groups if group.prefix_cacheable]
    return bool(states and blocks and min(blocks) < min(states)) is wanted


def _given_block_above_smallest(context: RuleContext, wanted: bool) -> bool:
    given = context.plan.given_arguments.get("block_size")
    smallest = min((group.block_size for group in context.layout.groups if group.prefix_cacheable), default=None)
    return (isinstance(given, int) and smallest is not None and smallest < given) is wanted


_CLAUSES: dict[str, Callable[[RuleContext, Any], bool]] = {
    "kinds": _kinds,
    "refusal": _refusal,
    "log": lambda context, wanted: any(wanted in record.message for record in context.plan.vllm_log),
    "given": lambda context, wanted: set(wanted) <= set(context.plan.given_arguments),
    "connector": lambda context, wanted: any(check.name == f"connector {wanted}" for check in context.plan.checks),
    "variable_unset": lambda context, wanted: wanted not in context.request.environment,
    "speculative": lambda context, wanted: context.plan.launch.speculative_method in wanted,
    "model_runner": lambda context, wanted: context.plan.engine.model_runner == wanted,
    "prefix_caching": lambda context, wanted: context.plan.launch.prefix_caching is wanted,
    "mamba_cache_mode": lambda context, wanted: context.plan.launch.mamba_cache_mode == wanted,
    "block_below_state": _block_below_state,
    "given_block_above_smallest": _given_block_above_smallest,
}
