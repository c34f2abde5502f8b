"""A release's source, looked up without importing it: what is there, and what is gone."""

import ast
import textwrap
from pathlib import Path

import pytest

from kvdoctor.engines.examine import applies, examine
from kvdoctor.engines.needed_names import NEEDED, NeededName
from kvdoctor.engines.source_tree import SourceTree
from kvdoctor.trial import Lost

DRY_RUN = Path(__file__).parents[2] / "kvdoctor/dryrun"

# A small vLLM: re-exports, a lazy map, inheritance over modules, names behind conditions.
TREE = {
    "__init__.py": """
        import typing
        MODULE_ATTRS = {"LLM": ".core:Engine"}
        if typing.TYPE_CHECKING:
            from vllm.core import Engine as LLM
        else:
            def __getattr__(name): ...
    """,
    "base.py": """
        from dataclasses import dataclass, field
        class Base:
            def inherited(self, one, *, two): ...
        @dataclass
        class Output:
            names: list[str]
            tokens: list[int]
            extra: dict = field(default_factory=dict)
        class Times(typing.NamedTuple):
            encoder: float
            blocks: int | None = None
    """,
    "core.py": """
        from .base import Base
        from vllm import base as aliased
        try:
            import fast
        except ImportError:
            def behind_try(a, b=1): ...
        class Engine(Base):
            limit: int = 3
            def __init__(self, config):
                self.manager = config
            @property
            def size(self): ...
            @classmethod
            def make(cls, config): ...
            @staticmethod
            def plain(config): ...
        class Other(aliased.Base): ...
    """,
    "config/__init__.py": "from vllm.config.cache import *\nfrom .cache import Cache as Renamed\n",
    "config/cache.py": "class Cache: ...\nclass Starred: ...\n",
    "typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vllm.core import Engine\n",
    "broken.py": "def f(:\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


def edit(root: Path, name: str, old: str, new: str) -> None:
    path = root / "vllm" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    "place",
    [
        "vllm:LLM",
        "vllm:config",
        "vllm.core:Engine",
        "vllm.core:Base",
        "vllm.core:behind_try",
        "vllm.core:Engine.inherited",
        "vllm.core:Other.inherited",
        "vllm.core:Engine.limit",
        "vllm.core:Engine.manager",
        "vllm.core:Engine.size",
        "vllm.config:Starred",
        "vllm.config:Renamed",
    ],
)
def test_what_importing_would_find_is_there(root: Path, place: str) -> None:
    assert SourceTree(root).find(place) is not None


@pytest.mark.parametrize(
    "place",
    ["vllm:Nope", "vllm.core:Nope", "vllm.core:Engine.nope", "vllm.nope:x", "vllm.broken:f", "vllm.typed:Engine", "vllm.core:names"],
)
def test_what_importing_would_not_find_is_not(root: Path, place: str) -> None:
    assert SourceTree(root).find(place) is None


def lost(root: Path, place: str, **call: object) -> tuple[Lost, ...]:
    return examine(root, None, [NeededName(places=(place,), use="a test", **call)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "call"),
    [
        ("vllm.core:behind_try", {"positional": 1}),
        ("vllm.core:behind_try", {"positional": 1, "keywords": ("b",)}),
        ("vllm.core:Engine", {"positional": 1}),
        ("vllm:LLM", {"positional": 1}),
        ("vllm.core:Engine.inherited", {"positional": 1, "keywords": ("two",)}),
        ("vllm.core:Engine.make", {"positional": 1}),
        ("vllm.core:Engine.plain", {"positional": 1}),
        ("vllm.core:Engine.size", {"positional": 7}),
        ("vllm.base:Output", {"positional": 0, "keywords": ("names", "tokens")}),
        ("vllm.base:Output", {"positional": 0, "keywords": ("names",), "offered": ("tokens", "was_once")}),
    ],
)
def test_a_call_that_fits_is_none_to_report(root: Path, place: str, call: dict[str, object]) -> None:
    assert lost(root, place, **call) == ()


