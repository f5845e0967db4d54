"""Level inventory: what small hand-made releases let a cell be, sound and faulty."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.levels import inventory
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.release.artefact import open_release
from aiter_conformance.release.samples import code_object, sample_files, write_tree

FOLDER = "hsa/gfx950/fmoe/silu"
MANIFEST = f"{FOLDER}/fmoe_bf16_pertokenFp8_g1u1_silu.csv"
HEADER = b"knl_name,co_name,atm,vskip,smf,tg_num_perCU,ps,subGU_m,subGU_n\n"
GENERATOR = "csrc/ck_gemm_moe_2stages_codegen/gen_instances.py"
OPTIONS = b'parser.add_argument("-act", "--activation", default="silu", choices=["silu", "gelu"])\n'
CELL = Cell("gfx950", "fp8-channel", "silu", "out")


def kernels(*names: str, arch: str = "gfx950") -> dict[str, bytes]:
    """Return a manifest of the one-stage per-token family with a sound object for each kernel."""
    rows = b"".join(f"{name},{name}.co,0,1,0,1,0,32,256\n".encode() for name in names)
    objects = {f"{FOLDER}/{name}.co": code_object(arch, [name]) for name in names}
    return {MANIFEST: HEADER + rows} | objects


def observe(tmp_path: Path, files: dict[str, bytes], cell: Cell = CELL) -> Outcome:
    """Return what the level says of a cell for a good release with some files replaced or added."""
    with open_release(str(write_tree(tmp_path / "tree", sample_files() | files))) as release:
        return inventory.observe(inventory.read_contents(release), [cell])[cell]


class TestObserve:
    """`observe`."""

    def test_shipped_machine_code_passes(self, tmp_path: Path) -> None:
        """Two sound kernels in the family's manifest: pass, and they are counted."""
        outcome = observe(tmp_path, kernels("one_more", "two_more"))
        assert (outcome.kind, outcome.details) == (Kind.PASS, {"kernels": {"asm-1stage-ptpc": 2}})

    def test_one_kernel_without_its_file_fails(self, tmp_path: Path) -> None:
        """A row whose object is missing fails the cell, whatever is sound beside it: AITER may pick it."""
        files = kernels("one_more", "two_more")
        del files[f"{FOLDER}/two_more.co"]
        outcome = observe(tmp_path, files)
        assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.KERNEL_BROKEN)
        assert outcome.details == {"kernels": {"asm-1stage-ptpc": 1}}
        assert "1 of 2 of asm-1stage-ptpc, such as two_more" in str(outcome.message)

    @pytest.mark.parametrize("fault", ["missing", "wrong-arch", "other-symbol"])
    def test_only_broken_kernels_fail(self, tmp_path: Path, fault: str) -> None:
        """A family all of whose kernels are broken is no kernel, and the message names it."""
        files = kernels("one_more")
        path = f"{FOLDER}/one_more.co"
        if fault == "missing":
            del files[path]
        elif fault == "wrong-arch":
            files[path] = code_object("gfx942", ["one_more"])
        else:
            files[path] = code_object("gfx950", ["another"])
        outcome = observe(tmp_path, files)
        assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.KERNEL_BROKEN)
        assert "asm-1stage-ptpc" in str(outcome.message)

    def test_no_kernel_fails(self, tmp_path: Path) -> None:
        """A release without any family for the cell has no kernel, in words that name the cell."""
        outcome = observe(tmp_path, {})
        assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.NO_KERNEL)
        assert "is known to do silu with fp8-channel on gfx950" in str(outcome.message)

    def test_what_is_compiled_on_first_use_is_not_run(self, tmp_path: Path) -> None:
        """A generator that takes the activation leaves the cell open: neither pass nor fail."""
        outcome = observe(tmp_path, {GENERATOR: OPTIONS})
        assert (outcome.kind, outcome.reason) == (Kind.NOT_RUN, Reason.BUILT_ON_FIRST_USE)
        assert outcome.details == {"kernels": {"ck-2stage-ptpc": 0}}

    def test_a_generator_that_does_not_take_the_activation_is_no_kernel(self, tmp_path: Path) -> None:
        """The generator's own option decides."""
        options = OPTIONS.replace(b'"silu", "gelu"', b'"gelu"')
        assert observe(tmp_path, {GENERATOR: options}).reason is Reason.NO_KERNEL

    def test_kernels_for_some_calls_leave_the_cell_open(self, tmp_path: Path) -> None:
        """CK-Tile serves MXFP4 activations with swiglu for some sizes: the cell neither passes nor fails."""
        cell = Cell("gfx950", "mxfp4-w4a4", "swigluoai", "out")
        enums = sample_files()["csrc/include/aiter_enum.h"].replace(b"Gelu,", b"Gelu, Swiglu,")
        files = {"csrc/include/aiter_enum.h": enums}
        assert observe(tmp_path, files, cell).reason is Reason.NO_KERNEL
        files["csrc/ck_tile_gemm_moe_2stages/gen_instances.py"] = b"\n"
        outcome = observe(tmp_path, files, cell)
        assert (outcome.kind, outcome.reason) == (Kind.NOT_RUN, Reason.BUILT_ON_FIRST_USE)
        assert "some calls of this cell are there (cktile-2stage-w4a4)" in str(outcome.message)

    def test_a_family_that_names_no_file_leaves_nothing_open(self, tmp_path: Path) -> None:
        """The family opus serves some calls too, but nothing in a tree says that it is there."""
        assert observe(tmp_path, {}, Cell("gfx950", "mxfp4-w4a16", "silu", "out")).reason is Reason.NO_KERNEL

    def test_router_weight_on_input_has_its_own_kernels(self, tmp_path: Path) -> None:
        """The kernels for router weights on the output do not serve the input, nor does the generator."""
        cell = Cell("gfx950", "fp8-channel", "silu", "in")
        assert observe(tmp_path, kernels("one_more") | {GENERATOR: OPTIONS}, cell).reason is Reason.NO_KERNEL

    @pytest.mark.parametrize(
        ("body", "kernels"),
        [
            (b"return fused_moe(hidden_states)", {"ck-2stage-tkw1": 0}),
            (b"return other.fused_moe(hidden_states)", None),
            (b"return fused_moe", None),
        ],
    )
    def test_a_generator_behind_another_function(
        self, tmp_path: Path, body: bytes, kernels: dict[str, int] | None
    ) -> None:
        """CK serves router weights on the input only where asm_moe_tkw1 hands its call on to fused_moe."""
        path = "aiter/fused_moe_bf16_asm.py"
        head, _, rest = sample_files()[path].partition(b"def asm_moe_tkw1(")
        signature, _, _ = rest.partition(b"):")
        source = head + b"def asm_moe_tkw1(" + signature + b"):\n    " + body + b"\n"
        outcome = observe(
            tmp_path, {path: source, GENERATOR: OPTIONS}, Cell("gfx950", "fp8-channel", "gelu", "in")
        )
        assert outcome.details.get("kernels") == kernels
        assert outcome.reason is (Reason.NO_KERNEL if kernels is None else Reason.BUILT_ON_FIRST_USE)

    def test_an_arch_that_the_release_does_not_know(self, tmp_path: Path) -> None:
        """The table of GPUs of the release comes before everything else."""
        outcome = observe(tmp_path, {GENERATOR: OPTIONS}, Cell("gfx1250", "bf16", "silu", "out"))
        assert (outcome.kind, outcome.reason) == (Kind.FAIL, Reason.ARCH_UNKNOWN)
        assert "gfx942, gfx950" in str(outcome.message)

    def test_a_missing_argument(self, tmp_path: Path) -> None:
        """The w4a16 route needs gate_mode; a release without it cannot take the call."""
        files = {"aiter/fused_moe.py": sample_files()["aiter/fused_moe.py"].replace(b"gate_mode", b"other")}
        outcome = observe(tmp_path, files, Cell("gfx950", "mxfp4-w4a16", "silu", "out"))
        assert (outcome.kind, outcome.reason) == (Kind.REFUSED, Reason.API_MISSING_ARGUMENT)
        assert "the argument gate_mode of fused_moe (in AITER from v0.1.14)" in str(outcome.message)

    def test_a_missing_activation(self, tmp_path: Path) -> None:
        """The sample has no Situv2, so that SiTU cannot be asked for."""
        outcome = observe(tmp_path, {}, Cell("gfx950", "bf16", "situ", "out"))
        assert (outcome.kind, outcome.reason) == (Kind.REFUSED, Reason.API_MISSING_ACTIVATION)

    def test_everything_that_is_missing_is_named(self, tmp_path: Path) -> None:
        """SiTU lacks the activation and both betas: one sentence names all three."""
        message = str(observe(tmp_path, {}, Cell("gfx950", "mxfp4-w4a16", "situ", "out")).message)
        assert [word in message for word in ("Situv2 = 3", "argument beta", "argument linear_beta")] == [
            True
        ] * 3

    def test_half_a_route_in_machine_code_is_not_run(self, tmp_path: Path) -> None:
        """A first stage that ships, with a second that is built on first use, leaves the cell open."""
        folder = "hsa/gfx950/fmoe_2stages"
        files = {
            f"{folder}/fmoe_stage1_bf16_pertokenFp8_g1u1.csv": b"tile_m,knl_name,co_name\n16,half,half.co\n",
            f"{folder}/half.co": code_object("gfx950", ["half"]),
            GENERATOR: OPTIONS,
        }
        outcome = observe(tmp_path, files, Cell("gfx950", "fp8-tensor-static", "silu", "out"))
        assert (outcome.kind, outcome.reason) == (Kind.NOT_RUN, Reason.BUILT_ON_FIRST_USE)
        assert outcome.details == {"kernels": {"asm-stage1-fp8": 1, "ck-2stage": 0}}

    def test_an_activation_with_another_value(self, tmp_path: Path) -> None:
        """An enum whose values moved would make the call ask for something else."""
        enums = sample_files()["csrc/include/aiter_enum.h"].replace(b"Silu = 0", b"Silu = 5")
        outcome = observe(tmp_path, {"csrc/include/aiter_enum.h": enums})
        assert (outcome.kind, outcome.reason) == (Kind.REFUSED, Reason.API_MISSING_ACTIVATION)

    def test_a_missing_function(self, tmp_path: Path) -> None:
        """Without asm_moe_tkw1 the leaf's route for router weights on the input has nothing to call."""
        files = {"aiter/fused_moe_bf16_asm.py": b"x = 1\n"}
        outcome = observe(tmp_path, files, Cell("gfx950", "fp8-channel", "silu", "in"))
        assert (outcome.kind, outcome.reason) == (Kind.REFUSED, Reason.API_MISSING_FUNCTION)

    def test_every_cell_has_an_outcome(self, tmp_path: Path) -> None:
        """No cell falls through."""
        cells = load_axes().cells()
        with open_release(str(write_tree(tmp_path / "tree", sample_files()))) as release:
            assert list(inventory.observe(inventory.read_contents(release), cells)) == cells
