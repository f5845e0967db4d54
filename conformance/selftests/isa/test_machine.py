"""Waves, barriers, the grid, and what a work-group starts with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aiter_conformance.errors import UsageError
from aiter_conformance.isa.arch import ARCHES
from aiter_conformance.isa.codeobject import Kernel
from aiter_conformance.isa.decode import TARGET, Program
from aiter_conformance.isa.execute import Core, Execution, execute
from aiter_conformance.isa.machine import Buffer, FaultKind, KernelFaultError, Memory, Workgroup

Make = Callable[[Sequence[str], str], Program]
# Kernarg pointer in s[0:1], work-group ids x, y, z in s2, s3, s4.
KERNEL = Kernel("k", 0, 512, 0, 16, 0xC0000, 0x384, 8, 0, 0, ())
OUT = "out"


def _memory(words: int = 64) -> Memory:
    return Memory(
        [Buffer("kernarg", np.zeros(4, np.uint32)), Buffer(OUT, np.zeros(words, np.uint32), writable=True)]
    )


def _run(core: Core, program: Program, memory: Memory, **keywords: Any) -> Execution:
    """Run with the address of the output in the kernarg segment."""
    start = int(memory.bounds[0, 0])
    memory.raw[start : start + 8] = np.frombuffer(memory.address(OUT).to_bytes(8, "little"), np.uint8)
    options: dict[str, Any] = {"kernel": KERNEL, "grid": (1, 1, 1), "threads": 64, "kernarg": "kernarg"}
    return execute(program, memory=memory, core=core, **(options | keywords))


STORE = ["s_load_dwordx2 s[8:9], s[0:1], 0x0", "v_lshlrev_b32_e32 v1, 3, v0"]


class TestStart:
    """Registers at the start of a work-group."""

    def test_ids(self, core: Core, program: Make) -> None:
        """v0 has the thread, s2 to s4 the work-group along x, y and z; every work-group runs."""
        lines = [
            "s_load_dwordx2 s[8:9], s[0:1], 0x0",
            "s_lshl_b32 s5, s3, 2",
            "s_add_u32 s5, s5, s2",
            "s_lshl_b32 s5, s5, 3",
            "v_mov_b32_e32 v1, s5",
            "v_mov_b32_e32 v2, s2",
            "v_mov_b32_e32 v3, s4",
            "s_mov_b64 exec, 1",
            "global_store_dwordx2 v1, v[2:3], s[8:9]",
            "s_endpgm",
        ]
        memory = _memory()
        execution = _run(core, program(lines, "gfx942"), memory, grid=(4, 2, 1))
        assert memory.contents(OUT).reshape(32, 2)[:8, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
        assert execution.instructions == 8 * 10
        assert execution.coverage == 1.0

    def test_partial_wave(self, core: Core, program: Make) -> None:
        """Threads beyond the group's size are off."""
        lines = [
            *STORE,
            "v_mov_b32_e32 v2, 1",
            "v_mov_b32_e32 v3, v0",
            "global_store_dwordx2 v1, v[2:3], s[8:9]",
            "s_endpgm",
        ]
        memory = _memory(256)
        _run(core, program(lines, "gfx942"), memory, threads=70)
        stored = memory.contents(OUT).reshape(128, 2)
        assert stored[:, 0].tolist() == [1] * 70 + [0] * 58
        assert stored[:70, 1].tolist() == list(range(70))

    def test_registers_are_cleared(self, core: Core, program: Make) -> None:
        """A work-group does not see what the one before left in registers and LDS."""
        lines = [
            *STORE,
            "v_mov_b32_e32 v4, 0",
            "ds_read_b32 v2, v4",
            "v_mov_b32_e32 v3, s20",
            "s_mov_b64 exec, 1",
            "global_atomic_add_f32 v4, v2, s[8:9]",
            "global_atomic_add_f32 v4, v3, s[8:9]",
            "v_mov_b32_e32 v5, 1.0",
            "ds_write_b32 v4, v5",
            "s_mov_b32 s20, 1.0",
            "s_endpgm",
        ]
        memory = _memory()
        _run(core, program(lines, "gfx942"), memory, grid=(3, 1, 1))
        assert memory.contents(OUT)[0] == 0


