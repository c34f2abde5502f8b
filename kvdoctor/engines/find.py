"""Find the engine that ``--vllm`` names, without importing vLLM."""

import importlib.metadata
import importlib.util
import re
import shutil
import sys
from pathlib import Path

from kvdoctor.engines.interface import Engine
from kvdoctor.errors import BadRequest, Unassessed

TESTED = ((0, 33), (0, 34))
_INSTALL = "pip install 'kvdoctor[vllm]'"


def find_engine(text: str | None) -> Engine:
    """Find the engine for ``text``, the value of ``--vllm``: nothing for the installed one, or ``python:PATH``."""
    if not text:
        return _installed()
    kind, colon, path = text.partition(":")
    if kind == "python" and colon:
        return _interpreter(path)
    raise BadRequest(
        f"engine {text!r} is not available: this version takes the installed vLLM or python:PATH",
        hint="Leave --vllm out, or give python:/path/to/an/environment/bin/python.",
    )


def _installed() -> Engine:
    if not sys.executable:
        raise Unassessed("the Python interpreter that runs kvdoctor is unknown", hint="Give one: --vllm python:PATH.")
    version = _installed_version()
    return Engine(python=sys.executable, source="installed", vllm_version=version, notes=_notes(version))


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


def _notes(version: str) -> tuple[str, ...]:
    """Warn about a release that kvdoctor was not tested with. A development build counts as the release it leads to."""
    release = re.match(r"(\d+)\.(\d+)", version)
    if release and TESTED[0] <= (int(release[1]), int(release[2])) < TESTED[1]:
        return ()
    low, high = (".".join(map(str, bound)) for bound in TESTED)
    return (f"vLLM {version} is outside the releases kvdoctor was tested with (>={low}, <{high})",)


def _interpreter(path: str) -> Engine:
    found = shutil.which(Path(path).expanduser()) if path else None
    if found is None:
        raise BadRequest(
            f"engine python:{path} is no interpreter that can be run", hint="Give its path: --vllm python:/path/to/bin/python."
        )
    # Made absolute but not resolved: a virtual environment is recognised by the path through which its interpreter is called.
    return Engine(python=str(Path(found).absolute()), source=f"python:{path}", vllm_version=None, notes=())