@pytest.mark.parametrize(
    ("place", "call", "detail"),
    [
        ("vllm.core:behind_try", {"positional": 1, "keywords": ("c",)}, "takes no c"),
        ("vllm.core:behind_try", {"positional": 3}, "takes 2 arguments by position, not 3"),
        ("vllm.core:Engine.inherited", {"positional": 1}, "also wants two"),
        ("vllm.core:Engine.plain", {"positional": 0}, "also wants config"),
        ("vllm.base:Output", {"positional": 0, "keywords": ("names",)}, "also wants tokens"),
        ("vllm.base:Times", {"positional": 0, "keywords": ("encoder", "decoder")}, "takes no decoder"),
    ],
)
def test_a_call_that_does_not_fit_is_told_with_what_is_wrong(root: Path, place: str, call: dict[str, object], detail: str) -> None:
    assert lost(root, place, **call) == (Lost(name=place, what="arguments", detail=detail, use="a test"),)


def test_a_renamed_method_is_gone(root: Path) -> None:
    edit(root, "base.py", "def inherited", "def renamed")
    [found] = lost(root, "vllm.core:Engine.inherited")
    assert (found.what, found.detail) == ("gone", "Engine has no such member")


@pytest.mark.parametrize(
    ("place", "old", "new", "detail"),
    [
        ("vllm.core:Engine.make", "def make(", "def makes(", "Engine has no such member, it has makes"),
        ("vllm.core:behind_try", "def behind_try", "def behind_tries", "the module has no behind_try, it has behind_tries"),
    ],
)
def test_a_name_much_like_the_one_that_is_gone_is_told(root: Path, place: str, old: str, new: str, detail: str) -> None:
    edit(root, "core.py", old, new)
    [found] = lost(root, place)
    assert found.detail == detail


def test_of_a_moved_class_its_new_module_is_named(root: Path) -> None:
    (root / "vllm/config/cache.py").rename(root / "vllm/stash.py")
    [found] = lost(root, "vllm.config.cache:Cache")
    assert (found.what, found.detail) == ("gone", "there is no module vllm.config.cache; Cache is defined in vllm.stash")


def test_one_of_several_places_is_enough(root: Path) -> None:
    names = [NeededName(places=("vllm.nope:f", "vllm.core:behind_try"), use="a test", positional=1)]
    assert examine(root, None, names) == ()


@pytest.mark.parametrize(
    ("version", "asked"),
    [("0.28.1", False), ("0.29.0", True), ("0.33.9.dev1", True), ("0.34.0", False), ("1.0.0", False), (None, False), ("dev", False)],
)
def test_a_release_is_asked_only_for_what_is_taken_of_it(version: str | None, *, asked: bool) -> None:
    assert applies(NeededName(places=("m:x",), use="a test", since=(0, 29), until=(0, 34)), version) is asked


def test_a_build_without_a_number_is_asked_for_what_the_newest_is() -> None:
    assert applies(NeededName(places=("m:x",), use="a test", since=(0, 34)), None)


def _taken(path: Path) -> set[str]:
    """What a file of the dry launch imports of vLLM, and what it takes of the modules that it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {place.partition(":")[0] for name in NEEDED for place in name.places}
    taken: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] != "vllm":
            continue
        for alias in node.names:
            if f"{node.module}.{alias.name}" in modules:
                local = alias.asname or alias.name
                used = [use for use in ast.walk(tree) if isinstance(use, ast.Attribute) and isinstance(use.value, ast.Name)]
                taken |= {f"{node.module}.{alias.name}:{use.attr}" for use in used if ast.unparse(use.value) == local}
            else:
                taken.add(f"{node.module}:{alias.name}")
    return taken


@pytest.mark.parametrize("path", sorted(DRY_RUN.glob("*.py")), ids=lambda path: path.stem)
def test_each_name_that_the_dry_launch_takes_of_vllm_is_in_the_list(path: Path) -> None:
    """A name that is missing gets its line in kvdoctor/engines/needed_names.py."""
    listed = {f"{module}:{top}" for name in NEEDED for place in name.places for module, top in [_top(place)]}
    assert _taken(path) <= listed


def _top(place: str) -> tuple[str, str]:
    module, _, path = place.partition(":")
    return module, path.partition(".")[0]


def test_the_list_names_each_place_once_and_as_it_is_written_in_python() -> None:
    places = [place for name in NEEDED for place in name.places]
    assert len(set(NEEDED)) == len(NEEDED)
    assert all(part.isidentifier() for place in places for part in place.replace(":", ".").split("."))
