"""What is seen of kernels, what an exception means, what the probe makes of a machine, AITER's shuffles."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from aiter_conformance.axes import load_axes
from aiter_conformance.case import Case
from aiter_conformance.coverage import problems
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.hardware import execute, probe
from aiter_conformance.hardware.items import needed
from aiter_conformance.hardware.kernels import (
    Expected,
    Seen,
    assembly_name,
    device_kernels,
    difference,
    family_of,
    logged_kernels,
    watch,
)
from aiter_conformance.hardware.machine import Machine, read_machine
from aiter_conformance.hardware.roofline import Floor, floor, time_of_cell
from aiter_conformance.hardware.shuffles import pack_with
from aiter_conformance.hardware.trouble import sentence, trouble
from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.numerics.packed import pack
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.providers.hardware import RealAiter
from aiter_conformance.subjects import load_subject
from aiter_conformance.trace.board import Board

ASM = "_ZN5aiter48fmoe_stage1_bf16_pertokenFp8_g1u1_32x128_3tg_pf3E"
CK = "void ck::kernel_moe_gemm_2lds<ck::GridwiseMoeGemm<ck::tensor_layout::gemm::RowMajor>>"


class TestFamilyOf:
    """`family_of` and `assembly_name`."""

    @pytest.mark.parametrize(
        ("name", "family"),
        [
            (ASM, "asm-stage1"),
            ("_ZN5aiter47fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_64x384E.kd", "asm-1stage"),
            (CK, "ck"),
            ("moe_ck2stages_gemm2_256x32x64x64_1x4_TypeCast_v1_Nswizzle0_Quant0_MulRoutedWeight1_B16", "ck"),
            ("void ck::kernel_moe_mxgemm<...>", "ck"),
            ("ck_tile::kentry<1, ck_tile::MoeFlatmmKernel<...>>", "ck-tile"),
            ("mfma_moe1_silu_mul_afp4_wfp4_bf16_t32x128x256_pm1_v33", "flydsl"),
            ("gemm2_a16w4_port_ne32_h2880_i2880_bm32_tn128", "flydsl"),
            ("opus_moe1_afp8_wfp4_bf16_t32x384_gs", "opus"),
            ("ck_tile::MoeSortingKernel<...>", None),
            ("void aiter::dynamic_per_group_scaled_quant_kernel<...>", None),
            ("opus_moe_stage2_reduce_token_slot_route_output_fwd", None),
            ("mxfp4_moe_scale_sort_c224", None),
        ],
    )
    def test_names_of_kernels(self, name: str, family: str | None) -> None:
        """Kernels of products have a family, the helpers between them none."""
        assert family_of(name) == family

    @pytest.mark.parametrize(
        "name", [ASM, f"{ASM}.kd", "aiter::fmoe_stage1_bf16_pertokenFp8_g1u1_32x128_3tg_pf3"]
    )
    def test_one_name_however_it_is_written(self, name: str) -> None:
        """An assembly kernel has one name, mangled or not."""
        assert assembly_name(name) == "fmoe_stage1_bf16_pertokenFp8_g1u1_32x128_3tg_pf3"


class TestDifference:
    """`difference`."""

    def test_the_same(self) -> None:
        """Helpers do not count, and the order of kernels neither."""
        seen = Seen((CK, "ck_tile::MoeSortingKernel", ASM), "profiler")
        expected = Expected(frozenset({"asm-stage1", "ck"}), frozenset({str(assembly_name(ASM))}))
        assert difference(seen, expected) is None

    @pytest.mark.parametrize(
        ("names", "said"),
        [((CK,), "ck ran"), ((CK, ASM.replace("32x128", "32x256")), "32x256_3tg_pf3 ran")],
    )
    def test_another(self, names: tuple[str, ...], said: str) -> None:
        """A family less, or another assembly kernel of the same family, is a difference."""
        expected = Expected(frozenset({"asm-stage1", "ck"}), frozenset({str(assembly_name(ASM))}))
        assert said in str(difference(Seen(names, "profiler"), expected))


class TestWatch:
    """Where names come from."""

    def test_the_profilers_device_events(self) -> None:
        """Events of the device name kernels, once each; those of the CPU do not."""
        device, cpu = torch.autograd.DeviceType.CUDA, torch.autograd.DeviceType.CPU
        events = [
            SimpleNamespace(name=n, device_type=d) for n, d in (("a", device), ("b", cpu), ("a", device))
        ]
        assert device_kernels(events) == ("a",)

    def test_aiters_log(self) -> None:
        """The line that AITER writes at its choice names both kernels; a default choice names none."""
        lines = [
            "[fused_moe] using 2stage (kernelName1='k1', kernelName2='k2') for (256, 17) ",
            "[fused_moe] using 2stage default for (256, 17) ",
            "kernelName1='no'",
        ]
        assert logged_kernels(lines) == ("k1", "k2")

    def test_long_names_are_cut_and_still_tell(self) -> None:
        """A C++ name of a page is cut around the part that tells its family; helpers are left out."""
        long = "void ck_tile::kentry<" + "x, " * 200 + "ck_tile::MoeFlatmmKernel<" + "y, " * 200
        seen = Seen((long, "void at::native::fill"), "profiler")
        (shown,) = seen.products
        assert len(shown) < 120
        assert family_of(shown) == "ck-tile"
        assert Seen((ASM,), "profiler").products == (ASM,)

    def test_nothing_said(self) -> None:
        """Without profiler and log the source is none."""
        assert watch(lambda: 7, profile=False) == (7, Seen())


class TestTrouble:
    """`trouble` and `sentence`."""

    @pytest.mark.parametrize(
        ("error", "kind", "reason"),
        [
            (torch.OutOfMemoryError("HIP out of memory"), Kind.NOT_RUN, Reason.OUT_OF_MEMORY),
            (RuntimeError("hipErrorOutOfMemory: out of memory"), Kind.NOT_RUN, Reason.OUT_OF_MEMORY),
            (
                RuntimeError("[aiter] build [module_moe] under /x failed !!"),
                Kind.NOT_RUN,
                Reason.BUILD_FAILED,
            ),
            (RuntimeError("HIP error: an illegal memory access"), Kind.CRASH, Reason.CRASHED),
            (ValueError("bias1 ... whose call has no bias1"), Kind.REFUSED, Reason.API_MISSING_ARGUMENT),
            (TypeError("got an unexpected keyword argument 'x'"), Kind.REFUSED, Reason.API_MISSING_ARGUMENT),
            (ImportError("AITER 1 does not give fused_moe"), Kind.REFUSED, Reason.API_MISSING_FUNCTION),
            (AssertionError(""), Kind.FAIL, Reason.CALL_RAISES),
        ],
    )
    def test_what_an_exception_means(self, error: Exception, kind: Kind, reason: Reason) -> None:
        """Only what the kernel or its interface did is held against it."""
        assert (trouble(error).kind, trouble(error).reason) == (kind, reason)

    def test_messages_hold_no_paths(self) -> None:
        """A path of the machine is left out, and so is what follows the first line."""
        assert sentence("\nno /opt/rocm/lib/x.so, see '/home/me/y'\nat z") == "no (a path), see '(a path)'"


class TestReadMachine:
    """`read_machine`."""

    GPU: ClassVar[dict[str, Any]] = {
        "arch": "gfx942",
        "units": 304,
        "name": "AMD Instinct MI300X",
        "memory": 1,
        "clock": 2_100_000_000,
    }

    def found(self, **changed: Any) -> dict[str, Any]:
        """Return an answer of the probe."""
        names = ("python", "torch", "hip", "rocm", "driver", "aiter", "build_archs")
        plain: dict[str, Any] = dict.fromkeys(names, "1") | {"missing": [], "simulated": False}
        return plain | {"gpus": [self.GPU, self.GPU]} | changed

    def test_a_machine(self) -> None:
        """Two GPUs of one kind are one board, and everything found is in the environment of its evidence."""
        machine = read_machine(self.found())
        assert (str(machine.board), machine.gpus) == ("gfx942:304", 2)
        assert machine.environment()["gpu"] == "AMD Instinct MI300X"
        assert "simulated" not in machine.environment()

    @pytest.mark.parametrize("name", ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
    def test_each_worker_has_its_own_gpu(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        """A worker sees one GPU, of those that the run may see."""
        monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
        monkeypatch.setenv(name, "4,6")
        machine = read_machine(self.found())
        shown = [machine.device_variables(index) for index in range(machine.gpus)]
        assert shown == [{"HIP_VISIBLE_DEVICES": "4"}, {"HIP_VISIBLE_DEVICES": "6"}]

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (
                {"missing": ["there is no AMD GPU here", "torch is not"]},
                "NOT RUN: there is no .*; torch is not",
            ),
            ({"gpus": [GPU, GPU | {"units": 80}]}, "of one kind .got gfx942:80, gfx942:304"),
            ({"gpus": [GPU | {"arch": "gfx90a"}]}, "must be one of gfx942, .*got gfx90a"),
        ],
    )
    def test_what_cannot_be_tested(self, changed: dict[str, Any], message: str) -> None:
        """It is NOT RUN, with every reason."""
        with pytest.raises(InfrastructureError, match=message):
            read_machine(self.found(**changed))

    def test_this_machine_without_a_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the driver's device is not there the probe says so, and never opens torch."""
        monkeypatch.delenv(probe.SIMULATION, raising=False)
        monkeypatch.setattr(probe.Path, "exists", lambda _path: False)
        monkeypatch.setattr(probe, "_ask_torch", lambda _found: pytest.fail("torch was asked"))
        assert probe.find()["missing"][0] == "there is no AMD GPU here (/dev/kfd is not there)"


