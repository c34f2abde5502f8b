"""``kvdoctor compare --all``: every model of a folder on two sides."""

import shlex
from contextlib import ExitStack
from pathlib import Path

from kvdoctor import __version__
from kvdoctor.cli.compare_sides import Common, Own, make_request, with_folder
from kvdoctor.cli.console import concealed, progress_bar
from kvdoctor.cli.planning import EngineFinder, open_pool
from kvdoctor.compare import Limits, compare
from kvdoctor.compare.interface import SCHEMA_VERSION
from kvdoctor.compare.many import ManyComparison, ModelComparison
from kvdoctor.diagnosis import Diagnosis, diagnose
from kvdoctor.errors import BadRequest, KvdoctorError
from kvdoctor.launches.command_line import has_flag, parse_vllm_command, split_words
from kvdoctor.launches.model_folder import LAUNCH_FILE, ModelFolder, asks_for_code, find_model_folders
from kvdoctor.secrets import hide_arguments
from kvdoctor.workers.pool import Job

_SIDES = ("before", "after")


def compare_folder(directory: Path, own: tuple[Own, Own], common: Common, limits: Limits) -> ManyComparison:
    """Compare every model in ``directory``; one that cannot be planned is told as such, and the others go on."""
    if not any(side.given for side in own):
        raise BadRequest("there is nothing to compare with", hint="Say what differs, like --before-vllm 0.32.0 --after-vllm 0.33.0.")
    if parse_vllm_command(common.vllm_arguments).model is not None:
        raise BadRequest("--all takes its models from DIR, and another is pasted after --", hint="Give vLLM's arguments alone.")
    folders = find_model_folders(directory)
    engines = EngineFinder(offline=common.offline, quiet=common.quiet)
    for one in own:
        engines.find(one.vllm or common.vllm)  # an engine that cannot be had is no model's fault
    jobs: list[Job] = []
    owners: list[tuple[str, str]] = []
    reports: dict[tuple[str, str], Diagnosis] = {}
    failures: dict[str, str] = {}
    with ExitStack() as owned:
        for folder in folders:
            try:
                made = _jobs(folder, own, common, engines, owned)
            except KvdoctorError as error:
                failures[folder.name] = concealed(error.message)
                continue
            jobs += made
            owners += [(folder.name, side) for side in _SIDES]
        with (
            progress_bar(len(jobs), quiet=common.quiet) as advance,
            open_pool(jobs, timeout=common.timeout, verbose=common.verbose, quiet=common.quiet) as pool,
        ):
            for number, outcome in pool.outcomes():
                advance()
                name, side = owners[number]
                if isinstance(outcome, KvdoctorError):
                    failures.setdefault(name, f"{side}: {outcome.message}")
                else:
                    reports[name, side] = diagnose(jobs[number].request, outcome)
    models = tuple(
        ModelComparison(
            name=folder.name,
            comparison=None if folder.name in failures else compare(reports[folder.name, "before"], reports[folder.name, "after"], limits),
            failure=failures.get(folder.name),
        )
        for folder in folders
    )
    before, after = (_side_name(side, common) for side in own)
    return ManyComparison(schema_version=SCHEMA_VERSION, kvdoctor_version=__version__, before=before, after=after, models=models)


def _jobs(folder: ModelFolder, own: tuple[Own, Own], common: Common, engines: EngineFinder, owned: ExitStack) -> list[Job]:
    if folder.broken is not None:
        raise folder.broken
    # The file comes with the model: it must not be able to permit what only the user may.
    if asks_for_code(folder.args) and not (common.trust_remote_code or has_flag(common.vllm_arguments, "--trust-remote-code")):
        raise BadRequest(
            f"its {LAUNCH_FILE} may let code from the model's repository run, which only --trust-remote-code on the command line permits",
            hint="Read that code first.",
        )
    shared = with_folder(common, gpu=folder.gpu, args=folder.args, specs=folder.specs)
    return [Job(engine=engines.find(side.vllm or common.vllm), request=make_request(folder.model, side, shared, owned)) for side in own]


def _side_name(side: Own, common: Common) -> str:
    engine = side.vllm or common.vllm
    parts = [f"vLLM {engine}" if engine else "the installed vLLM", side.gpu or "", _hidden(side.arguments or "")]
    return " ".join(part for part in parts if part)


def _hidden(arguments: str) -> str:
    words = split_words(arguments, "the arguments of a side")
    hidden = list(hide_arguments(words))
    return arguments if hidden == words else shlex.join(hidden)
