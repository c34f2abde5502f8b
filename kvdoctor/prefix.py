"""How much of a prompt comes from the cache: vLLM's scheduler serves requests, under the settings given and under others."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from kvdoctor import __version__
from kvdoctor.assess import Launch, Planning
from kvdoctor.diagnosis import read_context
from kvdoctor.errors import KvdoctorError
from kvdoctor.launches.request import PrefixQuestion
from kvdoctor.plan import Plan, PrefixHit
from kvdoctor.rules.trials import Change
from kvdoctor.secrets import hide_arguments, without_secrets
from kvdoctor.suggest import changed

SCHEMA_VERSION = 1
_FINEST = 16


@dataclass(frozen=True, kw_only=True)
class PrefixSetting:
    """What came of one setting; ``why_not`` where vLLM does not take it, or nothing could be served."""

    change: str
    prefix_hit_tokens: int | None
    hits: tuple[PrefixHit, ...]
    why_not: str | None

    @property
    def cached_tokens(self) -> int:
        """All that came from the cache."""
        return sum(hit.cached_tokens for hit in self.hits)


@dataclass(frozen=True, kw_only=True)
class PrefixReport:
    """The requests as they were asked about, and each setting with what it took from the cache: the one given first."""

    schema_version: int
    kvdoctor_version: str
    model: str
    vllm_version: str
    gpu: str
    vllm_args: tuple[str, ...]
    question: PrefixQuestion
    prefix_caching: bool | None
    settings: tuple[PrefixSetting, ...]


def ask(launch: Launch, service: Planning, question: PrefixQuestion, *, on_step: Callable[[str], None]) -> PrefixReport:
    """Serve the requests under the settings given, then under others that may reuse more.

    Raises:
        KvdoctorError: there is no plan.

    """
    launch = dataclasses.replace(launch, request=dataclasses.replace(launch.request, prefix=question))
    plan = service.plan(launch, on_step)
    changes = _others(launch, plan)
    numbers = {}
    for change in changes:
        numbers[service.submit(dataclasses.replace(launch, request=changed(launch.request, change)))] = change
    tried = {}
    on_step("serving under other settings")
    for number, outcome in service.outcomes():
        tried[numbers[number]] = _setting(numbers[number].text, outcome)
    request = launch.request
    return PrefixReport(
        schema_version=SCHEMA_VERSION,
        kvdoctor_version=__version__,
        model=without_secrets(request.model.text) if request.model else "layer specs",
        vllm_version=plan.engine.vllm_version,
        gpu=request.gpu.name,
        vllm_args=hide_arguments(request.all_args),
        question=question,
        prefix_caching=plan.launch.prefix_caching,
        settings=(_setting("as given", plan), *(tried[change] for change in changes)),
    )


def _others(launch: Launch, plan: Plan) -> tuple[Change, ...]:
    """The settings that prefix hits depend on, as far as this launch has them otherwise."""
    context, given = read_context(launch.request, plan), plan.given_arguments
    changes = []
    if plan.launch.prefix_caching is False:
        changes.append(Change(arguments=("--enable-prefix-caching",)))
    hash_block, states = context.layout.hash_block_size, any(layer.kind == "mamba" for layer in plan.layers)
    if states and hash_block and "prefix_match_unit" not in given:
        units = [unit for unit in range(_FINEST, hash_block, _FINEST) if hash_block % unit == 0]
        changes += [Change(arguments=("--prefix-match-unit", str(unit))) for unit in dict.fromkeys((*units[:1], *units[-1:]))]
    changes += [Change(left_out=(name,)) for name in ("prefix_match_unit", "block_size", "speculative_config") if name in given]
    return tuple(changes)


def _setting(change: str, outcome: Plan | KvdoctorError) -> PrefixSetting:
    if isinstance(outcome, KvdoctorError):
        return PrefixSetting(change=change, prefix_hit_tokens=None, hits=(), why_not=outcome.message)
    why_not = None
    if outcome.refusal is not None:
        why_not = f"vLLM refuses at {outcome.refusal.stage}: {outcome.refusal.message}"
    elif not outcome.prefix_hits:
        why_not = next((check.note for check in outcome.checks if "prefix" in check.name), None) or "nothing could be served"
    hits = () if why_not else outcome.prefix_hits
    return PrefixSetting(change=change, prefix_hit_tokens=outcome.prefix_hit_tokens, hits=hits, why_not=why_not)
