"""The file an engine's interpreter is started with: it makes this very kvdoctor importable there, and nothing else of its surroundings.

Arguments: the parent's process id, folders to import from first (a JSON list), the module to run, and that module's own arguments.

kvdoctor's own site-packages must not come along (``PYTHONPATH`` would put them before the engine's), nor the working directory.
"""

import ctypes
import importlib.util
import json
import os
import runpy
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def _die_with_parent(parent: int) -> None:
    # A kvdoctor killed outright cannot end its worker; the kernel does.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _load_package(root: Path) -> None:
    spec = importlib.util.spec_from_file_location("kvdoctor", root / "__init__.py", submodule_search_locations=[str(root)])
    if spec is None or spec.loader is None:
        raise ImportError(f"no kvdoctor in {root}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kvdoctor"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    _, parent, path, name, *arguments = sys.argv
    if sys.platform == "linux":
        _die_with_parent(int(parent))
    _load_package(Path(__file__).resolve().parent)
    sys.path[:0] = json.loads(path)  # the engine's own packages come before those installed
    sys.argv[1:] = arguments
    runpy.run_module(name, run_name="__main__", alter_sys=True)
