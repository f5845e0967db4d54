"""The two cores against each other: every opcode, random operands, modifiers, exec masks and MODE.

They share only the parser: the reference works from the text with NumPy and ml_dtypes, the fast core from the
table with bit operations. A difference in any register, in LDS or in memory is an error, and every opcode
must be reached.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aiter_conformance.isa import fast, reference
from aiter_conformance.isa.decode import Program
from aiter_conformance.isa.machine import VECTOR_ROWS, Buffer, KernelFaultError, Memory, Workgroup
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.operands import SPECS, Form
from aiter_conformance.isa.reference import core as reference_core

ROUNDS = 40
MODES = (0xC0, 0xC0, 0xF0, 0xC0 | 1 << 23)
LDS_BYTES = 8192
BUFFER_BYTES = 4096
# Values where formats round, overflow, go denormal or change meaning.
SPECIAL = np.array(
    [
        *(
            0,
            1,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.0**-9,
            2.0**-10,
            2.0**-24,
            2.0**-25,
            2.0**-126,
            2.0**-127,
            2.0**-149,
        ),
        *(
            6.0,
            5.0,
            0.25,
            0.75,
            240.0,
            248.0,
            448.0,
            464.0,
            464.1,
            65504.0,
            65519.99,
            65520.0,
            3.4e38,
            -3.4e38,
        ),
        *(2.0**31, -(2.0**31), 2.0**32, np.inf, -np.inf, np.nan, 127.0, -126.5, 128.0, -149.0),
    ],
    np.float32,
).view(np.uint32)
INTEGERS = np.array([0, 1, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FC00001, 0x7F800001], np.uint32)
CONSTANTS = ("0", "1", "64", "-16", "0.5", "-4.0", "0x3f8147ae", "0x80000000", "0xffff")


class Writer:
    """Writes random lines of one opcode."""

    def __init__(self, op: Op, rng: random.Random) -> None:
        self.op, self.rng, self.spec = op, rng, SPECS[op]

    def register(self, letter: str, dwords: int, low: int = 0, high: int = 28) -> str:
        """A register, or an even range of them."""
        first = self.rng.randrange(low, high)
        first -= first % 2 if letter == "s" and dwords > 1 else 0
        return f"{letter}{first}" if dwords == 1 else f"{letter}[{first}:{first + dwords - 1}]"

    def source(self, dwords: int, *, vector_only: bool = False) -> str:
        """A vector register, or now and then a scalar or a constant."""
        kind = "v" if vector_only else self.rng.choice(["v", "v", "v", "s", "constant"])
        if kind == "constant":
            return self.rng.choice(CONSTANTS)
        text = self.register(kind, dwords)
        if self.spec.signs and self.rng.random() < 0.4:
            text = self.rng.choice(["-{}", "|{}|", "-|{}|"]).format(text)
        return text

    def modifiers(self) -> str:
        """Modifiers that the opcode may carry."""
        known, rng = self.spec.modifiers, self.rng
        found = ""
        if "row_mask" in known and rng.random() < 0.5:
            quad = ",".join(str(rng.randrange(4)) for _ in range(4))
            choices = [f"row_newbcast:{rng.randrange(16)}", f"quad_perm:[{quad}]", "row_half_mirror"]
            found += f" {rng.choice(choices)} row_mask:0xf bank_mask:0xf"
        if "dst_sel" in known and rng.random() < 0.7:
            parts = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"]
            unused = rng.choice(["UNUSED_PAD", "UNUSED_PRESERVE"])
            found += f" dst_sel:{rng.choice(parts)} dst_unused:{unused} src0_sel:{rng.choice(parts)}"
        if "op_sel" in known:
            count = 4 if self.op is Op.V_CVT_SCALEF32_PK_FP4_F32 else 3
            found += " op_sel:[" + ",".join(str(rng.randrange(2)) for _ in range(count)) + "]"
        if "op_sel_hi" in known:
            found += f" op_sel_hi:[{rng.randrange(2)},{rng.randrange(2)},0] cbsz:4 blgp:4"
        if "offset" in known and rng.random() < 0.7:
            found += f" offset:{4 * rng.randrange(16)}"
        return found

    def line(self) -> str:
        """One random line."""
        name, form, spec, rng = self.op.name.lower(), self.spec.form, self.spec, self.rng
        scalars = [rng.choice([self.register("s", d), rng.choice(CONSTANTS)]) for d in spec.source_dwords]
        operands: list[str]
        if form in (Form.NONE, Form.IMMEDIATE, Form.BRANCH):
            return f"{name} 0" if form is Form.IMMEDIATE else name
        if form is Form.COMPARE:
            operands = scalars
        elif form is Form.SCALAR_K:
            operands = [self.register("s", 1), hex(rng.randrange(1 << 16))]
        elif form is Form.SCALAR:
            operands = [
                rng.choice([self.register("s", spec.dwords), *["vcc"] * (spec.dwords == 2)]),
                *scalars,
            ]
        elif form is Form.SCALAR_LOAD:
            operands = [
                self.register("s", spec.dwords),
                "s[90:91]",
                rng.choice([hex(4 * rng.randrange(64)), "s40"]),
            ]
        elif form is Form.SWAP:
            operands = rng.sample([f"v{i}" for i in range(28)], 2)
        elif form is Form.MATRIX:
            operands = self.matrix()
        elif form in (Form.LDS_READ, Form.LDS_WRITE, Form.LDS_PERMUTE):
            operands = [self.register("v", d) for d in spec.source_dwords[1:]]
            operands = (
                ["v30", *operands]
                if form is Form.LDS_WRITE
                else [self.register("v", spec.dwords), "v30", *operands]
            )
        elif form in (Form.BUFFER_LOAD, Form.BUFFER_STORE):
            return self.buffer()
        elif form in (Form.GLOBAL_LOAD, Form.GLOBAL_STORE, Form.GLOBAL_ATOMIC):
            operands = self.by_address()
        else:
            operands = self.vector()
        return f"{name} {', '.join(operands)}{self.modifiers()}"

    def matrix(self) -> list[str]:
        """D, A, B, C and scales; D may be C."""
        dwords = self.spec.source_dwords
        d = self.register("v", 4)
        a, b = (self.register(self.rng.choice("va"), n) for n in dwords[:2])
        c = self.rng.choice([d, self.register("v", 4), "0", "1.0"])
        return [d, a, b, c, *(self.register("v", 1) for _ in dwords[3:])]

    def buffer(self) -> str:
        """To or from registers, or to LDS."""
        name, data = self.op.name.lower(), self.register("v", self.spec.dwords)
        offset = self.rng.choice(["0", "s41"])
        if "lds" in self.spec.modifiers and self.rng.random() < 0.5:
            return f"{name} v30, s[84:87], {offset} offen{self.modifiers()} lds"
        at = self.rng.choice(["v30", "v31"]) if self.spec.form is Form.BUFFER_LOAD else "v30"
        return f"{name} {data}, {at}, s[84:87], {offset} offen{self.modifiers()}"

    def by_address(self) -> list[str]:
        """Loads, stores and atomics; an atomic may return what it found."""
        form, dwords = self.spec.form, self.spec.dwords
        if form is Form.GLOBAL_LOAD:
            return [self.register("v", dwords), self.rng.choice(["v30", "v31"]), "s[90:91]"]
        data = self.register("v", self.spec.source_dwords[1])
        returned = (
            [self.register("v", dwords)] if form is Form.GLOBAL_ATOMIC and self.rng.random() < 0.5 else []
        )
        return [*returned, "v30", data, "s[90:91]"]

    def vector(self) -> list[str]:
        """VALU operands."""
        op, dwords = self.op, self.spec.source_dwords
        if op is Op.V_READLANE_B32:
            return [self.register("s", 1), self.register("v", 1), self.rng.choice(["s3", "63", "0"])]
        if op is Op.V_WRITELANE_B32:
            return [self.register("v", 1), self.rng.choice(["s3", "7"]), self.rng.choice(["s4", "63"])]
        if op is Op.V_CNDMASK_B32:
            return [self.register("v", 1), self.source(1), self.source(1), self.rng.choice(["vcc", "s[6:7]"])]
        scalar_result = (self.spec.dwords == 2 and dwords == (1, 1)) or op is Op.V_READFIRSTLANE_B32
        destination = self.register("s" if scalar_result else "v", self.spec.dwords)
        first_only_vector = (
            bool(self.spec.modifiers & {"row_mask", "dst_sel"}) or op is Op.V_READFIRSTLANE_B32
        )
        return [
            destination,
            *(self.source(d, vector_only=first_only_vector and i == 0) for i, d in enumerate(dwords)),
        ]


def _state(program: Program, seed: int, mode: int) -> Workgroup:
    """A work-group of one wave with random registers, LDS and memory."""
    rng = np.random.default_rng(seed)
    memory = Memory([Buffer("data", _words(rng, BUFFER_BYTES // 4), writable=True)], slack=64)
    memory.watch(len(program.texts))
    group = Workgroup.create(program, memory, waves=1, lds_bytes=LDS_BYTES, mode=mode)
    group.start(0, (0, 0, 0), 64, [])
    group.vector[0, :VECTOR_ROWS] = _words(rng, (VECTOR_ROWS, 64))
    group.vector[0, 30] = 4 * rng.integers(0, BUFFER_BYTES // 4 - 20, 64, dtype=np.uint32)
    group.vector[0, 31] = group.vector[0, 30] + rng.integers(0, 4, 64, dtype=np.uint32)
    group.scalar[0, :84] = _words(rng, 84)
    group.scalar[0, 40:42] = 4 * rng.integers(0, 16, 2)
    address = memory.address("data")
    group.scalar[0, [90, 91]] = group.scalar[0, [84, 85]] = address & 0xFFFFFFFF, address >> 32
    group.scalar[0, 86:88] = int(rng.choice([BUFFER_BYTES, 2000, 100])), 0x20000
    group.scalar[0, 106:108] = rng.integers(0, 1 << 32, 2, dtype=np.uint32)
    group.scalar[0, 124] = 4 * rng.integers(0, 32)
    masks = [(0xFFFFFFFF, 0xFFFFFFFF), (0, 0), (1 << 31, 0), tuple(rng.integers(0, 1 << 32, 2))]
    group.scalar[0, 126:128] = masks[rng.choice(4, p=[0.4, 0.1, 0.1, 0.4])]
    group.status[0, 1] = rng.integers(2)
    group.lds[:] = rng.integers(0, 256, LDS_BYTES, dtype=np.uint8)
    return group


def _words(rng: np.random.Generator, shape: Any) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Random bits, floats of ordinary size, and special values."""
    choices = [
        rng.integers(0, 1 << 32, shape, dtype=np.uint32),
        (rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 12, shape)).astype(np.float32).view(np.uint32),
        rng.choice(SPECIAL, shape),
        rng.choice(INTEGERS, shape),
    ]
    return np.choose(rng.integers(0, 4, shape), choices).astype(np.uint32)


