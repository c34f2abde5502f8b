"""The forms of ``--vllm`` that need no fetching, and what a worker imports from."""

import importlib.util
import os
import sys
import textwrap
from pathlib import Path

import pytest

from kvdoctor.engines import releases
from kvdoctor.engines.checkout import lay_links
from kvdoctor.engines.dependencies import Requirements
from kvdoctor.engines.fetch import as_engine
from kvdoctor.engines.find import find_engine
from kvdoctor.engines.index import look_up
from kvdoctor.engines.interface import Engine
from kvdoctor.engines.store import Manifest, Store, Wheel
from kvdoctor.errors import BadRequest, Bug, Unassessed
from kvdoctor.workers import client as worker_module
from kvdoctor.workers.client import Worker
from tests.unit import plans


def test_a_checkout_comes_first_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").touch()
    (tmp_path / "vllm/_C.abi3.so").touch()
    (tmp_path / "vllm/_version.py").write_text("__version__ = version = '0.34.0.dev3+gabc'\n")
    engine = find_engine(str(tmp_path))
    assert (engine.python, engine.source, engine.path) == (sys.executable, f"checkout {tmp_path}", (str(tmp_path),))
    assert (engine.vllm_version, engine.notes) == ("0.34.0.dev3+gabc", ())


def package(folder: Path, *files: str) -> Path:
    """Make the package ``vllm`` with these files in ``folder``, each with its own place as its content."""
    for name in ("__init__.py", *files):
        path = folder / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(path))
    return folder / "vllm"


def test_a_checkout_that_was_never_built_says_what_that_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    package(tmp_path)
    engine = find_engine(str(tmp_path))
    assert (engine.vllm_version, engine.built_like) == (None, None)
    [note] = engine.notes
    assert note.endswith(" is not built, and no other vLLM is at hand to tell which compiled libraries a build has")


def test_a_checkout_that_was_never_built_has_the_libraries_of_a_vllm_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    kept(Store(), manifest())
    engine = find_engine(str(package(tmp_path).parent))
    assert engine.built_like == str(tmp_path / "cache/engines/vllm-0.28.0/wheel/vllm")
    assert engine.dependency_notes == ("the checkout is not built: the compiled libraries of vLLM 0.28.0 count as its own",)


def test_only_what_a_build_adds_is_laid_over_a_checkout(tmp_path: Path) -> None:
    checkout = package(tmp_path / "mine", "v1/core.py", "v1/new.py", "third_party/pynvml.py", "third_party/flashmla/__init__.py")
    donor = package(
        tmp_path / "theirs",
        "_C.abi3.so",
        "v1/core.py",
        "v1/gone.py",
        "vllm_flash_attn/__init__.py",
        "vllm_flash_attn/_vllm_fa2_C.abi3.so",
        "third_party/pynvml.py",
        "third_party/deep_gemm/include/x.h",
        "third_party/flashmla/interface.py",
    )
    lay_links(checkout, donor, tmp_path / "links")
    seen: dict[str, str] = {}
    for root, _, files in os.walk(tmp_path / "links", followlinks=True):
        seen |= {str((Path(root) / file).relative_to(tmp_path / "links")): (Path(root) / file).read_text() for file in files}
    own = ("__init__.py", "v1/core.py", "v1/new.py", "third_party/pynvml.py", "third_party/flashmla/__init__.py")
    built = ("vllm_flash_attn/__init__.py", "third_party/deep_gemm/include/x.h", "third_party/flashmla/interface.py")
    assert seen == {
        **{name: str(checkout / name) for name in own},
        **{name: str(donor / name) for name in built},
        "_C.abi3.so": "",
        "vllm_flash_attn/_vllm_fa2_C.abi3.so": "",
    }


def test_a_worker_of_a_checkout_that_was_never_built_imports_from_the_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path / "mine")
    (tmp_path / "mine/vllm/a_fake_worker.py").write_text(
        textwrap.dedent("""
            import json, os
            files = str(sorted(os.listdir(os.path.dirname(__file__))))
            print(json.dumps({"event": "failure", "id": None, "failure": {"kind": "bug", "message": files, "hint": "h"}}), flush=True)
        """)
    )
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(worker_module, "WORKER_MODULE", "vllm.a_fake_worker")
    (tmp_path / "mine/vllm/__init__.py").write_text("")
    donor = package(tmp_path / "theirs", "_C.abi3.so")
    path = (str(tmp_path / "mine"),)
    engine = Engine(python=sys.executable, source="x", vllm_version=None, notes=(), path=path, built_like=str(donor))
    with pytest.raises(Bug, match=r"_C\.abi3\.so"), Worker(engine, environment={}, network=False) as worker:
        worker.plan(plans.request(), timeout_seconds=20)


