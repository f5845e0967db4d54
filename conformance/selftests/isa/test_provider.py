"""The provider isa and its level: shipped kernels on the tensors of a leaf's own call, and what follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiter_conformance.axes import Cell
from aiter_conformance.case import Case
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Level
from aiter_conformance.isa import fast
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.release.artefact import Release, open_release
from aiter_conformance.release.inventory import Inventory, take_inventory
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.record import Launch, Role, Status, Trace

torch = pytest.importorskip("torch", reason="the leaves are called with torch tensors")

from aiter_conformance.golden import apply_leaf, live, live_rows  # noqa: E402 -- they need torch
from aiter_conformance.levels import isa as level  # noqa: E402
from aiter_conformance.numerics.inputs import Problem  # noqa: E402
from aiter_conformance.numerics.oracle import expected  # noqa: E402
from aiter_conformance.numerics.packed import Packed, pack  # noqa: E402
from aiter_conformance.numerics.verdict import Verdict, judge  # noqa: E402
from aiter_conformance.providers import isa as provider  # noqa: E402
from aiter_conformance.providers.isa_plan import (  # noqa: E402
    Emulator,
    NotExecutableError,
    Plan,
    make_plan,
)
from aiter_conformance.release.tuned import TunedTables  # noqa: E402
from aiter_conformance.runner import collect  # noqa: E402
from aiter_conformance.subjects import load_subject  # noqa: E402
from aiter_conformance.trace.run import Run  # noqa: E402

BOARD = Board("gfx942", 304)
CHANNEL = Cell("gfx942", "fp8-channel", "silu", "out")
BLOCK = Cell("gfx942", "fp8-block", "silu", "out")
TKW1 = Cell("gfx942", "fp8-channel", "silu", "in")
SYMBOLS = {
    CHANNEL: "_ZN5aiter48fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x256E",
    BLOCK: "_ZN5aiter50fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256E",
    TKW1: "_ZN5aiter53fmoe_bf16_pertokenFp8_g1u1_vs_tkw1_silu_1tg_ps_32x128E",
}
GELU = "_ZN5aiter48fmoe_bf16_pertokenFp8_g1u1_vs_gelu_1tg_ps_32x256E"
CK = Launch(role=Role.STAGE1, family="ck", operator="ck_moe_stage1", name="moe_ck2stages_gemm1")
SORT = Launch(role=Role.SORT, family="helper", operator="moe_sorting_fwd", block_m=32)
QUANTISE = Launch(role=Role.QUANTISE, family="helper", operator="dynamic_per_token_scaled_quant")


def launches(symbol: str) -> tuple[Launch, ...]:
    """What a call launches that one kernel computes."""
    main = Launch(role=Role.ONE_STAGE, family="asm-1stage", operator="fmoe_g1u1", name=symbol, block_m=32)
    return SORT, QUANTISE, main


@pytest.fixture(scope="module")
def release(wheel: Path) -> Iterator[Release]:
    """PyPI's release, open."""
    with open_release(str(wheel)) as opened:
        yield opened


@pytest.fixture(scope="module")
def inventory(release: Release) -> Inventory:
    """What it ships."""
    return take_inventory(release)


@pytest.fixture(scope="module")
def emulator(
    release: Release, inventory: Inventory, cache_dir: Path, disassembler: Path, fast_core: fast.FastCore
) -> Emulator:
    """Its kernels for one board."""
    return Emulator(release, BOARD, inventory, cache_dir)


def verdict(emulator: Emulator, symbol: str, problem: Problem, packed: Packed | None = None) -> Verdict:
    """The verdict on a kernel that computes the call of a leaf."""
    plan = make_plan(launches(symbol), emulator)
    computes = provider.IsaProvider(emulator, plan)
    tensors = pack(problem) if packed is None else packed
    output, _ = apply_leaf(
        problem, tensors, load_subject("impl"), lambda call: computes.compute(call, BOARD.arch)
    )
    way = provider.ways(plan, problem.case.cell)[0]
    return judge(live_rows(output, problem), live(expected(problem, way.pipeline), problem))


def problem_of(cell: Cell, **sizes: int) -> Problem:
    """A small problem with an expert that gets no token, and more tokens than a block."""
    given: dict[str, Any] = {"experts": 4, "topk": 2, "hidden": 512, "intermediate": 512, "tokens": 37}
    return Problem(Case(cell, **{**given, **sizes, **({"topk": 1} if cell.router == "in" else {})}))


