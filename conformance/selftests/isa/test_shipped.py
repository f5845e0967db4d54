"""AITER's shipped kernels: each family of each architecture is run and judged against float64.

Needs the release on PyPI, the disassembler and numba; without one of them these tests say so and are skipped.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aiter_conformance.isa import codeobject, decode, fast, judge, launch, objects, reference, toy
from aiter_conformance.isa.machine import Buffer, KernelFaultError
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.reference import core as reference_core
from aiter_conformance.isa.variant import read_variant

STAGE1 = "fmoe_2stages/fmoe_stage1_bf16_"
SILU, GELU = "fmoe/silu/fmoe_bf16_", "fmoe/gelu/fmoe_bf16_"
FAMILIES = [
    STAGE1 + "pertokenFp8_g1u1_32x128_3tg_pf2",
    STAGE1 + "pertokenFp8_doweight_g1u1_32x128_3tg_pf2",
    STAGE1 + "pertokenFp8_blockscale_g1u1_32x128_3tg_pf2",
    STAGE1 + "pertokenInt8_g1u1_16x128_4tg_pf3",
    SILU + "pertokenFp8_g1u1_vs_silu_1tg_32x256",
    SILU + "pertokenFp8_g1u1_vs_silu_1tg_ps_32x256",
    SILU + "pertokenFp8_g1u1_vs_tkw1_silu_1tg_ps_32x128",
    SILU + "blockscaleFp8_g1u1_vs_silu_1tg_32x256",
    SILU + "noquantBf16_g1u0_vs_atm_inlv_silu_1tg_32x512",
    SILU + "pertokenInt8_g1u1_vs_silu_1tg_32x256",
    SILU + "pertokenInt8_g1u0_vs_silu_1tg_32x256",
    SILU + "pertokenFp8_g1u1_vs_multix_silu_1tg_32x256",
    SILU + "pertokenFp8_g1u1_vs_smf_silu_1tg_32x512",
    SILU + "pertokenInt8_g1u0_vs_smf_silu_1tg_32x512",
    GELU + "pertokenFp8_g1u1_vs_gelu_1tg_32x256",
    "fmoe/silu/fmoe_fp16_pertokenFp8_g1u1_vs_silu_1tg_32x256",
]
MXFP4 = [
    SILU + "pertokenMXfp4_g1u1_vs_silu_1tg_32x512",
    SILU + "pertokenMXfp4_g1u1_novs_silu_2tg_32x256",
    GELU + "pertokenMXfp4_g1u1_novs_gelu_1tg_ps_32x512",
]
LIMIT = 8e-3
"""Relative error of a right kernel.