def _differences(a: Workgroup, b: Workgroup) -> Iterator[str]:
    """Where two states differ."""
    for name in ("scalar", "status", "lds", "counts"):
        for index in np.argwhere(getattr(a, name) != getattr(b, name))[:1]:
            place = tuple(int(i) for i in index)
            yield f"{name}{place}: {getattr(a, name)[place]:#x} and {getattr(b, name)[place]:#x}"
    for _, row, lane in np.argwhere(a.vector[:, :VECTOR_ROWS] != b.vector[:, :VECTOR_ROWS])[:1]:
        yield f"row {row} lane {lane}: {a.vector[0, row, lane]:#010x} and {b.vector[0, row, lane]:#010x}"
    for (at,) in np.argwhere(a.memory.raw != b.memory.raw)[:1]:
        yield f"memory {at}: {a.memory.raw[at]} and {b.memory.raw[at]}"
    if (a.memory.over_reads != b.memory.over_reads).any():
        yield f"over-reads {a.memory.over_reads.tolist()} and {b.memory.over_reads.tolist()}"


def _arch(op: Op, rng: random.Random) -> str:
    return rng.choice(SPECS[op].arches)


def compare(
    op: Op, fast_core: fast.FastCore, program: Callable[..., Program], rounds: int = ROUNDS
) -> list[str]:
    """Run random lines of an opcode on both cores; the differences found, each with its line."""
    rng, found = random.Random(int(op)), []  # noqa: S311 (not for secrets)
    for seed in range(rounds):
        line, mode = Writer(op, rng).line(), rng.choice(MODES)
        lines = [line, "s_endpgm"] if op is not Op.S_ENDPGM else [line]
        code = program(lines, _arch(op, rng))
        if SPECS[op].form is Form.BRANCH:
            code.table[0, 18] = 0  # a loop, which the budget ends
        states, faults = [_state(code, seed, mode) for _ in range(2)], []
        for core, state in zip((reference.run, fast_core), states, strict=True):
            try:
                core(state, quantum=8, budget=12)
                faults.append("")
            except KernelFaultError as fault:
                faults.append(str(fault))
        if faults[0] != faults[1]:
            found.append(f"{line}: '{faults[0]}' and '{faults[1]}'")
        found += [f"{line}: {difference}" for difference in _differences(*states)]
    return found


