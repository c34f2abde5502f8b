"""Findings that appeared, went or stayed, and the errors that are new."""

from kvdoctor.compare.interface import FindingChange
from kvdoctor.diagnosis import SEVERITIES, Diagnosis
from kvdoctor.rules import Finding
from kvdoctor.rules.refused import LaunchRefused


def compare_findings(before: Diagnosis, after: Diagnosis) -> tuple[FindingChange, ...]:
    """Pair findings of one rule, those with the same words first; what has no partner appeared or went."""
    left = list(before.findings)
    partners: dict[int, Finding] = {}
    for exactly in (True, False):
        for position, finding in enumerate(after.findings):
            if position in partners:
                continue
            partner = next((old for old in left if _is_same(old, finding) and (old.message == finding.message or not exactly)), None)
            if partner is not None:
                left.remove(partner)
                partners[position] = partner
    appeared = [
        FindingChange(event="appeared", finding=finding, message_before=None, skipped=_skipped(before, finding))
        for position, finding in enumerate(after.findings)
        if position not in partners
    ]
    went = [FindingChange(event="went", finding=finding, message_before=None, skipped=_skipped(after, finding)) for finding in left]
    stayed = [
        FindingChange(event="stayed", finding=finding, message_before=None if finding.message == old.message else old.message, skipped=None)
        for position, finding in enumerate(after.findings)
        if (old := partners.get(position)) is not None
    ]
    return (*_worst_first(appeared), *_worst_first(went), *_worst_first(stayed))


def find_new_errors(before: Diagnosis, after: Diagnosis, findings: tuple[FindingChange, ...]) -> tuple[str, ...]:
    """Name the errors of the after side that the before side has not, by rule; a refusal counts when its rule was left out, too."""
    errors = [change.finding for change in findings if change.event == "appeared" and change.finding.severity == "error"]
    named = [f"{finding.rule} {finding.name}" for finding in errors]
    reported = any(finding.severity == "error" for finding in after.findings)
    if after.refusal is not None and not reported and _refusal(before) != _refusal(after):
        named.append(f"refused at {after.refusal.stage}: {after.refusal.exception}")
    return tuple(dict.fromkeys(named))


def _skipped(other: Diagnosis, finding: Finding) -> str | None:
    return next((rule.reason for rule in other.skipped_rules if rule.rule == finding.rule), None)


def _refusal(diagnosis: Diagnosis) -> tuple[str, str] | None:
    refusal = diagnosis.refusal
    return None if refusal is None else (refusal.stage, refusal.exception)


def _is_same(old: Finding, new: Finding) -> bool:
    # A rule's findings may have addresses of their own: each known bug is one.
    if (old.rule, old.url) != (new.rule, new.url):
        return False
    # One rule quotes every refusal that no other knows: another step or exception there is another error.
    return old.rule != LaunchRefused.id or all(old.evidence.get(key) == new.evidence.get(key) for key in ("stage", "exception"))


def _worst_first(changes: list[FindingChange]) -> list[FindingChange]:
    return sorted(changes, key=lambda change: SEVERITIES.index(change.finding.severity))
