"""From a diagnosis to one with advice that was tried: vLLM plans what the rules propose, and what it takes is shown with its effect."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvdoctor.assess import Launch, Planning
from kvdoctor.diagnosis import SEVERITIES, Diagnosis, diagnose, read_context
from kvdoctor.errors import KvdoctorError
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.plan import Plan
from kvdoctor.rules import RuleContext, Skipped, Suggestion, find_rule
from kvdoctor.rules.requirements import WITHOUT_DRAFTER
from kvdoctor.rules.trials import Change, Trial, trial_for
from kvdoctor.secrets import hide_arguments
from kvdoctor.waste import empty_percent

# A report is worth a few seconds more, and a finding a few lines.
MOST_CHANGES = 6
MOST_SHOWN = 3
SECONDS = 6.0
# What stands beside a refusal and has a remedy for it, such as the size of the batch, is tried too.
_BESIDE_ERRORS = frozenset({"KV407", "KV501"})

OnStep = Callable[[str], None]


def with_suggestions(diagnosis: Diagnosis, launch: Launch, plan: Plan, service: Planning, *, on_step: OnStep) -> Diagnosis:
    """Have the candidates of each finding planned by the worker that is there already; where vLLM refuses, only those of the errors."""
    errors = any(finding.severity == "error" for finding in diagnosis.findings)
    context = read_context(launch.request, plan)
    bench = _Bench(launch=launch, service=service, on_step=on_step, ends_at=time.monotonic() + SECONDS)
    diagnosis = _without_drafter(diagnosis, context, bench)
    findings = []
    for finding in diagnosis.findings:
        asked = not errors or finding.severity == "error" or finding.rule in _BESIDE_ERRORS
        trial = trial_for(finding.rule, context) if asked else None
        tried = () if trial is None else _suggestions(trial, bench, diagnosis)
        findings.append(dataclasses.replace(finding, suggestions=tried) if tried else finding)
    return dataclasses.replace(diagnosis, findings=tuple(findings))


def _without_drafter(diagnosis: Diagnosis, context: RuleContext, bench: "_Bench") -> Diagnosis:
    """Let the rules look that need the plan without speculation, unless vLLM refuses the launch."""
    waiting = [skipped for skipped in diagnosis.skipped_rules if skipped.reason == WITHOUT_DRAFTER.reason]
    if not waiting or diagnosis.verdict not in {"ok", "warning"}:
        return diagnosis
    change = Change(left_out=("speculative_config",))
    made = bench.try_all([change]).get(change)
    if made is None:
        return diagnosis
    context = dataclasses.replace(context, without_drafter=made.layout)
    findings, skipped = list(diagnosis.findings), [skipped for skipped in diagnosis.skipped_rules if skipped not in waiting]
    for rule in waiting:
        outcome = find_rule(rule.rule).look(context)
        findings += () if isinstance(outcome, Skipped) else outcome
    ordered = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    return dataclasses.replace(diagnosis, findings=tuple(ordered), skipped_rules=tuple(skipped))


def changed(request: LaunchRequest, change: Change) -> LaunchRequest:
    """Make the request of the changed launch: of two values, vLLM's parser takes the last."""
    return dataclasses.replace(request, vllm_args=(*request.vllm_args, *change.arguments), left_out=change.left_out)


@dataclass(kw_only=True)
class _Bench:
    """Where changes are tried: each once, and none after ``ends_at``."""

    launch: Launch
    service: Planning
    on_step: OnStep
    ends_at: float
    made: dict[Change, Diagnosis | None] = field(default_factory=dict)

    def try_all(self, changes: Sequence[Change]) -> dict[Change, Diagnosis]:
        """Plan the changes; those that could not be planned, or not in time, are missing."""
        under_way: dict[int, Change] = {}
        for change in changes:
            if change not in self.made and time.monotonic() < self.ends_at:
                under_way[self.service.submit(self._launch(change))] = change
        if under_way:
            self.on_step(f"trying {', '.join(change.text for change in under_way.values())}")
            for number, outcome in self.service.outcomes():
                change = under_way[number]
                self.made[change] = None if isinstance(outcome, KvdoctorError) else diagnose(self._launch(change).request, outcome)
                if time.monotonic() > self.ends_at:
                    break
        return {change: made for change in changes if (made := self.made.get(change)) is not None}

    def _launch(self, change: Change) -> Launch:
        return dataclasses.replace(self.launch, request=changed(self.launch.request, change))


def _suggestions(trial: Trial, bench: _Bench, today: Diagnosis) -> tuple[Suggestion, ...]:
    changes, longest = trial.changes[:MOST_CHANGES], today.launch.max_model_len
    taken = {change: made for change, made in bench.try_all(changes).items() if _succeeds(trial, made, today)}
    order = sorted(taken, key=lambda change: (trial.rank(taken[change].layout, longest) if trial.rank else 0, changes.index(change)))
    return tuple(_suggestion(change, taken[change]) for change in order[:MOST_SHOWN])


def _succeeds(trial: Trial, made: Diagnosis, today: Diagnosis) -> bool:
    if made.verdict not in {"ok", "warning"}:
        return False
    return trial.better is None or trial.better(made.layout, today.layout, today.launch.max_model_len)


def _suggestion(change: Change, made: Diagnosis) -> Suggestion:
    layout = made.layout
    shown = dataclasses.replace(change, arguments=hide_arguments(change.arguments))
    return Suggestion(
        change=shown.text,
        arguments=shown.arguments,
        left_out=change.left_out,
        kv_cache_tokens=layout.kv_cache_tokens,
        max_concurrency=layout.max_concurrency,
        hash_block_size=layout.hash_block_size,
        min_reusable_prefix_tokens=layout.min_reusable_prefix_tokens,
        empty_percent=empty_percent(layout, made.launch.max_model_len),
    )
