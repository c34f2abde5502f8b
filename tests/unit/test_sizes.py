import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdoctor.errors import BadRequest
from kvdoctor.launches.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("42949672960", 42_949_672_960),
        ("40GiB", 42_949_672_960),
        ("40G", 42_949_672_960),
        (" 40 GiB ", 42_949_672_960),
        ("40GB", 40_000_000_000),
        ("512MiB", 536_870_912),
        ("1.5GiB", 1_610_612_736),
        ("0.1GiB", 107_374_182),
        ("1TiB", 1_099_511_627_776),
        ("7B", 7),
    ],
)
def test_a_size_is_bytes_exactly(text: str, size: int) -> None:
    assert parse_size(text, "it") == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1", "0", "0GiB", "40g", "40 gigs", "1e9", "40GiB40", "0x10", "٤GiB", "nan", "9" * 40, "1.GiB"]
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadRequest, match="--kv-cache-memory"):
        parse_size(text, "--kv-cache-memory")


@given(st.integers(min_value=1, max_value=10**15))
def test_plain_bytes_come_back(size: int) -> None:
    assert parse_size(str(size), "it") == size
