"""From the words of ``kvdoctor compare`` to the two sides: a saved report, or a launch to plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from kvdoctor.assess import Planning
from kvdoctor.cli.console import progress
from kvdoctor.cli.request import Common
from kvdoctor.diagnosis import Diagnosis, diagnose
from kvdoctor.errors import BadRequest, Bug, KvdoctorError
from kvdoctor.home import expanded
from kvdoctor.json_file import read_json_object
from kvdoctor.launches.command_line import split_words
from kvdoctor.launches.request import LaunchRequest

_TWO = 2


@dataclass(frozen=True, kw_only=True)
class Own:
    """The options that one side has of its own."""

    name: str
    vllm: str | None
    arguments: str | None
    gpu: str | None

    @property
    def given(self) -> bool:
        """Any of them is there."""
        return any(value is not None for value in (self.vllm, self.arguments, self.gpu))


def plan_sides(
    texts: Sequence[str], own: tuple[Own, Own], common: Common, service: Planning, *, quiet: bool
) -> tuple[Diagnosis, Diagnosis]:
    """Give the report of each side: the saved one, or that of a launch planned now, both at once."""
    sides = _find_sides(texts, own, common)
    # Engines last: a wrong request must not wait for a release to be fetched.
    launches = {
        side.name: service.launch(found, side.vllm or common.vllm)
        for side, found in zip(own, sides, strict=True)
        if isinstance(found, LaunchRequest)
    }
    reports = {side.name: found for side, found in zip(own, sides, strict=True) if isinstance(found, Diagnosis)}
    names = {service.submit(launch): name for name, launch in launches.items()}
    steps = dict.fromkeys(launches, "starting")
    with progress(quiet=quiet) as tell:

        def hear(number: int, step: str) -> None:
            steps[names[number]] = step
            tell("; ".join(f"{name}: {at}" for name, at in steps.items()))

        for number, outcome in service.outcomes(hear):
            if isinstance(outcome, KvdoctorError):
                _raise_named(outcome, names[number])
            reports[names[number]] = diagnose(launches[names[number]].request, outcome)
    before, after = own
    return reports[before.name], reports[after.name]


def request_of(model: str | None, side: Own, common: Common) -> LaunchRequest:
    """Make the launch of one side."""
    more = split_words(side.arguments, f"--{side.name}-args") if side.arguments else ()
    return common.request(model, more_arguments=more, gpu=side.gpu)


def _find_sides(texts: Sequence[str], own: tuple[Own, Own], common: Common) -> tuple[Diagnosis | LaunchRequest, ...]:
    if len(texts) > _TWO:
        raise BadRequest(f"{len(texts)} sides are given", hint="Give two: kvdoctor compare BEFORE AFTER.")
    if len(texts) < _TWO and not any(side.given for side in own):
        raise BadRequest(
            "there is nothing to compare with",
            hint="Give AFTER, or say what differs: --before-vllm, --after-vllm, --before-args, --after-args, --before-gpu, --after-gpu.",
        )
    named = (*texts, *texts)[:2] if texts else (None, None)
    reports = [None if text is None else read_saved_report(text) for text in named]
    if len(texts) < _TWO and reports[0] is not None:
        raise BadRequest(f"{named[0]} is a saved report, and it is the only side", hint="Give AFTER: a model or another saved report.")
    if all(report is not None for report in reports):
        _refuse_options(common)
    return tuple(_find_side(text, report, side, common) for text, report, side in zip(named, reports, own, strict=True))


def read_saved_report(text: str) -> Diagnosis | None:
    """Read the report that was saved in the file ``text``; ``None`` when that is a model instead."""
    from kvdoctor.report.as_json import read_report  # noqa: PLC0415 - most comparisons are of models

    path = expanded(text)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # a name that the file system cannot hold
        return None
    if not is_file:
        return None
    data = read_json_object(path, what="a saved report, or a model's config.json")
    if "schema_version" not in data:
        return None
    return read_report(data, what=text)


def _find_side(text: str | None, report: Diagnosis | None, side: Own, common: Common) -> Diagnosis | LaunchRequest:
    if report is None:
        try:
            return request_of(text, side, common)
        except KvdoctorError as error:
            _raise_named(error, side.name)
    if side.given:
        raise BadRequest(
            f"{text} is a saved report: nothing is planned for it that --{side.name}-... could change", hint="Leave that option out."
        )
    return report


def _refuse_options(common: Common) -> None:
    """Refuse what would be without effect: nobody should think that two saved reports were made with it."""
    given = {
        "--vllm": common.vllm,
        "--gpu": common.gpu,
        "--kv-cache-memory": common.kv_cache_memory,
        "--specs": common.specs,
        "vLLM's arguments after --": common.vllm_arguments or None,
    }
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise BadRequest(f"both sides are saved reports, and nothing is planned that {named[0]} could change", hint="Leave it out.")


def _raise_named(error: KvdoctorError, side: str) -> NoReturn:
    """Say which side an error is about; a bug keeps its words."""
    if isinstance(error, Bug):
        raise error
    raise type(error)(f"{side}: {error.message}", hint=error.hint) from error
