"""Compares into lane masks, and moves between lanes or between lanes and scalars.

Source: "AMD Instinct MI300 Instruction Set Architecture", VOPC and VOP3 opcode tables; "AMD Instinct CDNA4
Instruction Set Architecture" for the lane swaps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aiter_conformance.isa.assembly import Instruction
from aiter_conformance.isa.machine import LANES
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.reference.wave import U32, Mask, Semantics, Wave, destination_of

_COMPARE: dict[Op, Callable[[U32, U32], Mask]] = {
    Op.V_CMP_EQ_U32: np.equal,
    Op.V_CMP_NE_U32: np.not_equal,
    Op.V_CMP_LT_U32: np.less,
    Op.V_CMP_LE_U32: np.less_equal,
    Op.V_CMP_GT_U32: np.greater,
    Op.V_CMP_U_F32: lambda a, b: np.isnan(a.view(np.float32)) | np.isnan(b.view(np.float32)),
}


def compare(wave: Wave, instruction: Instruction) -> None:
    """One bit a lane into a scalar pair; inactive lanes give 0."""
    bits = _COMPARE[instruction.op](wave.source(instruction, 0), wave.source(instruction, 1)) & wave.active
    wave.set_scalar(destination_of(instruction), int(np.packbits(bits, bitorder="little").view("<u8")[0]))


def read_first_lane(wave: Wave, instruction: Instruction) -> None:
    """v_readfirstlane_b32: of the first active lane, lane 0 if none is."""
    wave.set_scalar(destination_of(instruction), int(wave.source(instruction, 0)[np.argmax(wave.active)]))


def read_lane(wave: Wave, instruction: Instruction) -> None:
    """v_readlane_b32: of a lane named by a scalar, active or not."""
    lane = wave.scalar32(instruction.sources[1]) % LANES
    wave.set_scalar(destination_of(instruction), int(wave.source(instruction, 0)[lane]))


def write_lane(wave: Wave, instruction: Instruction) -> None:
    """v_writelane_b32: to a lane named by a scalar, active or not."""
    lane = wave.scalar32(instruction.sources[1]) % LANES
    wave.v[destination_of(instruction).value, lane] = wave.scalar32(instruction.sources[0])


def swap_rows(wave: Wave, instruction: Instruction) -> None:
    """v_permlane*_swap: odd rows of the first with even rows of the second; exec is ignored."""
    row = 16 if instruction.op is Op.V_PERMLANE16_SWAP_B32 else 32
    first = wave.v[destination_of(instruction).value].reshape(-1, 2, row)
    second = wave.v[instruction.sources[0].value].reshape(-1, 2, row)
    odd = first[:, 1].copy()
    first[:, 1] = second[:, 0]
    second[:, 0] = odd


SEMANTICS: dict[Op, Semantics] = {
    **dict.fromkeys(_COMPARE, compare),
    Op.V_READFIRSTLANE_B32: read_first_lane,
    Op.V_READLANE_B32: read_lane,
    Op.V_WRITELANE_B32: write_lane,
    Op.V_PERMLANE16_SWAP_B32: swap_rows,
    Op.V_PERMLANE32_SWAP_B32: swap_rows,
}
