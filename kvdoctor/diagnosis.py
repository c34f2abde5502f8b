"""The layout judged: the one place that strings the stages together, and the shape of the report."""

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import shorten
from typing import Literal

from kvdoctor import __version__
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.layout import Layout, read_layout
from kvdoctor.left_out import LEFT_OUT
from kvdoctor.made_up_memory import without_made_up_memory
from kvdoctor.plan import Check, EngineFacts, LaunchFacts, LayerPlan, LogRecord, MemoryFacts, Plan, Refusal, StagePlan
from kvdoctor.rules import Finding, RuleContext, Skipped, choose_rules
from kvdoctor.rules.numbers import grouped, percent
from kvdoctor.rules.refusal_text import NoMemoryForBlocks, RefusalReading, RemoteCodeNeeded, read_refusal
from kvdoctor.rules.refused import QUOTES
from kvdoctor.secrets import hide_arguments, hide_environment, without_secrets
from kvdoctor.waste import empty_percent

SCHEMA_VERSION = 1

# Worst first, as findings are listed; within a severity they keep the order of the rules.
SEVERITIES = ("error", "warning", "info")

_WORDS_IN_VERDICT = 240

Verdict = Literal["ok", "warning", "borderline", "refused", "failed", "unassessed"]


@dataclass(frozen=True, kw_only=True)
class RequestReport:
    """What was asked. ``model`` is what the user wrote, ``None`` for specs given directly; sizes are as vLLM settled them.

    ``given_arguments`` are those of vLLM's that were given, by its parser's names; ``None`` in a report of a kvdoctor that did not ask.
    """

    model: str | None
    revision: str | None
    specs_given: bool
    vllm_args: tuple[str, ...]
    environment: dict[str, str]
    usage: Literal["serve", "llm"]
    gpu: str
    kv_cache_memory_bytes: int | None
    trust_remote_code: bool
    offline: bool
    tensor_parallel_size: int | None
    pipeline_parallel_size: int | None
    max_model_len: int | None
    given_arguments: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class GpuReport:
    """The GPU that was assumed."""

    name: str
    device_name: str
    compute_capability: str
    memory_bytes: int
    sm_count: int
    source: str


@dataclass(frozen=True, kw_only=True)
class EngineReport:
    """Which vLLM answered. ``attention_backend_layers`` counts the layers on each of ``attention_backends``."""

    vllm_version: str
    torch_version: str
    transformers_version: str
    source: str
    platform: str
    compute_capability: str
    libraries: Literal["loaded", "stand-ins"]
    model_runner: str | None
    attention_backends: tuple[str, ...]
    attention_backend_layers: dict[str, int]
    kv_cache_layout: str | None


