"""What a rule is, what it is given, and what it says."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from kvdoctor.launches.request import LaunchRequest
from kvdoctor.layout import Layout
from kvdoctor.plan import Plan
from kvdoctor.rules.refusal_text import RefusalReading

Evidence = dict[str, int | float | str | list[int]]
Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A change that vLLM planned and took, with what came of it; ``left_out`` are arguments by the names of vLLM's parser."""

    change: str
    arguments: tuple[str, ...]
    left_out: tuple[str, ...]
    kv_cache_tokens: int | None
    max_concurrency: float | None
    hash_block_size: int | None
    min_reusable_prefix_tokens: int | None
    empty_percent: float | None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a rule found: ``message`` is one sentence with its numbers, ``remediation`` an imperative.

    ``evidence`` holds named figures; lists stay lists so that a report read back from JSON is equal to the one written.
    ``suggestions`` were tried, the best first.
    """

    rule: str
    name: str
    severity: Severity
    message: str
    remediation: str
    evidence: Evidence
    url: str
    suggestions: tuple[Suggestion, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """The rule could not look: what it needs was not settled."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class OtherEnd:
    """The same launch with another budget, which the estimate may be off by: whether it launches."""

    kv_cache_bytes: int
    launches: bool


@dataclass(frozen=True, kw_only=True)
class RuleContext:
    """What every rule may look at. ``refusal`` is vLLM's refusal, read; ``None`` without one, or when its text is not known.

    ``without_drafter`` is the layout of the same launch without speculation, where that was planned as well, and ``other_end`` how it
    ends where the estimated budget is wrong.
    """

    request: LaunchRequest
    plan: Plan
    layout: Layout
    refusal: RefusalReading | None
    without_drafter: Layout | None = None
    other_end: OtherEnd | None = None


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """An input of a rule: whether the plan has it, and what is told where it has not."""

    met: Callable[[RuleContext], bool]
    reason: str


class Rule(ABC):
    """A rule's docstring is its documentation: a sentence, then the headings that ``kvdoctor explain`` shows.

    ``requires`` are its inputs: the rule is skipped, with the reason of the first that is missing, and ``check`` may rely on all.
    """

    id: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    urls: ClassVar[tuple[str, ...]]
    requires: ClassVar[tuple[Requirement, ...]] = ()

    def look(self, context: RuleContext) -> tuple[Finding, ...] | Skipped:
        """Look at the plan, or say what is missing for that."""
        for requirement in self.requires:
            if not requirement.met(context):
                return Skipped(reason=requirement.reason)
        return self.check(context)

    @abstractmethod
    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Look at a plan that has what the rule requires; no findings means that all is well."""

    @property
    def documentation(self) -> str:
        """The rule's documentation, as Markdown."""
        return inspect.cleandoc(type(self).__doc__ or "")

    @property
    def summary(self) -> str:
        """The first sentence of the documentation."""
        return self.documentation.partition("\n")[0]

    def finding(
        self, message: str, *, remediation: str, evidence: Evidence, severity: Severity | None = None, url: str | None = None
    ) -> Finding:
        """Make a finding that carries this rule's name, and its severity and first URL where no others are given."""
        return Finding(
            rule=self.id,
            name=self.name,
            severity=severity or self.severity,
            message=message,
            remediation=remediation,
            evidence=evidence,
            url=url or self.urls[0],
        )
