"""What stands in for a release's compiled libraries: all are there, and the release's own questions get a real installation's answers."""

import functools
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kvdoctor.engines.releases import TESTED
from kvdoctor.workers.environment import worker_environment
from tests.engines.at_hand import engine_at_hand
from tests.launches import ROOT

INSTALLED = importlib.metadata.version("vllm")
_LIBRARY = re.compile(r"(vllm/[^,]*?)(?:\.abi3|\.cpython-[^.]+)?\.so,")

# A worker's process up to its GPU, and then what the release says of its own libraries.
PROBE = """
import importlib, inspect, json, sys
from kvdoctor.dryrun import device, install
from kvdoctor.launches.gpus import find_gpu

install.prepare()
device.assume(find_gpu("h200"), gpu_count=8)
install.prepare_for_device()

from vllm.engine.arg_utils import EngineArgs
from vllm.utils import deep_gemm, import_utils
from vllm.v1.attention.ops import flashmla
from vllm.vllm_flash_attn import flash_attn_interface

missing = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        missing[name] = repr(error)
questions = {name: ask for name, ask in sorted(vars(import_utils).items()) if name.startswith("has_")}
answers = {name: ask() for name, ask in questions.items() if not inspect.signature(ask).parameters}
answers["deep_gemm"] = [deep_gemm.is_deep_gemm_supported(), deep_gemm.is_deep_gemm_e8m0_used()]
answers["deep_gemm_functions"] = sorted(name for name, value in vars(deep_gemm).items() if name.endswith("_impl") and value is None)
answers["flashmla"] = [flashmla.is_flashmla_dense_supported()[0], flashmla.is_flashmla_sparse_supported()[0]]
answers["flash_attention"] = [flash_attn_interface.FA2_AVAILABLE, flash_attn_interface.FA3_AVAILABLE]
device.assume(find_gpu("gb10"), gpu_count=1)
tokens, sequences = EngineArgs.get_batch_defaults(1)
print(json.dumps({
    "loaded": install.libraries(),
    "missing": missing,
    "answers": answers,
    "gb10": sorted({(usage.name, tokens[usage], sequences[usage]) for usage in tokens if usage}),
}))
"""


@functools.cache
def said(release: str, libraries: str, cache: Path) -> dict[str, Any]:
    """What ``release`` says, with its own libraries or with stand-ins."""
    engine = engine_at_hand(release)
    environment = worker_environment(os.environ, given={}, cache=cache, scratch=cache, network=False)
    environment |= {"VLLM_HAS_FLASHINFER_CUBIN": "1", "HUMMING_DISABLE_PARALLEL_BUILD": "1", "KVDOCTOR_LIBRARIES": libraries}
    environment["PYTHONPATH"] = os.pathsep.join([*engine.path, str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
    command = [engine.python, "-c", textwrap.dedent(PROBE), *library_modules(release, engine.path)]
    result = subprocess.run(command, env=environment, cwd=cache, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def library_modules(release: str, path: tuple[str, ...]) -> list[str]:
    """The module of every library that the wheel's record lists."""
    folders = [Path(folder) for folder in path] or [Path(str(importlib.metadata.distribution("vllm").locate_file("")))]
    [record] = [file for folder in folders for file in folder.glob(f"vllm-{release}*.dist-info/RECORD")]
    return sorted({name.replace("/", ".") for name in _LIBRARY.findall(record.read_text(encoding="utf-8"))})


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("release", TESTED)
def test_every_library_of_the_wheel_counts_as_present(release: str, cache: Path) -> None:
    answer = said(release, "none", cache)
    assert (answer["loaded"], answer["missing"]) == (False, {})
    assert answer["answers"]["has_deep_gemm"] is True
    assert answer["answers"]["deep_gemm"] == [True, True]
    assert answer["answers"]["flashmla"] == [True, True]
    assert answer["answers"]["flash_attention"] == [True, True]


def test_the_release_says_the_same_of_its_own_libraries(cache: Path) -> None:
    own, stand_ins = said(INSTALLED, "own", cache), said(INSTALLED, "none", cache)
    assert own["loaded"] is True
    assert own["answers"] == stand_ins["answers"]


@pytest.mark.parametrize("release", TESTED)
def test_gb10_gets_the_smallest_defaults_of_every_release(release: str, cache: Path) -> None:
    """Before 0.33 because NVML has no answer there, since then because vLLM knows the GPU (vLLM pull request 57378)."""
    assert said(release, "none", cache)["gb10"] == [["LLM_CLASS", 8192, 256], ["OPENAI_API_SERVER", 2048, 256]]


def test_a_name_that_a_package_takes_from_a_library_says_what_it_would_take_to_call_it(tmp_path: Path) -> None:
    for name in ("_C.cpython-39-x86_64-linux-gnu.so", "_plain.so", "_any.abi3.so", "_C_other.abi3.so", "_Cx.so.txt"):
        (tmp_path / "vllm").mkdir(exist_ok=True)
        (tmp_path / "vllm" / name).touch()
    (tmp_path / "vllm/__init__.py").write_text("")
    code = """
        import importlib.util, json, sys
        sys.path.insert(0, sys.argv[1])
        from kvdoctor.dryrun import extensions
        extensions.install_modules()
        from vllm import _C
        from vllm._C import set_num_sms, init
        from vllm._plain import anything
        import vllm._any
        init("a folder")
        try:
            set_num_sms(8)
        except RuntimeError as error:
            said = str(error)
        found = [importlib.util.find_spec(f"vllm.{name}") is not None for name in ("_C", "_C_other", "_Cx", "_absent")]
        print(json.dumps([said, hasattr(_C, "__all__"), hasattr(_C, "__wrapped__"), hasattr(set_num_sms, "__wrapped__"), found]))
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [
        "the dry launch has no answer to the operator vllm._C.set_num_sms: it needs a real GPU",
        False,
        False,
        False,
        [True, True, False, False],
    ]