class TestPackWith:
    """`pack_with`."""

    PROBLEM = next(p for _, p in problems(load_axes().parse_cell("gfx942/bf16/silu/out"), "hardware"))

    def library(self, **functions: Any) -> Any:
        """Return an AITER with these shuffles."""
        module = ModuleType("aiter.ops.shuffle")
        vars(module).update(functions)
        return SimpleNamespace(version="1", modules={"aiter.ops.shuffle": module})

    def test_without_aiters_shuffles(self) -> None:
        """The harness packs, and says so by None."""
        packed, differing = pack_with(self.library(), self.PROBLEM, pack(self.PROBLEM))
        assert differing is None
        assert torch.equal(packed.w1, pack(self.PROBLEM).w1)

    def test_another_layout_is_found_and_used(self) -> None:
        """A shuffle that packs otherwise is what the kernel is given, and both weights are named."""
        library = self.library(shuffle_weight=lambda w, **_: w.clone())
        packed, differing = pack_with(library, self.PROBLEM, pack(self.PROBLEM))
        assert differing == ["w1", "w2"]
        assert not torch.equal(packed.w1, pack(self.PROBLEM).w1)
        assert packed.w1.is_shuffled  # type: ignore[attr-defined]


class TestRoofline:
    """`floor` and `time_of_cell`."""

    MI300X = Machine(Board("gfx942", 304), 1, "AMD Instinct MI300X", 1, 2_100_000_000, {}, False)

    def problem(self, tokens: int, scheme: str = "bf16") -> Problem:
        """Return a layer of one expert with K = N = 1024."""
        cell = load_axes().parse_cell(f"gfx942/{scheme}/silu/out")
        return Problem(Case(cell, experts=1, topk=1, hidden=1024, intermediate=1024, tokens=tokens))

    def test_few_tokens_are_bound_by_memory(self) -> None:
        """One token reads 3 * 2^20 weights of two bytes, and its row in and out, at 5.3 TB/s."""
        found = floor(self.problem(1), self.MI300X)
        assert found == Floor((3 * 2**20 * 2 + 2 * 2 * 1024) / 5.3e12, "bandwidth")

    def test_many_tokens_are_bound_by_the_matrix_cores(self) -> None:
        """4096 tokens take 2 * 3 * 2^20 operations each, at 304 * 2048 a clock; fp8 takes half of it."""
        found = floor(self.problem(4096), self.MI300X)
        assert found == Floor(4096 * 6 * 2**20 / (304 * 2048 * 2.1e9), "matrix rate")
        fp8 = floor(self.problem(4096, "fp8-channel"), self.MI300X)
        assert fp8 == Floor(found.seconds / 2, "matrix rate")

    def test_an_unknown_board_has_none(self) -> None:
        """No figure is made up for a product that is not in the table, nor where the clock is not known."""
        assert floor(self.problem(1), replace(self.MI300X, name="AMD Instinct MI999")) is None
        assert floor(self.problem(1), replace(self.MI300X, clock=0)) is None

    def test_the_record_has_the_largest_input(self) -> None:
        """Of the inputs that passed, the one with the highest floor is shown; failures have no time."""
        items = needed(load_axes().parse_cell("gfx942/bf16/silu/out"))[:3]
        passed = Outcome(Kind.PASS, details={"seconds": 1e-3})
        wrong = Outcome(Kind.FAIL, Reason.NUMBERS_DIFFER, "It is wrong.", {"seconds": 1e-3})
        found = time_of_cell(dict(zip(items, (passed, passed, wrong), strict=True)), self.MI300X)
        assert found is not None
        assert (found["input"], found["microseconds"], found["bound"]) == (
            "tokens/r0/M17",
            1000.0,
            "bandwidth",
        )