@dataclass(frozen=True, kw_only=True)
class SkippedRule:
    """A rule that could not look, and why."""

    rule: str
    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The report: what every format shows, and the shape of the JSON.

    ``layers`` are the specs as the model's layers gave them, before grouping: on a refusal they may be all there is.
    """

    schema_version: int
    kvdoctor_version: str
    verdict: Verdict
    request: RequestReport
    gpu: GpuReport
    engine: EngineReport
    launch: LaunchFacts
    layout: Layout
    memory: MemoryFacts
    stages: tuple[StagePlan, ...]
    layers: tuple[LayerPlan, ...]
    checks: tuple[Check, ...]
    assumptions: tuple[str, ...]
    refusal: Refusal | None
    findings: tuple[Finding, ...]
    skipped_rules: tuple[SkippedRule, ...]
    vllm_log: tuple[LogRecord, ...]


def diagnose(request: LaunchRequest, plan: Plan, *, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> Diagnosis:
    """Read the plan, run the rules, and give a verdict.

    Raises:
        BadRequest: ``select`` or ``ignore`` names no rule.

    """
    context = read_context(request, plan)
    plan, layout = context.plan, context.layout
    findings: list[Finding] = []
    skipped: list[SkippedRule] = []
    for rule in choose_rules(select=select, ignore=ignore):
        outcome = rule.look(context)
        if isinstance(outcome, Skipped):
            skipped.append(SkippedRule(rule=rule.id, name=rule.name, reason=outcome.reason))
        else:
            findings += outcome
    return Diagnosis(
        schema_version=SCHEMA_VERSION,
        kvdoctor_version=__version__,
        verdict=_verdict(plan, findings),
        request=_report_request(request, plan),
        gpu=GpuReport(
            name=request.gpu.name,
            device_name=request.gpu.device_name,
            compute_capability=".".join(map(str, request.gpu.compute_capability)),
            memory_bytes=request.gpu.memory_bytes,
            sm_count=request.gpu.sm_count,
            source=request.gpu.source,
        ),
        engine=_report_engine(plan.engine),
        launch=plan.launch,
        layout=layout,
        memory=plan.memory,
        stages=plan.stages,
        layers=plan.layers,
        checks=(*plan.checks, *LEFT_OUT),
        assumptions=plan.assumptions,
        refusal=plan.refusal,
        findings=tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))),
        skipped_rules=tuple(skipped),
        vllm_log=plan.vllm_log,
    )


def read_context(request: LaunchRequest, plan: Plan) -> RuleContext:
    """Read the plan as rules look at it."""
    plan = without_made_up_memory(plan)
    return RuleContext(request=request, plan=plan, layout=read_layout(plan), refusal=_read_refusal(request, plan))


def verdict_line(diagnosis: Diagnosis) -> str:
    """Say in one line whether it launches, and with what."""
    if diagnosis.verdict == "borderline":
        told = (finding.message for finding in diagnosis.findings if finding.rule == "KV406")
        return f"borderline: {next(told, 'the answer changes within what the estimated budget may be off')}"
    return _certain_line(diagnosis)


def _certain_line(diagnosis: Diagnosis) -> str:
    refusal, layout = diagnosis.refusal, diagnosis.layout
    errors = [finding for finding in diagnosis.findings if finding.severity == "error"]
    if refusal is not None:
        # vLLM's words may be a paragraph; a rule that knows the refusal has its figures in one sentence.
        if errors and not errors[0].message.startswith(QUOTES):
            return errors[0].message if refusal.accident else f"refused at {refusal.stage} ({refusal.exception}): {errors[0].message}"
        # The whole of vLLM's words stands under its own heading.
        words = shorten(refusal.message, _WORDS_IN_VERDICT, placeholder=" ...")
        what = "vLLM's code failed" if refusal.accident else "refused"
        return f"{what} at {refusal.stage}: {refusal.exception}" + (f": {words}" if words else "")
    if errors:
        return f"will not launch: {errors[0].message}"
    if diagnosis.verdict == "unassessed":
        return "not assessed: no step of the launch could be checked"
    if not layout.groups:
        return "launches: the model has no KV cache"
    return f"launches: {_blocks(layout)}{_waste(diagnosis)}"


def _blocks(layout: Layout) -> str:
    blocks = {"block": layout.scheduler_block_size, "hash block": layout.hash_block_size}
    return ", ".join(f"{name} {'not settled' if size is None else grouped(size)}" for name, size in blocks.items())


def _waste(diagnosis: Diagnosis) -> str:
    """The share that costs requests, and not that of the worst page: a padded page in a narrow group is no loss."""
    share = empty_percent(diagnosis.layout, diagnosis.launch.max_model_len)
    return "" if share is None else f"; {percent(share)} of a full request's blocks is empty"


def _verdict(plan: Plan, findings: list[Finding]) -> Verdict:
    severities = {finding.severity for finding in findings}
    if plan.refusal is not None and plan.refusal.accident:
        return "failed"
    if plan.refusal is not None or "error" in severities:
        return "refused"
    if plan.checks and all(check.outcome == "not_checked" for check in plan.checks):
        return "unassessed"
    return "warning" if "warning" in severities else "ok"


def _read_refusal(request: LaunchRequest, plan: Plan) -> RefusalReading | None:
    reading = None if plan.refusal is None or plan.refusal.accident else read_refusal(plan.refusal)
    given = plan.given_arguments
    # Told to trust the code already, the user needs vLLM's words and not the advice to trust it.
    if isinstance(reading, RemoteCodeNeeded) and (request.trust_remote_code or given.get("trust_remote_code")):
        return None
    # Blocks that the user counted out are no word about the weights.
    return None if isinstance(reading, NoMemoryForBlocks) and "num_gpu_blocks_override" in given else reading


def _report_request(request: LaunchRequest, plan: Plan) -> RequestReport:
    launch, given = plan.launch, plan.given_arguments
    return RequestReport(
        model=without_secrets(request.model.text) if request.model else None,
        revision=request.model.revision if request.model else None,
        specs_given=request.specs is not None,
        vllm_args=hide_arguments(request.all_args),
        environment=hide_environment(request.environment),
        usage=request.usage,
        gpu=request.gpu.name,
        kv_cache_memory_bytes=request.kv_cache_memory_bytes,
        trust_remote_code=request.trust_remote_code or given.get("trust_remote_code") is True,
        offline=request.offline,
        tensor_parallel_size=launch.tensor_parallel_size,
        pipeline_parallel_size=launch.pipeline_parallel_size,
        max_model_len=launch.max_model_len,
        given_arguments=tuple(sorted(given)),
    )


def _report_engine(engine: EngineFacts) -> EngineReport:
    return EngineReport(
        vllm_version=engine.vllm_version,
        torch_version=engine.torch_version,
        transformers_version=engine.transformers_version,
        source=engine.source,
        platform=engine.platform,
        compute_capability=engine.compute_capability,
        libraries=engine.libraries,
        model_runner=engine.model_runner,
        attention_backends=tuple(engine.attention_backends),
        attention_backend_layers=dict(engine.attention_backends),
        kv_cache_layout=engine.kv_cache_layout,
    )
