"""The comparison in one line, and the limits held against it."""

from kvdoctor.compare.figures import hash_block_size
from kvdoctor.compare.interface import Comparison, Limits, Regression
from kvdoctor.diagnosis import Diagnosis, verdict_line
from kvdoctor.rules.numbers import grouped, percent
from kvdoctor.waste import empty_percent

# An empty share is worth a word from here on; vLLM's alignment leaves less than that in most hybrids.
_WORTH_SAYING_PERCENT = 1.0
_HASH = "layout.hash_block_size"
LAUNCHES = ("ok", "warning")


def comparison_line(before: Diagnosis, after: Diagnosis, made: Comparison) -> str:
    """Say in one line how the after side ends, and what changed most."""
    if made.same:
        return f"no difference: {verdict_line(after)}"
    parts = [_ending(before, after), *headlines(made)]
    empty = _emptiness(before, after)
    return "; ".join(parts + ([empty] if empty else []))


def headlines(made: Comparison) -> list[str]:
    """Give the changes of the figures that a deployer looks at first."""
    sides = (made.before, made.after)
    told = {change.key: change for change in made.changes if change.before is not None and change.after is not None}
    if any(side.verdict not in LAUNCHES for side in sides):
        # A launch that is refused serves nothing: of its figures only the hash block, which refusals are about, is worth a word.
        told = {key: change for key, change in told.items() if key == _HASH}
    lines = []
    if change := told.get("layout.prefix_caching"):
        lines.append(f"prefix caching {'on' if change.after else 'off'}")
    # Where nothing is cached by prefix, these sizes cut up nothing.
    if all(side.prefix_caching is not False for side in sides):
        for key, name in (("layout.scheduler_block_size", "block"), (_HASH, "hash block")):
            if change := told.get(key):
                lines.append(f"{name} {_number(change.before)} -> {_number(change.after)}")
    if (change := told.get("layout.kv_cache_tokens")) and change.difference_percent is not None:
        lines.append(f"tokens {change.difference_percent:+,.1f} %")
    return lines


def hold_limits(before: Diagnosis, after: Diagnosis, limits: Limits) -> tuple[tuple[Regression, ...], tuple[str, ...]]:
    """Give the limits that were passed, and those that could not be checked."""
    regressions: list[Regression] = []
    unchecked: list[str] = []
    refused = " and ".join(name for name, side in (("before", before), ("after", after)) if side.verdict not in LAUNCHES)
    for limit, figure, allowed, old, new in (
        ("--max-token-loss", "tokens", limits.max_token_loss_percent, before.layout.kv_cache_tokens, after.layout.kv_cache_tokens),
        ("--max-hash-growth", "hash block", limits.max_hash_growth_percent, hash_block_size(before), hash_block_size(after)),
        ("--max-waste-growth", "waste", limits.max_waste_growth_points, _empty(before), _empty(after)),
    ):
        if allowed is None:
            continue
        if refused:
            unchecked.append(f"{limit}: the {refused} side does not launch")
        elif figure == "hash block" and before.layout.prefix_caching is False:
            unchecked.append(f"{limit}: prefix caching is off on the before side")
        elif old is None or new is None:
            unsettled = " and ".join(side for side, value in (("before", old), ("after", new)) if value is None)
            unchecked.append(f"{limit}: the {figure} figure is not settled on the {unsettled} side")
        elif (found := _worsened(figure, old, new)) > allowed:
            regressions.append(Regression(limit=limit, figure=figure, before=old, after=new, found=found, allowed=allowed))
    return tuple(regressions), tuple(unchecked)


def _empty(side: Diagnosis) -> float | None:
    return empty_percent(side.layout, side.launch.max_model_len)


def _worsened(figure: str, before: float, after: float) -> float:
    if figure == "waste":
        return after - before
    loss = before - after if figure == "tokens" else after - before
    return 100.0 * loss / before if before else (100.0 if loss else 0.0)


def _ending(before: Diagnosis, after: Diagnosis) -> str:
    if after.verdict in LAUNCHES:
        return "both launch" if before.verdict in LAUNCHES else "after: launches"
    told = verdict_line(after)
    return f"both refused; after: {told}" if before.verdict == after.verdict == "refused" else f"after: {told}"


def _emptiness(before: Diagnosis, after: Diagnosis) -> str | None:
    """Tell the after side's empty share of a full request, where that is new or the before side did not launch."""
    new = _empty(after)
    if after.verdict not in LAUNCHES or new is None:
        return None
    old = _empty(before) if before.verdict in LAUNCHES else None
    if max(new, old or 0.0) < _WORTH_SAYING_PERCENT or (old is not None and percent(old) == percent(new)):
        return None
    return f"{percent(new)} of a full request is empty" + ("" if old is None else f" (before: {percent(old)})")


def _number(value: object) -> str:
    return grouped(value) if isinstance(value, int) else str(value)
