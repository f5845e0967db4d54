"""The code-object reader: arch, symbols and metadata, against pyelftools and against damage."""

from __future__ import annotations

import io
import struct

import pytest
from elftools.elf.elffile import ELFFile

from aiter_conformance.release.codeobject import (
    ARCH_OF_MACH,
    CodeObjectError,
    parse_code_object,
)
from aiter_conformance.release.samples import code_object

KERNELS = ["_ZN5aiter4aaaaE", "_ZN5aiter4bbbbE"]


def _patched(offset: int, form: str, value: int) -> bytes:
    data = bytearray(code_object("gfx942", KERNELS))
    struct.pack_into(form, data, offset, value)
    return bytes(data)


def _section_header(kind: int) -> int:
    """Return the offset of the header of the sample's section of type *kind*, found by pyelftools."""
    elf = ELFFile(io.BytesIO(code_object("gfx942", KERNELS)))
    number = next(i for i, section in enumerate(elf.iter_sections()) if section.header["sh_type"] == kind)
    return int(elf["e_shoff"]) + number * int(elf["e_shentsize"])


class TestParseCodeObject:
    """`parse_code_object`."""

    @pytest.mark.parametrize(
        ("flags", "arch"),
        [
            (0x4C, "gfx942"),
            (0x4F, "gfx950"),
            (0x49, "gfx1250"),
            (0x54C, "gfx942"),
            (0x3F, "gfx90a"),
            (0xFE, "mach-0xfe"),
        ],
    )
    def test_arch_is_the_low_byte_of_e_flags(self, flags: int, arch: str) -> None:
        """The low byte names the arch, whatever bits are above it; an unknown number is kept as a number."""
        assert parse_code_object(_patched(48, "<I", flags)).arch == arch

    def test_every_arch_has_one_number(self) -> None:
        """No arch name is in the table twice."""
        assert len(set(ARCH_OF_MACH.values())) == len(ARCH_OF_MACH)

    def test_symbols_are_those_that_pyelftools_reads(self) -> None:
        """The defined global dynamic symbols are the ones that an independent reader finds."""
        data = code_object("gfx950", KERNELS)
        dynsym = ELFFile(io.BytesIO(data)).get_section_by_name(".dynsym")
        expected = {s.name for s in dynsym.iter_symbols() if s["st_shndx"] != "SHN_UNDEF"}
        found = parse_code_object(data)
        assert found.symbols == expected
        assert expected == {name for kernel in KERNELS for name in (kernel, f"{kernel}.kd")}

    def test_a_kernel_is_its_descriptor(self) -> None:
        """A code symbol without a descriptor is no kernel: the loader could not launch it."""
        found = parse_code_object(code_object("gfx942", ["present"]))
        assert found.has_kernel("present")
        assert not found.has_kernel("absent")
        assert not found.has_kernel("present.kd")

    def test_local_and_undefined_symbols_are_not_kernels(self) -> None:
        """Names that cannot be looked up from outside do not count."""
        for offset, form, value in ((4, "<B", 0x02), (6, "<H", 0)):
            data = bytearray(code_object("gfx942", ["one"]))
            elf = ELFFile(io.BytesIO(bytes(data)))
            dynsym = elf.get_section_by_name(".dynsym")
            descriptor = int(dynsym["sh_offset"]) + 2 * 24
            struct.pack_into(form, data, descriptor + offset, value)
            assert parse_code_object(bytes(data)).symbols == {"one"}

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (b"", "ELF"),
            (b"version https://git-lfs.github.com/spec/v1\n", "ELF"),
            (code_object("gfx942", KERNELS)[:40], "header"),
            (code_object("gfx942", KERNELS)[:-1], "section table must lie inside"),
            (_patched(4, "<B", 1), "64-bit"),
            (_patched(18, "<H", 62), "AMDGPU"),
            (_patched(58, "<H", 40), "section headers must have 64 bytes"),
            (_patched(40, "<Q", 2**64 - 1), "section table must lie inside"),
            (_patched(60, "<H", 0), "must have a section table"),
            (_patched(_section_header("SHT_DYNSYM") + 32, "<Q", 2**40), "every section must lie inside"),
            (_patched(_section_header("SHT_DYNSYM") + 32, "<Q", 25), "multiple of 24"),
            (_patched(_section_header("SHT_DYNSYM") + 40, "<I", 99), "string section"),
            (_patched(_section_header("SHT_STRTAB") + 32, "<Q", 8), "name must end inside"),
        ],
    )
    def test_damage_is_an_error_that_says_what(self, data: bytes, said: str) -> None:
        """Each damaged header is refused with a sentence about the part that is damaged."""
        with pytest.raises(CodeObjectError, match=said):
            parse_code_object(data)

    def test_every_truncation_is_refused(self) -> None:
        """A code object cut short anywhere is never taken for a whole one."""
        whole = code_object("gfx942", KERNELS)
        for size in range(len(whole)):
            with pytest.raises(CodeObjectError):
                parse_code_object(whole[:size])
