"""The probes: each sees a tiny kernel that does the thing, and is silent about a twin that does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aiter_conformance import cli, isa_probe
from aiter_conformance.errors import UsageError
from aiter_conformance.isa import fast, judge, objects
from aiter_conformance.isa.codeobject import Kernel
from aiter_conformance.isa.decode import OP, TARGET, Program
from aiter_conformance.isa.execute import QUANTUM, Core, execute
from aiter_conformance.isa.machine import Buffer, FaultKind, KernelFaultError, Memory
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa_probe.order import RANDOM_ORDERS, USUAL, Order, OrderedCore, orders
from aiter_conformance.isa_probe.recorder import Recorder

Make = Callable[[Sequence[str], str], Program]
# Kernarg pointer in s[0:1]; 512 bytes of LDS.
KERNEL = Kernel("k", 0, 512, 0, 16, 0xC0000, 0x384, 8, 0, 0, ())
SMALLEST = "hsa/gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_16x64_6tg_pf2.co"
RACING = "hsa/gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_32x256_2tg_pf2.co"
# v5 wave, v4 the wave's dword of LDS, v7 that of the other of two waves; v8 what is written, never 0.
WAVES = (
    "v_lshrrev_b32_e32 v5, 6, v0",
    "v_lshlrev_b32_e32 v4, 2, v5",
    "v_xor_b32_e32 v7, 4, v4",
    "v_add_u32_e32 v8, 5, v5",
)
STORE = (
    "s_load_dwordx2 s[8:9], s[0:1], 0x0",
    "v_lshlrev_b32_e32 v1, 3, v0",
    "global_store_dwordx2 v1, v[6:7], s[8:9]",
    "s_endpgm",
)
WRITE, READ_OTHER = "ds_write_b32 v4, v8", "ds_read_b32 v6, v7"
RACE = (*WAVES, WRITE, READ_OTHER, *STORE)
SOUND = (*WAVES, WRITE, "s_barrier", READ_OTHER, *STORE)


def _runner(
    program: Program, *, waves: int = 2, words: int = 0, slack: int = 0, budget: int = 1000
) -> isa_probe.Run:
    """Runs a tiny kernel on an output of two words a thread, or of so many words; word i holds i at first."""

    def run(core: Core) -> isa_probe.Array:
        memory = Memory(
            [
                Buffer("kernarg", np.zeros(4, np.uint32)),
                Buffer("out", np.arange(words or 128 * waves, dtype=np.uint32), writable=True),
            ],
            slack=slack,
        )
        start = int(memory.bounds[0, 0])
        memory.raw[start : start + 8] = np.frombuffer(memory.address("out").to_bytes(8, "little"), np.uint8)
        execute(
            program,
            KERNEL,
            memory,
            kernarg="kernarg",
            grid=(1, 1, 1),
            core=core,
            threads=64 * waves,
            budget=budget,
        )
        return memory.contents("out")

    return run


def _differing(run: isa_probe.Run, core: fast.FastCore) -> dict[str, int | None]:
    tried = orders()
    return {o.name: o.differing for o in isa_probe.try_orders(run, core, tried, lambda _: 0.0)}


class TestOrder:
    """Order.round and orders."""

    def test_rounds(self) -> None:
        """Every wave once: in order, backwards, or in an order and for turns that the seed decides."""
        rng = np.random.default_rng(0)
        assert Order("", 3).round(3, rng) == [(0, 3), (1, 3), (2, 3)]
        assert Order("", 3, reverse=True).round(3, rng) == [(2, 3), (1, 3), (0, 3)]
        drawn = [Order("", 5, seed=1).round(4, np.random.default_rng(s)) for s in (1, 1, 2)]
        assert [sorted(wave for wave, _ in turns) for turns in drawn] == [[0, 1, 2, 3]] * 3
        assert drawn[0] == drawn[1] != drawn[2]
        assert any([wave for wave, _ in turns] != [0, 1, 2, 3] for turns in drawn)
        assert all(1 <= turn <= 5 for turns in drawn for _, turn in turns)

    def test_tried(self) -> None:
        """The usual order comes first and once, then turns of 1 to n, both ways, one wave ahead, random."""
        tried = orders(3)
        assert tried[0] == USUAL
        assert [o.quantum for o in tried if o.seed is None and not o.reverse][1:4] == [1, 2, 3]
        assert len({o.name for o in tried}) == len(tried) == 1 + 3 + 3 + 2 + RANDOM_ORDERS
        assert [o for o in orders(QUANTUM) if o == USUAL] == [USUAL]

    def test_refuses(self) -> None:
        """A turn has an instruction."""
        with pytest.raises(UsageError, match=r"must be at least 1 \(got 0\)"):
            orders(0)


class TestTryOrders:
    """try_orders."""

    def test_race(self, fast_core: fast.FastCore, program: Make) -> None:
        """A wave that reads what another writes, without a barrier: the output depends on who is first.

        With a wave to its end first, wave 0 reads 0 and wave 1 what wave 0 wrote; the other way round with
        the last wave first. In turns of at most 5 instructions both have written before either reads.
        """
        found = _differing(_runner(program(RACE, "gfx942")), fast_core)
        assert found[USUAL.name] == 0
        assert found["first wave to its barrier, then the next"] == 0  # a turn of 8 is past the read already
        assert found["last wave to its barrier, then the one before"] == 128
        assert found["round robin, 5 instructions"] == 64

    def test_sound(self, fast_core: fast.FastCore, program: Make) -> None:
        """With the barrier every order gives the same bits."""
        found = _differing(_runner(program(SOUND, "gfx942")), fast_core)
        assert set(found.values()) == {0}

    def test_values(self, fast_core: fast.FastCore, program: Make) -> None:
        """What the waves read with the last wave first, by hand."""
        output = _runner(program(RACE, "gfx942"))(OrderedCore(fast_core, Order("", 100, reverse=True)))
        assert output.reshape(2, 64, 2)[:, :, 0].tolist() == [[6] * 64, [0] * 64]

    def test_fault_of_one_order(self, fast_core: fast.FastCore, program: Make) -> None:
        """An order in which the kernel faults is told with the place; the others are still compared."""
        # Wave 1 spins until it sees what wave 0 writes: it never ends where it runs alone before.
        lines = [
            *WAVES,
            "v_readfirstlane_b32 s5, v5",
            "s_cmp_eq_u32 s5, 0",
            "s_cbranch_scc1 0",
            "ds_read_b32 v6, v7",
            "v_readfirstlane_b32 s6, v6",
            "s_cmp_eq_u32 s6, 0",
            "s_cbranch_scc1 0",
            "ds_write_b32 v4, v8",
            *STORE,
        ]
        code = program(lines, "gfx942")
        code.table[6, TARGET], code.table[10, TARGET] = 11, 7
        tried = (USUAL, Order("alone", 10_000, reverse=True), Order("by turns", 8, reverse=True))
        found = isa_probe.try_orders(_runner(code), fast_core, tried, lambda _: float("nan"))
        assert [o.fault is None for o in found] == [True, False, True]
        assert "must end within its budget" in str(found[1].fault)
        assert [o.differing for o in found] == [0, None, 0]
        assert [o.error for o in found] == [None] * 3


class TestConflicts:
    """What `watch` notes about LDS."""

    def test_race(self, fast_core: fast.FastCore, program: Make) -> None:
        """Each wave's read and the other's write meet on 4 bytes; waves, instructions and byte are named."""
        recorder, fault = isa_probe.watch(_runner(program(RACE, "gfx942")), fast_core)
        assert fault is None
        [found] = recorder.conflicts.values()
        assert (found.kind, found.pcs, found.texts) == ("read/write", (16, 20), (WRITE, READ_OTHER))
        # Wave 0 writes and reads in its turn of 8, then wave 1 meets both.
        assert (found.count, found.waves, found.byte) == (8, (1, 0), 4)

    def test_sound(self, fast_core: fast.FastCore, program: Make) -> None:
        """With the barrier nothing is noted; with the barrier in a place that does not help, it is."""
        recorder, _ = isa_probe.watch(_runner(program(SOUND, "gfx942")), fast_core)
        assert not recorder.conflicts
        late = (*WAVES, WRITE, READ_OTHER, "s_barrier", *STORE)
        recorder, _ = isa_probe.watch(_runner(program(late, "gfx942")), fast_core)
        assert len(recorder.conflicts) == 1

    @pytest.mark.parametrize(
        ("lines", "kinds"),
        [
            (["ds_write_b32 v9, v8"], ["write/write"]),
            (["ds_read_b32 v6, v9"], []),
            (["ds_write_b8 v9, v8 offset:3", "s_barrier", "ds_read_u8 v6, v9 offset:3"], ["write/write"]),
            (["s_mov_b64 exec, 0", "ds_write_b32 v9, v8"], []),
            (["s_setvskip 0, 1", "ds_write_b32 v9, v8"], ["write/write"]),
            (["s_setvskip -1, 0", "ds_write_b32 v9, v8", "s_setvskip 0, 0"], []),
            (["ds_write_b64 v4, v[8:9]"], ["write/write"]),  # 8 bytes at 0 and at 4
            (["ds_write_b32 v4, v8"], []),
            (["ds_write_b32 v4, v8", "ds_write_b32 v4, v8 offset:4"], ["write/write"]),
        ],
    )
    def test_accesses(
        self, fast_core: fast.FastCore, program: Make, lines: Sequence[str], kinds: list[str]
    ) -> None:
        """Two reads do not conflict, nor lanes and instructions that are off; sizes and offsets count."""
        code = program([*WAVES, "v_mov_b32_e32 v9, 0", *lines, "s_endpgm"], "gfx942")
        recorder, fault = isa_probe.watch(_runner(code), fast_core)
        assert fault is None
        assert [c.kind for c in recorder.conflicts.values()] == kinds

    @pytest.mark.parametrize(("shift", "count"), [(8, 0), (7, 128), (0, 256)])
    def test_loads_to_lds(self, fast_core: fast.FastCore, program: Make, shift: int, count: int) -> None:
        """A buffer load straight to LDS writes 256 bytes from M0: two waves 256, 128 and 0 bytes apart."""
        lines = [
            *WAVES,
            STORE[0],
            "s_mov_b32 s10, 64",
            "s_mov_b32 s11, 0",
            "v_lshlrev_b32_e32 v6, " + str(shift) + ", v5" if shift else "v_mov_b32_e32 v6, 0",
            "v_readfirstlane_b32 s5, v6",
            "s_mov_b32 m0, s5",
            "v_mov_b32_e32 v1, 0",
            "buffer_load_dword v1, s[8:11], 0 offen lds",
            "s_endpgm",
        ]
        recorder, fault = isa_probe.watch(_runner(program(lines, "gfx942")), fast_core)
        assert fault is None
        assert sum(c.count for c in recorder.conflicts.values()) == count
        assert {c.kind for c in recorder.conflicts.values()} == ({"write/write"} if count else set())


class TestPastEnd:
    """What `watch` notes about reads."""

    LOAD = "global_load_dwordx2 v[2:3], v1, s[8:9]"
    LINES = (*STORE[:2], LOAD, "s_endpgm")
    STORE_LOADED = (
        "v_lshlrev_b32_e32 v3, 3, v0",
        "v_add_u32_e32 v4, 1, v1",
        "v_mov_b32_e32 v5, v2",
        "s_mov_b64 exec, 0xff",
        "global_store_dwordx2 v3, v[4:5], s[8:9]",
        "s_endpgm",
    )

    def test_reads(self, fast_core: fast.FastCore, program: Make) -> None:
        """64 lanes read 8 bytes each of 500: 62 (partly) and 63 are past the end; nothing counts twice."""
        run = _runner(program(self.LINES, "gfx942"), waves=1, words=125, slack=64, budget=len(self.LINES))
        recorder, fault = isa_probe.watch(run, fast_core)
        assert fault is None
        [found] = recorder.past_end.values()
        assert (found.pc, found.text, found.count, found.furthest) == (8, self.LOAD, 2, 12)
        assert (found.group, found.wave, found.lane) == ((0, 0, 0), 0, 62)
        assert found.nearest == "nearest allocation 'out' has 500 bytes, this is byte 496 of it"

    def test_inside(self, fast_core: fast.FastCore, program: Make) -> None:
        """The same on 512 bytes reads nothing past an end."""
        run = _runner(program(self.LINES, "gfx942"), waves=1, words=128, slack=64)
        recorder, fault = isa_probe.watch(run, fast_core)
        assert (recorder.past_end, fault) == ({}, None)

    def test_past_the_slack(self, fast_core: fast.FastCore, program: Make) -> None:
        """A read beyond the slack ends the run, and the place is told."""
        run = _runner(program(self.LINES, "gfx942"), waves=1, words=125, slack=8)
        recorder, fault = isa_probe.watch(run, fast_core)
        assert recorder.past_end == {}
        assert "global access must stay inside an allocation" in str(fault)
        assert "lane 63" in str(fault)

    def test_address_overwritten(self, fast_core: fast.FastCore, program: Make) -> None:
        """A load over its own address gives the same with the recorder as without."""
        lines = (*STORE[:2], "global_load_dwordx2 v[1:2], v1, s[8:9]", *self.STORE_LOADED)
        run = _runner(program(lines, "gfx942"), waves=1, words=127, slack=64)
        watched = run(OrderedCore(fast_core, USUAL, Recorder()))
        assert watched[:4].tolist() == [1, 1, 3, 3]
        assert watched.tolist() == run(fast_core).tolist()


class TestOrderedCore:
    """OrderedCore."""

    def test_budget(self, fast_core: fast.FastCore, program: Make) -> None:
        """A kernel that does not end is a fault, at the same place as in the fast core."""
        code = program(["s_nop 0", "s_branch 0", "s_endpgm"], "gfx942")
        for core in (fast_core, OrderedCore(fast_core, USUAL), OrderedCore(fast_core, USUAL, Recorder())):
            with pytest.raises(KernelFaultError) as caught:
                _runner(code, budget=101)(core)
            assert (caught.value.kind, caught.value.pc, caught.value.wave) == (FaultKind.BUDGET, 4, 0)

    def test_place_of_a_fault(self, fast_core: fast.FastCore, program: Make) -> None:
        """A fault of the third wave is the third wave's."""
        lines = [*WAVES, "v_readfirstlane_b32 s5, v5", "s_cmp_eq_u32 s5, 2", "s_cbranch_scc0 0"]
        lines += ["ds_read_b32 v7, v8 offset:509", "s_endpgm"]  # at 516 of 512
        code = program(lines, "gfx942")
        code.table[6, TARGET] = 8
        for core in (fast_core, OrderedCore(fast_core, USUAL)):
            with pytest.raises(KernelFaultError) as caught:
                _runner(code, waves=4)(core)
            assert (caught.value.wave, caught.value.lane) == (2, 0)


