"""Code objects to programs: a table of numbers per instruction that both cores run, cached by content.

A row of the table has the columns named below, all int32. Sources come as pairs of kind (`assembly.Kind`) and
value.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.isa.assembly import Instruction, UnknownInstructionError, parse
from aiter_conformance.isa.codeobject import CodeObject
from aiter_conformance.isa.disasm import Job, disassemble
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.operands import SPECS, Form

OP, DESTINATION = 0, 1
KIND0, VALUE0, KIND1, VALUE1, KIND2, VALUE2, KIND3, VALUE3, KIND4, VALUE4 = range(2, 12)
NEGATE, ABSOLUTE = 12, 13  # one bit a source
SELECT = 14  # SDWA: source select, then destination select << 4 and preserve << 8; DWORD selects are 6
LANES = (
    15  # DPP: 0 none, 1 << 8 | lane broadcast in rows of 16, 2 << 8 | quad permutation, 3 << 8 mirror in 8
)
OFFSET = 16
DWORDS = 17
TARGET = 18  # row that a branch goes to
FLAGS = 19
AUX = 20  # byte or half select of conversions; A's byte | B's byte << 2 of scaled matrix instructions
WIDTH = 21
FLAG_LDS, FLAG_RETURN = 1, 2
DPP_BROADCAST, DPP_QUAD, DPP_HALF_MIRROR = 1, 2, 3
DWORD = 6

_SOURCES = ("opcodes.py", "operands.py", "assembly.py", "decode.py", "disasm.py", "_llvm.py")


@dataclass(frozen=True, slots=True)
class Program:
    """A decoded code object.

    Attributes:
        arch: Architecture.
        addresses: int64 [n], address of each instruction in the image.
        texts: Assembly text of each instruction.
        table: int32 [n, WIDTH], the columns named in this module.
    """

    arch: str
    addresses: npt.NDArray[np.int64]
    texts: tuple[str, ...]
    table: npt.NDArray[np.int32]

    def row(self, address: int) -> int:
        """Row of the instruction at an address.

        Raises:
            InfrastructureError: No instruction starts there.
        """
        row = int(np.searchsorted(self.addresses, address))
        if row >= len(self.addresses) or self.addresses[row] != address:
            raise InfrastructureError(f"an instruction must start at {address:#x} (got none)")
        return row


def _lanes(instruction: Instruction) -> int:
    if "row_newbcast" in instruction.modifiers:
        return DPP_BROADCAST << 8 | instruction.number("row_newbcast")
    if "quad_perm" in instruction.modifiers:
        quad = instruction.bits("quad_perm", 4)
        return DPP_QUAD << 8 | sum(lane << 2 * i for i, lane in enumerate(quad))
    return DPP_HALF_MIRROR << 8 if "row_half_mirror" in instruction.modifiers else 0


def _aux(instruction: Instruction) -> int:
    if instruction.op is Op.V_CVT_PK_FP8_F32:
        return instruction.bits("op_sel", 3)[2]
    if instruction.op is Op.V_CVT_SCALEF32_PK_FP4_F32:
        select = instruction.bits("op_sel", 4)
        return select[2] | select[3] << 1
    if instruction.op is Op.V_MFMA_SCALE_F32_16X16X128_F8F6F4:
        if "op_sel_hi" not in instruction.modifiers:
            raise UnknownInstructionError(
                "a scaled matrix instruction must print op_sel_hi, its default is not modelled"
            )
        low, high = instruction.bits("op_sel", 3), instruction.bits("op_sel_hi", 3)
        return low[0] | high[0] << 1 | low[1] << 2 | high[1] << 3
    return 0


def lower(instruction: Instruction) -> npt.NDArray[np.int32]:
    """The table row of an instruction, int32 [WIDTH]; a branch's target is left 0."""
    row = np.zeros(WIDTH, np.int32)
    row[OP] = instruction.op
    row[DESTINATION] = instruction.destination.value if instruction.destination else -1
    for i, source in enumerate(instruction.sources):
        row[KIND0 + 2 * i], row[VALUE0 + 2 * i] = source.kind, source.value
        row[NEGATE] |= source.negate << i
        row[ABSOLUTE] |= source.absolute << i
    row[SELECT] = (
        instruction.number("src0_sel", DWORD)
        | instruction.number("dst_sel", DWORD) << 4
        | instruction.number("dst_unused") << 8
    )
    row[LANES] = _lanes(instruction)
    row[OFFSET] = instruction.number("offset")
    row[DWORDS] = SPECS[instruction.op].dwords
    row[FLAGS] = FLAG_LDS * instruction.number("lds")
    if SPECS[instruction.op].form is Form.GLOBAL_ATOMIC and instruction.destination is not None:
        row[FLAGS] |= FLAG_RETURN
    row[AUX] = _aux(instruction)
    return row


