"""A local checkout of vLLM as an engine: its Python files, with what only a build would add.

A built vLLM has compiled libraries, and in two folders Python files that the build copied from other projects. Backends are chosen by
whether these are there. For a checkout that was never built they are taken to be those of another vLLM at hand: the worker imports from a
folder of links in which they stand.
"""

import importlib.util
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

from kvdoctor.engines.interface import Engine
from kvdoctor.engines.store import Store
from kvdoctor.errors import BadRequest

# Where vLLM's build puts Python files that are not in its repository: its setup.py, and the checkout's .gitignore.
_BUILT = ("vllm_flash_attn", "third_party")
_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")


def find_checkout(folder: Path, *, hint: str) -> Engine:
    """Find the engine in ``folder``, which has the package ``vllm`` in it.

    Raises:
        BadRequest: it has not.

    """
    if not (folder / "vllm/__init__.py").is_file():
        raise BadRequest(f"engine {folder} has no vllm/__init__.py in it", hint=hint)
    engine = Engine(
        python=sys.executable, source=f"checkout {folder}", vllm_version=_version(folder / "vllm"), notes=(), path=(str(folder),)
    )
    if any((folder / "vllm").glob("*.so")):
        return engine
    donor, name = _donor()
    if donor is None:
        note = f"the checkout {folder} is not built, and no other vLLM is at hand to tell which compiled libraries a build has"
        return replace(engine, notes=(note,))
    note = f"the checkout is not built: the compiled libraries of {name} count as its own"
    return replace(engine, dependency_notes=(note,), built_like=str(donor))


def lay_links(checkout: Path, donor: Path, folder: Path) -> None:
    """Fill ``folder`` with links to the package ``checkout``, and what a build would add to it as the package ``donor`` has it."""
    added = {path: source for path, source in _built_files(donor).items() if not (checkout / path).exists()}
    own_folders = {parent for path in added for parent in path.parents}
    for relative in sorted(own_folders):
        (folder / relative).mkdir(parents=True, exist_ok=True)
        present = checkout / relative
        for entry in present.iterdir() if present.is_dir() else ():
            if relative / entry.name not in own_folders and entry.name != "__pycache__":
                (folder / relative / entry.name).symlink_to(entry)
    for path, source in added.items():
        if source is None:
            (folder / path).touch()
        else:
            (folder / path).symlink_to(source)


def _built_files(donor: Path) -> dict[Path, Path | None]:
    """Give the files that come from a build; a library has no source here, for its name is enough."""
    found: dict[Path, Path | None] = {}
    for root, folders, files in os.walk(donor):
        folders[:] = [name for name in folders if name != "__pycache__"]
        relative = Path(root).relative_to(donor)
        for file in files:
            if _LIBRARY.search(file):
                found[relative / file] = None
            elif relative.parts[:1] and relative.parts[0] in _BUILT:
                found[relative / file] = Path(root) / file
    return found


def _donor() -> tuple[Path | None, str]:
    """Find a whole vLLM: the installed one, or the newest that was fetched."""
    spec = importlib.util.find_spec("vllm")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent, "the installed vLLM"
    engines = Store().all()
    if not engines or not Store().use(engines[-1]):
        return None, ""
    return engines[-1].folder / "wheel/vllm", f"vLLM {engines[-1].version}"


def _version(package: Path) -> str | None:
    """Read what vLLM's build wrote; a checkout that was never built has none, and its worker says what it calls itself."""
    try:
        written = (package / "_version.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^(?:__version__ = )?version = ['\"]([^'\"]+)", written, re.MULTILINE)
    return found[1] if found else None
