"""The stand-in for the driver's library, byte by byte."""

import struct

import pytest

from kvdoctor.dryrun import libcuda

MACHINES = {"x86_64": 62, "aarch64": 183}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_image_is_a_shared_library_for_the_machine(machine: str) -> None:
    image = libcuda.stand_in_bytes(machine)
    # 64 bits, little-endian, version 1; a shared object for the machine.
    assert image[:7] == b"\x7fELF\x02\x01\x01"
    assert struct.unpack_from("<HHI", image, 16) == (3, MACHINES[machine], 1)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_segment_lies_inside_the_image_and_on_a_page_of_its_own(machine: str) -> None:
    image = libcuda.stand_in_bytes(machine)
    (at,) = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", image, at + index * size) for index in range(count)]
    assert [(kind, flags) for kind, flags, *_ in segments] == [(1, 5), (1, 6), (2, 6)]
    for _, _, offset, address, _, file_bytes, memory_bytes, alignment in segments:
        assert offset + file_bytes <= len(image)
        assert (offset % alignment, file_bytes) == (address % alignment, memory_bytes)
    (_, _, _, first, _, first_bytes, _, page), (_, _, _, second, *_), _ = segments
    assert (first + first_bytes - 1) // page < second // page


@pytest.mark.parametrize("machine", MACHINES)
def test_every_function_is_there_by_name_and_returns_that_there_is_no_device(machine: str) -> None:
    image = libcuda.stand_in_bytes(machine)
    symbols = read_symbols(image)
    assert sorted(symbols) == sorted(libcuda.FUNCTIONS)
    # The same few instructions for all: mov eax, 100; ret - and mov w0, #100; ret.
    code = {"x86_64": bytes.fromhex("b864000000c3"), "aarch64": bytes.fromhex("800c8052c0035fd6")}[machine]
    assert {image[address : address + size] for address, size in symbols.values()} == {code}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_hash_table_leads_to_every_symbol(machine: str) -> None:
    image = libcuda.stand_in_bytes(machine)
    at = dynamic(image)[4]
    buckets, count = struct.unpack_from("<II", image, at)
    assert (buckets, count) == (1, 1 + len(libcuda.FUNCTIONS))
    (index,) = struct.unpack_from("<I", image, at + 8)
    seen = []
    while index:
        seen.append(index)
        (index,) = struct.unpack_from("<I", image, at + 12 + 4 * index)
    assert sorted(seen) == list(range(1, count))


def test_a_machine_that_vllm_has_no_wheel_for_has_none() -> None:
    with pytest.raises(KeyError, match="riscv64"):
        libcuda.stand_in_bytes("riscv64")


def dynamic(image: bytes) -> dict[int, int]:
    """The dynamic section: tag to value."""
    (at,) = struct.unpack_from("<Q", image, 32)
    offset, _, _, size = struct.unpack_from("<QQQQ", image, at + 2 * 56 + 8)
    return dict(struct.iter_unpack("<QQ", image[offset : offset + size]))


def read_symbols(image: bytes) -> dict[str, tuple[int, int]]:
    """The exported functions: name to address and size, read as a loader reads them."""
    tags = dynamic(image)
    strings, symbols, (_, count) = tags[5], tags[6], struct.unpack_from("<II", image, tags[4])
    assert (tags[11], image[strings + tags[14] :].split(b"\0", 1)[0]) == (24, b"libcuda.so.1")
    found = {}
    for index in range(1, count):
        name, info, _, section, address, size = struct.unpack_from("<IBBHQQ", image, symbols + 24 * index)
        assert (info, section != 0) == (0x12, True)  # a global function, defined
        found[image[strings + name :].split(b"\0", 1)[0].decode()] = (address, size)
    return found
