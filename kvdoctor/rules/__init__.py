"""The rules, in the order in which they are run and shown."""

from collections.abc import Iterable

from kvdoctor.errors import BadRequest
from kvdoctor.rules.arguments import ServeArgumentsAreRefused
from kvdoctor.rules.borderline import BorderlineMemory
from kvdoctor.rules.capacity import LowConcurrency, MaxModelLenDoesNotFit, TooManySequencesForStates, WeightsDoNotFit
from kvdoctor.rules.connectors import ConnectorChunkMismatch, HybridManagerDisabled
from kvdoctor.rules.crowded import BlockSizeInflated, KvHeadsReplicated, ManySmallGroups, NarrowGroupIsBilledWide, PaddingLayers
from kvdoctor.rules.interface import Finding, OtherEnd, Rule, RuleContext, Severity, Skipped, Suggestion
from kvdoctor.rules.known_bugs import KnownBugInRelease
from kvdoctor.rules.parallel import ContextParallelismInflatesBlock, PipelineStageBottleneck
from kvdoctor.rules.prefix import (
    BlockExceedsContext,
    CoarsePrefixGranularity,
    PrefixCachingOff,
    PrefixMatchUnitInert,
    SpeculationGrowsBlock,
)
from kvdoctor.rules.refused import BlockNotDivisibleByHash, CodeFailed, LaunchRefused, PageSizesNotUnifiable, RemoteCodeIsNeeded
from kvdoctor.rules.release import UnknownSpecKind, UntestedRelease
from kvdoctor.rules.tokens import BatchInflatesWindows, TokensFigureMisleads
from kvdoctor.rules.values import BlockExceedsBatchedTokens, KernelBlockMismatch, PrefixMatchUnitInvalid, RanksDoNotDivide
from kvdoctor.rules.wasted import EmptyShareOfPool, PagePadding

__all__ = ["RULES", "Finding", "OtherEnd", "Rule", "RuleContext", "Severity", "Skipped", "Suggestion", "choose_rules", "find_rule"]

RULES: tuple[Rule, ...] = (
    BlockNotDivisibleByHash(),
    PageSizesNotUnifiable(),
    LaunchRefused(),
    PrefixMatchUnitInvalid(),
    BlockExceedsBatchedTokens(),
    RanksDoNotDivide(),
    KernelBlockMismatch(),
    RemoteCodeIsNeeded(),
    CodeFailed(),
    ServeArgumentsAreRefused(),
    PagePadding(),
    PaddingLayers(),
    BlockSizeInflated(),
    KvHeadsReplicated(),
    NarrowGroupIsBilledWide(),
    ManySmallGroups(),
    EmptyShareOfPool(),
    BlockExceedsContext(),
    CoarsePrefixGranularity(),
    PrefixCachingOff(),
    PrefixMatchUnitInert(),
    SpeculationGrowsBlock(),
    MaxModelLenDoesNotFit(),
    TooManySequencesForStates(),
    LowConcurrency(),
    TokensFigureMisleads(),
    WeightsDoNotFit(),
    BorderlineMemory(),
    BatchInflatesWindows(),
    HybridManagerDisabled(),
    PipelineStageBottleneck(),
    ConnectorChunkMismatch(),
    ContextParallelismInflatesBlock(),
    KnownBugInRelease(),
    UntestedRelease(),
    UnknownSpecKind(),
)


def find_rule(text: str) -> Rule:
    """Find a rule by its id or its name."""
    for rule in RULES:
        if text.strip().lower() in (rule.id.lower(), rule.name):
            return rule
    raise BadRequest(f"there is no rule {text!r}", hint="`kvdoctor rules` lists them.")


def choose_rules(*, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """Choose rules by id, prefix of an id, or name; no ``select`` means all of them."""
    selected = _matching(select) or {rule.id for rule in RULES}
    ignored = _matching(ignore)
    return tuple(rule for rule in RULES if rule.id in selected - ignored)


def _matching(selectors: Iterable[str]) -> set[str]:
    matched: set[str] = set()
    for selector in selectors:
        text = selector.strip().lower()
        found = {rule.id for rule in RULES if text and (rule.id.lower().startswith(text) or rule.name == text)}
        if not found:
            raise BadRequest(f"no rule matches {selector!r}", hint="`kvdoctor rules` lists ids and names; KV1 takes a family.")
        matched |= found
    return matched
