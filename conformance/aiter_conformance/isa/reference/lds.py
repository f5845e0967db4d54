"""Local data share.

Source: "AMD Instinct MI300 Instruction Set Architecture", section "Data Share Operations". Hardware gives 0
for a read outside the allocation and drops such a write; both are faults here. An access may have any dword
alignment.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aiter_conformance.isa.assembly import Instruction, Operand
from aiter_conformance.isa.machine import LANES, Fault, FaultKind
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.reference.wave import Semantics, Wave, destination_of

_BYTES = {
    Op.DS_READ_U8: 1,
    Op.DS_READ_B32: 4,
    Op.DS_READ_B64: 8,
    Op.DS_READ_B128: 16,
    Op.DS_WRITE_B8: 1,
    Op.DS_WRITE_B16: 2,
    Op.DS_WRITE_B32: 4,
    Op.DS_WRITE_B64: 8,
    Op.DS_WRITE_B128: 16,
}


def check(wave: Wave, addresses: npt.NDArray[np.int64], size: int) -> None:
    """Check the active lanes' accesses of ``size`` bytes at int64 [64] addresses.

    Raises:
        Fault: One is misaligned or outside the allocation; the lowest lane is named.
    """
    for lane in np.flatnonzero(wave.active):
        address = int(addresses[lane])
        if address % min(size, 4):
            raise Fault(FaultKind.LDS_ALIGNMENT, int(lane), address)
        if not 0 <= address <= len(wave.group.lds) - size:
            raise Fault(FaultKind.LDS_BOUNDS, int(lane), address)


def _addresses(wave: Wave, operand: Operand, instruction: Instruction) -> npt.NDArray[np.int64]:
    return wave.read(operand).astype(np.int64) + instruction.number("offset")


def read(wave: Wave, instruction: Instruction) -> None:
    """ds_read: zero-extended bytes, or dwords."""
    size = _BYTES[instruction.op]
    addresses = _addresses(wave, instruction.sources[0], instruction)
    check(wave, addresses, size)
    destination = destination_of(instruction)
    for lane in np.flatnonzero(wave.active):
        raw = wave.group.lds[addresses[lane] : addresses[lane] + size]
        words = raw.view("<u4") if size >= 4 else raw
        wave.v[destination.value : destination.value + destination.dwords, lane] = words


def write(wave: Wave, instruction: Instruction) -> None:
    """ds_write: the low bytes of the data; where lanes collide the highest wins."""
    size = _BYTES[instruction.op]
    addresses = _addresses(wave, instruction.sources[0], instruction)
    check(wave, addresses, size)
    data = np.stack([wave.read(instruction.sources[1], r) for r in range(max(size // 4, 1))], axis=1)
    raw = data.view(np.uint8).reshape(LANES, -1)[:, :size]
    for lane in np.flatnonzero(wave.active):
        wave.group.lds[addresses[lane] : addresses[lane] + size] = raw[lane]


def permute(wave: Wave, instruction: Instruction) -> None:
    """ds_bpermute_b32: data of the lane named by address / 4; a lane that is switched off gives 0."""
    lanes = _addresses(wave, instruction.sources[0], instruction) // 4 % LANES
    data = np.where(wave.active, wave.read(instruction.sources[1]), np.uint32(0))
    wave.write(destination_of(instruction), data[lanes])


SEMANTICS: dict[Op, Semantics] = {
    **{op: read if op.name.startswith("DS_READ") else write for op in _BYTES},
    Op.DS_BPERMUTE_B32: permute,
}
