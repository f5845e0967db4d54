"""The code-object loader, on synthetic objects and damaged bytes."""

from __future__ import annotations

import struct
from dataclasses import replace

import msgpack
import pytest

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.isa.codeobject import Argument, Kernel, load

KERNEL = Kernel("k", 0x1000, 256, 0, 16, 0xC00BD, 0x384, 8, 0, 0, ())
S_ENDPGM = bytes.fromhex("000081bf")


def _section(
    name: int, kind: int, address: int, offset: int, size: int, link: int = 0, entry: int = 0
) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, kind, 2, address, offset, size, link, 0, 4, entry)


def elf(*, flags: int = 0x54C, machine: int = 224, note: bool = True) -> bytes:
    """A code object with one kernel ``k``: its descriptor at 0x1000, its code behind.

    ELF64 as of the System V ABI; descriptor offsets as of LLVM's "User Guide for AMDGPU Backend".
    """
    metadata = msgpack.packb(
        {
            "amdhsa.kernels": [
                {
                    ".name": "k",
                    ".symbol": "k.kd",
                    ".kernarg_segment_size": 24,
                    ".args": [{".name": "O", ".offset": 0, ".size": 8, ".value_kind": "global_buffer"}],
                }
            ]
        }
    )
    desc = metadata + bytes(-len(metadata) % 4)
    notes = struct.pack("<III", 7, len(metadata), 32) + b"AMDGPU\0\0" + desc if note else b""
    descriptor = bytearray(64)
    struct.pack_into("<III", descriptor, 0, 512, 0, 0)
    struct.pack_into("<q", descriptor, 16, 64)
    struct.pack_into("<III", descriptor, 44, 0, 0xC << 16 | 1 << 26, 0x384)
    struct.pack_into("<HH", descriptor, 56, 8, 0)
    names = b"\0k.kd\0"
    section_names = b"\0.note\0.text\0.dynsym\0.dynstr\0.shstrtab\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x11, 0, 2, 0x1000, 64)
    body, places = b"", []
    for part in (notes, bytes(descriptor) + S_ENDPGM, symbols, names, section_names):
        places.append((64 + 56 + len(body), len(part)))
        body += part + bytes(-len(part) % 8)
    text = places[1][0]
    program = struct.pack("<IIQQQQQQ", 1, 5, text, 0x1000, 0x1000, places[1][1], places[1][1] + 4, 0x1000)
    headers = (
        bytes(64)
        + _section(1, 7, 0, *places[0])
        + _section(7, 1, 0x1040, text + 64, 4)
        + _section(13, 11, 0, *places[2], link=4, entry=24)
        + _section(21, 3, 0, *places[3])
        + _section(29, 3, 0, *places[4])
    )
    ident = b"\x7fELF\x02\x01\x01\x40" + bytes(8)
    header = ident + struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 64 + 56 + len(body), flags, 64, 56, 1, 64, 6, 5
    )
    return header + program + body + headers


class TestLoad:
    """load."""

    def test_reads_a_kernel(self) -> None:
        """Architecture, image, text and the kernel's descriptor come out as they were put in."""
        code = load(elf())
        kernel = code.only_kernel()
        assert (code.arch, code.text) == ("gfx942", (0x1040, 4))
        assert code.image[0x1040:0x1044] == S_ENDPGM
        assert len(code.image) == 0x1000 + 64 + 4 + 4  # memory beyond the file's bytes is there, and 0
        assert (kernel.entry, kernel.lds_bytes, kernel.kernarg_bytes, kernel.properties) == (
            0x1040,
            512,
            24,
            8,
        )
        assert kernel.arguments == (Argument("O", 0, 8, "global_buffer"),)

    def test_architecture(self) -> None:
        """The machine in the ELF flags is LLVM's: 0x4f is gfx950."""
        assert load(elf(flags=0x54F)).arch == "gfx950"

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"no object", "must be a readable ELF file"),
            (elf()[:200], "must be a readable ELF file"),
            (elf(machine=62), "must be for gfx942 or gfx950"),
            (elf(flags=0x541), "must be for gfx942 or gfx950"),
            (elf(note=False), "must carry an AMDGPU metadata note"),
        ],
        ids=["text", "cut", "x86", "gfx1100", "no-note"],
    )
    def test_refuses(self, data: bytes, words: str) -> None:
        """Anything else is an error that says what was expected."""
        with pytest.raises(InfrastructureError, match=words):
            load(data)


class TestOnlyKernel:
    """CodeObject.only_kernel."""

    def test_several(self) -> None:
        """Two kernels are an error that names them."""
        code = load(elf())
        with pytest.raises(InfrastructureError, match=r"must have one kernel \(got \['k', 'other'\]\)"):
            replace(code, kernels=code.kernels | {"other": KERNEL}).only_kernel()


class TestMode:
    """Kernel.mode."""

    def test_bits(self) -> None:
        """FLOAT_MODE, DX10_CLAMP, IEEE and FP16_OVFL go to their places in MODE."""
        assert KERNEL.mode == 0xC0
        assert load(elf()).only_kernel().mode == 0xC0 | 1 << 23
        assert replace(KERNEL, rsrc1=1 << 21 | 1 << 23).mode == 0x300


class TestStart:
    """Kernel.start."""

    def test_preload(self) -> None:
        """Hardware that preloads starts 256 bytes behind the entry."""
        assert KERNEL.start == 0x1000
        assert replace(KERNEL, preload_words=2).start == 0x1100


class TestUserSgprs:
    """Kernel.user_sgprs."""

    def test_pointer(self) -> None:
        """The kernarg pointer fills two."""
        assert KERNEL.user_sgprs(0x1234500000678, b"") == [0x678, 0x12345]

    def test_order(self) -> None:
        """Registers follow the order of the properties; a dispatch id that nobody reads is 0."""
        assert replace(KERNEL, properties=0b11010).user_sgprs(5, b"") == [0, 0, 5, 0, 0, 0]

    def test_preload(self) -> None:
        """Preloaded words follow, from their offset."""
        kernel = replace(KERNEL, preload_words=2, preload_offset=1)
        assert kernel.user_sgprs(0, struct.pack("<4I", 10, 11, 12, 13)) == [0, 0, 11, 12]

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"properties": 1, "scratch_bytes": 64}, "scratch memory"),
            ({"preload_words": 9}, "must have 36 bytes"),
        ],
    )
    def test_refuses(self, changes: dict[str, int], words: str) -> None:
        """Scratch memory and preloads from outside the segment are errors."""
        with pytest.raises(InfrastructureError, match=words):
            replace(KERNEL, **changes).user_sgprs(0, bytes(16))
