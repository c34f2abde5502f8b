"""The environment variables a worker starts with: the answer must not depend on the shell kvdoctor is called from."""

import os
import site
from collections.abc import Mapping
from pathlib import Path

from kvdoctor.home import home_cache

# Set for a worker whose vLLM is not a release as it was published: whatever its version says, kvdoctor was not tested with it.
UNTESTED_VARIABLE = "KVDOCTOR_UNTESTED"

# Prefixes of variables that change what vLLM, torch and their libraries decide, or point at a GPU or a cluster of the checking machine.
_DROPPED_PREFIXES = (
    "VLLM_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_",
    "DG_JIT_", "TVM_", "TILELANG_", "RAY_", "SLURM_", "OMPI_", "PMI_", "LMCACHE_", "PYTHON",
)  # fmt: skip
_DROPPED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LD_PRELOAD")
# How the user reaches the hub, and where a config that was fetched before is kept.
_KEPT = ("HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_CACHE", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE")


def worker_environment(base: Mapping[str, str], *, given: Mapping[str, str], cache: Path, scratch: Path, network: bool) -> dict[str, str]:
    """Clean ``base``, add the launch's own ``VLLM_*`` variables, and point every cache at ``cache`` and temporary files at ``scratch``."""
    network = network and base.get("HF_HUB_OFFLINE", "").upper() not in ("1", "ON", "YES", "TRUE")
    environment = {name: value for name, value in base.items() if _is_kept(name)}
    environment |= {name: value for name, value in given.items() if name.startswith("VLLM_")}
    environment |= _python_paths(base)
    environment |= _cache_paths(base, cache)
    environment |= {
        "TMPDIR": str(scratch),
        "CUDA_VISIBLE_DEVICES": "",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_OFFLINE": "0" if network else "1",
        "TRANSFORMERS_OFFLINE": "0" if network else "1",
        "TOKENIZERS_PARALLELISM": "false",
        "NO_COLOR": "1",
    }
    return environment


def _is_kept(name: str) -> bool:
    return name in _KEPT or not (name in _DROPPED or name.startswith(_DROPPED_PREFIXES))


def _python_paths(base: Mapping[str, str]) -> dict[str, str]:
    """Keep where Python looks for packages, less the working directory: a ``json.py`` lying there must not be imported."""
    path = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if Path(entry).is_absolute()]
    paths = {"PYTHONSAFEPATH": "1", "PYTHONUSERBASE": base.get("PYTHONUSERBASE") or site.getuserbase(), "PYTHONUTF8": "1"}
    return paths | ({"PYTHONPATH": os.pathsep.join(path)} if path else {})


def _cache_paths(base: Mapping[str, str], cache: Path) -> dict[str, str]:
    # The hub's cache stays the user's: a config fetched once serves both. Its place must be fixed before HOME moves.
    user_cache = Path(base.get("XDG_CACHE_HOME") or home_cache())
    return {
        "HF_HOME": base.get("HF_HOME") or str(user_cache / "huggingface"),
        "HF_MODULES_CACHE": str(cache / "hf_modules"),
        "HOME": str(cache / "home"),
        "XDG_CACHE_HOME": str(cache / "xdg-cache"),
        "XDG_CONFIG_HOME": str(cache / "xdg-config"),
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "VLLM_CONFIG_ROOT": str(cache / "vllm-config"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "torchinductor"),
        "TORCH_EXTENSIONS_DIR": str(cache / "torch-extensions"),
        "FLASHINFER_WORKSPACE_BASE": str(cache / "flashinfer"),
        "CUDA_CACHE_PATH": str(cache / "cuda"),
        "DG_JIT_CACHE_DIR": str(cache / "deep-gemm"),
        "TILELANG_CACHE_DIR": str(cache / "tilelang"),
        "MPLCONFIGDIR": str(cache / "matplotlib"),
    }