class TestCompute:
    """IsaProvider.compute."""

    @pytest.mark.parametrize("cell", SYMBOLS, ids=str)
    def test_right(self, emulator: Emulator, cell: Cell) -> None:
        """A shipped kernel on a leaf's own tensors agrees with the oracle."""
        assert verdict(emulator, SYMBOLS[cell], problem_of(cell)).message == ""

    @pytest.mark.parametrize("rank", [0, 1])
    def test_expert_parallel(self, emulator: Emulator, rank: int) -> None:
        """So it does on both ranks of two, where a mask says which experts are local."""
        problem = replace(problem_of(BLOCK, experts=6, ep=2), rank=rank)
        assert verdict(emulator, SYMBOLS[BLOCK], problem).message == ""

    @pytest.mark.parametrize("name", ["unshuffled", "rolled scale", "gate and up", "experts"])
    def test_wrong(self, emulator: Emulator, name: str) -> None:
        """What a loader may get wrong is seen."""
        problem = problem_of(CHANNEL)
        packed = pack(problem)
        w1, scale = packed.w1, packed.quant["w1_scale"]
        half = w1.shape[1] // 2
        changed = {
            "unshuffled": lambda: replace(packed, w1=_unshuffled(w1)),
            "rolled scale": lambda: replace(packed, quant={**packed.quant, "w1_scale": scale.roll(1, 1)}),
            "gate and up": lambda: replace(packed, w1=_bytes(w1, lambda b: b.roll(half, 1))),
            "experts": lambda: replace(packed, w1=_bytes(w1, lambda b: b.roll(1, 0))),
        }[name]()
        assert not verdict(emulator, SYMBOLS[CHANNEL], problem, changed).passed

    def test_other_activation(self, emulator: Emulator) -> None:
        """A kernel of another activation is seen."""
        assert not verdict(emulator, GELU, problem_of(CHANNEL)).passed

    def test_biases(self, emulator: Emulator) -> None:
        """A call with what the launch has no place for is refused by the kernel's name."""
        plan = make_plan(launches(SYMBOLS[CHANNEL]), emulator)
        computes = provider.IsaProvider(emulator, plan)
        problem = problem_of(CHANNEL)

        def biased(call: Any) -> Any:
            return computes.compute(
                replace(call, arguments={**call.arguments, "bias1": torch.zeros(1)}), BOARD.arch
            )

        with pytest.raises(NotExecutableError, match=r"bias1 is not modelled .*pertokenFp8"):
            apply_leaf(problem, pack(problem), load_subject("impl"), biased)


def _bytes(weight: Any, change: Any) -> Any:
    return change(weight.view(torch.uint8)).contiguous().view(weight.dtype)


