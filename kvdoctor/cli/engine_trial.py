"""``kvdoctor engines test``: how far a release can be used that nobody wrote for."""

import importlib.util
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from kvdoctor import __version__
from kvdoctor.assess import Launch, Outcome, Planning
from kvdoctor.cli.console import progress_bar
from kvdoctor.cli.request import Common
from kvdoctor.engines import releases
from kvdoctor.engines.examine import applies, examine
from kvdoctor.engines.interface import Engine
from kvdoctor.engines.needed_names import NEEDED
from kvdoctor.errors import BadRequest, KvdoctorError, Unassessed
from kvdoctor.launches.model_folder import LAUNCH_FILE, ModelFolder, asks_for_code, find_model_folders
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.trial import BUDGET_BYTES, SCHEMA_VERSION, Trial, conclude, read_outcome, try_sample

# Those of the contract test: one for each way of keeping a cache, and each planned by every tested release.
SAMPLES = (
    "deepseek-v3",
    "falcon-mamba-7b",
    "gemma-3-12b",
    "gpt-oss-20b",
    "granite-4.0-h-tiny",
    "llama-3.1-8b",
    "llama-4-scout",
    "qwen3-next-80b-a3b",
    "qwen3.5-0.8b",
    "whisper-large-v3",
)
_PACKAGE = Path(__file__).parents[1]
# In a wheel the samples lie in the package, in a checkout of kvdoctor beside it.
_PLACES = (_PACKAGE / "samples", _PACKAGE.parent / "sample_configs")


def try_engine(text: str | None, service: Planning, *, samples: Path | None, quiet: bool, note: Callable[[str], None]) -> Trial:
    """Examine the engine that ``text`` names, and have it and the newest tested release plan the samples.

    Raises:
        Unassessed: the tested release could not plan any either: that says nothing about the other.

    """
    folders = _samples(samples)
    engine = service.engine(text)
    lost = examine(source_of(engine), engine.vllm_version)
    baseline = _baseline(engine, service, note)
    both = [engine] if baseline is None else [engine, baseline]
    got: dict[tuple[str, Engine], Outcome] = {}
    owners: dict[int, tuple[str, Engine]] = {}
    for folder in folders:
        try:
            request = _request(folder, own_gpu=samples is not None, note=note)
        except KvdoctorError as error:
            got |= {(folder.name, one): error for one in both}
            continue
        owners |= {service.submit(Launch(engine=one, request=request)): (folder.name, one) for one in both}
    with progress_bar(len(owners), quiet=quiet) as advance:
        for number, outcome in service.outcomes():
            advance()
            got[owners[number]] = outcome
    tried = tuple(
        try_sample(folder.name, got[folder.name, engine], None if baseline is None else got[folder.name, baseline]) for folder in folders
    )
    if baseline is not None and all(sample.before == "not assessed" for sample in tried):
        _, reason = read_outcome(got[folders[0].name, baseline])
        what = f"nothing can be said of vLLM {engine.vllm_version or text}"
        raise Unassessed(
            f"{what}: vLLM {baseline.vllm_version} cannot plan the samples here either: {reason}",
            hint="Free some memory, or give it longer with --timeout SECONDS; -v shows what the workers wrote.",
        )
    return Trial(
        schema_version=SCHEMA_VERSION,
        kvdoctor_version=__version__,
        version=engine.vllm_version or _answered(got[folder.name, engine] for folder in folders) or "of the checkout",
        source=engine.source,
        baseline=None if baseline is None else baseline.vllm_version,
        tested_at=datetime.now(UTC).isoformat(timespec="seconds"),
        names=sum(applies(name, engine.vllm_version) for name in NEEDED),
        lost=lost,
        samples=tried,
        conclusion=conclude(lost, tried),
    )


def source_of(engine: Engine) -> Path:
    """Give the folder that has the engine's package ``vllm`` in it."""
    for place in engine.path:
        if (Path(place) / "vllm/__init__.py").is_file():
            return Path(place)
    spec = importlib.util.find_spec("vllm") if engine.python == sys.executable and not engine.path else None
    if spec is None or spec.origin is None:
        raise BadRequest(
            f"the source of {engine.source} is not at hand", hint="Give a release like 0.34.0, or a directory with vLLM's source."
        )
    return Path(spec.origin).parents[1]


def _baseline(engine: Engine, service: Planning, note: Callable[[str], None]) -> Engine | None:
    """Find the newest tested release, and for that itself the one before it; without it nothing is compared."""
    # An edited checkout is compared with the release that it calls itself.
    own = None if engine.source.startswith("checkout ") else (engine.vllm_version or "").partition("+")[0]
    version = next((one for one in reversed(releases.TESTED) if one != own), None)
    if version is None:
        return None
    try:
        return service.engine(version)
    except Unassessed as error:
        note(f"not compared with vLLM {version}: {error.message}")
        return None


def _samples(given: Path | None) -> tuple[ModelFolder, ...]:
    if given is not None:
        return find_model_folders(given, option="--samples")
    place = next((place for place in _PLACES if (place / SAMPLES[0]).is_dir()), None)
    if place is None:
        raise Unassessed("kvdoctor's samples are not there", hint="Give a directory that holds one folder for each model: --samples DIR.")
    return tuple(folder for folder in find_model_folders(place, option="--samples") if folder.name in SAMPLES)


def _request(folder: ModelFolder, *, own_gpu: bool, note: Callable[[str], None]) -> LaunchRequest:
    if folder.broken is not None:
        raise folder.broken
    if asks_for_code(folder.args):
        raise BadRequest(f"the {LAUNCH_FILE} of {folder.name} may let code from the model's repository run", hint="Leave that sample out.")
    return Common(
        vllm_arguments=folder.args,
        vllm=None,
        # One GPU for kvdoctor's own: a worker is started for each, and with a given budget the layout is what matters.
        gpu=folder.gpu if own_gpu else None,
        kv_cache_memory=str(BUDGET_BYTES),
        usage="serve",
        specs=folder.specs,
        trust_remote_code=False,
        offline=True,
        note=note,
        launch_file_taken=True,
    ).request(folder.model)


def _answered(got: Iterable[Outcome]) -> str | None:
    """Say what a checkout without a number calls itself."""
    return next((outcome.engine.vllm_version for outcome in got if not isinstance(outcome, KvdoctorError)), None)
