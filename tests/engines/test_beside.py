"""The transformers that a release was made for is fetched beside it, where the one installed is another."""

import json
from pathlib import Path

import pytest

from tests.engines.conftest import ROOT, Run
from tests.engines.package_index import PackageIndex, vllm_file, vllm_wheel, wheel

MATCHING = b"""
from importlib.metadata import version
if version("huggingface-hub") != "1.5.0":
    raise ImportError("huggingface-hub<2.0 is required, but found " + version("huggingface-hub"))
AutoConfig = AutoTokenizer = PreTrainedModel = None
"""


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """Make transformers 5.20.2 and huggingface-hub 2.4.0 look installed beside kvdoctor."""
    for name, version in {"transformers": "5.20.2", "huggingface_hub": "2.4.0"}.items():
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").touch()
        info = tmp_path / "site" / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return {"PYTHONPATH": f"{ROOT}:{tmp_path / 'site'}"}


def offer(index: PackageIndex, *, hub: str | None) -> None:
    transformers = wheel("transformers", "5.13.1", requires=("huggingface-hub<2.0,>=1.5",), files={"transformers/__init__.py": MATCHING})
    index.add(transformers, "transformers-5.13.1-py3-none-any.whl")
    index.add(wheel("transformers", "5.20.2"), "transformers-5.20.2-py3-none-any.whl")
    if hub:
        index.add(wheel("huggingface-hub", hub), f"huggingface_hub-{hub}-py3-none-any.whl")


def add(kvdoctor: Run, index: PackageIndex, site: dict[str, str], requirement: str, version: str = "9.9.9") -> tuple[str, Path]:
    index.add(vllm_wheel(version, requires=(requirement,)), vllm_file(version))
    result = kvdoctor("engines", "add", version, **site)
    assert result.returncode == 0, result.stderr
    first, *notes = result.stdout.splitlines()
    return "\n".join(notes), Path(first.rpartition(" in ")[2])


def test_it_is_left_alone_where_the_installed_one_serves(kvdoctor: Run, index: PackageIndex, site: dict[str, str]) -> None:
    notes, folder = add(kvdoctor, index, site, "transformers>=5.5.3")
    assert notes == ""
    assert not (folder / "beside").exists()


def test_it_comes_with_what_it_asks_for_itself(kvdoctor: Run, index: PackageIndex, site: dict[str, str]) -> None:
    offer(index, hub="1.5.0")
    notes, folder = add(kvdoctor, index, site, "transformers<5.20,>=5.5.3")
    assert notes == "  fetched beside it: transformers 5.13.1, huggingface-hub 1.5.0"
    assert {entry.name for entry in (folder / "beside").iterdir()} >= {"transformers", "huggingface_hub"}
    assert [item["name"] for item in json.loads((folder / "manifest.json").read_text())["beside"]] == ["transformers", "huggingface-hub"]
    assert not (folder / "scratch").exists()


def test_a_release_whose_metadata_says_too_little_gets_it_too(kvdoctor: Run, index: PackageIndex, site: dict[str, str]) -> None:
    """Gemma 4's config has no ``head_dim`` for vLLM 0.27 and older from transformers 5.15 on."""
    offer(index, hub="1.5.0")
    notes, _ = add(kvdoctor, index, site, "transformers>=5.5.3", version="0.27.1")
    assert notes == "  fetched beside it: transformers 5.13.1, huggingface-hub 1.5.0"


@pytest.mark.parametrize(
    ("hub", "fault"),
    [
        ("1.9.0", "ImportError: huggingface-hub<2.0 is required, but found 1.9.0"),
        (None, "the package index that pip is configured for has nothing like huggingface-hub<2.0,>=1.5"),
    ],
)
def test_where_it_cannot_be_used_the_engine_stays_and_what_to_install_is_said(
    kvdoctor: Run, index: PackageIndex, site: dict[str, str], hub: str | None, fault: str
) -> None:
    offer(index, hub=hub)
    notes, folder = add(kvdoctor, index, site, "transformers<5.20,>=5.5.3")
    assert notes.splitlines() == [
        f"  no matching transformers beside it ({fault}); install it: pip install 'transformers<5.20,>=5.5.3'",
        "  transformers 5.20.2 is installed, this release asks for <5.20,>=5.5.3",
    ]
    assert not (folder / "beside").exists()
