"""The comparison of many models at once: one line each."""

from dataclasses import dataclass

from kvdoctor.compare.figures import SETTINGS
from kvdoctor.compare.interface import Comparison
from kvdoctor.compare.judge import headlines

_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """One model of many. ``failure`` says why it could not be compared; exactly one of the two is there."""

    name: str
    comparison: Comparison | None
    failure: str | None


@dataclass(frozen=True, kw_only=True)
class ManyComparison:
    """The models in order, with what the two sides are: the words of the command line."""

    schema_version: int
    kvdoctor_version: str
    before: str
    after: str
    models: tuple[ModelComparison, ...]


def short(comparison: Comparison) -> str:
    """Say what changed in a few words; "same" when nothing did."""
    if comparison.same:
        return "same"
    verdicts = (comparison.before.verdict, comparison.after.verdict)
    parts = []
    if "refused" in verdicts and verdicts[0] != verdicts[1]:
        parts.append("now refused" if verdicts[1] == "refused" else "now launches")
    parts += headlines(comparison)
    if comparison.groups.changes and not any(part.startswith(("block", "hash")) for part in parts):
        parts.append("groups")
    told = ("layout.prefix_caching", "layout.scheduler_block_size", "layout.hash_block_size", "layout.kv_cache_tokens", "group_blocks")
    # Figures that only one side has follow from a refusal, which is told.
    changes = [made for made in comparison.changes if made.key not in told and made.before is not None and made.after is not None]
    # Settings first: the other figures follow from them.
    names = [made.name for made in sorted(changes, key=lambda made: made.section != SETTINGS)]
    if names:
        more = len(names) - _NAMED
        parts.append(", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else ""))
    rules = [f"{change.finding.rule} {change.event}" for change in comparison.findings if change.event != "stayed"]
    return "; ".join([*parts, *rules]) or "findings say other things"