def _unshuffled(weight: Any) -> Any:
    experts, n, k = weight.shape
    tiles = weight.view(torch.uint8).reshape(experts, n // 16, k // 16, 16, 16).transpose(2, 3)
    return tiles.reshape(experts, n, k).contiguous().view(weight.dtype)


class TestWays:
    """ways."""

    def test_gelu(self, emulator: Emulator) -> None:
        """A kernel's GELU may be the tanh approximation, which is said where the true one does not fit."""
        cell = Cell("gfx942", "fp8-channel", "gelu", "in")
        symbol = SYMBOLS[TKW1].replace("silu", "gelu")
        plan = make_plan(launches(symbol), emulator)
        problem = Problem(Case(cell, experts=5, topk=1, hidden=256, intermediate=256, tokens=1))
        assert [way.name for way in provider.ways(plan, cell)] == [
            "slices of 128",
            "slices of 128, GELU by tanh",
        ]
        seen = level.execute(load_subject("impl"), emulator, plan, problem)
        assert (seen.right, seen.words) == (True, "slices of 128, GELU by tanh")
        assert not verdict(emulator, symbol, problem).passed

    def test_gfx950(self, emulator: Emulator) -> None:
        """There an intermediate may be scaled to gfx942's largest code."""
        plan = make_plan(launches(SYMBOLS[BLOCK]), emulator)
        newer = replace(plan, kernel=replace(plan.kernel, kind=replace(plan.kernel.kind, arch="gfx950")))
        found = provider.ways(newer, replace(BLOCK, arch="gfx950"))
        assert [way.name for way in found] == ["slices of 256", "slices of 256 scaled to 240"]


class TestSorted:
    """How tokens are sorted."""

    def test_by_hand(self) -> None:
        """Experts 1 and 3 of four are local; buffers are as large as AITER's, and their rest is poisoned."""
        ids = torch.tensor([[3, 0], [1, 3]], dtype=torch.int32)
        weights = torch.tensor([[0.5, 1.0], [2.0, 4.0]])
        mask = torch.tensor([0, 1, 0, 1, 0], dtype=torch.int32)
        found = provider._sorted(ids, weights, mask, 2, 2)
        padding, poison = 2 << 24 | 2, provider._UNWRITTEN
        assert found.ids.tolist() == [1, padding, 0, 1 << 24 | 1, *[poison] * 8]
        assert found.weights[:4].tolist() == [2.0, 0.0, 0.5, 4.0]
        assert np.isnan(found.weights[4:]).all()
        assert found.blocks.tolist() == [0, 1, *[poison] * 4]
        assert found.valid.tolist() == [4, 2]


class TestMakePlan:
    """make_plan."""

    def test_one_kernel(self, emulator: Emulator) -> None:
        """The kernel is opened, and what is computed around it is named."""
        plan = make_plan(launches(SYMBOLS[BLOCK]), emulator)
        assert (plan.kernel.name, plan.block_m, plan.kernel.groups_per_unit) == (SYMBOLS[BLOCK], 32, 1)
        assert plan.emulated == ("moe_sorting_fwd", "dynamic_per_token_scaled_quant")

    @pytest.mark.parametrize(
        ("given", "expected_message"),
        [
            ((SORT, QUANTISE, CK), r"ck kernels are built on first use \(moe_ck2stages_gemm1\)"),
            ((SORT, replace(QUANTISE, operator="smooth_quant"), *launches(GELU)[2:]), "smooth_quant"),
            (launches(GELU)[1:], "must sort first and launch one kernel last"),
            ((*launches(GELU)[:1], launches(GELU)[2]), "0 quantisations before the kernel"),
            (launches("nobody"), r"no manifest of the release names the kernel \(nobody\)"),
        ],
        ids=["built", "operator", "unsorted", "codes", "unknown"],
    )
    def test_not_executable(
        self, emulator: Emulator, given: tuple[Launch, ...], expected_message: str
    ) -> None:
        """What cannot be executed is named."""
        with pytest.raises(NotExecutableError, match=expected_message):
            make_plan(given, emulator)

    def test_smooth(self, emulator: Emulator) -> None:
        """So is a kernel whose arguments are not those of the call."""
        symbol = "_ZN5aiter49fmoe_bf16_pertokenFp8_g1u1_vs_smf_silu_1tg_32x512E"
        with pytest.raises(NotExecutableError, match="without smoothing"):
            make_plan(launches(symbol), emulator)


class TestReduced:
    """reduced."""

    def test_keeps_what_matters(self, emulator: Emulator) -> None:
        """Top-k, mask, several slices and the odd hidden size stay; the model's size does not."""
        call = Call(scheme="fp8-block", tokens=16384, experts=256, local_experts=32, topk=8, mask=True)
        plan: Plan = make_plan(launches(SYMBOLS[BLOCK]), emulator)
        found = level.reduced(BLOCK, replace(call, hidden=2816, intermediate=2048), plan)
        assert [str(one.case).partition("@")[2] for one in found] == [
            "E18-k8-K1280-N512-M69-tp1-ep2-hp0-ip0-s0"
        ] * 2
        assert [one.rank for one in found] == [0, 1]


class TestObserve:
    """levels.isa.observe, with traces by hand."""

    @pytest.fixture
    def outcome(
        self, release: Release, inventory: Inventory, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
    ) -> Any:
        """A function from a cell and the launches of its calls to its outcome."""

        def observe(cell: Cell, of_call: Any) -> Any:
            def traced(_release: Release, board: Board, calls: list[Call], *_: Any, **__: Any) -> Run:
                status = Status.LAUNCHED
                traces = [
                    Trace(board=str(board), call=call, status=status, launches=of_call(call))
                    for call in calls
                ]
                return Run(board, None, tuple(traces))  # type: ignore[arg-type]

            monkeypatch.setattr(level, "cached_run", traced)
            monkeypatch.setattr(level, "Emulator", lambda *_: emulator)
            monkeypatch.setattr(level, "check_run", lambda *_: ())
            tables = TunedTables((), (), ())
            subject = load_subject("impl")
            [found] = level.observe(
                subject, release, BOARD, [cell], runs=Path(), code=Path(), inventory=inventory, tuned=tables
            ).values()
            return found

        return observe

    def test_all_right(self, outcome: Any) -> None:
        """A cell passes when every input was executed and is right; what was computed around is named."""
        found = outcome(TKW1, lambda _: launches(SYMBOLS[TKW1]))
        assert found.kind is Kind.PASS
        assert found.details["ran"] == found.details["of"]
        assert found.details["kernels"] == ["fmoe_bf16_pertokenFp8_g1u1_vs_tkw1_silu_1tg_ps_32x128"]
        assert found.details["emulated"] == ["dynamic_per_token_scaled_quant", "moe_sorting_fwd"]

    def test_partly(self, outcome: Any) -> None:
        """Inputs that get kernels which are built on first use leave it not run, with how many were right."""
        found = outcome(
            CHANNEL,
            lambda call: launches(SYMBOLS[CHANNEL]) if call.tokens > 4096 else (SORT, QUANTISE, CK),
        )
        assert (found.kind, found.reason) == (Kind.NOT_RUN, Reason.NOT_EXECUTABLE)
        assert found.details["ran"] == 2
        assert found.message.startswith(f"2 of {found.details['of']} inputs ran and are right.")
        assert "moe_ck2stages_gemm1" in found.details["inputs"]["many-experts"]["M=1"]

    def test_nothing(self, outcome: Any) -> None:
        """Where no input's kernels can be executed, they are named."""
        found = outcome(CHANNEL, lambda _: (SORT, QUANTISE, CK))
        assert (found.kind, found.reason) == (Kind.NOT_RUN, Reason.NOT_EXECUTABLE)
        assert found.message == "No input's kernels can be executed: ck kernels are built on first use."
        assert found.details["kernels"] == ["moe_ck2stages_gemm1"]

    def test_wrong(self, outcome: Any) -> None:
        """One wrong kernel fails the cell, and is named with the input."""
        found = outcome(CHANNEL, lambda call: launches(GELU) if call.tokens > 4096 else (SORT, QUANTISE, CK))
        assert (found.kind, found.reason) == (Kind.FAIL, Reason.NUMBERS_DIFFER)
        assert "many-experts with 16384 tokens, fmoe_bf16_pertokenFp8_g1u1_vs_gelu" in found.message

    def test_refused(self, outcome: Any) -> None:
        """A cell that its leaf refuses has no call, and so no outcome."""
        with pytest.raises(ValueError, match="not enough values to unpack"):
            outcome(Cell("gfx942", "fp8-block", "silu", "in"), lambda _: ())

    def test_not_importable(
        self, release: Release, inventory: Inventory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A release that cannot be imported says nothing about its kernels."""

        def fails(*_: Any, **__: Any) -> Run:
            raise InfrastructureError("it cannot be imported")

        monkeypatch.setattr(level, "cached_run", fails)
        found = level.observe(
            load_subject("impl"),
            release,
            BOARD,
            [CHANNEL],
            runs=Path(),
            code=Path(),
            inventory=inventory,
            tuned=TunedTables((), (), ()),
        )
        assert [(one.kind, one.reason) for one in found.values()] == [(Kind.NOT_RUN, Reason.INFRASTRUCTURE)]


class TestCollect:
    """runner.collect, at level isa."""

    def test_a_record_for_each_emulated_board(
        self, release: Release, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Boards whose arch is emulated have a record of all their cells; traces and code are kept apart."""
        asked: list[tuple[str, Path, Path]] = []

        def observe(*given: Any, runs: Path, code: Path, **_: Any) -> Any:
            board, cells = given[2], given[3]
            asked.append((str(board), runs, code))
            return dict.fromkeys(cells, Outcome(Kind.NOT_RUN, Reason.NOT_EXECUTABLE, "nothing ran"))

        monkeypatch.setattr(level, "observe", observe)
        records = collect(load_subject("impl"), release, levels=[Level.ISA], cache=Path("b/trace"))
        boards = ["gfx942:304", "gfx942:80", "gfx950:256"]
        assert asked == [(board, Path("b/trace"), Path("b/isa")) for board in boards]
        assert [record.board for record in records] == boards
        assert all(cell.arch == record.board[:6] for record in records for cell in record.outcomes)