bf16 output rounding is 1.7e-3, atomic slices 2.4e-3, flipped codes of the intermediate come on top. The
smallest of the faults below gives 0.1.
"""
SLACK = 8192  # several kernels prefetch past their inputs
SWEEP_STRIDE = 41


def _load(wheel: Path, arch: str, name: str) -> codeobject.CodeObject:
    with zipfile.ZipFile(wheel) as archive:
        return codeobject.load(archive.read(f"aiter_meta/hsa/{arch}/{name}.co"))


def _problem(arch: str, name: str, **shape: int) -> toy.Problem:
    # This release's gfx950 blockscale objects scale the intermediate to gfx942's largest code.
    requant_max = 240.0 if "blockscale" in name else None
    kind = read_variant(arch, name + ".co", requant_max)
    return toy.problem(kind, toy.Shape(intermediate=max(kind.tile_n, 256), **shape))


@pytest.fixture
def decoded(cache_dir: Path, disassembler: Path, wheel: Path) -> object:
    """A function from architecture and name to the object and its program."""

    def load(arch: str, name: str) -> tuple[codeobject.CodeObject, decode.Program]:
        code = _load(wheel, arch, name)
        return code, decode.decode([code], cache_dir)[0]

    return load


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
class TestRight:
    """Kernels that are right."""

    @pytest.mark.parametrize("name", FAMILIES)
    def test_families(self, decoded, fast_core: fast.FastCore, arch: str, name: str) -> None:
        """The result agrees with float64 over the same quantised inputs and the same pipeline."""
        code, program = decoded(arch, name)
        problem = _problem(arch, name)
        result = launch.run(code, program, problem.launch, core=fast_core, slack=SLACK)
        assert problem.error(result.outputs["O"]) < LIMIT

    @pytest.mark.parametrize("tokens", [1, 31, 33, 70])
    def test_tokens(self, decoded, fast_core: fast.FastCore, arch: str, tokens: int) -> None:
        """So it does below, above and at several times the M tile, with experts that get no token."""
        code, program = decoded(arch, FAMILIES[0])
        problem = _problem(arch, FAMILIES[0], tokens=tokens, experts=5, hidden=768)
        result = launch.run(code, program, problem.launch, core=fast_core, slack=SLACK)
        assert problem.error(result.outputs["O"]) < LIMIT

    @pytest.mark.parametrize("name", FAMILIES[:3])
    def test_every_path(self, decoded, fast_core: fast.FastCore, arch: str, name: str) -> None:
        """Both activations and a split K together run 95 % of a stage-1 object, and all are right.

        Split K gives gate and up in float32: no rounding to bf16 hides an error there.
        """
        code, program = decoded(arch, name)
        counts = np.zeros(len(program.texts), np.int64)
        for gelu, ksplit, limit in ((False, 0, LIMIT), (True, 0, LIMIT), (False, 1, 1e-6), (True, 2, 1e-6)):
            kind = replace(_problem(arch, name).variant, gelu=gelu)
            problem = toy.problem(kind, toy.Shape(hidden=1024, ksplit=ksplit))
            result = launch.run(code, program, problem.launch, core=fast_core, slack=SLACK)
            assert problem.error(result.outputs["O"]) < limit
            counts += result.execution.counts
        assert (counts > 0).mean() > 0.95

    def test_both_cores(self, decoded, fast_core: fast.FastCore, arch: str) -> None:
        """A whole kernel leaves the same bits and counts on both cores."""
        code, program = decoded(arch, FAMILIES[0])
        work = _problem(arch, FAMILIES[0], tokens=3, experts=1, topk=1, hidden=256).launch
        results = [
            launch.run(code, program, work, core=core, slack=SLACK) for core in (fast_core, reference.run)
        ]
        outputs = [result.outputs["O"].view(np.uint16) for result in results]
        assert (outputs[0] == outputs[1]).all()
        assert (results[0].execution.counts == results[1].execution.counts).all()
        assert results[0].execution.over_reads == results[1].execution.over_reads


@pytest.mark.parametrize("name", MXFP4)
def test_mxfp4(decoded, fast_core: fast.FastCore, name: str) -> None:
    """Kernels of gfx950 that take mxfp4 are right too."""
    code, program = decoded("gfx950", name)
    kind = read_variant("gfx950", name + ".co")
    for case in judge.cases(kind):
        if case.name != "odd":  # an odd multiple of 256: see the findings
            assert judge.observe(code, program, kind, case, fast_core)[0].right, case


@pytest.mark.usefixtures("disassembler", "fast_core")
class TestFlat:
    """Kernels that find their tokens themselves, which only newer releases have."""

    NAMES = (
        "gfx942/fmoe/silu/fmoe_bf16_a16_blockscaleFp8_g1u1_vs_silu_1tg_16x128_flat_pf3",
        "gfx942/fmoe/silu/fmoe_bf16_a16_blockscaleFp8_g1u1_vs_silu_1tg_emsort_16x128_pf3",
        "gfx950/fmoe/silu/fmoe_bf16_blockscaleBf16_g1u1_flat_vs_silu_1x128",
        "gfx950/fmoe/gelu/fmoe_bf16_blockscaleBf16_g1u1_flat_vs_gelu_1x256",
        "gfx950/fmoe/silu/fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x256",
    )

    @pytest.fixture
    def opened(self, aiter_clone: str, cache_dir: Path) -> Callable[[str], objects.Opened]:
        """A function from an object's name to the object, opened."""
        release = f"git:{aiter_clone}@v0.1.20.post1"
        return lambda name: objects.open_object(release, f"{name}.co", cache_dir)

    @pytest.mark.parametrize("name", NAMES)
    def test_right(self, opened: Callable[[str], objects.Opened], name: str) -> None:
        """Right on an output full of large numbers, which nobody cleared."""
        found = opened(name)
        [deep] = [case for case in judge.cases(found.kind) if case.name == "deep"]
        seen = found.observe(deep)
        assert (seen.right, seen.fault) == (True, None)

    def test_who_clears(self, opened: Callable[[str], objects.Opened], fast_core: fast.FastCore) -> None:
        """Work-groups agree by 8 bytes behind the output who clears it: told that it is done, nobody does."""
        found = opened(self.NAMES[-1])
        problem = toy.problem(found.kind, toy.Shape(tokens=3, hidden=2048))
        out = problem.launch.buffers["O"].data.copy()
        before = 64.0
        out[:-4] = before
        out[-4:] = np.array([0, 0xDEADC0DE], np.uint32).view(out.dtype)  # dispatch 0, cleared
        ran = launch.run(
            found.code, found.program, _with(problem, "O", out), core=fast_core, slack=SLACK
        ).outputs["O"]
        assert problem.error(ran) > 1
        assert np.allclose(problem.decode(ran) - before, problem.expected, atol=1.0)  # bf16 of 64 and more


def _with(problem: toy.Problem, slot: str, data: np.ndarray) -> launch.Launch:
    changed = replace(problem.launch.buffers[slot], data=data)
    return replace(problem.launch, buffers={**problem.launch.buffers, slot: changed})


