"""The comparison in one line, and the limits held against it."""

from kvdoctor.compare.figures import hash_block_size
from kvdoctor.compare.interface import Change, Limits, Regression
from kvdoctor.diagnosis import Diagnosis, verdict_line
from kvdoctor.rules.numbers import grouped, percent
from kvdoctor.waste import empty_percent

# A page is called padded from here on; vLLM's alignment leaves less than that in most hybrids.
_WORTH_SAYING_PERCENT = 1.0


def comparison_line(before: Diagnosis, after: Diagnosis, changes: tuple[Change, ...], *, same: bool) -> str:
    """Say in one line how the after side ends, and what changed most."""
    if same:
        return f"no difference: {verdict_line(after)}"
    # A launch that was refused served nothing: of its figures only the hash block, which refusals are about, is worth a line.
    told = headlines(changes) if launches(before) else headlines(tuple(made for made in changes if made.key == "layout.hash_block_size"))
    parts = [_ending(before, after), *told]
    padding = _padding(before, after)
    return "; ".join(parts + ([padding] if padding else []))


def headlines(changes: tuple[Change, ...]) -> list[str]:
    """Give the changes of the figures that a deployer looks at first."""
    told = {made.key: made for made in changes if made.before is not None and made.after is not None}
    lines = []
    for key, name in (("layout.scheduler_block_size", "block"), ("layout.hash_block_size", "hash block")):
        if made := told.get(key):
            lines.append(f"{name} {_number(made.before)} -> {_number(made.after)}")
    if (made := told.get("layout.kv_cache_tokens")) and made.difference_percent is not None:
        lines.append(f"tokens {made.difference_percent:+,.1f} %")
    if (made := told.get("layout.max_concurrency")) and made.difference_percent is not None and "layout.kv_cache_tokens" not in told:
        lines.append(f"concurrency {made.difference_percent:+,.1f} %")
    return lines


def hold_limits(before: Diagnosis, after: Diagnosis, limits: Limits) -> tuple[tuple[Regression, ...], tuple[str, ...]]:
    """Give the limits that were passed, and those that could not be checked."""
    regressions: list[Regression] = []
    unchecked: list[str] = []
    refused = " and ".join(name for name, side in (("before", before), ("after", after)) if not launches(side))
    for limit, figure, allowed, old, new in (
        ("--max-token-loss", "tokens", limits.max_token_loss_percent, before.layout.kv_cache_tokens, after.layout.kv_cache_tokens),
        ("--max-hash-growth", "hash block", limits.max_hash_growth_percent, hash_block_size(before), hash_block_size(after)),
        ("--max-waste-growth", "waste", limits.max_waste_growth_points, empty_percent(before.layout), empty_percent(after.layout)),
    ):
        if allowed is None:
            continue
        if refused:
            unchecked.append(f"{limit}: the {refused} side does not launch")
            continue
        if old is None or new is None:
            sides = " and ".join(side for side, value in (("before", old), ("after", new)) if value is None)
            unchecked.append(f"{limit}: the {figure} figure is not settled on the {sides} side")
            continue
        found = _worsened(figure, old, new)
        if found > allowed:
            regressions.append(Regression(limit=limit, figure=figure, before=old, after=new, found=found, allowed=allowed))
    return tuple(regressions), tuple(unchecked)


def _worsened(figure: str, before: float, after: float) -> float:
    if figure == "waste":
        return after - before
    loss = before - after if figure == "tokens" else after - before
    return 100.0 * loss / before if before else (100.0 if loss else 0.0)


def _ending(before: Diagnosis, after: Diagnosis) -> str:
    if launches(after):
        return "both launch" if launches(before) else "after: launches"
    told = verdict_line(after)
    return f"both refused; after: {told}" if before.verdict == after.verdict == "refused" else f"after: {told}"


def launches(diagnosis: Diagnosis) -> bool:
    """Tell whether the launch was planned to its end."""
    return diagnosis.verdict in ("ok", "warning")


def _padding(before: Diagnosis, after: Diagnosis) -> str | None:
    """Name the after side's most padded page, where that is new or the before side did not launch."""
    if not launches(after):
        return None
    worst = max(after.layout.groups, key=lambda group: group.wasted_percent, default=None)
    old = max((group.wasted_percent for group in before.layout.groups), default=0.0)
    if worst is None or (launches(before) and percent(old) == percent(worst.wasted_percent)):
        return None
    if worst.wasted_percent < _WORTH_SAYING_PERCENT:
        return "no page is padded" if old >= _WORTH_SAYING_PERCENT and not worst.wasted_bytes else None
    kind = worst.spec if worst.kind == "other" else worst.kind.replace("_", "-")
    return f"{percent(worst.wasted_percent)} of each {kind} page is padding"


def _number(value: object) -> str:
    return grouped(value) if isinstance(value, int) else str(value)