class TestRunItem:
    """What an exception inside a run is charged to."""

    ITEM = needed(load_axes().parse_cell("gfx942/bf16/silu/out"))[0]

    def setting(self) -> execute.Setting:
        """Return a setting whose AITER has no kernel at all."""
        library = RealAiter("0.1.20")
        return execute.Setting(load_subject("impl"), library, "cpu", {})

    def test_a_fault_of_the_harness_is_not_the_kernels(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the oracle raises leaves the input not run."""
        monkeypatch.setattr(execute, "_expected", lambda _problem: 1 / 0)
        attempt = execute.run_item(self.ITEM, self.setting())
        assert (attempt.kind, attempt.reason) == (Kind.NOT_RUN, Reason.INFRASTRUCTURE)
        assert "ZeroDivisionError" in str(attempt.message)

    def test_what_the_leaf_raises_is_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same error out of a call of the leaf is a failure."""
        monkeypatch.setattr(execute, "apply_leaf", lambda *_args, **_words: 1 / 0)
        attempt = execute.run_item(self.ITEM, self.setting())
        assert (attempt.kind, attempt.reason) == (Kind.FAIL, Reason.CALL_RAISES)

    def test_a_device_fault_counts_wherever_it_shows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An error of the device may be reported by whatever comes next."""

        def late(_problem: Any) -> None:
            msg = "HIP error: an illegal memory access was encountered"
            raise RuntimeError(msg)

        monkeypatch.setattr(execute, "_expected", late)
        assert execute.run_item(self.ITEM, self.setting()).kind is Kind.CRASH
