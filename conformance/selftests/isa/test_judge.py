"""One object's judgement: each way that a kernel can be wrong is seen, on hand-made kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aiter_conformance.isa import judge as judging
from aiter_conformance.isa import toy
from aiter_conformance.isa.codeobject import Argument, CodeObject, Kernel
from aiter_conformance.isa.decode import Program
from aiter_conformance.isa.execute import Core
from aiter_conformance.isa.judge import Case, Status, cases, judge, observe
from aiter_conformance.isa.launch import Family
from aiter_conformance.isa.variant import Variant, read_variant
from aiter_conformance.publish.sweep import ODD

NAME = "hsa/gfx942/fmoe/silu/fmoe_bf16_noquantBf16_g1u0_silu_1tg_32x128.co"
STAGE1 = "hsa/gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_32x128_3tg_pf2.co"
KERNEL = Kernel("k", 0, 512, 0, 0, 0xC0000, 0x384, 8, 0, 0, ())
CODE = CodeObject("gfx942", bytes(64), (0, 64), {"k": KERNEL})
NOTHING = ("s_endpgm",)
OUTSIDE = (
    "s_load_dwordx2 s[8:9], s[0:1], 0x0",
    "v_mov_b32_e32 v1, 0x7ffffff0",
    "v_mov_b32_e32 v2, 0",
    "global_store_dwordx2 v1, v[2:3], s[8:9]",
    "s_endpgm",
)
WRITES_NAN = (
    "s_load_dwordx2 s[8:9], s[0:1], 0x0",
    "v_mov_b32_e32 v1, 0",
    "v_mov_b32_e32 v2, -1",
    "v_mov_b32_e32 v3, -1",
    "global_store_dwordx2 v1, v[2:3], s[8:9]",
    "s_endpgm",
)
FOR_EVER = ("s_branch 65535", "s_endpgm")

MakeProgram = Callable[..., Program]


class TestJudge:
    """judge."""

    def test_nothing_done_is_wrong(self, core: Core, program: MakeProgram) -> None:
        """A kernel that ends at once leaves zeros: relative error 1 in every case, and all of it ran."""
        found = judge(CODE, program(NOTHING, "gfx942"), NAME, core)
        assert (found.status, found.share) == (Status.WRONG, 1.0)
        assert [seen.error for seen in found.observations] == [1.0] * 5
        assert found.reason is not None
        assert found.reason.startswith("few (tokens=3,experts=7,topk=2,hidden=512")

    def test_fault_is_wrong(self, core: Core, program: MakeProgram) -> None:
        """A store outside the output is wrong, and the reason names the instruction."""
        found = judge(CODE, program(OUTSIDE, "gfx942"), NAME, core)
        assert found.status is Status.WRONG
        assert found.reason is not None
        assert "global_store_dwordx2" in found.reason
        assert found.share == 0.0

    def test_nan_is_wrong(self, core: Core, program: MakeProgram) -> None:
        """One NaN in the output is wrong; it is kept as no number, so that results stay plain JSON."""
        found = judge(CODE, program(WRITES_NAN, "gfx942"), NAME, core)
        assert found.status is Status.WRONG
        assert [seen.error for seen in found.observations] == [None] * 5
        assert found.reason is not None
        assert found.reason.endswith("output has NaN")

    @pytest.mark.parametrize("core", ["fast"], indirect=True)
    def test_endless_is_wrong(
        self, core: Core, program: MakeProgram, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A kernel that does not end runs out of its budget."""
        monkeypatch.setattr(judging, "BUDGET", 1000)
        looping = program(FOR_EVER, "gfx942")
        found = judge(CODE, looping, NAME, core)
        assert found.status is Status.WRONG
        assert found.reason is not None
        assert "must end within its budget" in found.reason

    def test_unmodelled_launch_is_not_right(self, core: Core, program: MakeProgram) -> None:
        """A name whose launch is not modelled is not executable, whatever the code does."""
        found = judge(CODE, program(NOTHING, "gfx942"), "hsa/gfx950/fmoe/silu/fmoe_bf16_int4_1x2.co", core)
        assert (found.status, found.share, found.observations) == (Status.NOT_EXECUTABLE, None, ())

    def test_refused_launch_is_not_right(self, core: Core, program: MakeProgram) -> None:
        """Nor is an object whose own metadata contradicts the layout that it would be launched with."""
        kernel = replace(KERNEL, arguments=(Argument("hdim", 0, 4, "by_value"),))
        found = judge(replace(CODE, kernels={"k": kernel}), program(NOTHING, "gfx942"), NAME, core)
        assert found.status is Status.NOT_EXECUTABLE
        assert found.reason is not None
        assert "argument hdim of k must be at" in found.reason


