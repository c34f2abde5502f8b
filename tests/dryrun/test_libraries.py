"""vLLM's compiled libraries: its own, loaded over a stand-in for the driver, or empty ones. Both ways must plan alike."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kvdoctor.plain import to_plain
from kvdoctor.plan import Plan
from kvdoctor.workers.environment import worker_environment
from tests.launches import GIB, ROOT, Launches

SHORT = ("--max-model-len", "8192")
SAMPLES = [
    ("h100-80g", "llama-3.1-8b", ()),
    ("h100-80g", "gpt-oss-20b", ()),
    ("h100-80g", "deepseek-v3.2", SHORT),
    ("h100-80g", "deepseek-v4-flash", SHORT),
    ("h100-80g", "qwen3-next-80b-a3b", ()),
    ("h100-80g", "kimi-linear-48b-a3b", ("--tensor-parallel-size", "4")),
    ("h100-80g", "falcon-h1-3b", ()),
    ("h100-80g", "jamba-1.5-mini", ()),
    ("h100-80g", "qwen3-32b-fp8", ()),
    ("h100-80g", "mimo-v2-flash", ("--tensor-parallel-size", "4")),
    ("h100-80g", "whisper-large-v3", ()),
    ("h100-80g", "pr-51108", ("--enable-prefix-caching",)),
    ("h100-80g", "gemma-3-12b", ("--max-model-len", "131072")),
    ("b200", "gpt-oss-20b", ()),
    ("b200", "deepseek-v3.2", SHORT),
    ("b200", "qwen3-30b-a3b-nvfp4", ()),
    ("rtx-5090", "gpt-oss-20b", SHORT),
    ("rtx-5090", "deepseek-v3.2", SHORT),
    ("rtx-5090", "qwen3-30b-a3b-nvfp4", SHORT),
]

# Answers by compute capability: (8.0, 8.9, 9.0, 10.0, 10.3, 11.0, 12.0, 12.1), as the libraries of 0.33.0 give them.
CAPABILITIES = (80, 89, 90, 100, 103, 110, 120, 121)
ANSWERS = {
    "cutlass_scaled_mm_supports_fp8": [False, True, True, True, True, True, True, True],
    "cutlass_scaled_mm_supports_block_fp8": [False, False, True, True, True, True, True, True],
    "cutlass_group_gemm_supported": [False, False, True, True, True, False, False, False],
    "cutlass_scaled_mm_supports_fp4": [False, False, False, True, True, True, True, True],
    "mxfp4_experts_quant_supported": [False, False, False, True, True, True, False, False],
}


def comparable(plan: Plan) -> dict[str, Any]:
    """All that a plan decides: without which way was taken, and without the log, whose words may differ."""
    plain: dict[str, Any] = to_plain(plan)
    del plain["engine"]["libraries"], plain["assumptions"], plain["vllm_log"]
    return plain


@pytest.mark.parametrize(("gpu", "model", "args"), SAMPLES)
def test_both_ways_give_equal_plans(launches: Launches, gpu: str, model: str, args: tuple[str, ...]) -> None:
    own = launches.plan(model, args, gpu=gpu, kv_cache_memory=12 * GIB)
    stand_ins = launches.plan(model, args, gpu=gpu, kv_cache_memory=12 * GIB, libraries="none")
    assert (own.engine.libraries, stand_ins.engine.libraries) == ("loaded", "stand-ins")
    assert comparable(own) == comparable(stand_ins)
    assert own.layers


@pytest.mark.parametrize(
    ("libraries", "told"), [("own", "vLLM's own compiled libraries, loaded"), ("none", "stand-ins for vLLM's compiled libraries")]
)
def test_the_way_that_was_taken_is_told(launches: Launches, libraries: Any, told: str) -> None:
    plan = launches.plan("llama-3.1-8b", kv_cache_memory=12 * GIB, libraries=libraries)
    assert told in plan.assumptions


@pytest.mark.parametrize("libraries", ["own", "none"])
def test_w11_capability_queries_are_answered_as_by_the_real_library(libraries: str, tmp_path: Path) -> None:
    code = f"""
        import json
        from kvdoctor.dryrun import install
        install.prepare()
        from vllm import _custom_ops
        answers = {{name: [bool(getattr(_custom_ops, name)(c)) for c in {CAPABILITIES}] for name in {list(ANSWERS)}}}
        print(json.dumps([install.libraries(), answers]))
    """
    assert json.loads(run_python(code, tmp_path, KVDOCTOR_LIBRARIES=libraries).splitlines()[-1]) == [libraries == "own", ANSWERS]


def test_an_operator_of_an_empty_library_says_what_it_would_take_to_call_it(tmp_path: Path) -> None:
    code = """
        from kvdoctor.dryrun import install, stand_in
        install.prepare()
        from kvdoctor.dryrun import extensions
        extensions.install_operators()
        import torch
        try:
            torch.ops._C.silu_and_mul.default(1)
        except stand_in.StandInAsked as error:
            print(error)
    """
    output = run_python(code, tmp_path, KVDOCTOR_LIBRARIES="none")
    assert output.splitlines()[-1] == "the dry launch has no answer to the operator _C::silu_and_mul.default: it needs a real GPU"


def test_the_stand_in_for_the_driver_comes_before_a_real_one(tmp_path: Path) -> None:
    """Whoever asks for ``libcuda.so.1`` after it was loaded gets it, and from every function in it the answer that there is no device."""
    code = """
        import ctypes
        from kvdoctor.dryrun import libcuda
        assert libcuda.load_stand_in()
        driver = ctypes.CDLL("libcuda.so.1")
        print(sorted({getattr(driver, name)(0) for name in libcuda.FUNCTIONS}), hasattr(driver, "cuCtxCreate_v2"))
    """
    assert run_python(code, tmp_path) == "[100] False\n"


def test_what_vllms_libraries_ask_of_the_driver_is_all_there(tmp_path: Path) -> None:
    """Bound at once, a library that names a function the stand-in lacks does not load."""
    code = """
        import ctypes, importlib.util, os
        from pathlib import Path
        import torch
        from kvdoctor.dryrun import libcuda
        assert libcuda.load_stand_in()
        folder = Path(importlib.util.find_spec("vllm").submodule_search_locations[0])
        libraries = sorted(folder.rglob("*.abi3.so"))
        linked = [library for library in libraries if b"libcuda.so.1" in library.read_bytes()]
        for library in linked:
            ctypes.CDLL(str(library), mode=os.RTLD_NOW)
        print(len(linked))
    """
    assert int(run_python(code, tmp_path)) >= 1


def test_the_stand_in_is_written_and_loaded_without_a_compiler(tmp_path: Path) -> None:
    code = """
        from kvdoctor.dryrun import libcuda
        print(libcuda.load_stand_in())
    """
    assert run_python(code, tmp_path, PATH="") == "True\n"


def test_the_temporary_file_of_the_stand_in_is_gone_once_it_is_loaded(tmp_path: Path) -> None:
    code = """
        from kvdoctor.dryrun import libcuda
        print(libcuda.load_stand_in())
    """
    (tmp_path / "tmp").mkdir()
    assert run_python(code, tmp_path, TMPDIR=str(tmp_path / "tmp")) == "True\n"
    assert list((tmp_path / "tmp").iterdir()) == []


def run_python(code: str, tmp_path: Path, **variables: str) -> str:
    """The stdout of ``code`` in a process with a worker's environment."""
    environment = worker_environment(os.environ, given={}, cache=tmp_path / "cache", scratch=tmp_path, network=False)
    environment |= {"VLLM_HAS_FLASHINFER_CUBIN": "1", "HUMMING_DISABLE_PARALLEL_BUILD": "1"} | variables
    command = [sys.executable, "-c", textwrap.dedent(code)]
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout
