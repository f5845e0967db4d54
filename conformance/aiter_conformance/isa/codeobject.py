"""AMDGPU code objects as the emulator needs them: the loaded image, its kernels and how each one starts.

Sources: "User Guide for AMDGPU Backend" of LLVM (code object v5 metadata, kernel descriptor for
gfx90a-gfx950, initial kernel execution state).
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from aiter_conformance.errors import InfrastructureError

_MACHINES = {0x4C: "gfx942", 0x4F: "gfx950"}
_METADATA_NOTE = {32, "NT_AMDGPU_METADATA"}
_DESCRIPTOR_BYTES = 64
# Bits of kernel_code_properties, each with the user SGPRs that it claims, in the order they are filled.
_USER_SGPRS = (
    ("private_segment_buffer", 4),
    ("dispatch_ptr", 2),
    ("queue_ptr", 2),
    ("kernarg_segment_ptr", 2),
    ("dispatch_id", 2),
    ("flat_scratch_init", 2),
    ("private_segment_size", 1),
)
_PRELOAD_ENTRY_BYTES = 256


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel, as the metadata has it.

    Attributes:
        name: Its name, "" where the metadata has none.
        offset: Where it starts in the kernarg segment, bytes.
        size: Its size in bytes.
        kind: The metadata's ``.value_kind``, e.g. ``global_buffer`` or ``by_value``.
    """

    name: str
    offset: int
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a code object.

    Attributes:
        name: Its name in the metadata.
        entry: Address of its first instruction in the image; see `start`.
        lds_bytes: LDS that the descriptor reserves.
        scratch_bytes: Scratch memory per lane.
        kernarg_bytes: Size of the kernarg segment in the metadata, else in the descriptor; 0 if neither says.
        rsrc1: ``COMPUTE_PGM_RSRC1``: holds the initial MODE bits.
        rsrc2: ``COMPUTE_PGM_RSRC2``: user SGPR count and which work-group ids follow.
        properties: ``kernel_code_properties``.
        preload_words: Kernarg dwords preloaded into SGPRs.
        preload_offset: First preloaded dword.
        arguments: Arguments in the order of the metadata.
    """

    name: str
    entry: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    rsrc1: int
    rsrc2: int
    properties: int
    preload_words: int
    preload_offset: int
    arguments: tuple[Argument, ...]

    @property
    def start(self) -> int:
        """Where hardware that preloads kernargs starts: past the 256 bytes that load them by hand."""
        return self.entry + (_PRELOAD_ENTRY_BYTES if self.preload_words else 0)

    @property
    def mode(self) -> int:
        """Initial value of the MODE register's low 10 bits and FP16_OVFL (bit 23).

        FLOAT_MODE is rsrc1 [19:12], DX10_CLAMP 21, IEEE 23, FP16_OVFL 26.
        """
        return (
            (self.rsrc1 >> 12 & 0xFF)
            | (self.rsrc1 >> 21 & 1) << 8
            | (self.rsrc1 >> 23 & 1) << 9
            | (self.rsrc1 >> 26 & 1) << 23
        )

    def user_sgprs(self, kernarg_address: int, kernarg: bytes) -> list[int]:
        """Values of the first SGPRs before the work-group ids.

        Args:
            kernarg_address: Address of the kernarg segment.
            kernarg: Its bytes (needed for the preloaded words).

        Raises:
            InfrastructureError: The kernel asks for a register set-up that is not modelled (scratch, dispatch
                or queue pointer), or preloads words outside the segment.
        """
        words: list[int] = []
        for bit, (name, count) in enumerate(_USER_SGPRS):
            if not self.properties >> bit & 1:
                continue
            if name == "kernarg_segment_ptr":
                words += [kernarg_address & 0xFFFFFFFF, kernarg_address >> 32]
            elif self.scratch_bytes:
                raise InfrastructureError(
                    f"kernel {self.name} must not need scratch memory (got {self.scratch_bytes} bytes a lane)"
                )
            else:
                words += [0] * count
        end = 4 * (self.preload_offset + self.preload_words)
        if end > len(kernarg):
            raise InfrastructureError(
                f"kernarg segment of {self.name} must have {end} bytes to preload (got {len(kernarg)})"
            )
        words += struct.unpack_from(f"<{self.preload_words}I", kernarg, 4 * self.preload_offset)
        return words


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A loaded code object.

    Attributes:
        arch: ``gfx942`` or ``gfx950``, from the ELF header.
        image: The loadable segments, at their addresses from 0.
        text: (address, size) of the code in the image.
        kernels: Kernels by name.
    """

    arch: str
    image: bytes
    text: tuple[int, int]
    kernels: dict[str, Kernel]

    def only_kernel(self) -> Kernel:
        """The kernel of a code object that has exactly one.

        Raises:
            InfrastructureError: It has none or several.
        """
        if len(self.kernels) != 1:
            raise InfrastructureError(f"code object must have one kernel (got {sorted(self.kernels)})")
        return next(iter(self.kernels.values()))


