"""The budget of a boot, as far as its log has it: vLLM prints two decimals, and any plan inside that rounding may be the boot's."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvdoctor.plan import Plan
from kvdoctor.vllm_text.boot_log import BootLog
from kvdoctor.vllm_text.boot_refusal import refusal_figures

GIB = 2**30
ROUNDING_GIB = 0.005
MAX_PLANS = 16
# How far below the printed budget another rank's may lie: it had other tenants, or loaded more.
_OTHER_RANK_SHARE = 0.9
# A plan that is only to say how many bytes a block takes.
_PROBE_BYTES = 64 * GIB

PlanAt = Callable[[int | None], Plan]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Where the budget comes from: ``printed`` by vLLM, ``given`` among its arguments, the log's count of ``blocks``, or an ``estimate``.

    ``unknown`` says why capacity cannot be compared; ``ranks_differ`` why it cannot where it comes out different.
    """

    kind: Literal["printed", "given", "blocks", "estimate"]
    text: str
    low: int | None = None
    middle: int | None = None
    high: int | None = None
    blocks: int | None = None
    hidden_ranks: int = 0
    unknown: str | None = None
    ranks_differ: str | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """The plan to compare with, the budget it had, and how many were made. ``below_printed``: it fits a budget below the printed one."""

    plan: Plan
    kv_cache_bytes: int | None
    plans: int
    below_printed: str | None = None


def budget_of(boot: BootLog) -> Budget:
    """Settle what is known of the budget."""
    arguments = boot.arguments or {}
    if arguments.get("kv_cache_memory_bytes"):
        return Budget(kind="given", text="given among the arguments: exact")
    blocks = boot.measured_blocks or next(iter(boot.figures.get("num_blocks", ())), None)
    if isinstance(blocks, int) and blocks > 0:
        return Budget(kind="blocks", text=f"{blocks:,} blocks, as the log counts them: exact", blocks=blocks)
    if not boot.available_gib:
        why = "the log does not print the budget (`Available KV cache memory`)"
        return Budget(kind="estimate", text="an estimate: the log prints none", unknown=why)
    printed = min(boot.available_gib)
    if printed < 2 * ROUNDING_GIB:
        return Budget(
            kind="estimate", text=f"an estimate: the log prints {printed:.2f} GiB", unknown="the boot had no memory left for the KV cache"
        )
    ranks = _ranks(arguments)
    stages = _count(arguments.get("pipeline_parallel_size"))
    differ = "the ranks had different budgets, and a plan has one for all" if len(boot.available_gib) > 1 and stages > 1 else None
    if _count(arguments.get("data_parallel_size")) > 1:
        differ = "the data-parallel engines may have had different budgets"
    return Budget(
        kind="printed",
        text=f"{printed:.2f} GiB, as the log prints it: any within {ROUNDING_GIB:g} GiB counts",
        low=math.ceil((printed - ROUNDING_GIB) * GIB),
        middle=round(printed * GIB),
        high=math.floor((printed + ROUNDING_GIB) * GIB),
        hidden_ranks=max(0, ranks - 1) if len(boot.available_gib) == 1 else 0,
        ranks_differ=differ,
    )


def find_plan(boot: BootLog, budget: Budget, plan_at: PlanAt) -> Found:
    """Plan the launch; where the budget is rounded, look inside the rounding for one whose plan has the log's figure."""
    if budget.kind == "blocks" and budget.blocks is not None:
        probe = plan_at(_PROBE_BYTES)
        if probe.bytes_per_block is None or probe.refusal is not None:
            return Found(plan=probe, kv_cache_bytes=_PROBE_BYTES, plans=1)
        exact = budget.blocks * probe.bytes_per_block
        return Found(plan=plan_at(exact), kv_cache_bytes=exact, plans=2)
    if budget.low is None or budget.middle is None or budget.high is None:
        return Found(plan=plan_at(None), kv_cache_bytes=None, plans=1)
    search = _Search(boot, plan_at)
    found = search.within(budget.low, budget.middle, budget.high)
    if not search.fits(found.plan) and budget.hidden_ranks and search.is_above(found.plan):
        below = search.within(math.floor(budget.low * _OTHER_RANK_SHARE), budget.low, budget.low)
        if search.fits(below.plan):
            lost = (budget.low - (below.kv_cache_bytes or 0)) / GIB
            why = (
                f"the log prints the budget of one rank of {budget.hidden_ranks + 1}, and the smallest counts: with {lost:.2f} GiB less, "
                "the plan logs the same"
            )
            return Found(plan=below.plan, kv_cache_bytes=below.kv_cache_bytes, plans=search.plans, below_printed=why)
    return Found(plan=found.plan, kv_cache_bytes=found.kv_cache_bytes, plans=search.plans)


class _Search:
    """Looks for the log's figure among the plans of a range of budgets; figures grow with the budget, so it halves the range."""

    def __init__(self, boot: BootLog, plan_at: PlanAt) -> None:
        self._plan_at = plan_at
        self._refused = boot.refusal is not None and "kv_cache_tokens" not in boot.figures
        self._target = _target(boot)
        self.plans = 0

    def fits(self, plan: Plan) -> bool:
        return (self._value(plan) == self._target) if self._target is not None else ((plan.refusal is not None) == self._refused)

    def is_above(self, plan: Plan) -> bool:
        value = self._value(plan)
        return value is not None and self._target is not None and value > self._target

    def within(self, low: int, middle: int, high: int) -> Found:
        """Find the plan that fits, or the nearest that there is."""
        plan, bytes_ = self._plan(middle), middle
        if self.fits(plan):
            return Found(plan=plan, kv_cache_bytes=bytes_, plans=self.plans)
        down = self.is_above(plan) or (self._value(plan) is None and self._refused)
        end, at = (low, low) if down else (high, high)
        other = self._plan(end)
        if self.fits(other) or self.is_above(other) == self.is_above(plan):
            return Found(plan=other, kv_cache_bytes=at, plans=self.plans)
        below, above = (end, middle) if down else (middle, end)
        while above - below > 1 and self.plans < MAX_PLANS:
            bytes_ = (below + above) // 2
            plan = self._plan(bytes_)
            if self.fits(plan):
                return Found(plan=plan, kv_cache_bytes=bytes_, plans=self.plans)
            if plan.bytes_per_block and above - below < plan.bytes_per_block:
                break
            below, above = (below, bytes_) if self.is_above(plan) else (bytes_, above)
        return Found(plan=plan, kv_cache_bytes=bytes_, plans=self.plans)

    def _plan(self, size: int) -> Plan:
        self.plans += 1
        return self._plan_at(size)

    def _value(self, plan: Plan) -> int | None:
        if self._refused:
            return _largest(plan.refusal.message) if plan.refusal else None
        return plan.kv_cache_tokens


def _target(boot: BootLog) -> int | None:
    tokens = boot.figures.get("kv_cache_tokens")
    if tokens and isinstance(tokens[0], int):
        return tokens[0]
    return _largest(boot.refusal.message) if boot.refusal else None


def _largest(message: str) -> int | None:
    value = refusal_figures(message).get("estimated_max_model_len")
    return value if isinstance(value, int) else None


def _ranks(arguments: dict[str, object]) -> int:
    ranks = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size", "data_parallel_size"):
        ranks *= _count(arguments.get(name))
    return ranks


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1