class TestWrong:
    """Faults that must be seen, on one kernel that is right without them."""

    NAME = FAMILIES[0]

    def _error(self, decoded, core: fast.FastCore, problem: toy.Problem, work: launch.Launch) -> float:
        code, program = decoded("gfx942", self.NAME)
        return problem.error(launch.run(code, program, work, core=core, slack=SLACK).outputs["O"])

    def test_unshuffled_weights(self, decoded, fast_core: fast.FastCore) -> None:
        """Weights in rows give another result altogether."""
        problem = _problem("gfx942", self.NAME)
        shuffled = problem.launch.buffers["G"].data
        experts, n, k = shuffled.shape
        rows = (
            shuffled.reshape(experts, n // 16, k // 16, 16, 16)
            .transpose(0, 1, 3, 2, 4)
            .reshape(shuffled.shape)
        )
        assert self._error(decoded, fast_core, problem, _with(problem, "G", np.ascontiguousarray(rows))) > 1.0

    def test_rolled_scales(self, decoded, fast_core: fast.FastCore) -> None:
        """Weight scales that are one row off."""
        problem = _problem("gfx942", self.NAME)
        rolled = np.roll(problem.launch.buffers["GQ"].data, 1, axis=-1)
        assert self._error(decoded, fast_core, problem, _with(problem, "GQ", rolled)) > 0.1

    def test_other_fp8(self, decoded, fast_core: fast.FastCore) -> None:
        """Fnuz codes read by gfx950, which has OCP fp8: values double and products quadruple."""
        problem = _problem("gfx942", self.NAME)
        code, program = decoded("gfx950", self.NAME)
        result = launch.run(code, program, problem.launch, core=fast_core, slack=SLACK)
        assert not problem.error(result.outputs["O"]) < 0.5

    def test_wrong_stride(self, decoded, fast_core: fast.FastCore) -> None:
        """A doubled output stride leaves the output: a fault that names the buffer."""
        problem = _problem("gfx942", self.NAME)
        integers = {**problem.launch.integers, "Os": 2 * problem.launch.integers["Os"]}
        with pytest.raises(KernelFaultError, match="nearest allocation 'O'"):
            self._error(decoded, fast_core, problem, replace(problem.launch, integers=integers))

    def test_missing_slack(self, decoded, fast_core: fast.FastCore) -> None:
        """A buffer that is one row short is noticed."""
        problem = _problem("gfx942", self.NAME)
        scales = problem.launch.buffers["XQ"].data[:-1]
        code, program = decoded("gfx942", self.NAME)
        with pytest.raises(KernelFaultError, match="nearest allocation 'XQ'"):
            launch.run(code, program, _with(problem, "XQ", scales), core=fast_core)

    def test_changed_semantics(
        self, decoded, fast_core: fast.FastCore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One instruction that does something else, a reciprocal that returns its operand, shows."""
        problem = _problem("gfx942", self.NAME, tokens=4, experts=1, topk=1, hidden=256)
        monkeypatch.setitem(
            reference_core.SEMANTICS,
            Op.V_RCP_F32,
            lambda wave, ins: wave.write_result(ins, wave.source(ins, 0)),
        )
        core = fast_core.without({Op.V_RCP_F32})
        assert self._error(decoded, core, problem, problem.launch) > 0.1


class TestMislabelled:
    """Objects of this release that do not compute what their manifests say; found by running them."""

    @pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
    @pytest.mark.parametrize(
        "name",
        [
            SILU + "pertokenInt8_g1u1_tkw1_silu_1tg_32x256",  # fp8 matrix instructions on int8 codes
            "fmoe/silu/fmoe_fp16_pertokenFp8_g1u1_silu_1tg_32x256",  # bf16 results, added as float16
            "fmoe/silu/fmoe_fp16_noquantFp16_g1u0_vs_atm_inlv_silu_1tg_32x512",  # bf16 matrix instructions
        ],
    )
    def test_wrong(self, decoded, fast_core: fast.FastCore, arch: str, name: str) -> None:
        """The result has nothing to do with the right one."""
        code, program = decoded(arch, name)
        problem = _problem(arch, name)
        result = launch.run(code, program, problem.launch, core=fast_core, slack=SLACK)
        assert not problem.error(result.outputs["O"]) < 0.5


class TestSweep:
    """Static coverage."""

    @pytest.mark.usefixtures("disassembler")
    def test_every_instruction_is_known(self, wheel: Path) -> None:
        """Every 41st of the release's MoE objects decodes completely: no unknown word, opcode or modifier."""
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in sorted(archive.namelist()) if n.endswith(".co") and "moe" in n]
            assert len(names) > 2000
            objects = [codeobject.load(archive.read(name)) for name in names[::SWEEP_STRIDE]]
        programs = decode.decode(objects)
        assert sum(len(p.texts) for p in programs) > 100_000
        for code, program in zip(objects, programs, strict=True):
            family = launch.Family.STAGE1 if "stage1" in code.only_kernel().name else launch.Family.ONE_STAGE
            launch.check_metadata(code, family)
            assert program.row(code.only_kernel().start) >= 0


def test_buffer_is_used() -> None:
    """The output of a problem is its only writable buffer, and starts as zeros."""
    problem = _problem("gfx942", FAMILIES[4])
    writable = [slot for slot, buffer in problem.launch.buffers.items() if buffer.writable]
    assert writable == ["O"]
    assert isinstance(problem.launch.buffers["O"], Buffer)
    assert not problem.launch.buffers["O"].data.any()