class TestScheduling:
    """Round robin and barriers, with LDS as the witness: each wave writes its number and reads it back."""

    SETUP = ("v_mov_b32_e32 v4, 0", "v_lshrrev_b32_e32 v5, 6, v0")
    WRITE, READ = "ds_write_b32 v4, v5", "ds_read_b32 v6, v4"

    @pytest.mark.parametrize(
        ("lines", "quantum", "seen"),
        [
            ((*SETUP, WRITE, READ), 1, [2, 2, 2]),  # all write before any reads
            ((*SETUP, WRITE, READ), 3, [2, 2, 2]),
            ((*SETUP, WRITE, READ), 4, [0, 1, 2]),  # each reads in its own turn
            ((*SETUP, WRITE, READ), 100, [0, 1, 2]),
            ((*SETUP, WRITE, "s_barrier", READ), 100, [2, 2, 2]),
            ((*SETUP, "s_barrier", WRITE, READ), 1, [2, 2, 2]),
            ((*SETUP, "s_barrier", WRITE, READ), 2, [0, 1, 2]),
        ],
    )
    def test_order(
        self, core: Core, program: Make, lines: Sequence[str], quantum: int, seen: list[int]
    ) -> None:
        """A wave runs its quantum, then the next; at a barrier it waits for all."""
        code = program([*lines, "s_endpgm"], "gfx942")
        group = Workgroup.create(code, Memory([]), waves=3, lds_bytes=64, mode=0xC0)
        group.start(0, (0, 0, 0), 192, [])
        core(group, quantum=quantum, budget=100)
        assert group.vector[:, 6, 0].tolist() == seen
        assert group.counts.tolist() == [3] * len(code.texts)

    def test_barrier_after_an_end(self, core: Core, program: Make) -> None:
        """A wave that has ended is not waited for: wave 0 skips the barrier."""
        lines = [
            "v_lshrrev_b32_e32 v5, 6, v0",
            "v_readfirstlane_b32 s5, v5",
            "s_cmp_eq_u32 s5, 0",
            "s_cbranch_scc1 0",
            "s_barrier",
            "s_endpgm",
        ]
        code = program(lines, "gfx942")
        code.table[3, TARGET] = 5
        group = Workgroup.create(code, Memory([]), waves=3, lds_bytes=0, mode=0xC0)
        group.start(0, (0, 0, 0), 192, [])
        core(group, quantum=1, budget=100)
        assert group.counts.tolist() == [3, 3, 3, 3, 2, 3]

    def test_budget(self, core: Core, program: Make) -> None:
        """A kernel that does not end is a fault that names where it was."""
        code = program(["s_nop 0", "s_branch 0", "s_endpgm"], "gfx942")
        with pytest.raises(KernelFaultError, match="must end within its budget") as caught:
            _run(core, code, _memory(), budget=1001)
        assert (caught.value.kind, caught.value.pc, caught.value.lane) == (FaultKind.BUDGET, 4, -1)


class TestBranches:
    """Branches."""

    @pytest.mark.parametrize(
        ("branch", "scc", "taken"),
        [
            ("s_branch 0", 0, True),
            ("s_branch 0", 1, True),
            ("s_cbranch_scc0 0", 0, True),
            ("s_cbranch_scc0 0", 1, False),
            ("s_cbranch_scc1 0", 0, False),
            ("s_cbranch_scc1 0", 1, True),
        ],
    )
    def test_conditions(self, core: Core, program: Make, branch: str, scc: int, taken: bool) -> None:
        """A branch goes to its target when SCC says so."""
        code = program([f"s_cmp_eq_u32 s20, {1 - scc}", branch, "s_mov_b32 s9, 7", "s_endpgm"], "gfx942")
        code.table[1, TARGET] = 3
        group = Workgroup.create(code, Memory([]), waves=1, lds_bytes=0, mode=0xC0)
        group.start(0, (0, 0, 0), 64, [])
        core(group, quantum=8, budget=100)
        assert int(group.scalar[0, 9]) == (0 if taken else 7)


