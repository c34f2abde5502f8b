"""From a diagnosis on an estimated budget to one that holds at both ends of the estimate, or says that it does not."""

import dataclasses
from collections.abc import Callable

from kvdoctor.assess import Launch, Planning
from kvdoctor.diagnosis import SEVERITIES, Diagnosis, diagnose, read_context
from kvdoctor.errors import KvdoctorError
from kvdoctor.plan import Plan
from kvdoctor.rules import OtherEnd, Severity, Skipped, find_rule

_RULE = "KV406"
_LAUNCHES = ("ok", "warning")


def at_both_ends(diagnosis: Diagnosis, launch: Launch, plan: Plan, service: Planning, *, on_step: Callable[[str], None]) -> Diagnosis:
    """Plan once more where the estimate would change the verdict if it were wrong: without the reserve, or with it taken twice.

    A launch that is refused at one end and not at the other is ``borderline``: its errors are warnings.
    """
    end = _other_end(diagnosis)
    if end is None:
        return diagnosis
    on_step("planning at the other end of the estimate")
    try:
        launches = end > 0 and _launches(launch, end, service)
    except KvdoctorError:
        return diagnosis  # the rule stays among the skipped
    context = dataclasses.replace(read_context(launch.request, plan), other_end=OtherEnd(kv_cache_bytes=end, launches=launches))
    outcome = find_rule(_RULE).look(context)
    skipped = tuple(rule for rule in diagnosis.skipped_rules if rule.rule != _RULE)
    if isinstance(outcome, Skipped) or not outcome:
        return dataclasses.replace(diagnosis, skipped_rules=skipped)
    chosen = outcome if len(skipped) < len(diagnosis.skipped_rules) else ()  # the verdict stands without the rule too
    softened = [dataclasses.replace(finding, severity=_softer(finding.severity)) for finding in diagnosis.findings]
    findings = sorted((*chosen, *softened), key=lambda finding: SEVERITIES.index(finding.severity))
    return dataclasses.replace(diagnosis, verdict="borderline", findings=tuple(findings), skipped_rules=skipped)


def _other_end(diagnosis: Diagnosis) -> int | None:
    """Give the budget at which the answer may be the other one; ``None`` where no estimate bears on it."""
    memory = diagnosis.memory
    if memory.kv_cache_source != "estimate" or memory.allowance_bytes is None or not diagnosis.layout.groups:
        return None
    if diagnosis.verdict in _LAUNCHES and memory.kv_cache_bytes is not None:
        return memory.kv_cache_bytes - memory.allowance_bytes
    if diagnosis.verdict != "refused":
        return None
    if memory.kv_cache_bytes is not None:
        return memory.kv_cache_bytes + memory.allowance_bytes
    if memory.weights_fit is False and memory.weights_bytes is not None:
        return int(memory.gpu_bytes * (memory.gpu_memory_utilization or 1)) - memory.weights_bytes
    return None


def _launches(launch: Launch, budget: int, service: Planning) -> bool:
    request = dataclasses.replace(launch.request, kv_cache_memory_bytes=budget)
    return diagnose(request, service.plan(dataclasses.replace(launch, request=request))).verdict in _LAUNCHES


def _softer(severity: Severity) -> Severity:
    return "warning" if severity == "error" else severity
