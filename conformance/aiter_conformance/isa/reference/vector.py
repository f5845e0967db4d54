"""Vector integer and float32 arithmetic, lane by lane.

Source: "AMD Instinct MI300 Instruction Set Architecture", VOP1, VOP2, VOP3A and VOP3P opcode tables; IEEE 754
for the float32 results. The kernels' MODE has IEEE and DX10_CLAMP off, so a maximum ignores a NaN operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aiter_conformance.isa.assembly import Instruction
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.reference.wave import F32, LANE, U32, Semantics, Wave, destination_of, flush

_31 = np.uint32(31)
_LOW_24 = np.uint32(0xFFFFFF)


def _wide(a: U32) -> Any:
    return a.astype(np.uint64)


def _signed24(a: U32) -> Any:
    return (a << np.uint32(8)).view(np.int32).astype(np.int64) >> 8


def _bit_field(a: U32, b: U32, c: U32) -> U32:
    width = c & _31
    field: U32 = a >> (b & _31) & ((np.uint32(1) << width) - np.uint32(1))
    return field


def _permute_bytes(a: U32, b: U32, selector: U32) -> U32:
    """Choices 0-3 are bytes of b, 4-7 of a; 8-11 replicate a sign, 12 is 0, above 12 is 0xff."""
    source = _wide(a) << np.uint64(32) | _wide(b)
    result = np.zeros_like(a)
    for byte in range(4):
        choice = selector >> np.uint32(8 * byte) & np.uint32(0xFF)
        picked = source >> _wide(np.minimum(choice, 7) * np.uint32(8)) & np.uint64(0xFF)
        for code, bit in ((8, 15), (9, 31), (10, 47), (11, 63)):
            picked = np.where(
                choice == code, (source >> np.uint64(bit) & np.uint64(1)) * np.uint64(0xFF), picked
            )
        picked = np.where(choice == 12, 0, np.where(choice > 12, 0xFF, picked))
        result |= picked.astype(np.uint32) << np.uint32(8 * byte)
    return result


def _masked_count(lanes_below: U32) -> Callable[[U32, U32], U32]:
    mask = ((np.uint64(1) << lanes_below.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
    return lambda a, b: np.bitwise_count(a & mask).astype(np.uint32) + b


_INTEGER: dict[Op, Callable[..., U32]] = {
    Op.V_MOV_B32: lambda a: a,
    Op.V_ACCVGPR_READ_B32: lambda a: a,
    Op.V_ACCVGPR_WRITE_B32: lambda a: a,
    Op.V_ADD_U32: lambda a, b: a + b,
    Op.V_ADD_I32: lambda a, b: a + b,
    Op.V_SUB_U32: lambda a, b: a - b,
    Op.V_SUBREV_U32: lambda a, b: b - a,
    Op.V_MUL_LO_U32: lambda a, b: a * b,
    Op.V_MUL_HI_U32: lambda a, b: (_wide(a) * _wide(b) >> np.uint64(32)).astype(np.uint32),
    Op.V_MUL_U32_U24: lambda a, b: (a & _LOW_24) * (b & _LOW_24),
    Op.V_MUL_I32_I24: lambda a, b: (_signed24(a) * _signed24(b)).astype(np.uint32),
    Op.V_MIN_U32: np.minimum,
    Op.V_AND_B32: lambda a, b: a & b,
    Op.V_OR_B32: lambda a, b: a | b,
    Op.V_XOR_B32: lambda a, b: a ^ b,
    Op.V_LSHLREV_B32: lambda a, b: b << (a & _31),
    Op.V_LSHRREV_B32: lambda a, b: b >> (a & _31),
    Op.V_ADD3_U32: lambda a, b, c: a + b + c,
    Op.V_LSHL_ADD_U32: lambda a, b, c: (a << (b & _31)) + c,
    Op.V_BFE_U32: _bit_field,
    Op.V_PERM_B32: _permute_bytes,
    Op.V_MBCNT_LO_U32_B32: _masked_count(np.minimum(LANE, 32)),
    Op.V_MBCNT_HI_U32_B32: _masked_count(np.maximum(LANE, 32) - np.uint32(32)),
}


def fused_multiply_add(a: F32, b: F32, c: F32) -> F32:
    """A * b + c with one rounding.

    The product is exact in float64. The sum is rounded to odd there (the last bit is set when bits were
    lost), which makes the second rounding to float32 correct (Boldo and Melquiond, "Emulation of FMA and
    correctly rounded sums").
    """
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    even = total.view(np.uint64) & np.uint64(1) == 0
    odd = np.where(lost > 0, np.nextafter(total, np.inf), np.nextafter(total, -np.inf))
    inexact = np.isfinite(total) & (lost != 0)
    return np.where(inexact & even, odd, total).astype(np.float32)


def maximum(a: F32, b: F32) -> F32:
    """The larger; +0 is larger than -0; a NaN operand loses."""
    larger = (a > b) | ((a == b) & ~np.signbit(a)) | np.isnan(b)
    return np.where(larger & ~np.isnan(a), a, b)


def _exp2(a: F32) -> F32:
    return np.exp2(a.astype(np.float64)).astype(np.float32)


_FLOAT: dict[Op, Callable[..., F32]] = {
    Op.V_ADD_F32: lambda a, b: a + b,
    Op.V_MUL_F32: lambda a, b: a * b,
    Op.V_FMA_F32: fused_multiply_add,
    Op.V_MAX_F32: maximum,
    Op.V_MAX3_F32: lambda a, b, c: maximum(maximum(a, b), c),
    Op.V_EXP_F32: _exp2,
    Op.V_RCP_F32: lambda a: np.float32(1) / a,
    Op.V_RCP_IFLAG_F32: lambda a: np.float32(1) / a,
}
_PACKED: dict[Op, Callable[..., F32]] = {
    Op.V_PK_MUL_F32: lambda a, b: a * b,
    Op.V_PK_FMA_F32: fused_multiply_add,
}


def integer(wave: Wave, instruction: Instruction) -> None:
    """Integer and bit operations."""
    sources = (wave.source(instruction, i) for i in range(len(instruction.sources)))
    wave.write_result(instruction, _INTEGER[instruction.op](*sources))


def floating(wave: Wave, instruction: Instruction) -> None:
    """Float32 operations."""
    sources = (wave.floats(instruction, i) for i in range(len(instruction.sources)))
    wave.write_result(instruction, wave.float_bits(_FLOAT[instruction.op](*sources)))


def packed(wave: Wave, instruction: Instruction) -> None:
    """Two float32 operations on register pairs: low with low, high with high.

    A constant is the same in both halves; a scalar source is a pair.
    """
    halves = []
    for part in range(2):
        sources = [wave.read(s, part) for s in instruction.sources]
        floats = [(flush(x) if wave.flushes else x).view(np.float32) for x in sources]
        halves.append(wave.float_bits(_PACKED[instruction.op](*floats)))
    for part, bits in enumerate(halves):
        wave.write(destination_of(instruction), bits, part)


def conditional_mask(wave: Wave, instruction: Instruction) -> None:
    """v_cndmask_b32: source 1 in the lanes whose bit is set in the mask, else source 0."""
    mask = wave.lane_mask(wave.scalar64(instruction.sources[2]))
    wave.write_result(instruction, np.where(mask, wave.source(instruction, 1), wave.source(instruction, 0)))


SEMANTICS: dict[Op, Semantics] = {
    **dict.fromkeys(_INTEGER, integer),
    **dict.fromkeys(_FLOAT, floating),
    **dict.fromkeys(_PACKED, packed),
    Op.V_CNDMASK_B32: conditional_mask,
}
