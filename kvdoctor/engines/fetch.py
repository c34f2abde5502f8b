"""Fetch a release of vLLM into the cache, or find it there."""

import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from kvdoctor.engines import releases
from kvdoctor.engines.beside import fetch_beside
from kvdoctor.engines.dependencies import Requirements, installed_with
from kvdoctor.engines.index import download, look_up
from kvdoctor.engines.interface import Engine
from kvdoctor.engines.store import Manifest, Store, StoredEngine, Wheel, check_release, size_limit
from kvdoctor.engines.trials import trial_notes
from kvdoctor.engines.unpack import unpack
from kvdoctor.errors import Unassessed

Tell = Callable[[str], None]


def fetch_release(version: str, store: Store, *, offline: bool, on_step: Tell, note: Tell) -> StoredEngine:
    """Give the engine of ``version``, in use by this process, fetched if need be; ``note`` hears what that did to the cache.

    Raises:
        BadRequest: there is no such release.
        Unassessed: it could not be fetched.

    """
    check_release(version)
    limit = size_limit()
    engine = store.find(version)
    if engine is not None and store.use(engine):
        return engine
    if offline:
        raise Unassessed(f"vLLM {version} is not in the engine cache, and --offline was given", hint=f"Run: kvdoctor engines add {version}")
    with store.changing(on_step):
        engine = store.find(version)  # another process may have fetched it while this one waited for the lock
        if engine is None:
            note(f"fetching vLLM {version} into {store.root}")
            engine = _fetch(version, store, limit=limit, on_step=on_step, note=note)
        store.use(engine)
        return engine


def as_engine(stored: StoredEngine) -> Engine:
    """Give the engine that runs in this interpreter, on what is installed here."""
    manifest = stored.manifest
    return Engine(
        python=sys.executable,
        source=f"release {stored.version}, fetched",
        vllm_version=stored.version,
        notes=releases.notes(stored.version),
        path=stored.path,
        dependency_notes=(*trial_notes(stored.version), *dependency_notes(manifest, all_packages=False)),
    )


def dependency_notes(manifest: Manifest, *, all_packages: bool) -> tuple[str, ...]:
    """Say what runs beside the release, and which packages are not as it asks for: those that matter, or all."""
    beside = {wheel.name: wheel.version for wheel in manifest.beside}
    notes = [f"fetched beside it: {', '.join(f'{name} {version}' for name, version in beside.items())}"] if beside else []
    notes += [manifest.beside_note] if manifest.beside_note else []
    needed = releases.needs(manifest.vllm.version)
    try:
        requirements = Requirements([*manifest.requires_dist, *([needed] if needed else [])])
    except ImportError:
        return (*notes, "what the release asks for was not compared with what is installed: the package packaging is not there")
    differences = requirements.differences(installed_with(beside))
    return (*notes, *(str(difference) for difference in differences if all_packages or difference.matters))


def _fetch(version: str, store: Store, *, limit: int, on_step: Tell, note: Tell) -> StoredEngine:
    with store.new_folder() as folder:
        scratch = folder / "scratch"
        scratch.mkdir()
        on_step(f"looking for vLLM {version}")
        manifest = _build(version, folder, scratch, on_step)
        shutil.rmtree(scratch)
        for removed in store.make_room(manifest.bytes, limit=limit):
            note(f"vLLM {removed.version} was removed from the engine cache, to keep it under {limit / 2**20:.0f} MiB")
        return store.keep(folder, manifest)


def _build(version: str, folder: Path, scratch: Path, on_step: Tell) -> Manifest:
    promise = look_up(f"vllm=={version}", any_python=True, scratch=scratch)
    file, index_hash = download(promise, scratch=scratch, on_step=on_step)
    unpacked = unpack(file, folder / "wheel", package="vllm", libraries=False, on_step=on_step)
    if unpacked.version.partition("+")[0] != version:
        raise Unassessed(f"{promise.wheel} says that it is vLLM {unpacked.version}", hint="Check pip's index: pip config list")
    file.unlink()
    beside, beside_note = fetch_beside(version, unpacked.requires_dist, folder=folder / "beside", scratch=scratch, on_step=on_step)
    return Manifest(
        vllm=Wheel(name="vllm", version=version, wheel=promise.wheel, sha256=promise.sha256, index_hash=index_hash),
        beside=beside,
        beside_note=beside_note,
        requires_dist=unpacked.requires_dist,
        files=unpacked.files,
        bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and scratch not in path.parents),
        added=datetime.now(UTC).isoformat(timespec="seconds"),
    )
