"""The texts of a plan or of a report without secrets, and without what differs from run to run."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from kvdoctor.diagnosis import Diagnosis
from kvdoctor.plan import Plan
from kvdoctor.reproducible import same_every_time, timeless
from kvdoctor.secrets import Curtain, curtain_for, hide_arguments, hide_environment

_Texts = TypeVar("_Texts", Plan, Diagnosis)


def conceal_plan(plan: Plan, curtain: Curtain, places: Mapping[str, str]) -> Plan:
    """Hide what ``curtain`` hides in everything that vLLM wrote; ``places`` names temporary folders."""

    def shown(text: str) -> str:
        return same_every_time(curtain(text), places)

    launch = replace(plan.launch, model=shown(plan.launch.model))
    return replace(_with_texts(plan, shown, lambda text: timeless(shown(text))), launch=launch)


def conceal_report(report: Diagnosis) -> Diagnosis:
    """Hide the secrets of a saved report: one by another hand, or by a kvdoctor that kept them."""
    request = report.request
    curtain = curtain_for(request.vllm_args, request.environment)
    request = replace(request, vllm_args=hide_arguments(request.vllm_args), environment=hide_environment(request.environment))
    findings = tuple(
        replace(finding, message=curtain(finding.message), remediation=curtain(finding.remediation)) for finding in report.findings
    )
    launch = replace(report.launch, model=curtain(report.launch.model))
    return replace(_with_texts(report, curtain, curtain), request=request, findings=findings, launch=launch)


def _with_texts(value: _Texts, shown: Callable[[str], str], logged: Callable[[str], str]) -> _Texts:
    refusal = value.refusal
    return replace(
        value,
        checks=tuple(replace(check, note=None if check.note is None else shown(check.note)) for check in value.checks),
        assumptions=tuple(map(shown, value.assumptions)),
        refusal=None if refusal is None else replace(refusal, message=shown(refusal.message)),
        vllm_log=tuple(replace(record, message=logged(record.message)) for record in value.vllm_log),
    )