def test_a_directory_without_vllm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"has no vllm/__init__\.py in it"):
        find_engine(str(tmp_path))


def test_a_worker_imports_from_the_engines_path_before_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("beside", "wheel", "installed"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "where.py").write_text(f"WHERE = {place!r}\n")
    (tmp_path / "wheel" / "a_fake_worker.py").write_text(
        textwrap.dedent("""
            import json, where
            print(json.dumps({"event": "failure", "id": None, "failure": {"kind": "bug", "message": where.WHERE, "hint": "h"}}), flush=True)
        """)
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(worker_module, "WORKER_MODULE", "a_fake_worker")
    path = (str(tmp_path / "beside"), str(tmp_path / "wheel"))
    engine = Engine(python=sys.executable, source="x", vllm_version=None, notes=(), path=path)
    with pytest.raises(Bug, match=r"^beside$"), Worker(engine, environment={}, network=False) as worker:
        worker.plan(plans.request(), timeout_seconds=20)


def manifest(*requires: str, version: str = "0.28.0", beside: tuple[Wheel, ...] = ()) -> Manifest:
    wheel = Wheel(name="vllm", version=version, wheel="vllm.whl", sha256="0" * 64, index_hash=True)
    return Manifest(
        vllm=wheel, beside=beside, beside_note=None, requires_dist=requires, files=1, bytes=1, added="2026-01-01T00:00:00+00:00"
    )


def kept(store: Store, made: Manifest) -> Engine:
    with store.changing(lambda _text: None), store.new_folder() as folder:
        return as_engine(store.keep(folder, made))


def test_an_engine_carries_the_differences_that_can_change_a_plan(tmp_path: Path) -> None:
    beside = (Wheel(name="tokenizers", version="0.22.2", wheel="t.whl", sha256="0" * 64, index_hash=True),)
    engine = kept(Store(tmp_path), manifest("mistral-common>=99", "tokenizers<0.23", "surely-not-installed", "pytest", beside=beside))
    assert engine.source == "release 0.28.0, fetched"
    assert engine.path == (str(tmp_path / "vllm-0.28.0/beside"), str(tmp_path / "vllm-0.28.0/wheel"))
    assert engine.dependency_notes[0] == "fetched beside it: tokenizers 0.22.2"
    [note] = engine.dependency_notes[1:]
    assert note.startswith("mistral-common ")
    assert note.endswith(" this release asks for >=99")


def test_without_packaging_that_is_said_and_nothing_else_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    notes = kept(Store(tmp_path), manifest("torch==1")).dependency_notes
    assert notes == ("what the release asks for was not compared with what is installed: the package packaging is not there",)


def test_requirements_apply_as_their_markers_say() -> None:
    lines = ("a>=2", "a<4", "b; python_version < '3'", "c; extra == 'x'", "d[extra]==1.*", "not a requirement !", "Under_Score>1")
    found = Requirements(lines).differences({"a": "4.0", "d": "1.5"}.get)
    assert [str(difference) for difference in found] == [
        "a 4.0 is installed, this release asks for <4,>=2",
        "under-score is not installed, this release asks for >1",
    ]


def test_a_development_build_of_a_package_is_compared_by_its_number() -> None:
    assert Requirements(["torch>=2.13"]).differences({"torch": "2.14.0.dev1+cpu"}.get) == ()


def test_an_engine_in_a_cache_that_can_only_be_read_still_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path))
    kept(Store(), manifest())

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert find_engine("0.28.0").vllm_version == "0.28.0"


def test_a_cache_that_can_only_be_read_takes_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path))

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(Unassessed) as caught:
        find_engine("0.28.0")
    assert caught.value.message == f"the engine cache {tmp_path}/engines cannot be written: Read-only file system"


def test_without_pip_the_next_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(Unassessed) as caught:
        look_up("vllm==0.28.0", any_python=True, scratch=tmp_path)
    assert caught.value.message == "pip is not installed beside kvdoctor, and fetching vllm==0.28.0 needs it"
    assert "ensurepip" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.27.1", True),
        ("0.28.0rc2", True),
        ("0.28.0.post1", True),
        ("0.27", False),
        ("v0.27.1", False),
        ("0.027.1", False),
        ("0.27.1/..", False),
        ("0.27.1\n", False),
        ("０.27.1", False),  # noqa: RUF001 - a digit that is not ASCII
    ],
)
def test_only_a_whole_release_number_is_one(text: str, release: bool) -> None:
    assert releases.is_release(text) == release


def test_releases_sort_by_age() -> None:
    assert sorted(["0.33.0", "0.9.1", "0.27.1"], key=releases.order) == ["0.9.1", "0.27.1", "0.33.0"]
