"""A real vLLM, edited as a next release might be: what the dry launch can no longer find is told by name, from its source alone."""

import shutil
from pathlib import Path

import pytest

from kvdoctor.cli.engine_trial import source_of
from kvdoctor.engines.examine import examine
from kvdoctor.engines.find import find_engine

VERSION = "0.33.0"


@pytest.fixture(scope="module")
def source() -> Path:
    engine = find_engine(None)
    assert engine.vllm_version is not None
    if not engine.vllm_version.startswith(VERSION):
        pytest.skip(f"the edits are of vLLM {VERSION}")
    return source_of(engine)


@pytest.fixture
def tree(source: Path, tmp_path: Path) -> Path:
    """The Python files of vLLM's engine to edit, and links to the rest."""
    package = tmp_path / "vllm"
    package.mkdir()
    for entry in (source / "vllm").iterdir():
        if entry.name == "v1":
            shutil.copytree(entry, package / "v1", ignore=lambda _folder, names: [name for name in names if name.endswith((".so", ".pyc"))])
        elif entry.is_dir() or entry.suffix == ".py":
            (package / entry.name).symlink_to(entry)
    return tmp_path


def edit(tree: Path, file: str, old: str, new: str) -> None:
    path = tree / "vllm" / file
    text = path.read_text()
    assert old in text, f"vLLM's {file} is not as this test knows it"
    path.write_text(text.replace(old, new))


def test_nothing_is_gone_from_the_release_as_it_is(tree: Path) -> None:
    assert examine(tree, VERSION) == ()


def test_a_renamed_method_a_moved_module_and_a_new_argument_are_each_told(tree: Path) -> None:
    edit(tree, "v1/engine/core.py", "def _initialize_kv_caches(", "def _set_up_kv_caches(")
    (tree / "vllm/v1/worker/gpu/attn_utils.py").rename(tree / "vllm/v1/worker/gpu/attention.py")
    edit(tree, "v1/core/kv_cache_utils.py", "def init_none_hash(", "def init_none_hash(seed, ")
    told = {lost.name: (lost.what, lost.detail) for lost in examine(tree, VERSION)}
    moved = "there is no module vllm.v1.worker.gpu.attn_utils; {} is defined in vllm.v1.worker.gpu.attention"
    assert told == {
        "vllm.v1.engine.core:EngineCore._initialize_kv_caches": ("gone", "EngineCore has no such member"),
        "vllm.v1.worker.gpu.attn_utils:init_attn_backend": ("gone", moved.format("init_attn_backend")),
        "vllm.v1.worker.gpu.attn_utils:init_kv_cache": ("gone", moved.format("init_kv_cache")),
        "vllm.v1.worker.gpu.attn_utils:get_kv_cache_spec": ("gone", moved.format("get_kv_cache_spec")),
        "vllm.v1.core.kv_cache_utils:init_none_hash": ("arguments", "also wants hash_fn"),
    }
