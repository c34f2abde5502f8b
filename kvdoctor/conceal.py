"""The texts of a plan, or of what is made of one, without secrets, and without what differs from run to run."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

from kvdoctor.plan import Check, LogRecord, Plan, Refusal
from kvdoctor.reproducible import same_every_time, timeless
from kvdoctor.secrets import Curtain


class Texts(Protocol):
    """What holds texts of vLLM's: a plan, and a report of one."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def checks(self) -> tuple[Check, ...]: ...  # noqa: D102 - as in Plan

    @property
    def assumptions(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def refusal(self) -> Refusal | None: ...  # noqa: D102

    @property
    def vllm_log(self) -> tuple[LogRecord, ...]: ...  # noqa: D102


_Texts = TypeVar("_Texts", bound=Texts)


def conceal_plan(plan: Plan, curtain: Curtain, places: Mapping[str, str]) -> Plan:
    """Hide what ``curtain`` hides in everything that vLLM wrote; ``places`` names temporary folders."""

    def shown(text: str) -> str:
        return same_every_time(curtain(text), places)

    launch = replace(plan.launch, model=shown(plan.launch.model))
    return replace(with_texts(plan, shown, lambda text: timeless(shown(text))), launch=launch)


def with_texts(value: _Texts, shown: Callable[[str], str], logged: Callable[[str], str]) -> _Texts:
    """Give ``value`` with its texts as ``shown`` turns them, and those of the log as ``logged`` does."""
    refusal = value.refusal
    return replace(
        value,
        checks=tuple(replace(check, note=None if check.note is None else shown(check.note)) for check in value.checks),
        assumptions=tuple(map(shown, value.assumptions)),
        refusal=None if refusal is None else replace(refusal, message=shown(refusal.message)),
        vllm_log=tuple(replace(record, message=logged(record.message)) for record in value.vllm_log),
    )
