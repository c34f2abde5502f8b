"""``engines add``, ``list`` and ``remove`` when all goes well, with the real pip."""

import json
from pathlib import Path

import pytest

from tests.engines.conftest import Run
from tests.engines.package_index import PackageIndex, vllm_file, vllm_wheel


def test_a_release_is_fetched_and_unpacked_without_compiled_code(kvdoctor: Run, index: PackageIndex, engines: Path) -> None:
    digest = index.add(vllm_wheel(requires=("surely-not-installed>=2", "pytest")), vllm_file())
    result = kvdoctor("engines", "add", "9.9.9")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"vLLM 9.9.9: added, 0 MiB in {engines}/vllm-9.9.9"]
    assert result.stderr.splitlines() == [
        f"kvdoctor: note: fetching vLLM 9.9.9 into {engines}",
        (
            "kvdoctor: note: vLLM 9.9.9 is outside the releases kvdoctor was tested with (0.27.1 to 0.34.0); "
            "kvdoctor engines test tells how far it can be used"
        ),
    ]
    unpacked = engines / "vllm-9.9.9" / "wheel"
    files = {str(path.relative_to(unpacked)): path.stat().st_size for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name, size in files.items() if name.startswith("vllm/") and size == 0} == {
        "vllm/_C.abi3.so",
        "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so",
        "vllm/vllm-rs",
    }
    assert (unpacked / "vllm/v1/core.py").read_text() == "BLOCK = 16\n"
    assert not any(".data/" in name for name in files)
    manifest = json.loads((engines / "vllm-9.9.9/manifest.json").read_text())
    assert manifest["vllm"] == {"name": "vllm", "version": "9.9.9", "wheel": vllm_file(), "sha256": digest, "index_hash": True}
    assert manifest["files"] == len(files)
    assert manifest["bytes"] == sum(files.values())
    assert manifest["requires_dist"] == ["surely-not-installed>=2", "pytest"]


def test_all_that_differs_from_what_is_installed_is_told_when_asked(kvdoctor: Run, index: PackageIndex) -> None:
    index.add(vllm_wheel(requires=("surely-not-installed>=2", "pytest<1", "rich", "nothing; extra == 'bench'")), vllm_file())
    told = kvdoctor("engines", "add", "-v", "9.9.9").stdout
    listed = kvdoctor("engines", "list", "-v").stdout
    for text in (told, listed):
        assert "pytest " in text
        assert " is installed, this release asks for <1\n" in text
        assert "surely-not-installed is not installed, this release asks for >=2\n" in text
        assert "rich" not in text
        assert "nothing" not in text


@pytest.mark.parametrize("served", [False, True])
def test_the_newest_build_for_this_machine_is_taken_from_any_kind_of_index(
    kvdoctor: Run, index: PackageIndex, engines: Path, *, served: bool
) -> None:
    index.add(vllm_wheel("9.9.8"), vllm_file("9.9.8"))
    index.add(vllm_wheel("9.9.9"), vllm_file("9.9.9", "s390x"))
    index.add(vllm_wheel("9.9.9"), vllm_file("9.9.9", "x86_64"))
    index.add(vllm_wheel("9.9.9"), vllm_file("9.9.9", "aarch64"))
    if served:
        with index.served() as url:
            result = kvdoctor("engines", "add", "9.9.9", PIP_INDEX_URL=url)
    else:
        result = kvdoctor("engines", "add", "9.9.9")
    assert result.returncode == 0, result.stderr
    assert json.loads((engines / "vllm-9.9.9/manifest.json").read_text())["vllm"]["wheel"] in (vllm_file(), vllm_file(machine="aarch64"))


def test_how_this_machine_installs_for_itself_does_not_matter(kvdoctor: Run, index: PackageIndex, tmp_path: Path) -> None:
    index.add(vllm_wheel(), vllm_file())
    (tmp_path / "constraints").write_text("vllm==1.0\n")
    variables = {"PIP_CONSTRAINT": str(tmp_path / "constraints"), "PIP_USER": "1", "PIP_REQUIRE_VIRTUALENV": "1", "PIP_QUIET": "2"}
    result = kvdoctor("engines", "add", "9.9.9", **variables)
    assert result.returncode == 0, result.stderr


def test_a_second_add_downloads_nothing(kvdoctor: Run, index: PackageIndex) -> None:
    index.add(vllm_wheel(), vllm_file())
    kvdoctor("engines", "add", "9.9.9")
    result = kvdoctor("engines", "add", "9.9.9", PIP_INDEX_URL="file:///nowhere")
    assert (result.returncode, result.stdout.split(",")[0]) == (0, "vLLM 9.9.9: there already")


def test_an_engine_is_listed_and_then_removed(kvdoctor: Run, index: PackageIndex, engines: Path) -> None:
    index.add(vllm_wheel("9.9.9"), vllm_file("9.9.9"))
    index.add(vllm_wheel("0.27.1"), vllm_file("0.27.1"))
    assert kvdoctor("engines", "add", "9.9.9", "0.27.1").returncode == 0
    rows = {line.split()[0]: line for line in kvdoctor("engines", "list").stdout.splitlines() if line}
    assert vllm_file("9.9.9") in rows["9.9.9"]
    assert " untested " in rows["9.9.9"]
    assert " tested " in rows["0.27.1"]
    removed = kvdoctor("engines", "remove", "9.9.9")
    assert (removed.returncode, removed.stdout) == (0, "vLLM 9.9.9: removed, 0 MiB freed\n")
    assert sorted(entry.name for entry in engines.iterdir()) == [".lock", "vllm-0.27.1"]
    again = kvdoctor("engines", "remove", "9.9.9")
    assert (again.returncode, again.stderr.splitlines()[0]) == (2, "kvdoctor: vLLM 9.9.9 is not in the engine cache")


def test_the_one_used_longest_ago_makes_room_and_that_is_said(kvdoctor: Run, index: PackageIndex, engines: Path) -> None:
    for version in ("9.9.7", "9.9.8", "9.9.9"):
        index.add(vllm_wheel(version, padding=600_000), vllm_file(version))
    kvdoctor("engines", "add", "9.9.7", "9.9.8", KVDOCTOR_ENGINES_LIMIT="1500K")
    kvdoctor("engines", "add", "9.9.7")  # used again
    result = kvdoctor("engines", "add", "9.9.9", KVDOCTOR_ENGINES_LIMIT="1500K")
    assert "kvdoctor: note: vLLM 9.9.8 was removed from the engine cache, to keep it under 1 MiB" in result.stderr.splitlines()
    assert sorted(entry.name for entry in engines.iterdir()) == [".lock", "vllm-9.9.7", "vllm-9.9.9"]


def test_a_limit_that_is_no_size_is_refused(kvdoctor: Run) -> None:
    result = kvdoctor("engines", "add", "9.9.9", KVDOCTOR_ENGINES_LIMIT="lots")
    assert (result.returncode, result.stderr.splitlines()[0]) == (2, "kvdoctor: KVDOCTOR_ENGINES_LIMIT 'lots' is not a size")


def test_a_wheel_of_a_local_folder_needs_no_index_hash(kvdoctor: Run, index: PackageIndex, engines: Path) -> None:
    index.add(vllm_wheel(), vllm_file(), sha256=None)
    result = kvdoctor("engines", "add", "9.9.9", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(index.root / "files"))
    assert result.returncode == 0, result.stderr
    assert json.loads((engines / "vllm-9.9.9/manifest.json").read_text())["vllm"]["index_hash"] is False
