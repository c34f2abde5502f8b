"""``kvdoctor compare --all``: every model of a folder on two sides."""

import shlex
from dataclasses import replace
from pathlib import Path

from kvdoctor import __version__
from kvdoctor.assess import Launch, Planning
from kvdoctor.cli.compare_sides import Own, request_of
from kvdoctor.cli.console import concealed, progress_bar
from kvdoctor.cli.request import Common
from kvdoctor.compare import Limits, compare
from kvdoctor.compare.interface import SCHEMA_VERSION
from kvdoctor.compare.many import ManyComparison, ModelComparison
from kvdoctor.diagnosis import Diagnosis, diagnose
from kvdoctor.errors import BadRequest, KvdoctorError
from kvdoctor.launches.command_line import parse_vllm_command, split_words
from kvdoctor.launches.model_folder import LAUNCH_FILE, ModelFolder, asks_for_code, find_model_folders
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.secrets import hide_arguments


def compare_folder(
    directory: Path, own: tuple[Own, Own], common: Common, limits: Limits, service: Planning, *, quiet: bool
) -> ManyComparison:
    """Compare every model in ``directory``; one that cannot be planned is told as such, and the others go on."""
    if not any(side.given for side in own):
        raise BadRequest("there is nothing to compare with", hint="Say what differs, like --before-vllm 0.32.0 --after-vllm 0.33.0.")
    if parse_vllm_command(common.vllm_arguments).model is not None:
        raise BadRequest("--all takes its models from DIR, and another is pasted after --", hint="Give vLLM's arguments alone.")
    folders = find_model_folders(directory)
    for side in own:
        service.engine(side.vllm or common.vllm)  # an engine that cannot be had is no model's fault
    launches: dict[int, tuple[str, str, Launch]] = {}
    reports: dict[tuple[str, str], Diagnosis] = {}
    failures: dict[str, str] = {}
    for folder in folders:
        try:
            made = {side.name: service.launch(_request(folder, side, common), side.vllm or common.vllm) for side in own}
        except KvdoctorError as error:
            failures[folder.name] = concealed(error.message)
            continue
        launches |= {service.submit(launch): (folder.name, name, launch) for name, launch in made.items()}
    with progress_bar(len(launches), quiet=quiet) as advance:
        for number, outcome in service.outcomes():
            advance()
            name, side_name, launch = launches[number]
            if isinstance(outcome, KvdoctorError):
                failures.setdefault(name, f"{side_name}: {outcome.message}")
            else:
                reports[name, side_name] = diagnose(launch.request, outcome)
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


def _request(folder: ModelFolder, side: Own, common: Common) -> LaunchRequest:
    if folder.broken is not None:
        raise folder.broken
    # The file comes with the model: it must not be able to permit what only the user may.
    if asks_for_code(folder.args) and not (common.trust_remote_code or "--trust-remote-code" in common.vllm_arguments):
        raise BadRequest(
            f"its {LAUNCH_FILE} may let code from the model's repository run, which only --trust-remote-code on the command line permits",
            hint="Read that code first.",
        )
    # A folder's own way to launch stands under the options of the command line, which win.
    shared = replace(
        common,
        gpu=common.gpu or folder.gpu,
        vllm_arguments=(*folder.args, *common.vllm_arguments),
        specs=folder.specs,
        launch_file_taken=True,
    )
    return request_of(folder.model, side, shared)


def _side_name(side: Own, common: Common) -> str:
    engine = side.vllm or common.vllm
    parts = [f"vLLM {engine}" if engine else "the installed vLLM", side.gpu or "", _hidden(side.arguments or "")]
    return " ".join(part for part in parts if part)


def _hidden(arguments: str) -> str:
    words = split_words(arguments, "the arguments of a side")
    hidden = list(hide_arguments(words))
    return arguments if hidden == words else shlex.join(hidden)
