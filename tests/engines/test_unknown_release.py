"""A vLLM that asks for something new: each step of a launch says what it was, and nothing passes for vLLM's refusal."""

import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvdoctor.engines.checkout import find_checkout
from kvdoctor.errors import Unassessed
from kvdoctor.plan import Plan
from kvdoctor.workers.client import Worker
from tests.launches import GIB, SAMPLES, launch_request

# The tree asks what the model's config says: one worker serves every case.
_ASK_WHILE_CONFIGURED = """
import sys as _sys

_configure = EngineArgs.create_engine_config


def _asking_create(self, *arguments, **options):
    config = _configure(self, *arguments, **options)
    asked = getattr(config.model_config.hf_config, "asks", None)
    if asked == "platform":
        from vllm.platforms import current_platform

        current_platform.new_question()
    if asked == "module":
        _sys.modules["vllm.v1.worker.gpu.attn_utils"] = None
    if asked == "buffers":
        from vllm.v1.worker.gpu import attn_utils

        del attn_utils.init_kv_cache
    return config


EngineArgs.create_engine_config = _asking_create
"""
_ASK_WHILE_PLANNED = """

_initialize = EngineCore._initialize_kv_caches


def _asking_initialize(self, vllm_config):
    asked = getattr(vllm_config.model_config.hf_config, "asks", None)
    if asked == "executor method":
        self.model_executor.new_method()
    if asked == "in vain":
        try:
            self.model_executor.new_method()
        except RuntimeError:
            pass
    if asked == "engine attribute":
        self.new_attribute.append(1)
    if asked == "worker method":
        self.model_executor.collective_rpc("new_rpc")
    if asked == "worker keyword":
        self.model_executor.collective_rpc("determine_available_memory", kwargs={"new_keyword": 1})
    if asked == "accident":
        {}["a key that moved"]
    if asked == "check":
        raise ValueError("no, and meant")
    return _initialize(self, vllm_config)


EngineCore._initialize_kv_caches = _asking_initialize
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    vllm = importlib.util.find_spec("vllm")
    if vllm is None or vllm.origin is None:
        pytest.skip("needs vLLM beside kvdoctor: pip install -e '.[vllm]'")
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(Path(vllm.origin).parent, tree / "vllm", copy_function=os.symlink, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name, text in (("engine/arg_utils.py", _ASK_WHILE_CONFIGURED), ("v1/engine/core.py", _ASK_WHILE_PLANNED)):
        file = tree / "vllm" / name
        source = file.read_text(encoding="utf-8")
        file.unlink()
        file.write_text(source + text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        with Worker(find_checkout(tree, hint=""), environment={}, network=False) as worker:
            yield worker


def plan_that_asks(worker: Worker, asked: str, folder: Path) -> Plan:
    config = json.loads((SAMPLES / "qwen3-0.6b/config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"asks": asked}), encoding="utf-8")
    return worker.plan(launch_request(folder, kv_cache_memory=8 * GIB), timeout_seconds=240)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("platform", "new_question of the platform"),
        ("module", "vllm.v1.worker.gpu.attn_utils"),
        ("executor method", "new_method of the executor"),
        ("engine attribute", "new_attribute of the engine"),
        ("worker method", "new_rpc of Worker"),
        ("worker keyword", "determine_available_memory of Worker: got an unexpected keyword argument 'new_keyword'"),
        ("accident", "KeyError: 'a key that moved'"),
    ],
)
def test_what_nobody_taught_kvdoctor_is_named_and_is_no_verdict(worker: Worker, tmp_path: Path, asked: str, named: str) -> None:
    with pytest.raises(Unassessed) as raised:
        plan_that_asks(worker, asked, tmp_path)
    assert named in raised.value.message


def test_a_gap_after_the_plan_costs_that_step_alone(worker: Worker, tmp_path: Path) -> None:
    plan = plan_that_asks(worker, "buffers", tmp_path)
    [gap] = [check for check in plan.checks if check.name == "KV-cache buffers"]
    assert (gap.outcome, plan.refusal) == ("not_checked", None)
    assert "init_kv_cache" in (gap.note or "")
    assert plan.num_blocks is not None
    assert plan.min_reusable_prefix_tokens is not None


def test_a_question_that_vllm_goes_on_without_is_named_beside_the_plan(worker: Worker, tmp_path: Path) -> None:
    plan = plan_that_asks(worker, "in vain", tmp_path)
    [gap] = [check for check in plan.checks if check.name == "what only a GPU answers"]
    assert (gap.outcome, gap.note, plan.refusal) == ("not_checked", "vLLM went on without an answer: new_method of the executor", None)


def test_a_check_that_means_it_is_a_refusal_on_any_release(worker: Worker, tmp_path: Path) -> None:
    refusal = plan_that_asks(worker, "check", tmp_path).refusal
    assert refusal is not None
    assert (refusal.exception, refusal.message, refusal.accident) == ("ValueError", "no, and meant", False)


def test_a_tree_that_asks_nothing_new_is_planned(worker: Worker, tmp_path: Path) -> None:
    assert plan_that_asks(worker, "nothing", tmp_path).refusal is None
