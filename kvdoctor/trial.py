"""How far a release that nobody wrote for can be used: names that are gone, samples planned, and what changed in them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from kvdoctor.errors import KvdoctorError
from kvdoctor.plan import Plan

SCHEMA_VERSION = 1
# Every sample gets this much, so that blocks and tokens can be compared.
BUDGET_BYTES = 40 * 2**30

Outcome = Literal["planned", "refused", "not assessed"]
Conclusion = Literal["usable", "partly usable", "not usable"]


@dataclass(frozen=True, kw_only=True)
class Lost:
    """What the release no longer has as the dry launch needs it.

    ``what`` tells a name that is gone from one that takes other arguments; ``detail`` says which, or where it may be now.
    """

    name: str
    what: Literal["gone", "arguments"]
    detail: str
    use: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """A figure that the newest tested release has otherwise; ``None`` where it has none."""

    figure: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class SampleTrial:
    """One sample. ``reason`` says why it was not planned, ``before`` what the newest tested release made of it (``None``: not asked).

    ``unchecked`` names the steps that were left out here and not there.
    """

    name: str
    outcome: Outcome
    reason: str | None
    before: Outcome | None
    unchecked: tuple[str, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The whole test of a release. ``baseline`` is the tested release that it was compared with; ``names`` counts those looked up."""

    schema_version: int
    kvdoctor_version: str
    version: str
    source: str
    baseline: str | None
    tested_at: str
    names: int
    lost: tuple[Lost, ...]
    samples: tuple[SampleTrial, ...]
    conclusion: Conclusion


def try_sample(name: str, got: Plan | KvdoctorError, before: Plan | KvdoctorError | None) -> SampleTrial:
    """Read what the release made of a sample beside what the newest tested one did."""
    outcome, reason = read_outcome(got)
    as_before = before is not None and read_outcome(before)[0] == outcome  # else that is the change
    figures = _figures(got) if isinstance(got, Plan) else {}
    other = _figures(before) if isinstance(before, Plan) else {}
    changes = tuple(
        Change(figure=figure, before=other.get(figure), after=figures.get(figure))
        for figure in dict.fromkeys((*other, *figures))
        if as_before and other.get(figure) != figures.get(figure)
    )
    unchecked = _unchecked(got) - _unchecked(before) if before is not None else set()
    return SampleTrial(
        name=name,
        outcome=outcome,
        reason=reason,
        before=None if before is None else read_outcome(before)[0],
        unchecked=tuple(sorted(unchecked)),
        changes=changes,
    )


def read_outcome(got: Plan | KvdoctorError) -> tuple[Outcome, str | None]:
    """Say what became of a launch. Where vLLM's code failed by accident, nothing is known."""
    if isinstance(got, KvdoctorError):
        return "not assessed", got.message
    if got.refusal is None:
        return "planned", None
    reason = f"{got.refusal.stage}: {got.refusal.exception}: {got.refusal.message}"
    return "not assessed" if got.refusal.accident else "refused", reason


def conclude(lost: Iterable[Lost], samples: Iterable[SampleTrial]) -> Conclusion:
    """Say how far the release can be used: whole when nothing is gone and every sample ends as with the tested release."""
    tried = tuple(samples)
    if not any(sample.outcome == "planned" for sample in tried):
        return "not usable"
    as_before = all(sample.outcome == (sample.before or "planned") and not sample.unchecked for sample in tried)
    return "usable" if as_before and not tuple(lost) else "partly usable"


def in_short(trial: Trial) -> str:
    """Say it in a sentence without a period."""
    return f"kvdoctor engines test found vLLM {trial.version} {trial.conclusion} on {trial.tested_at[:10]}: {counts(trial)}"


def counts(trial: Trial) -> str:
    """Say what the conclusion rests on."""
    planned = sum(sample.outcome == "planned" for sample in trial.samples)
    gone = len(trial.lost)
    return f"{planned} of {len(trial.samples)} samples planned, {gone} {'name' if gone == 1 else 'names'} gone or changed"


def _figures(plan: Plan) -> Mapping[str, str | None]:
    groups = [f"{group.kind} of {len(group.layers)}" for group in plan.groups]
    return {
        "groups": _runs(groups),
        "block sizes": _runs([f"{group.block_size:,}" for group in plan.groups]),
        "kernel block sizes": _runs([_number(group.kernel_block_size) or "none" for group in plan.groups]),
        "scheduler block": _number(plan.scheduler_block_size),
        "hash block": _number(plan.hash_block_size),
        "prefix hits on multiples of": _number(plan.prefix_hit_tokens),
        "smallest reusable prefix": _number(plan.min_reusable_prefix_tokens),
        "bytes per block": _number(plan.bytes_per_block),
        "blocks": _number(plan.num_blocks),
        "tokens": _number(plan.kv_cache_tokens),
    }


def _unchecked(got: Plan | KvdoctorError) -> set[str]:
    return {check.name for check in got.checks if check.outcome == "not_checked"} if isinstance(got, Plan) else set()


def _runs(words: list[str]) -> str | None:
    """Write equal neighbours once, with their number."""
    counted = [(word, len(list(same))) for word, same in groupby(words)]
    return ", ".join(f"{word} x {count}" if count > 1 else word for word, count in counted) or None


def _number(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"
