"""What a comparison is: the shape of its JSON."""

from dataclasses import dataclass
from typing import Literal

from kvdoctor.diagnosis import Verdict
from kvdoctor.plan import Refusal
from kvdoctor.rules import Finding

SCHEMA_VERSION = 1

Value = int | float | str | bool | None
Which = Literal["before", "after"]
Unit = Literal["tokens", "bytes", "blocks", "layers", "requests", "percent"]
GroupEvent = Literal["changed", "renamed", "regrouped", "added", "removed"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much worse the after side may be. The waste is a share already: its growth is counted in points of percent."""

    max_token_loss_percent: float | None = None
    max_hash_growth_percent: float | None = None
    max_waste_growth_points: float | None = None


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one side is, and how it ended. ``summary`` is its report's last line."""

    model: str | None
    revision: str | None
    vllm_args: tuple[str, ...]
    environment: dict[str, str]
    usage: str
    gpu: str
    kv_cache_memory_bytes: int | None
    vllm_version: str
    torch_version: str
    transformers_version: str
    source: str
    libraries: str
    prefix_caching: bool | None
    verdict: Verdict
    summary: str
    refusal: Refusal | None


@dataclass(frozen=True, kw_only=True)
class Change:
    """A figure that differs. ``key`` is where it stands in the report's JSON, or a name of its own for what is computed from several.

    ``difference`` is after less before, and ``difference_percent`` that of before; ``None`` where there is no such number.
    """

    section: str
    name: str
    key: str
    unit: Unit | None
    before: Value
    after: Value
    difference: int | float | None
    difference_percent: float | None


@dataclass(frozen=True, kw_only=True)
class GroupChange:
    """Groups that belong together, by their layers, and what differs between them.

    ``before`` and ``after`` are indexes of groups (positions, where vLLM refused before grouping and layer specs stand in). Groups that
    changed alike are told once, all their indexes in both. ``layers_gone`` and ``layers_new`` are names that one side alone has.
    """

    event: GroupEvent
    kind: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    figures: tuple[Change, ...]
    layers_gone: tuple[str, ...]
    layers_new: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GroupComparison:
    """The groups that differ, and the number of those that do not.

    ``basis`` says what was compared: layer specs, where one side was refused before vLLM grouped its layers.
    """

    basis: Literal["groups", "layer specs"]
    changes: tuple[GroupChange, ...]
    unchanged: int


@dataclass(frozen=True, kw_only=True)
class FindingChange:
    """A finding that appeared, went or stayed. ``finding`` is the after side's, or the before side's when it went.

    ``message_before`` is what it said before, where it stayed with other words or figures. ``skipped`` is the reason why the rule could not
    look on the other side, where that is why the finding is on one side alone.
    """

    event: Literal["appeared", "went", "stayed"]
    finding: Finding
    message_before: str | None
    skipped: str | None


@dataclass(frozen=True, kw_only=True)
class Reason:
    """What vLLM's log or the arguments say about a change. A ``log`` text is vLLM's own line, which ``side`` alone has.

    ``about`` holds the keys of the changes.
    """

    about: tuple[str, ...]
    side: Literal["before", "after", "both"]
    source: Literal["log", "arguments"]
    text: str


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A limit that was passed: the option's name, and the growth or loss it allows and the one that was found."""

    limit: str
    figure: str
    before: int | float
    after: int | float
    found: float
    allowed: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two reports, compared. ``verdict`` is one line; ``unchanged`` counts the figures that are equal on both sides.

    ``new_errors`` names the errors that the after side has and the before side has not, by rule. ``unchecked_limits`` says which limits
    could not be held against anything, and why.
    """

    schema_version: int
    kvdoctor_version: str
    verdict: str
    before: Side
    after: Side
    changes: tuple[Change, ...]
    unchanged: int
    groups: GroupComparison
    findings: tuple[FindingChange, ...]
    reasons: tuple[Reason, ...]
    new_errors: tuple[str, ...]
    regressions: tuple[Regression, ...]
    unchecked_limits: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Nothing that vLLM decides differs, and no finding does."""
        stayed = all(change.event == "stayed" and change.message_before is None for change in self.findings)
        return not self.changes and not self.groups.changes and stayed and self.before.verdict == self.after.verdict
