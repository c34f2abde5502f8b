"""From the words of ``kvdoctor compare`` to the two sides: a saved report, or a launch to plan."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NoReturn

from kvdoctor.cli.console import progress
from kvdoctor.cli.hub import settle_network
from kvdoctor.cli.planning import EngineFinder, open_pool
from kvdoctor.cli.request import launch_request
from kvdoctor.diagnosis import Diagnosis, diagnose
from kvdoctor.errors import BadRequest, Bug, KvdoctorError
from kvdoctor.home import expanded
from kvdoctor.json_file import read_json_object
from kvdoctor.launches.command_line import split_words
from kvdoctor.launches.gpus import DEFAULT_GPU
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.workers.pool import Job

_TWO = 2


@dataclass(frozen=True, kw_only=True)
class Common:
    """The options that both sides share."""

    vllm_arguments: tuple[str, ...]
    vllm: str | None
    gpu: str | None
    kv_cache_memory: str | None
    usage: Literal["serve", "llm"]
    specs: Path | None
    trust_remote_code: bool
    offline: bool
    timeout: float
    verbose: bool
    quiet: bool
    note: Callable[[str], None]
    launch_file_taken: bool = False


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


Side = Diagnosis | Job


def find_sides(texts: Sequence[str], own: tuple[Own, Own], common: Common, owned: ExitStack) -> tuple[Side, Side]:
    """Find what each side is. Models' temporary directories, if there are any, live as long as ``owned``."""
    if len(texts) > _TWO:
        raise BadRequest(f"{len(texts)} sides are given", hint="Give two: kvdoctor compare BEFORE AFTER.")
    if len(texts) < _TWO and not any(side.given for side in own):
        raise BadRequest(
            "there is nothing to compare with",
            hint="Give AFTER, or say what differs: --before-vllm, --after-vllm, --before-args, --after-args, --before-gpu, --after-gpu.",
        )
    before_text, after_text = (*texts, *texts)[:2] if texts else (None, None)
    reports = [None if text is None else read_saved_report(text) for text in (before_text, after_text)]
    if len(texts) < _TWO and reports[0] is not None:
        raise BadRequest(f"{before_text} is a saved report, and it is the only side", hint="Give AFTER: a model or another saved report.")
    if all(report is not None for report in reports):
        _refuse_options(common)
    sides = [
        _find_side(text, report, side, common, owned) for text, report, side in zip((before_text, after_text), reports, own, strict=True)
    ]
    # Engines last: a wrong request must not wait for a release to be fetched.
    engines = EngineFinder(offline=common.offline, quiet=common.quiet)
    before, after = (
        Job(engine=engines.find(side.vllm or common.vllm), request=settle_network(found, note=common.note))
        if isinstance(found, LaunchRequest)
        else found
        for found, side in zip(sides, own, strict=True)
    )
    return before, after


def plan_sides(sides: tuple[Side, Side], common: Common) -> tuple[Diagnosis, Diagnosis]:
    """Plan what is not a report yet, both sides at once."""
    jobs = [side for side in sides if isinstance(side, Job)]
    names = [name for name, side in zip(("before", "after"), sides, strict=True) if isinstance(side, Job)]
    reports: dict[str, Diagnosis] = {
        name: side for name, side in zip(("before", "after"), sides, strict=True) if isinstance(side, Diagnosis)
    }
    if jobs:
        with progress(quiet=common.quiet) as tell:
            steps = dict.fromkeys(names, "starting")

            def hear(job: int, step: str) -> None:
                steps[names[job]] = step
                tell("; ".join(f"{name}: {at}" for name, at in steps.items()))

            with open_pool(jobs, timeout=common.timeout, verbose=common.verbose, quiet=common.quiet, step=hear) as pool:
                for number, outcome in pool.outcomes():
                    if isinstance(outcome, KvdoctorError):
                        _raise_named(outcome, names[number])
                    reports[names[number]] = diagnose(jobs[number].request, outcome)
    return reports["before"], reports["after"]


def make_request(model: str | None, side: Own, common: Common, owned: ExitStack) -> LaunchRequest:
    """Make the launch of one side."""
    return owned.enter_context(
        launch_request(
            model=model,
            vllm_arguments=common.vllm_arguments,
            more_arguments=split_words(side.arguments, f"--{side.name}-args") if side.arguments else (),
            gpu=side.gpu or common.gpu or DEFAULT_GPU,
            kv_cache_memory=common.kv_cache_memory,
            usage=common.usage,
            specs=common.specs,
            trust_remote_code=common.trust_remote_code,
            offline=common.offline,
            note=common.note,
            launch_file_taken=common.launch_file_taken,
        )
    )


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


def _find_side(text: str | None, report: Diagnosis | None, side: Own, common: Common, owned: ExitStack) -> Diagnosis | LaunchRequest:
    if report is None:
        try:
            return make_request(text, side, common, owned)
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


def with_folder(common: Common, *, gpu: str | None, args: Sequence[str], specs: Path | None) -> Common:
    """Put a folder's own way to launch under the options of the command line, which win."""
    return replace(common, gpu=common.gpu or gpu, vllm_arguments=(*args, *common.vllm_arguments), specs=specs, launch_file_taken=True)
