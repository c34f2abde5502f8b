"""What a dry launch has settled so far: vLLM's objects, kept so that a refusal still shows what came before it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kvdoctor.dryrun.model import BuiltStage
from kvdoctor.errors import Unassessed
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.plan import Check, LogRecord, Outcome, PrefixHit, Refusal


class Refused(Exception):
    """vLLM refused the launch; ``refusal`` has its words."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class NotChecked(Exception):
    """A step after the plan could not be taken; the steps that need it are left out, and the plan stands."""


@dataclass(kw_only=True)
class Budget:
    """The KV-cache bytes of each stage's GPUs, and where they come from."""

    source: str
    stage_bytes: list[int] = field(default_factory=list)
    allowance_bytes: int | None = None
    allowance_source: str | None = None
    weights_fit: bool | None = None
    needed_bytes: int | None = None
    usable_bytes: int | None = None
    estimated_max_model_len: int | None = None


@dataclass(kw_only=True)
class Settled:
    """One dry launch under way. Fields are filled in the order of the steps; ``None`` or empty means not settled."""

    request: LaunchRequest
    report_step: Callable[[str], None]
    budget: Budget
    config: Any = None
    stages: list[BuiltStage] = field(default_factory=list)
    groups: list[Any] = field(default_factory=list)
    worker_configs: list[Any] = field(default_factory=list)
    scheduler_config: Any = None
    scheduler_block_size: int | None = None
    hash_block_size: int | None = None
    prefix_hit_tokens: int | None = None
    min_reusable_prefix_tokens: int | None = None
    prefix_hits: list[PrefixHit] = field(default_factory=list)
    kernel_block_sizes: list[int | None] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    log: list[LogRecord] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    given_arguments: dict[str, Any] = field(default_factory=dict)
    unread_reasoning_plugin: bool = False

    @property
    def model_name(self) -> str:
        """What the user called the model."""
        return self.request.model.text if self.request.model is not None else "layer specs"

    @contextmanager
    def step(self, name: str, *, after_plan: bool = False) -> Iterator[None]:
        """Report ``name`` as the current step; vLLM's exceptions inside become :class:`Refused` with that name as the stage.

        ``after_plan``: the plan stands without this step, so that a gap of ours in it costs this step alone (:class:`NotChecked`).
        """
        from kvdoctor.dryrun import memory, own_code
        from kvdoctor.dryrun.blame import is_accident, raise_if_ours, words_of

        self.report_step(name)
        try:
            yield
        except (Refused, NotChecked):
            raise
        except Exception as error:
            try:
                memory.raise_if_out(error, name)
                own_code.raise_if_own(error, name, self.request)
                raise_if_ours(error, step=name, model=self.model_name)
            except Unassessed as ours:
                if not after_plan:
                    raise
                self.not_checked(name, ours.message)
                raise NotChecked(ours.message) from error
            refusal = Refusal(stage=name, exception=type(error).__name__, message=words_of(error), accident=is_accident(error))
            self._conclude(name, "refused")
            raise Refused(refusal) from error
        self._conclude(name, "passed")

    def _conclude(self, name: str, outcome: Outcome, note: str | None = None) -> None:
        """Record the outcome of a step once, however many stages take it; it has passed when all of them have."""
        if outcome != "passed":
            self.checks = [check for check in self.checks if check.name != name or check.outcome != "passed"]
        if all(check.name != name for check in self.checks):
            self.checks.append(Check(name=name, outcome=outcome, note=note))

    def not_checked(self, name: str, why: str) -> None:
        """Record a step of a boot that a machine without a GPU cannot take."""
        self._conclude(name, "not_checked", why)