class TestLockstep:
    """Fast core and reference."""

    @pytest.mark.parametrize("op", list(Op), ids=lambda op: op.name.lower())
    def test_same_state(self, op: Op, fast_core: fast.FastCore, program: Callable[..., Program]) -> None:
        """After any line of an opcode both cores have the same registers, LDS, memory, counts and faults."""
        assert compare(op, fast_core, program) == []

    def test_every_opcode_has_semantics(self) -> None:
        """What the decoder accepts, the reference executes: control is in the stepping itself."""
        control = {Op.S_NOP, Op.S_WAITCNT, Op.S_SLEEP, Op.S_BARRIER, Op.S_ENDPGM, Op.V_NOP}
        branches = {op for op in Op if SPECS[op].form is Form.BRANCH}
        assert set(reference_core.SEMANTICS) | control | branches == set(Op) == set(SPECS)


class TestPlantedFault:
    """A wrong semantic is seen."""

    @pytest.mark.parametrize(
        ("op", "stand_in"),
        [
            (Op.V_SUB_U32, Op.V_SUBREV_U32),
            (Op.V_MUL_HI_U32, Op.V_MUL_LO_U32),
            (Op.S_ADDC_U32, Op.S_ADD_U32),
            (Op.V_FMA_F32, Op.V_MAX3_F32),
            (Op.V_CVT_U32_F32, Op.V_CVT_I32_F32),
            (Op.V_PERMLANE16_SWAP_B32, Op.V_PERMLANE32_SWAP_B32),
            (Op.DS_READ_B64, Op.DS_READ_B32),
            (Op.BUFFER_LOAD_DWORDX4, Op.BUFFER_LOAD_DWORDX2),
            (Op.GLOBAL_ATOMIC_PK_ADD_BF16, Op.GLOBAL_ATOMIC_PK_ADD_F16),
            (Op.V_MFMA_F32_16X16X16_BF16, Op.V_MFMA_F32_16X16X16_F16),
        ],
        ids=lambda op: op.name.lower(),
    )
    def test_other_operation(
        self, op: Op, stand_in: Op, fast_core: fast.FastCore, program: Callable[..., Program]
    ) -> None:
        """If the fast core did another operation than the one decoded, the comparison would say so."""

        def planted(lines: list[str], arch: str) -> Program:
            code = program(lines, arch)
            code.table[0, 0] = stand_in
            code.table[0, 17] = SPECS[stand_in].dwords
            return code

        assert compare(op, fast_core, planted) != []

    def test_fallback(self, fast_core: fast.FastCore, program: Callable[..., Program]) -> None:
        """Opcodes left to the reference give the same state, at the same turn of the same wave."""
        lines = [
            "v_mov_b32_e32 v1, 3",
            "s_barrier",
            "v_mul_f32_e32 v2, v1, v1",
            "v_add_u32_e32 v3, v2, v0",
            "s_endpgm",
        ]
        states = []
        for core in (fast_core, fast_core.without({Op.V_MUL_F32, Op.S_BARRIER, Op.S_ENDPGM})):
            group = Workgroup.create(program(lines, "gfx942"), Memory([]), waves=3, lds_bytes=0, mode=0xC0)
            group.start(0, (0, 0, 0), 192, [])
            core(group, quantum=2, budget=100)
            states.append(group)
        assert list(_differences(*states)) == []
        assert states[0].counts.tolist() == [3] * 5