class TestExecute:
    """execute."""

    def test_lds_is_the_allocation(self, core: Core, program: Make) -> None:
        """LDS is what the kernel declares, rounded up to the architecture's granule."""
        lines = ["v_mov_b32_e32 v1, 0x1fc", "ds_read_b32 v2, v1", "s_endpgm"]
        _run(core, program(lines, "gfx942"), _memory(), kernel=replace(KERNEL, lds_bytes=1))
        with pytest.raises(KernelFaultError, match="LDS has 0 bytes"):
            _run(core, program(lines, "gfx942"), _memory(), kernel=replace(KERNEL, lds_bytes=0))

    @pytest.mark.parametrize("changes", [{"grid": (0, 1, 1)}, {"threads": 2048}, {"quantum": 0}])
    def test_refuses(self, core: Core, program: Make, changes: dict[str, object]) -> None:
        """Sizes that make no sense are an error."""
        with pytest.raises(UsageError, match="must be positive, threads 1 to 1024"):
            _run(core, program(["s_endpgm"], "gfx942"), _memory(), **changes)

    def test_over_reads(self, core: Core, program: Make) -> None:
        """Reads into slack are reported with instruction, count and distance."""
        lines = [*STORE, "global_load_dwordx2 v[2:3], v1, s[8:9]", "s_endpgm"]
        buffers = [Buffer("kernarg", np.zeros(4, np.uint32)), Buffer(OUT, np.zeros(125, np.uint32))]
        (found,) = _run(core, program(lines, "gfx942"), Memory(buffers, slack=64)).over_reads
        assert (found.pc, found.text, found.count, found.furthest) == (8, lines[2], 2, 12)


class TestMemory:
    """Memory."""

    def test_contents(self) -> None:
        """Buffers come back in shape and dtype, at addresses that cross a 4 GiB boundary."""
        buffers = [Buffer("a", np.zeros(1 << 21, np.uint8)), Buffer("b", np.arange(6.0).reshape(2, 3))]
        memory = Memory(buffers)
        assert memory.contents("b").tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        assert memory.address("a") >> 32 == (memory.address("b") >> 32) - 1

    def test_refuses(self) -> None:
        """Names must differ, slack must not be negative."""
        twice = [Buffer("a", np.zeros(1)), Buffer("a", np.zeros(1))]
        for buffers, slack in ((twice, 0), (twice[:1], -1)):
            with pytest.raises(UsageError, match="different names and slack must be >= 0"):
                Memory(buffers, slack=slack)


class TestLdsAllocation:
    """Arch.lds_allocation."""

    @pytest.mark.parametrize(
        ("arch", "declared", "allocated"),
        [("gfx942", 0, 0), ("gfx942", 1, 512), ("gfx942", 65536, 65536), ("gfx950", 1281, 2560)],
    )
    def test_granule(self, arch: str, declared: int, allocated: int) -> None:
        """Declared bytes are rounded up to the granule (LLVM: 128 dwords, 320 on gfx950)."""
        assert ARCHES[arch].lds_allocation(declared) == allocated

    def test_refuses(self) -> None:
        """A kernel of gfx950 does not fit gfx942's LDS."""
        with pytest.raises(UsageError, match=r"at most 65536 bytes \(got 163840\)"):
            ARCHES["gfx942"].lds_allocation(163840)
        assert ARCHES["gfx950"].lds_allocation(163840) == 163840
