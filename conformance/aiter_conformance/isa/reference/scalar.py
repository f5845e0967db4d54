"""Scalar arithmetic, compares and loads, on Python integers.

Source: "AMD Instinct MI300 Instruction Set Architecture", section "Scalar ALU Operations" and the SOP1, SOP2,
SOPK, SOPC and SMEM opcode tables.
"""

from __future__ import annotations

from collections.abc import Callable

from aiter_conformance.isa.assembly import Instruction, Operand
from aiter_conformance.isa.machine import END, START, Fault, FaultKind
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.operands import SPECS
from aiter_conformance.isa.reference.wave import Semantics, Wave, destination_of

_M32 = 0xFFFFFFFF


def signed(value: int) -> int:
    """A 32-bit pattern as a signed number."""
    return value - (1 << 32) if value >> 31 else value


def _unsigned_overflow(value: int) -> bool:
    return not 0 <= value <= _M32


def _signed_overflow(value: int) -> bool:
    return not -(1 << 31) <= value < 1 << 31


def _not_zero(value: int) -> bool:
    return value & ((1 << 64) - 1) != 0


# opcode: (result of wave, a, b; SCC of the unbounded result, or None where SCC stays)
_TWO: dict[Op, tuple[Callable[[Wave, int, int], int], Callable[[int], bool] | None]] = {
    Op.S_ADD_U32: (lambda _, a, b: a + b, _unsigned_overflow),
    Op.S_ADDC_U32: (lambda w, a, b: a + b + w.scc, _unsigned_overflow),
    Op.S_SUB_U32: (lambda _, a, b: a - b, _unsigned_overflow),
    Op.S_ADD_I32: (lambda _, a, b: signed(a) + signed(b), _signed_overflow),
    Op.S_SUB_I32: (lambda _, a, b: signed(a) - signed(b), _signed_overflow),
    Op.S_MUL_I32: (lambda _, a, b: a * b, None),
    Op.S_MUL_HI_U32: (lambda _, a, b: a * b >> 32, None),
    Op.S_AND_B32: (lambda _, a, b: a & b, _not_zero),
    Op.S_AND_B64: (lambda _, a, b: a & b, _not_zero),
    Op.S_OR_B32: (lambda _, a, b: a | b, _not_zero),
    Op.S_LSHL_B32: (lambda _, a, b: a << (b & 31) & _M32, _not_zero),
    Op.S_LSHR_B32: (lambda _, a, b: a >> (b & 31), _not_zero),
    Op.S_LSHL1_ADD_U32: (lambda _, a, b: (a << 1) + b, _unsigned_overflow),
    Op.S_CSELECT_B32: (lambda w, a, b: a if w.scc else b, None),
    Op.S_CSELECT_B64: (lambda w, a, b: a if w.scc else b, None),
}

_COMPARE: dict[Op, Callable[[int, int], bool]] = {
    Op.S_CMP_EQ_U32: lambda a, b: a == b,
    Op.S_CMP_GE_U32: lambda a, b: a >= b,
    Op.S_CMP_GT_U32: lambda a, b: a > b,
    Op.S_CMP_LT_U32: lambda a, b: a < b,
    Op.S_CMP_LT_I32: lambda a, b: signed(a) < signed(b),
}


def _read(wave: Wave, operand: Operand, dwords: int) -> int:
    return wave.scalar64(operand) if dwords == 2 else wave.scalar32(operand)


def two_sources(wave: Wave, instruction: Instruction) -> None:
    """SOP2: a result, and in SCC its carry, overflow or whether it is not zero."""
    compute, condition = _TWO[instruction.op]
    widths = SPECS[instruction.op].source_dwords
    a, b = (_read(wave, s, w) for s, w in zip(instruction.sources, widths, strict=True))
    result = compute(wave, a, b)
    if condition is not None:
        wave.scc = condition(result)
    wave.set_scalar(destination_of(instruction), result)


def move(wave: Wave, instruction: Instruction) -> None:
    """s_mov_b32 and s_mov_b64."""
    destination = destination_of(instruction)
    wave.set_scalar(destination, _read(wave, instruction.sources[0], destination.dwords))


def count_bits(wave: Wave, instruction: Instruction) -> None:
    """s_bcnt1_i32_b64: number of set bits; SCC = not zero."""
    result = wave.scalar64(instruction.sources[0]).bit_count()
    wave.scc = result != 0
    wave.set_scalar(destination_of(instruction), result)


def add_constant(wave: Wave, instruction: Instruction) -> None:
    """s_addk_i32: adds a sign-extended 16-bit constant; SCC = signed overflow."""
    destination = destination_of(instruction)
    constant = instruction.sources[0].value & 0xFFFF
    result = signed(wave.scalar32(destination)) + (constant & 0x7FFF) - (constant & 0x8000)
    wave.scc = _signed_overflow(result)
    wave.set_scalar(destination, result)


def compare(wave: Wave, instruction: Instruction) -> None:
    """SOPC: SCC = the relation."""
    a, b = (wave.scalar32(s) for s in instruction.sources)
    wave.scc = _COMPARE[instruction.op](a, b)


def set_vskip(wave: Wave, instruction: Instruction) -> None:
    """s_setvskip: VSKIP = bit S1[4:0] of S0."""
    a, b = (wave.scalar32(s) for s in instruction.sources)
    wave.set_vskip(a >> (b & 31) & 1)


def load(wave: Wave, instruction: Instruction) -> None:
    """s_load: dwords from base + offset, the low two address bits ignored."""
    base, offset = instruction.sources
    destination = destination_of(instruction)
    address = (wave.scalar64(base) + wave.scalar32(offset)) & ~3
    memory = wave.group.memory
    at, size = address - memory.base, 4 * destination.dwords
    inside = (memory.bounds[:, START] <= at) & (at + size <= memory.bounds[:, END])
    if not inside.any():
        raise Fault(FaultKind.SCALAR_BOUNDS, -1, address)
    wave.s[destination.value : destination.value + destination.dwords] = memory.raw[at : at + size].view(
        "<u4"
    )


SEMANTICS: dict[Op, Semantics] = {
    **dict.fromkeys(_TWO, two_sources),
    **dict.fromkeys(_COMPARE, compare),
    Op.S_MOV_B32: move,
    Op.S_MOV_B64: move,
    Op.S_BCNT1_I32_B64: count_bits,
    Op.S_ADDK_I32: add_constant,
    Op.S_SETVSKIP: set_vskip,
    Op.S_LOAD_DWORD: load,
    Op.S_LOAD_DWORDX2: load,
}
