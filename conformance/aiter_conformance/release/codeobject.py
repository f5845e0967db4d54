"""AMDGPU code objects, read just far enough to say which arch they are for and which kernels they hold.

The container is ELF64 little-endian; the AMDGPU parts (machine number, the arch in ``e_flags`` and the
kernel descriptor symbol ``<kernel>.kd``) are described in LLVM's "User Guide for AMDGPU
Backend". A general ELF library needs a millisecond for each object, and a release has almost three thousand
of them; the few structures that are needed here are therefore unpacked directly, every offset checked against
the file's size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_EM_AMDGPU = 224
_SHT_NULL = 0
_SHT_NOBITS = 8
_SHT_DYNSYM = 11
_SHN_UNDEF = 0
_STB_LOCAL = 0
_MACH_MASK = 0xFF

# EF_AMDGPU_MACH_*, the low byte of e_flags, of the AMDGCN processors from GFX9 on (LLVM, as above).
ARCH_OF_MACH: dict[int, str] = {
    0x2C: "gfx900",
    0x2D: "gfx902",
    0x2E: "gfx904",
    0x2F: "gfx906",
    0x30: "gfx908",
    0x31: "gfx909",
    0x32: "gfx90c",
    0x33: "gfx1010",
    0x34: "gfx1011",
    0x35: "gfx1012",
    0x36: "gfx1030",
    0x37: "gfx1031",
    0x38: "gfx1032",
    0x39: "gfx1033",
    0x3D: "gfx1035",
    0x3E: "gfx1034",
    0x3F: "gfx90a",
    0x40: "gfx940",
    0x41: "gfx1100",
    0x42: "gfx1013",
    0x43: "gfx1150",
    0x44: "gfx1103",
    0x45: "gfx1036",
    0x46: "gfx1101",
    0x47: "gfx1102",
    0x48: "gfx1200",
    0x49: "gfx1250",
    0x4A: "gfx1151",
    0x4B: "gfx941",
    0x4C: "gfx942",
    0x4E: "gfx1201",
    0x4F: "gfx950",
    0x51: "gfx9-generic",
    0x52: "gfx10-1-generic",
    0x53: "gfx10-3-generic",
    0x54: "gfx11-generic",
    0x55: "gfx1152",
    0x58: "gfx1153",
    0x59: "gfx12-generic",
    0x5A: "gfx1251",
    0x5F: "gfx9-4-generic",
}


class CodeObjectError(ValueError):
    """The bytes are not an AMDGPU code object, or are damaged; the message says how."""


@dataclass(frozen=True, slots=True)
class CodeObject:
    """What the loader of a code object looks at first.

    Attributes:
        arch: Processor name, e.g. ``gfx942``; ``mach-0x..`` for a number that `ARCH_OF_MACH` does not know.
        flags: The whole ``e_flags`` word; its low byte is the arch, bits above say xnack and sramecc.
        symbols: Names of the defined global symbols of the dynamic symbol table, which is the one loaders
            use.
    """

    arch: str
    flags: int
    symbols: frozenset[str]

    def has_kernel(self, name: str) -> bool:
        """Say whether the kernel *name* can be looked up: its descriptor ``<name>.kd`` is defined."""
        return f"{name}.kd" in self.symbols


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def parse_code_object(data: bytes) -> CodeObject:
    """Read arch and symbols of a code object.

    Args:
        data: The whole file.

    Raises:
        CodeObjectError: The bytes are not an ELF64 AMDGPU object, or a table reaches outside of them.
    """
    flags, sections = _read_sections(data)
    mach = flags & _MACH_MASK
    symbols: set[str] = set()
    for section in sections:
        if section.kind == _SHT_DYNSYM:
            symbols.update(_symbols(data, section, sections))
    return CodeObject(ARCH_OF_MACH.get(mach, f"mach-{mach:#x}"), flags, frozenset(symbols))


def _read_sections(data: bytes) -> tuple[int, list[_Section]]:
    """Return ``e_flags`` and the section table."""
    if data[: len(_MAGIC)] != _MAGIC:
        msg = f"must start as a 64-bit little-endian ELF file does (got {data[:6]!r})"
        raise CodeObjectError(msg)
    if len(data) < _HEADER.size:
        msg = f"must hold an ELF header of {_HEADER.size} bytes (got {len(data)} bytes)"
        raise CodeObjectError(msg)
    (_, _, machine, _, _, _, table, flags, _, _, _, entry_size, count, _) = _HEADER.unpack_from(data)
    if machine != _EM_AMDGPU:
        msg = f"must be for the ELF machine AMDGPU, {_EM_AMDGPU} (got {machine})"
        raise CodeObjectError(msg)
    if table == 0 or count == 0:
        msg = "must have a section table (it has none: no symbol can be looked up)"
        raise CodeObjectError(msg)
    if entry_size != _SECTION.size:
        msg = f"section headers must have {_SECTION.size} bytes (got {entry_size})"
        raise CodeObjectError(msg)
    sections = []
    for _name, kind, _, _, offset, size, link, _, _, _ in _SECTION.iter_unpack(
        _slice(data, table, count * entry_size, "the section table")
    ):
        if kind not in (_SHT_NULL, _SHT_NOBITS) and offset + size > len(data):
            msg = f"every section must lie inside the file's {len(data)} bytes (got {size} bytes at {offset})"
            raise CodeObjectError(msg)
        sections.append(_Section(kind, offset, size, link))
    return flags, sections


def _symbols(data: bytes, section: _Section, sections: list[_Section]) -> Iterator[str]:
    """Yield the defined global names of a symbol table."""
    if section.link >= len(sections):
        msg = f"a symbol table must name its string section (got number {section.link} of {len(sections)})"
        raise CodeObjectError(msg)
    strings = sections[section.link]
    names = _slice(data, strings.offset, strings.size, "a string table")
    entries = _slice(data, section.offset, section.size, "a symbol table")
    if len(entries) % _SYMBOL.size:
        msg = f"a symbol table must be a multiple of {_SYMBOL.size} bytes (got {len(entries)})"
        raise CodeObjectError(msg)
    for start, info, _, index, _, _ in _SYMBOL.iter_unpack(entries):
        if index == _SHN_UNDEF or info >> 4 == _STB_LOCAL:
            continue
        end = names.find(b"\0", start)
        if end < 0:
            msg = (
                f"a symbol's name must end inside its string table of {len(names)} bytes (it starts at "
                f"{start})"
            )
            raise CodeObjectError(msg)
        try:
            yield names[start:end].decode("utf-8")
        except UnicodeDecodeError as error:
            msg = f"a symbol's name must be UTF-8 (got {names[start:end]!r})"
            raise CodeObjectError(msg) from error


def _slice(data: bytes, offset: int, size: int, what: str) -> bytes:
    """Return ``data[offset:offset + size]``, which must lie inside *data*."""
    if offset + size > len(data):
        msg = f"{what} must lie inside the file's {len(data)} bytes (got {size} bytes at {offset})"
        raise CodeObjectError(msg)
    return data[offset : offset + size]
