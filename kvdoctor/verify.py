"""A plan against a boot's log: each figure that vLLM logged, beside the one that the plan of the same launch logs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvdoctor import __version__
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.plan import Plan, Refusal
from kvdoctor.secrets import hide_arguments, without_secrets
from kvdoctor.verify_budget import Budget, Found
from kvdoctor.vllm_text.boot_log import BootLog
from kvdoctor.vllm_text.boot_refusal import BootRefusal, refusal_figures
from kvdoctor.vllm_text.figures import FIGURES, Value, read_figures

SCHEMA_VERSION = 1
GIB = 2**30

Status = Literal["same", "not_same", "not_comparable"]
Verdict = Literal["agrees", "differs", "unassessed"]

# What happens on the device, in the network or on the disk: no plan on a machine without a GPU says anything about it.
_ON_THE_MACHINE = re.compile(
    r"out of memory|CUDA error|CUDA driver|\bNCCL\b|[Ff]ree memory|No space left|shared memory|\b[Cc]onnection\b|timed? out"
    r"|\bport\b|[Pp]ermission denied|does not appear to have|not a valid (?:model|git) identifier|No available memory for the cache blocks"
    r"|safetensors|\bweights?\b"
)
_MACHINE_EXCEPTIONS = re.compile(
    r"(?:OutOfMemory|Accelerator|Backend|Connection|OS|IO|FileNotFound|Permission|Timeout|HTTP|Import|ModuleNotFound|Runtime)"
)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One figure: the distinct values that ranks logged, ``None`` where there is none; ``why`` explains the status."""

    key: str
    label: str
    log: tuple[Value, ...] | None
    ours: tuple[Value, ...] | None
    status: Status
    why: str | None


