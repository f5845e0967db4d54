"""Matrix instructions of 16 x 16 tiles.

Source: "AMD Instinct MI300 Instruction Set Architecture", section "Matrix Arithmetic Instructions" (register
layouts); "AMD Instinct CDNA4 Instruction Set Architecture" for the scaled ones. They ignore exec, and on
these architectures they keep denormals whatever MODE says ("Numerical accuracy" of the PyTorch documentation,
for MI300 and later).

Lane l holds row (or column) l % 16 and the l // 16-th quarter of k. Result register r of lane l is row
4 * (l // 16) + r, column l % 16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from aiter_conformance.isa.assembly import Instruction, Operand
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.operands import SPECS
from aiter_conformance.isa.reference.wave import QUIET_NAN, Semantics, Wave, destination_of

_TILE = 16
_QUARTERS = 4
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
F64 = npt.NDArray[np.float64]


def _fp8(wave: Wave, raw: npt.NDArray[np.uint8]) -> F64:
    values: F64 = raw.view(getattr(ml_dtypes, wave.arch.fp8)).astype(np.float64)
    return values


def _fp4(_: Wave, raw: npt.NDArray[np.uint8]) -> F64:
    return _FP4[np.stack([raw & 15, raw >> 4], axis=-1).reshape(len(raw), -1)]


_UNPACK: dict[Op, Callable[[Wave, npt.NDArray[np.uint8]], F64]] = {
    Op.V_MFMA_F32_16X16X16_BF16: lambda _, raw: raw.view(ml_dtypes.bfloat16).astype(np.float64),
    Op.V_MFMA_F32_16X16X16_F16: lambda _, raw: raw.view(np.float16).astype(np.float64),
    Op.V_MFMA_F32_16X16X32_FP8_FP8: _fp8,
    Op.V_MFMA_I32_16X16X32_I8: lambda _, raw: raw.view(np.int8).astype(np.float64),
    Op.V_MFMA_F32_16X16X128_F8F6F4: _fp8,
    Op.V_MFMA_SCALE_F32_16X16X128_F8F6F4: _fp4,
}


def _lanes(wave: Wave, operand: Operand, dwords: int, op: Op) -> F64:
    """float64 [64, elements]: the elements that each lane holds."""
    raw = np.ascontiguousarray(wave.v[operand.value : operand.value + dwords].T)
    return _UNPACK[op](wave, raw.view(np.uint8))


def _rows(lanes: F64) -> F64:
    """[64, elements] to [16, k]."""
    return lanes.reshape(_QUARTERS, _TILE, -1).transpose(1, 0, 2).reshape(_TILE, -1)


def _scale(wave: Wave, operand: Operand, byte: int) -> F64:
    """float64 [64, 1]: 2 to the e8m0 exponent in a byte of each lane's register; 255 is NaN."""
    exponent = (wave.read(operand) >> np.uint32(8 * byte) & np.uint32(0xFF)).astype(np.int64)
    return np.where(exponent == 255, np.nan, np.ldexp(1.0, exponent - 127))[:, None]


def _accumulators(wave: Wave, operand: Operand, dtype: Any) -> F64:
    """float64 [16, 16]."""
    registers = np.stack([wave.read(operand, r) for r in range(4)]).view(dtype)
    rows = registers.reshape(4, _QUARTERS, _TILE).transpose(1, 0, 2).reshape(_TILE, _TILE)
    return np.array(rows, np.float64)


def multiply(wave: Wave, instruction: Instruction) -> None:
    """D = A B + C."""
    op = instruction.op
    a, b = (_lanes(wave, instruction.sources[i], SPECS[op].source_dwords[i], op) for i in range(2))
    if op is Op.V_MFMA_SCALE_F32_16X16X128_F8F6F4:
        low, high = instruction.bits("op_sel", 3), instruction.bits("op_sel_hi", 3)
        a = a * _scale(wave, instruction.sources[3], low[0] + 2 * high[0])
        b = b * _scale(wave, instruction.sources[4], low[1] + 2 * high[1])
    a, b = _rows(a), _rows(b)
    integer = op is Op.V_MFMA_I32_16X16X32_I8
    total = np.zeros((_TILE, _TILE))
    for k in range(a.shape[1]):
        total += np.outer(a[:, k], b[:, k])
    total += _accumulators(wave, instruction.sources[2], np.int32 if integer else np.float32)
    if integer:
        bits = total.astype(np.int64).astype(np.uint32)
    else:
        bits = np.where(np.isnan(total), QUIET_NAN, total.astype(np.float32).view(np.uint32))
    result = bits.reshape(_QUARTERS, 4, _TILE).transpose(1, 0, 2).reshape(4, -1)
    first = destination_of(instruction).value
    wave.v[first : first + 4] = result


SEMANTICS: dict[Op, Semantics] = dict.fromkeys(_UNPACK, multiply)