def _metadata(elf: Any) -> dict[str, Any]:
    for section in elf.iter_sections():
        if section["sh_type"] != "SHT_NOTE":
            continue
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] in _METADATA_NOTE:
                raw = note["n_desc"]
                found: dict[str, Any] = msgpack.unpackb(
                    raw if isinstance(raw, bytes) else raw.encode("latin1")
                )
                return found
    raise InfrastructureError("code object must carry an AMDGPU metadata note (got none)")


def _kernel(entry: dict[str, Any], address: int, image: bytes) -> Kernel:
    raw = image[address : address + _DESCRIPTOR_BYTES]
    if len(raw) < _DESCRIPTOR_BYTES:
        raise InfrastructureError(
            f"kernel descriptor {entry['.symbol']} must lie in a loaded segment (got {address:#x})"
        )
    lds, scratch, kernarg = struct.unpack_from("<III", raw, 0)
    (offset,) = struct.unpack_from("<q", raw, 16)
    _, rsrc1, rsrc2 = struct.unpack_from("<III", raw, 44)
    properties, preload = struct.unpack_from("<HH", raw, 56)
    return Kernel(
        name=entry[".name"],
        entry=address + offset,
        lds_bytes=lds,
        scratch_bytes=scratch,
        kernarg_bytes=entry.get(".kernarg_segment_size") or kernarg,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        properties=properties,
        preload_words=preload & 0x7F,
        preload_offset=preload >> 7,
        arguments=tuple(
            Argument(str(a.get(".name", "")), a[".offset"], a[".size"], a[".value_kind"])
            for a in entry.get(".args", ())
        ),
    )


def load(data: bytes) -> CodeObject:
    """Load a code object.

    Args:
        data: The ELF file's bytes.

    Raises:
        InfrastructureError: Not an AMDGPU code object of an architecture that can be emulated, or damaged.
    """
    try:
        elf: Any = ELFFile(io.BytesIO(data))
        machine = elf["e_flags"] & 0xFF
        if elf["e_machine"] != "EM_AMDGPU" or machine not in _MACHINES:
            raise InfrastructureError(
                f"code object must be for {' or '.join(_MACHINES.values())} "
                f"(got machine {elf['e_machine']}, flags {elf['e_flags']:#x})"
            )
        loads = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
        image = bytearray(max(s["p_vaddr"] + s["p_memsz"] for s in loads))
        for segment in loads:
            start = segment["p_vaddr"]
            image[start : start + segment["p_filesz"]] = segment.data()
        symbols = {
            symbol.name: symbol["st_value"]
            for section in elf.iter_sections()
            if section["sh_type"] in ("SHT_DYNSYM", "SHT_SYMTAB")
            for symbol in section.iter_symbols()
        }
        text = elf.get_section_by_name(".text")
        entries = _metadata(elf)["amdhsa.kernels"]
        kernels = {e[".name"]: _kernel(e, symbols[e[".symbol"]], bytes(image)) for e in entries}
        return CodeObject(_MACHINES[machine], bytes(image), (text["sh_addr"], text["sh_size"]), kernels)
    except (ELFError, struct.error, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InfrastructureError(
            f"code object must be a readable ELF file (got {type(error).__name__}: {error})"
        ) from error
