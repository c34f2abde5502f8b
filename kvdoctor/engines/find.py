"""Find the engine that ``--vllm`` names, without importing vLLM."""

import importlib.metadata
import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from kvdoctor.engines import releases
from kvdoctor.engines.checkout import find_checkout
from kvdoctor.engines.fetch import as_engine, fetch_release
from kvdoctor.engines.interface import Engine
from kvdoctor.engines.store import Store
from kvdoctor.engines.trials import trial_notes
from kvdoctor.errors import BadRequest, Unassessed
from kvdoctor.home import expanded

_INSTALL = "pip install 'kvdoctor[vllm]'"
_FORMS = f"Give --vllm a release like {releases.TESTED[0]}, a directory with vLLM's source, or python:PATH; or leave it out."
_FETCHED = "fetched:"


def find_engine(
    text: str | None,
    *,
    offline: bool = False,
    on_step: Callable[[str], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> Engine:
    """Find the engine for ``text``, the value of ``--vllm``: nothing for the installed one, a release, a checkout, or ``python:PATH``.

    A release that is not in the cache is fetched, unless ``offline``. ``on_step`` hears what that is at, ``note`` what the user must know.
    The installed release is not fetched a second time, unless ``fetched:RELEASE`` asks for it: installed it has its own libraries.
    """
    if not text:
        return _installed()
    kind, colon, path = text.partition(":")
    if kind == "python" and colon:
        return _interpreter(path)
    release = text.removeprefix(_FETCHED)
    if release == text and releases.is_release(text) and installed_release() == text:
        return _installed()
    if releases.is_release(release):
        return as_engine(fetch_release(release, Store(), offline=offline, on_step=on_step or _ignore, note=note or _ignore))
    folder = expanded(text)
    if folder.is_dir():
        return find_checkout(folder.absolute(), hint=_FORMS)
    raise BadRequest(f"engine {text!r} is neither a release nor a directory that is there", hint=_FORMS)


def _ignore(text: str) -> None:
    """Stand in for a listener."""


def _installed() -> Engine:
    if not sys.executable:
        raise Unassessed("the Python interpreter that runs kvdoctor is unknown", hint="Give one: --vllm python:PATH.")
    version = _installed_version()
    return Engine(
        python=sys.executable,
        source="installed",
        vllm_version=version,
        notes=releases.notes(version),
        dependency_notes=trial_notes(version),
    )


def installed_release() -> str | None:
    """Say which release is installed beside kvdoctor, whatever it was built for (``0.33.0+cu129``); ``None`` without one."""
    try:
        return _installed_version().partition("+")[0]
    except Unassessed:
        return None


def _installed_version() -> str:
    try:
        present = importlib.util.find_spec("vllm") is not None
        version = importlib.metadata.version("vllm") if present else None
    except (importlib.metadata.PackageNotFoundError, ValueError):
        version = None  # a source tree on the path, with no metadata
        present = True
    if not present:
        raise Unassessed("vLLM is not installed beside kvdoctor", hint=f"Run: {_INSTALL} (or use --vllm python:PATH).")
    if not version:
        raise Unassessed("the vLLM beside kvdoctor has no package metadata to tell its version", hint=f"Install it with pip: {_INSTALL}")
    return version


def _interpreter(path: str) -> Engine:
    found = shutil.which(expanded(path)) if path else None
    if found is None:
        raise BadRequest(
            f"engine python:{path} is no interpreter that can be run", hint="Give its path: --vllm python:/path/to/bin/python."
        )
    # Made absolute but not resolved: a virtual environment is recognised by the path through which its interpreter is called.
    return Engine(python=str(Path(found).absolute()), source=f"python:{path}", vllm_version=None, notes=())