@dataclass(frozen=True, kw_only=True)
class LogFacts:
    """The launch that the log is of."""

    name: str
    starts: int
    start: int
    complete: bool
    vllm_version: str | None
    model: str | None


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """The launch that was planned, and how its budget came about."""

    model: str
    vllm_version: str
    source: str
    gpu: str
    usage: str
    vllm_args: tuple[str, ...]
    kv_cache_bytes: int | None
    budget: str
    plans: int


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The whole comparison. ``notes`` say what was left out or assumed."""

    schema_version: int
    kvdoctor_version: str
    verdict: Verdict
    log: LogFacts
    plan: PlanFacts
    figures: tuple[Compared, ...]
    log_refusal: str | None
    plan_refusal: str | None
    notes: tuple[str, ...]
    summary: str


def verify(
    boot: BootLog, found: Found, budget: Budget, *, request: LaunchRequest, log_name: str, left_out: tuple[str, ...], notes: tuple[str, ...]
) -> Verification:
    """Put a boot and its plan side by side. ``left_out`` are arguments of the boot that the plan went without."""
    plan = found.plan
    figures = compare_boot(boot, found, budget)
    verdict = verdict_of(figures, left_out)
    return Verification(
        schema_version=SCHEMA_VERSION,
        kvdoctor_version=__version__,
        verdict=verdict,
        log=LogFacts(
            name=log_name,
            starts=boot.starts,
            start=boot.start,
            complete=boot.complete,
            vllm_version=boot.version,
            model=boot.model and without_secrets(boot.model),
        ),
        plan=PlanFacts(
            model=without_secrets(request.model.text) if request.model is not None else "",
            vllm_version=plan.engine.vllm_version,
            source=plan.engine.source,
            gpu=request.gpu.name,
            usage=request.usage,
            vllm_args=hide_arguments(request.all_args),
            kv_cache_bytes=found.kv_cache_bytes,
            budget=budget.text,
            plans=found.plans,
        ),
        figures=figures,
        log_refusal=_shown(boot.refusal),
        plan_refusal=_shown(plan.refusal),
        notes=notes,
        summary=summary_of(verdict, figures, left_out),
    )


def compare_boot(boot: BootLog, found: Found, budget: Budget) -> tuple[Compared, ...]:
    """Compare every figure that the log or the plan has."""
    plan = found.plan
    ours = read_figures(record.message for record in plan.vllm_log)
    ours.pop("num_blocks", None)
    if plan.num_blocks is not None and plan.groups:
        ours["num_blocks"] = (plan.num_blocks,)
    theirs = dict(boot.figures)
    if boot.measured_blocks is not None:
        theirs["num_blocks"] = (boot.measured_blocks,)
    rows = [*_logged(theirs, ours, found, budget), *_refusals(boot, plan, budget), *_weights(boot, plan)]
    return tuple(rows)


def verdict_of(figures: tuple[Compared, ...], left_out: tuple[str, ...]) -> Verdict:
    """Agree where nothing differs and something is the same. A difference under arguments that were left out proves nothing."""
    statuses = {figure.status for figure in figures}
    if "not_same" in statuses:
        return "unassessed" if left_out else "differs"
    return "agrees" if "same" in statuses else "unassessed"


def summary_of(verdict: Verdict, figures: tuple[Compared, ...], left_out: tuple[str, ...]) -> str:
    """Say it in one sentence."""
    same = sum(figure.status == "same" for figure in figures)
    other = [figure.label for figure in figures if figure.status == "not_same"]
    if verdict == "agrees":
        return f"agrees: {same} of {same} figures that both have are the same"
    if other and left_out:
        return f"not settled: {', '.join(other)} differ, and {', '.join(left_out)} of the log's arguments were left out of the plan"
    if other:
        return f"differs: {', '.join(other)} ({same} of {same + len(other)} figures that both have are the same)"
    return "not settled: the log and the plan have no figure in common"


def _logged(theirs: dict[str, tuple[Value, ...]], ours: dict[str, tuple[Value, ...]], found: Found, budget: Budget) -> Iterator[Compared]:
    for figure in FIGURES:
        log, own = theirs.get(figure.key), ours.get(figure.key)
        if log is None and (own is None or figure.key != "kv_cache_tokens"):
            continue  # a log may be cut, and says less at some levels
        status, why = _status(figure.key, log, own, found, budget)
        yield Compared(key=figure.key, label=figure.label, log=log, ours=own, status=status, why=why)


def _status(
    key: str, log: tuple[Value, ...] | None, own: tuple[Value, ...] | None, found: Found, budget: Budget
) -> tuple[Status, str | None]:
    capacity = key in ("kv_cache_tokens", "max_concurrency", "num_blocks")
    if why := _why_not(key, log, own, found, budget if capacity else None):
        return "not_comparable", why
    # Ranks of one boot may log different values (pipeline stages until 0.27); ours are those of the stages that were planned.
    shared = set(log or ()) & set(own or ())
    if log == own or (shared and not capacity):
        return "same", None
    return ("not_comparable", budget.ranks_differ) if capacity and budget.ranks_differ else ("not_same", None)


def _why_not(key: str, log: object, own: object, found: Found, budget: Budget | None) -> str | None:
    """Say why a figure cannot be compared; ``budget`` is given where it depends on it."""
    if log is None:
        return "the log does not have it"
    if budget is not None and budget.unknown:
        return budget.unknown
    if own is None:
        return "the plan was refused before it" if found.plan.refusal else "the plan does not log it"
    if budget is None:
        return None
    return "the plan was given the log's" if key == "num_blocks" and budget.kind == "blocks" else found.below_printed


def _refusals(boot: BootLog, plan: Plan, budget: Budget) -> Iterator[Compared]:
    log, own = boot.refusal, plan.refusal
    if log is None and own is None:
        return
    status, why = _refusal_status(boot, plan, budget)
    yield Compared(
        key="refusal",
        label="refusal",
        log=(shown,) if (shown := _shown(log)) else None,
        ours=(shown,) if (shown := _shown(own)) else None,
        status=status,
        why=why,
    )
    if log is not None and own is not None:
        yield from _refusal_figures(log.message, own.message)


def _refusal_status(boot: BootLog, plan: Plan, budget: Budget) -> tuple[Status, str | None]:
    log, own = boot.refusal, plan.refusal
    if log is not None and own is not None and _same_refusal(log, own):
        numbers = _words(log.message) != _words(own.message)
        return "same", "the figures in it are compared by themselves" if numbers else None
    if log is not None and (_MACHINE_EXCEPTIONS.match(log.exception) or _ON_THE_MACHINE.search(log.message)):
        return "not_comparable", "it happened on the machine, which a plan does not see"
    if own is not None and budget.kind == "estimate":
        return "not_comparable", "the log prints no budget, and the plan's is an estimate"
    if log is not None and own is not None:
        return "not_same", None
    return "not_same", "the log starts, and the plan is refused" if log is None else "the log is refused, and the plan launches"


def _same_refusal(log: BootRefusal, own: Refusal) -> bool:
    """Compare the words; the exception's name is pydantic's where a validator raised."""
    if log.exception not in (own.exception, "ValidationError") and own.exception != "ValidationError":
        return False
    if _words(log.message) == _words(own.message):
        return True
    return bool(refusal_figures(own.message)) and _without_numbers(log.message) == _without_numbers(own.message)


def _refusal_figures(log: str, own: str) -> Iterator[Compared]:
    theirs, ours = refusal_figures(log), refusal_figures(own)
    for key, label in (("needed_gib", "GiB needed for one request"), ("estimated_max_model_len", "largest request that fits")):
        if key in theirs and key in ours:
            status: Status = "same" if theirs[key] == ours[key] else "not_same"
            yield Compared(key=key, label=label, log=(theirs[key],), ours=(ours[key],), status=status, why=None)


def _weights(boot: BootLog, plan: Plan) -> Iterator[Compared]:
    if boot.weights_gib and plan.stages:
        ours = tuple(dict.fromkeys(round(stage.weights_bytes / GIB, 2) for stage in plan.stages))
        why = "the log's is what the device's memory lost while loading; the plan's is the sum of the parameters"
        yield Compared(key="weights_gib", label="GiB of weights", log=boot.weights_gib, ours=ours, status="not_comparable", why=why)


def _shown(refusal: BootRefusal | Refusal | None) -> str | None:
    return without_secrets(f"{refusal.exception}: {_flat(refusal.message)}") if refusal else None


def _flat(text: str) -> str:
    return " ".join(text.split())


def _words(text: str) -> str:
    """A message less what may differ for no reason: blanks, and the address that newer releases put behind it."""
    return re.sub(r"See https?://\S+.*$", "", _flat(text)).strip()


def _without_numbers(text: str) -> str:
    return re.sub(r"\d[\d,.]*", "#", _words(text))
