"""Only the dry launch imports vLLM, and no stage of the pipeline imports a later one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvdoctor

PACKAGE = Path(kvdoctor.__file__).parent
FENCED = {"vllm", "torch", "transformers", "triton"}
# Each stage may import those before it, and those beside it.
STAGES = (
    {"errors", "home", "scratch", "plain", "text_file", "json_file", "secrets", "reproducible", "layer_names", "start"},
    {"launches"},
    {"plan"},
    {"trial"},
    {"engines"},
    {"conceal"},
    {"workers"},
    {"dryrun"},
    {"layout", "left_out", "vllm_text"},
    {"waste"},
    {"rules"},
    {"made_up_memory"},
    {"diagnosis"},
    {"assess"},
    {"suggest", "borderline"},
    {"compare", "sweep", "prefix", "verify_budget"},
    {"verify"},
    {"report"},
    {"cli"},
    {"__main__"},
)
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
# That a package is installed may be asked (``find_spec``) without importing it.
_BY_NAME = {"import_module", "__import__", "run_module"}


def imports(source: str) -> Iterator[str]:
    """Give every name that a module imports, wherever in it and however: ``from kvdoctor import dryrun`` and by name as well."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in _BY_NAME:
                yield from (word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str))


def read(module: Path) -> set[str]:
    return set(imports((PACKAGE / module).read_text(encoding="utf-8")))


def stage_of(name: str) -> int:
    (stage,) = [number for number, names in enumerate(STAGES) if name in names]
    return stage


@pytest.mark.parametrize(
    "source",
    [
        "import torch",
        "import torch.nn as nn",
        "from torch import nn",
        "def f():\n    import torch",
        "import importlib\nimportlib.import_module('torch.nn')",
        "from importlib import import_module\nimport_module('torch')",
        "__import__('torch')",
    ],
)
def test_every_form_of_import_is_seen(source: str) -> None:
    assert {name.partition(".")[0] for name in imports(source)} & FENCED == {"torch"}


def test_a_package_imported_from_its_parent_is_seen() -> None:
    assert "kvdoctor.dryrun" in set(imports("from kvdoctor import dryrun"))


@pytest.mark.parametrize("module", [module for module in MODULES if module.parts[0] != "dryrun"], ids=str)
def test_only_the_dry_launch_imports_vllm_and_nothing_imports_the_dry_launch(module: Path) -> None:
    fenced = {name for name in read(module) if name.partition(".")[0] in FENCED or name.startswith("kvdoctor.dryrun")}
    assert fenced == set()


@pytest.mark.parametrize("module", [module for module in MODULES if module.parts != ("__init__.py",)], ids=str)
def test_no_stage_imports_a_later_one(module: Path) -> None:
    own = Path(module.parts[0]).stem
    imported = {name.split(".")[1] for name in read(module) if name.startswith("kvdoctor.")} - {"__version__", own}
    later = {name for name in imported if stage_of(name) > stage_of(own)}
    assert later == set()


def test_the_stages_are_those_that_there_are() -> None:
    named = {name for names in STAGES for name in names}
    assert named == {Path(module.parts[0]).stem for module in MODULES} - {"__init__"}
