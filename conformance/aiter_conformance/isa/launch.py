"""Launching AITER's assembly MoE kernels as its host code does: kernarg segments and grids.

Facts from AITER v0.1.20.post1 (``csrc/py_itfs_cu/asm_moe_2stage.cu`` and ``asm_fmoe.cu``): every argument has
a slot of 16 bytes, pointers first. The names are those of the code objects' own metadata, which every launch
is checked against.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.isa.codeobject import CodeObject
from aiter_conformance.isa.decode import Program
from aiter_conformance.isa.execute import BUDGET, QUANTUM, Core, Execution, execute
from aiter_conformance.isa.machine import Buffer, Memory

_SLOT = 16
_KERNARG = "kernarg"
# A few one-stage objects carry longer names for the same slots.
_ALIASES = {
    "R": "O",
    "GsmQ": "SMQ",
    "dim_len": "dim",
    "hidden_len": "hdim",
    "token_cnt": "batch",
    "eprt_cnt": "eprt",
    "stride_X": "Xs",
    "stride_GU": "GUs",
    "stride_D": "Ds",
    "stride_R": "Os",
    "stride_expert_GU": "eGUs",
    "stride_expert_D": "eDs",
    "stride_expert_GUQ": "eGUQs",
    "stride_expert_DQ": "eDQs",
    "stride_expert_GsmQ": "eSMQs",
    "_s_total_tgs": "total_tgs",
    "_pad_total_tgs": "total_tgs",
    "_s_deno_tgs": "ps_deno",
    "_pad_ps_deno": "ps_deno",
}


class Family(enum.Enum):
    """Kernel families by kernarg layout: the names of their pointer and integer slots."""

    STAGE1 = (
        ("O", "X", "G", "Xc", "XQ", "GQ", "SMQ", "STP", "SEP"),
        (
            "dim",
            "hdim",
            "batch",
            "eprt",
            "Xs",
            "GUs",
            "Os",
            "eGUs",
            "eGUQs",
            "eSMQs",
            "topk",
            "splitk",
            "activation",
        ),
        ("SW",),
        ("total_tgs", "ps_deno"),
    )
    ONE_STAGE = (
        ("O", "X", "G", "U", "D", "XQ", "GQ", "DQ", "SMQ", "STP", "SW", "SEP"),
        (
            "dim",
            "hdim",
            "batch",
            "eprt",
            "Xs",
            "GUs",
            "Ds",
            "Os",
            "eGUs",
            "eDs",
            "eGUQs",
            "eDQs",
            "eSMQs",
            "topk",
        ),
        (),
        ("total_tgs", "ps_deno"),
    )

    @property
    def slots(self) -> dict[str, tuple[int, int]]:
        """Offset and size in bytes of each slot's value."""
        names: list[tuple[str, int]] = []
        for group, size in zip(self.value, (8, 4, 8, 4), strict=True):
            names += [(name, size) for name in group]
        return {name: (_SLOT * i, size) for i, (name, size) in enumerate(names)}


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        family: Its kernarg layout.
        buffers: Slot name to allocation; a slot without one is a null pointer.
        integers: Slot name to value; a slot without one is 0.
        grid: Work-groups along x, y, z.
        threads: Threads of a work-group.
    """

    family: Family
    buffers: Mapping[str, Buffer]
    integers: Mapping[str, int]
    grid: tuple[int, int, int]
    threads: int = field(default=256)


@dataclass(frozen=True, slots=True)
class Result:
    """What a launch gave.

    Attributes:
        outputs: Slot name to contents after the run, of the writable buffers.
        execution: What ran.
    """

    outputs: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]
    execution: Execution


def check_metadata(code: CodeObject, family: Family) -> None:
    """Check that a code object's own argument list is that of the family.

    Raises:
        InfrastructureError: An argument that the metadata names is elsewhere, or not in the layout.
    """
    kernel = code.only_kernel()
    slots = family.slots
    for argument in kernel.arguments:
        name = _ALIASES.get(argument.name, argument.name)
        if name in ("pad", "", "a2", "a2q"):  # padding; a2 and a2q are never loaded
            continue
        if name not in slots or slots[name][0] != argument.offset:
            raise InfrastructureError(
                f"argument {argument.name} of {kernel.name} must be at {slots.get(name, ('no slot',))[0]} "
                f"in the layout {family.name} (got offset {argument.offset})"
            )


def _fill(memory: Memory, launch: Launch) -> None:
    """Write the kernarg segment into its buffer."""
    start = memory.address(_KERNARG) - memory.base
    for name, (offset, size) in launch.family.slots.items():
        buffer = launch.buffers.get(name)
        value = memory.address(buffer.name) if buffer else launch.integers.get(name, 0)
        if not 0 <= value < 1 << 8 * size:
            raise UsageError(f"kernel argument {name} must fit {size} bytes (got {value})")
        memory.raw[start + offset : start + offset + size] = np.frombuffer(
            value.to_bytes(size, "little"), np.uint8
        )


def run(
    code: CodeObject,
    program: Program,
    launch: Launch,
    *,
    core: Core,
    slack: int = 0,
    quantum: int = QUANTUM,
    budget: int = BUDGET,
) -> Result:
    """Run one launch.

    Args:
        code: The code object; it has one kernel.
        program: It decoded.
        launch: Arguments and grid.
        core: The interpreter.
        slack: Bytes past each allocation that may be read; uses are reported.
        quantum: Instructions a wave runs before the next one's turn.
        budget: Instructions a wave may execute.

    Raises:
        KernelFaultError: The kernel did something that it must not.
        InfrastructureError: The object's metadata does not fit the family's layout.
        UsageError: An argument that does not fit, or names that are no slots.
    """
    check_metadata(code, launch.family)
    unknown = {*launch.buffers, *launch.integers} - launch.family.slots.keys()
    if unknown:
        raise UsageError(f"arguments must be slots of {launch.family.name} (got {sorted(unknown)})")
    segment = np.zeros(max(code.only_kernel().kernarg_bytes, _SLOT * len(launch.family.slots)), np.uint8)
    buffers: Sequence[Buffer] = [*launch.buffers.values(), Buffer(_KERNARG, segment)]
    memory = Memory(buffers, slack=slack)
    _fill(memory, launch)
    execution = execute(
        program,
        code.only_kernel(),
        memory,
        kernarg=_KERNARG,
        grid=launch.grid,
        threads=launch.threads,
        core=core,
        quantum=quantum,
        budget=budget,
    )
    outputs = {
        slot: memory.contents(buffer.name) for slot, buffer in launch.buffers.items() if buffer.writable
    }
    return Result(outputs, execution)
