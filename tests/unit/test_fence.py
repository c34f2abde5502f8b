"""Only the dry launch imports vLLM, and no stage of the pipeline imports a later one."""

import ast
from pathlib import Path

import pytest

import kvdoctor

PACKAGE = Path(kvdoctor.__file__).parent
FENCED = {"vllm", "torch", "transformers", "triton"}
# Each stage may import those before it.
STAGES = ("plan", "layout", "rules", "diagnosis", "compare", "sweep", "report", "cli")
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def imports(module: Path) -> set[str]:
    """Every name that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names.add(node.module or "")
    return names


def stage_of(name: str) -> int | None:
    return STAGES.index(name) if name in STAGES else None


@pytest.mark.parametrize("module", [module for module in MODULES if module.parts[0] != "dryrun"], ids=str)
def test_only_the_dry_launch_imports_vllm_and_nothing_imports_the_dry_launch(module: Path) -> None:
    assert {name for name in imports(module) if name.split(".")[0] in FENCED or name.startswith("kvdoctor.dryrun")} == set()


@pytest.mark.parametrize("module", [module for module in MODULES if stage_of(Path(module.parts[0]).stem) is not None], ids=str)
def test_no_stage_imports_a_later_one(module: Path) -> None:
    own = stage_of(Path(module.parts[0]).stem)
    imported = {name.split(".")[1] for name in imports(module) if name.startswith("kvdoctor.")}
    stages = {stage for name in imported if (stage := stage_of(name)) is not None}
    assert own is not None
    assert max(stages, default=0) <= own
