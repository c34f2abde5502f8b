"""Wheels are unpacked with care: one bad member, and none of it is believed."""

import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kvdoctor.engines import unpack as unpack_module
from kvdoctor.engines.unpack import Unpacked, unpack
from kvdoctor.errors import Unassessed
from tests.engines.package_index import ELF, archive, vllm_wheel, wheel, with_members

Unpack = Callable[[bytes], Unpacked]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "in" / "out"


@pytest.fixture
def unpacked(tmp_path: Path, out: Path) -> Unpack:
    def run(content: bytes, *, libraries: bool = False) -> Unpacked:
        (tmp_path / "x.whl").write_bytes(content)
        return unpack(tmp_path / "x.whl", out, package="vllm", libraries=libraries, on_step=lambda _text: None)

    return run


def special(name: str, mode: int) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.external_attr = (mode | 0o777) << 16
    return member


def test_what_is_in_it_is_told(unpacked: Unpack) -> None:
    result = unpacked(vllm_wheel("0.28.0", requires=("torch==2.13.0", 'uvloop; extra == "x"')))
    assert (result.version, result.requires_dist) == ("0.28.0", ("torch==2.13.0", 'uvloop; extra == "x"'))


def test_compiled_code_keeps_its_name_alone(unpacked: Unpack, out: Path) -> None:
    files = {"vllm/a.so": ELF, "vllm/b.so.1.2": ELF, "vllm/program": ELF, "vllm/elf.txt": b"ELF", "vllm/also.py": b"x = 1\n"}
    unpacked(wheel(version="1.0", files=files))
    assert {path.name: path.stat().st_size for path in (out / "vllm").iterdir() if path.name != "__init__.py"} == {
        "a.so": 0,
        "b.so.1.2": 0,
        "program": 0,
        "elf.txt": 3,
        "also.py": 6,
    }


def test_libraries_are_kept_where_they_are_to_be_loaded(unpacked: Callable[..., Unpacked], out: Path) -> None:
    unpacked(wheel(version="1.0", files={"vllm/a.so": ELF}), libraries=True)
    assert (out / "vllm/a.so").read_bytes() == ELF


@pytest.mark.parametrize(
    ("member", "fault"),
    [
        ("../escaped", "leads out of its folder"),
        ("vllm/../../escaped", "leads out of its folder"),
        ("/escaped", "leads out of its folder"),
        ("vllm//escaped", "leads out of its folder"),
        ("./escaped", "leads out of its folder"),
        ("vllm\\..\\escaped", "leads out of its folder"),
        ("vllm/__init__.py", "is there twice"),
        ("vllm/__init__.py/escaped", "is a file and a folder"),
        (special("vllm/link", stat.S_IFLNK), "is a link or a device"),
        (special("vllm/pipe", stat.S_IFIFO), "is a link or a device"),
    ],
)
def test_a_member_that_could_do_harm_spoils_the_whole(
    unpacked: Unpack, tmp_path: Path, out: Path, member: zipfile.ZipInfo | str, fault: str
) -> None:
    with pytest.raises(Unassessed) as caught:
        unpacked(with_members(vllm_wheel(), (member, b"/etc/passwd")))
    assert caught.value.message.startswith("x.whl has a member ")
    assert caught.value.message.endswith(f" that {fault}")
    assert not out.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.whl"]


@pytest.mark.parametrize("limit", ["MAX_MEMBERS", "MAX_BYTES"])
def test_an_archive_larger_than_any_wheel_is_not_begun(unpacked: Unpack, out: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(unpack_module, limit, 7)
    with pytest.raises(Unassessed, match="more than any wheel kvdoctor unpacks"):
        unpacked(vllm_wheel())
    assert not out.exists()


def test_a_member_that_is_larger_than_it_says_is_not_written(unpacked: Unpack, out: Path) -> None:
    content = with_members(vllm_wheel(), ("vllm/bomb", bytes(1_000_000)))
    said, lie = (1_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")
    assert content.count(said) == 2
    with pytest.raises(Unassessed, match="broken archive"):
        unpacked(content.replace(said, lie))
    assert (out / "vllm/bomb").stat().st_size <= 10


@pytest.mark.parametrize("where", [0.2, 0.5, 0.99])
def test_an_archive_cut_anywhere_is_broken(unpacked: Unpack, where: float) -> None:
    content = vllm_wheel(padding=10_000)
    with pytest.raises(Unassessed, match=r"^x\.whl is a broken archive: "):
        unpacked(content[: int(len(content) * where)])


def test_a_flipped_bit_is_seen(unpacked: Unpack) -> None:
    content = bytearray(vllm_wheel(padding=10_000))
    content[content.index(b"vllm/padding.bin") + 5_000] ^= 1
    with pytest.raises(Unassessed, match="broken archive"):
        unpacked(bytes(content))


def test_a_wheel_of_something_else_is_refused(unpacked: Unpack) -> None:
    with pytest.raises(Unassessed, match="is not a wheel of vllm"):
        unpacked(archive({"notes.txt": b"hello"}))
