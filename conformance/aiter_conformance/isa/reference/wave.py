"""What instruction semantics see of a wave: operands with their modifiers applied, results under exec."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from aiter_conformance.isa.arch import ARCHES, MODE_FP32_DENORM, Arch
from aiter_conformance.isa.assembly import EXEC, Instruction, Kind, Operand
from aiter_conformance.isa.decode import DWORD
from aiter_conformance.isa.machine import LANES, PC, SCC, VSKIP, Workgroup

U32: TypeAlias = npt.NDArray[np.uint32]
F32: TypeAlias = npt.NDArray[np.float32]
Mask: TypeAlias = npt.NDArray[np.bool_]

LANE = np.arange(LANES, dtype=np.uint32)
QUIET_NAN = np.uint32(0x7FC00000)
_SIGN = np.uint32(0x80000000)
_EXPONENT = np.uint32(0x7F800000)


def flush(bits: U32) -> U32:
    """Float32 denormals become zero of the same sign."""
    return np.where(bits & _EXPONENT == 0, bits & _SIGN, bits)


def select(bits: U32, field: int) -> U32:
    """The byte (0-3), word (4-5) or dword (6) of an SDWA select, at bit 0."""
    if field < 4:
        return bits >> np.uint32(8 * field) & np.uint32(0xFF)
    if field < DWORD:
        return bits >> np.uint32(16 * (field - 4)) & np.uint32(0xFFFF)
    return bits


class Wave:
    """One wave of a work-group."""

    def __init__(self, group: Workgroup, index: int) -> None:
        self.group = group
        self.v = group.vector[index]
        self.s = group.scalar[index]
        self._status = group.status[index]

    @property
    def arch(self) -> Arch:
        """The architecture that runs it."""
        return ARCHES[self.group.program.arch]

    @property
    def scc(self) -> int:
        """The scalar condition code."""
        return int(self._status[SCC])

    @scc.setter
    def scc(self, value: bool | int) -> None:
        self._status[SCC] = int(value)

    def set_vskip(self, value: int) -> None:
        """Set the bit that makes vector instructions do nothing."""
        self._status[VSKIP] = value

    @property
    def row(self) -> int:
        """Row of the current instruction."""
        return int(self._status[PC])

    @property
    def flushes(self) -> bool:
        """Whether MODE flushes float32 denormals."""
        return self.group.mode & MODE_FP32_DENORM == 0

    @property
    def active(self) -> Mask:
        """Bool [64], exec by lane."""
        return self.lane_mask(self.scalar64(Operand(Kind.SCALAR, EXEC, 2)))

    @staticmethod
    def lane_mask(bits: int) -> Mask:
        """Bool [64] from a 64-bit mask."""
        return np.unpackbits(np.array([bits], "<u8").view(np.uint8), bitorder="little").astype(bool)

    def scalar32(self, operand: Operand) -> int:
        """A 32-bit scalar source, unsigned."""
        return int(self.s[operand.value]) if operand.kind is Kind.SCALAR else operand.value & 0xFFFFFFFF

    def scalar64(self, operand: Operand) -> int:
        """A 64-bit scalar source, unsigned; constants are sign-extended."""
        if operand.kind is Kind.SCALAR:
            return int(self.s[operand.value]) | int(self.s[operand.value + 1]) << 32
        return operand.value & 0xFFFFFFFFFFFFFFFF

    def set_scalar(self, operand: Operand, value: int) -> None:
        """Write a scalar of the destination's width."""
        for i in range(operand.dwords):
            self.s[operand.value + i] = np.uint32(value >> 32 * i & 0xFFFFFFFF)

    def read(self, operand: Operand, part: int = 0) -> U32:
        """uint32 [64]: register ``part`` of an operand, without modifiers; a constant has one value."""
        if operand.kind is Kind.VECTOR:
            return np.array(self.v[operand.value + part])
        if operand.kind is Kind.SCALAR:
            return np.full(LANES, self.s[operand.value + part])
        return np.full(LANES, operand.value & 0xFFFFFFFF, np.uint32)

    def source(self, instruction: Instruction, i: int) -> U32:
        """uint32 [64]: source ``i`` with lane permutation, SDWA select and sign modifiers."""
        operand = instruction.sources[i]
        bits = self.read(operand)
        if i == 0:
            lanes = source_lanes(instruction)
            if lanes is not None:
                bits = bits[lanes]
            bits = select(bits, instruction.number("src0_sel", DWORD))
        if operand.absolute:
            bits = bits & ~_SIGN
        if operand.negate:
            bits = bits ^ _SIGN
        return bits

    def floats(self, instruction: Instruction, i: int) -> F32:
        """float32 [64]: source ``i`` with all modifiers, denormals flushed where MODE says so."""
        bits = self.source(instruction, i)
        return (flush(bits) if self.flushes else bits).view(np.float32)

    def float_bits(self, values: F32) -> U32:
        """Bits of an arithmetic result: canonical NaN, denormals flushed where MODE says so."""
        bits = np.where(np.isnan(values), QUIET_NAN, values.astype(np.float32).view(np.uint32))
        return flush(bits) if self.flushes else bits

    def write(self, operand: Operand, bits: U32, part: int = 0, mask: Mask | None = None) -> None:
        """Write register ``part`` of a vector destination in the active lanes (or in those of a mask)."""
        np.copyto(self.v[operand.value + part], bits, where=self.active if mask is None else mask)

    def write_result(self, instruction: Instruction, bits: U32) -> None:
        """Write a 32-bit result with SDWA destination select and DPP's write disable."""
        destination = destination_of(instruction)
        field = instruction.number("dst_sel", DWORD)
        if field != DWORD:
            width, at = (8, 8 * field) if field < 4 else (16, 16 * (field - 4))
            hole = np.uint32(((1 << width) - 1) << at)
            kept = self.read(destination) & ~hole if instruction.number("dst_unused") else np.uint32(0)
            bits = kept | (bits << np.uint32(at) & hole)
        active = self.active
        lanes = source_lanes(instruction)
        # A lane whose source lane is switched off keeps its old value (DPP without bound control).
        self.write(destination, bits, mask=active if lanes is None else active & active[lanes])


def destination_of(instruction: Instruction) -> Operand:
    """The destination of an instruction that has one."""
    if instruction.destination is None:
        raise TypeError(f"{instruction.op.name} must have a destination (got none)")
    return instruction.destination


def source_lanes(instruction: Instruction) -> npt.NDArray[np.uint32] | None:
    """[64] lane that source 0 of each lane comes from, None without DPP."""
    if "row_newbcast" in instruction.modifiers:
        return np.array(LANE & ~np.uint32(15) | np.uint32(instruction.number("row_newbcast")))
    if "quad_perm" in instruction.modifiers:
        quad = np.array(instruction.bits("quad_perm", 4), np.uint32)
        return np.array(LANE & ~np.uint32(3) | quad[LANE & 3])
    if "row_half_mirror" in instruction.modifiers:
        return np.array(LANE ^ np.uint32(7))
    return None


Semantics: TypeAlias = Callable[[Wave, Instruction], None]
