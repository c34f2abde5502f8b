"""A stand-in for the CUDA driver library, so that vLLM's own compiled libraries load on a machine with no GPU.

vLLM's extensions are linked against ``libcuda.so.1``, which only a GPU driver brings. They load over a library that
exports the few functions they name and answers each with ``CUDA_ERROR_NO_DEVICE``: then their capability queries answer
for themselves, their operators have schemas, and an operator that a build lacks is missing as it is on a real machine.
Loaded first, it also stands before a real driver: nothing in the worker can reach a GPU.

The library is written byte by byte, because a user's machine need not have a compiler.
"""

import ctypes
import os
import platform
import struct
import tempfile
from pathlib import Path

CUDA_ERROR_NO_DEVICE = 100
SONAME = "libcuda.so.1"

# What the extensions of vLLM 0.25 to 0.33 leave undefined (``nm -D --undefined-only``).
FUNCTIONS = (
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuInit",
    "cuLaunchKernelEx",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemGetAllocationGranularity",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuPointerGetAttribute",
    "cuTensorMapEncodeTiled",
)

# Machine code of ``return CUDA_ERROR_NO_DEVICE``, and the ELF machine number.
_MACHINES = {
    "x86_64": (62, bytes.fromhex("b864000000c3")),
    "aarch64": (183, struct.pack("<II", 0x52800000 | CUDA_ERROR_NO_DEVICE << 5, 0xD65F03C0)),
}
_PAGE = 0x10000  # the largest page size of the machines above
_HEADER_BYTES = 64
_PROGRAM_HEADER_BYTES = 56
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14


def stand_in_bytes(machine: str) -> bytes:
    """The shared library for ``machine`` (as ``platform.machine()`` names it) as ELF bytes.

    Raises ``KeyError`` for a machine that vLLM has no CUDA wheels for.
    """
    number, code = _MACHINES[machine]
    strings, offsets = bytearray(b"\0"), {}
    for name in (*FUNCTIONS, SONAME):
        offsets[name] = len(strings)
        strings += name.encode() + b"\0"

    symbol_count = 1 + len(FUNCTIONS)
    text_at = _HEADER_BYTES + 3 * _PROGRAM_HEADER_BYTES
    symbols_at = _aligned(text_at + len(code), 8)
    hash_at = symbols_at + 24 * symbol_count
    strings_at = hash_at + 4 * (2 + 1 + symbol_count)
    first_segment_bytes = strings_at + len(strings)
    dynamic_at = _aligned(first_segment_bytes, _PAGE)

    # Every symbol is the same function: global, in section 1 (any defined section will do for the loader).
    symbols = bytes(24) + b"".join(struct.pack("<IBBHQQ", offsets[n], 0x12, 0, 1, text_at, len(code)) for n in FUNCTIONS)
    # One bucket: the chain runs through all symbols, from the last to the first.
    chain = [0, *range(symbol_count - 1)]
    hashes = struct.pack(f"<{3 + symbol_count}I", 1, symbol_count, symbol_count - 1, *chain)
    dynamic = b"".join(
        struct.pack("<QQ", tag, value)
        for tag, value in (
            (_DT_SONAME, offsets[SONAME]),
            (_DT_HASH, hash_at),
            (_DT_STRTAB, strings_at),
            (_DT_SYMTAB, symbols_at),
            (_DT_STRSZ, len(strings)),
            (_DT_SYMENT, 24),
            (0, 0),
        )
    )
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, number, 1, 0, _HEADER_BYTES, 0, 0, _HEADER_BYTES, _PROGRAM_HEADER_BYTES, 3, 64, 0, 0)
    segments = (
        struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, first_segment_bytes, first_segment_bytes, _PAGE),
        # The loader writes addresses into the dynamic section, so it has a writable segment of its own.
        struct.pack("<IIQQQQQQ", 1, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), _PAGE),
        struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8),
    )
    image = bytearray(header + b"".join(segments) + code)
    for at, part in ((symbols_at, symbols), (hash_at, hashes), (strings_at, strings), (dynamic_at, dynamic)):
        image += bytes(at - len(image)) + part
    return bytes(image)


def load_stand_in() -> bool:
    """Load the stand-in for the whole process; ``False`` where it cannot be had (another machine or system)."""
    try:
        image = stand_in_bytes(platform.machine())
    except KeyError:
        return False
    with tempfile.TemporaryDirectory(prefix="kvdoctor-") as folder:
        library = Path(folder) / SONAME
        library.write_bytes(image)
        try:
            # By its SONAME the loader hands the same library to everyone who asks for libcuda.so.1 later.
            ctypes.CDLL(str(library), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
        except OSError:
            return False  # for instance a temporary folder mounted noexec
    return True


def _aligned(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