@pytest.mark.usefixtures("disassembler")
class TestShipped:
    """Shipped objects."""

    def _opened(self, wheel: Path, cache_dir: Path, path: str) -> objects.Opened:
        return objects.open_object(str(wheel), path, cache_dir)

    def test_known_race(self, wheel: Path, cache_dir: Path, fast_core: fast.FastCore) -> None:
        """A kernel that re-uses LDS at its end without a barrier: right by turns, wrong with a wave ahead."""
        opened = self._opened(wheel, cache_dir, RACING)
        case = judge.cases(opened.kind)[0]
        report = isa_probe.probe(opened, case, fast_core, orders(1))
        wrong = {o.name: o.error for o in report.orders if o.differing}
        assert [name.split(" wave")[0] for name in wrong] == ["first", "last"]
        assert all(error is None or error > 0.1 for error in wrong.values())
        assert report.conflicts
        assert report.fault is None

    def test_planted(self, wheel: Path, cache_dir: Path, fast_core: fast.FastCore) -> None:
        """Without its barriers, an object whose order does not matter has more conflicts and other bits."""
        opened = self._opened(wheel, cache_dir, SMALLEST)
        case = judge.cases(opened.kind)[0]
        sound = isa_probe.probe(opened, case, fast_core, orders(1))
        table, texts = opened.program.table.copy(), list(opened.program.texts)
        for row in np.flatnonzero(table[:, OP] == Op.S_BARRIER):
            table[row, OP], texts[row] = Op.S_NOP, "s_nop 0"
        planted = replace(opened, program=replace(opened.program, table=table, texts=tuple(texts)))
        broken = isa_probe.probe(planted, case, fast_core, orders(1))
        assert [o.differing for o in sound.orders] == [0] * len(sound.orders)
        assert any(o.differing for o in broken.orders)
        assert len(broken.conflicts) > len(sound.conflicts)

    def test_command(
        self, wheel: Path, cache_dir: Path, capsys: pytest.CaptureFixture[str], fast_core: fast.FastCore
    ) -> None:
        """Whatever is found the exit code is 0, and text and JSON say the same."""
        del fast_core  # skipped without it
        root = cache_dir.parents[1]
        words = ["isa", "probe", str(wheel), RACING, "--turn", "1", "--root", str(root)]
        answers = []
        for also in ([], ["--json"]):
            assert cli.cli.main([*words, *also], standalone_mode=False) == 0
            answers.append(capsys.readouterr().out)
        text, report = answers[0], json.loads(answers[1])
        assert (report["path"], report["case"]) == (RACING, "few")
        wrong = [o for o in report["orders"] if o["differing"]]
        assert len(wrong) == 2
        assert all(
            f"{o['name']}: {o['differing']} of {report['elements']} elements differ" in text for o in wrong
        )
        assert f"without a barrier between: {len(report['conflicts'])} pairs" in text
        assert f"pc {report['conflicts'][0]['pcs'][0]:#x}" in text