class TestObserve:
    """observe."""

    @pytest.fixture
    def answer(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
        """Let the launch give an output of ours, made from the problem's right answer."""

        def install(change: Callable[[np.ndarray], np.ndarray], partly: int = 0) -> None:
            real_problem = toy.problem
            made: list[toy.Problem] = []

            def problem(kind: Variant, shape: toy.Shape) -> toy.Problem:
                made.append(real_problem(kind, shape))
                return made[-1]

            def run(*_: object, **__: object) -> Any:
                execution = SimpleNamespace(
                    over_reads=(), instructions=1, counts=np.ones(1, np.int64), partly_outside=partly
                )
                return SimpleNamespace(outputs={"O": change(made[-1].expected.copy())}, execution=execution)

            monkeypatch.setattr(toy, "problem", problem)
            monkeypatch.setattr(judging.launch, "run", run)

        return install

    @pytest.mark.parametrize(
        ("change", "right"),
        [
            (lambda x: x, True),
            (lambda x: x * 1.007, True),
            (lambda x: x * 1.009, False),
            (lambda x: np.concatenate([x[:-1], x[-1:] * 1.06]), False),  # 0.0079 of all, 0.06 of its row
            (lambda x: x * np.where(np.arange(x.shape[1]) == 7, 1.13, 1), True),  # 0.0037 of all
            (lambda x: x * np.where(np.arange(x.shape[1]) == 7, 0.8, 1), False),  # 0.0056 of all, 0.18 of it
            (lambda x: np.roll(x, 1, axis=0), False),
        ],
        ids=["exact", "within", "beyond", "one row", "column", "one column", "rows shifted"],
    )
    def test_limits(
        self, answer: Callable[[Any], None], program: MakeProgram, change: Any, right: bool
    ) -> None:
        """The whole output, its worst row and its worst column each have a limit."""
        answer(change)
        kind = read_variant("gfx942", NAME)
        case = Case("many", toy.Shape(tokens=64, experts=2, topk=1, hidden=1024, intermediate=128))
        seen, _ = observe(CODE, program(NOTHING, "gfx942"), kind, case, _never)
        assert seen.right is right

    @pytest.mark.parametrize(("partly", "words"), [(0, ""), (3, "; 3 accesses partly beyond a descriptor")])
    def test_partly_outside_is_said(
        self, answer: Callable[..., None], program: MakeProgram, partly: int, words: str
    ) -> None:
        """A wrong result that may hang on dwords partly beyond a descriptor says how many there were."""
        answer(lambda x: -x, partly)
        found = judge(CODE, program(NOTHING, "gfx942"), NAME, _never)
        assert found.observations[0].partly_outside == partly
        assert str(found.reason).endswith(
            f"of the worst column {found.observations[0].worst_column:.2g}{words}"
        )

    @pytest.mark.parametrize(("runs", "right"), [(1, True), (2, False)])
    def test_one_flipped_code_is_an_accident(
        self, answer: Callable[[Any], None], program: MakeProgram, runs: int, right: bool
    ) -> None:
        """A small error that other inputs do not have is none; one that they have is."""
        left = [runs]

        def change(x: np.ndarray) -> np.ndarray:
            left[0] -= 1
            return x * 1.01 if left[0] >= 0 else x

        answer(change)
        kind = read_variant("gfx942", NAME)
        seen, _ = observe(CODE, program(NOTHING, "gfx942"), kind, cases(kind)[0], _never)
        assert seen.right is right
        assert seen.error == pytest.approx(0.01)

    @pytest.mark.parametrize(("factor", "right"), [(1 + 5e-6, True), (1 + 2e-5, False)])
    def test_split_k_is_exact(
        self, answer: Callable[[Any], None], program: MakeProgram, factor: float, right: bool
    ) -> None:
        """Partial sums in float32 have no rounding to bf16 behind which an error could hide."""
        answer(lambda x: x * factor)
        kind = read_variant("gfx942", STAGE1)
        split = next(case for case in cases(kind) if case.shape.ksplit)
        seen, _ = observe(CODE, program(NOTHING, "gfx942"), kind, split, _never)
        assert seen.right is right


def _never(*_: object, **__: object) -> None:
    raise AssertionError("nothing is executed in this test")


class TestCases:
    """cases."""

    @pytest.mark.parametrize("name", [NAME, STAGE1])
    def test_reach(self, name: str) -> None:
        """Tokens below, at and above the tile, several K, an odd multiple of 256, idle experts."""
        kind = read_variant("gfx942", name)
        shapes = [case.shape for case in cases(kind)]
        tokens = {np.sign(shape.tokens - kind.tile_m) for shape in shapes}
        assert tokens == {-1, 0, 1}
        assert {512, 768, 1024, 1536, 2048} <= {shape.hidden for shape in shapes}
        assert any(shape.experts > shape.tokens * shape.topk for shape in shapes)
        assert any(shape.intermediate > kind.tile_n for shape in shapes)
        assert cases(kind)[-1].name == ODD
        assert [shape.hidden % 512 for shape in shapes].count(256) == 1

    def test_stage1_takes_both_activations_and_split_k(self) -> None:
        """They are arguments of a stage-1 object, so that both are asked for."""
        found = cases(read_variant("gfx942", STAGE1))
        assert {case.gelu for case in found} == {False, True}
        assert {case.shape.ksplit for case in found} == {0, 1, 2}

    def test_groups(self) -> None:
        """A persistent kernel gets fewer groups than blocks, more, and a number that does not divide."""
        kind = read_variant("gfx942", NAME.replace("32x128", "ps_32x128"))
        assert (kind.persistent, kind.family) == (True, Family.ONE_STAGE)
        few, full, more, _, _ = (case.shape for case in cases(kind))
        assert (few.groups, full.groups, more.groups) == (1, 3, 3)
        assert full.tokens == kind.tile_m  # one block, three groups
        assert more.experts * -(-more.tokens // kind.tile_m) % more.groups