def _decode(object_: CodeObject, lines: Sequence[tuple[int, int, str]]) -> Program:
    rows = {address: i for i, (address, _, _) in enumerate(lines)}
    table = np.empty((len(lines), WIDTH), np.int32)
    known: dict[str, npt.NDArray[np.int32]] = {}
    for i, (address, size, text) in enumerate(lines):
        word = int.from_bytes(object_.image[address : address + 4], "little")
        if not text:
            raise UnknownInstructionError(
                f"cannot decode the word {word:#010x} at pc {address:#x} for {object_.arch}"
            )
        if text not in known:
            try:
                known[text] = lower(parse(text, object_.arch))
            except UnknownInstructionError as error:
                raise UnknownInstructionError(f"{error} (at pc {address:#x})") from error
        table[i] = known[text]
        if SPECS[Op(table[i, OP])].form is Form.BRANCH:
            # The low 16 bits of the encoding count dwords from the next instruction.
            target = address + size + 4 * ((word & 0x7FFF) - (word & 0x8000))
            if target not in rows:
                raise UnknownInstructionError(
                    f"branch at pc {address:#x} must go to an instruction (got {target:#x})"
                )
            table[i, TARGET] = rows[target]
    return Program(object_.arch, np.array(list(rows), np.int64), tuple(line[2] for line in lines), table)


@cache
def _version() -> bytes:
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in _SOURCES)).digest()


def _path(object_: CodeObject, folder: Path) -> Path:
    key = hashlib.sha256(_version() + object_.arch.encode() + object_.image).hexdigest()
    return folder / f"{key[:40]}.npz"


def _read(path: Path, arch: str) -> Program | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            texts = tuple(stored["texts"].tobytes().decode().split("\n"))
            return Program(arch, stored["addresses"], texts, stored["table"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None  # absent, or damaged: decoded again and replaced


def _write(path: Path, program: Program) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = np.frombuffer("\n".join(program.texts).encode(), np.uint8)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        np.savez(file, addresses=program.addresses, table=program.table, texts=texts)
    os.replace(file.name, path)  # noqa: PTH105 (atomic, and keeps the name a string)


def decode(objects: Sequence[CodeObject], cache_dir: Path | None = None) -> list[Program]:
    """Decode code objects, those that are not cached in one run of the disassembler.

    Args:
        objects: Loaded code objects.
        cache_dir: Folder of decoded programs; None decodes without a cache. Entries are keyed by the code,
            the architecture and the decoder's own source, and written atomically.

    Returns:
        A program for each object, in order.

    Raises:
        UnknownInstructionError: An object has an instruction that is not modelled; the message has its text
            and pc.
        InfrastructureError: The disassembler is absent or failed.
    """
    found = [_read(_path(o, cache_dir), o.arch) if cache_dir else None for o in objects]
    missing = [i for i, program in enumerate(found) if program is None]
    if missing:
        jobs = []
        for i in missing:
            start, size = objects[i].text
            jobs.append(Job(objects[i].arch, start, objects[i].image[start : start + size]))
        for i, lines in zip(missing, disassemble(jobs), strict=True):
            program = _decode(objects[i], lines)
            if cache_dir:
                _write(_path(objects[i], cache_dir), program)
            found[i] = program
    return [program for program in found if program is not None]
