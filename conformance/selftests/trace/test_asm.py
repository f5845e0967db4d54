"""Which assembly kernel a call gets, by the rules of AITER's C++."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiter_conformance.release.inventory import Inventory, Manifest, ManifestRow
from aiter_conformance.trace.asm import AsmCall, AsmKernels

FOLDER = "hsa/gfx942/fmoe/silu"
CALL = AsmCall(
    operator="fmoe_g1u1",
    activation="silu",
    a="fp8",
    out="bf16",
    quant="",
    router_weight=False,
    intermediate=768,
    blocks=100,
    block_m=32,
)


def row(name: str, columns: int, **more: object) -> ManifestRow:
    """Return a sound row of a one-stage manifest."""
    tile = {"vskip": "1", "smf": "0", "ps": "0", "subGU_m": "32", "subGU_n": str(columns), "flat": "0"}
    tile |= {key: str(value) for key, value in more.items() if key != "sound"}
    return ManifestRow(name, f"{FOLDER}/{name}.co", tile, 2, bool(more.get("sound", True)))


def kernels(*rows: ManifestRow, compute_units: int = 304) -> AsmKernels:
    """Return the kernels of one manifest."""
    manifest = Manifest(f"{FOLDER}/fmoe_bf16_pertokenFp8_g1u1_silu.csv", "gfx942", rows)
    other = Manifest(
        "hsa/gfx950/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_silu.csv", "gfx950", (row("gfx950", 256),)
    )
    return AsmKernels(Inventory((manifest, other), {}, ()), "gfx942", compute_units)


class TestCandidates:
    """What C++ may pick where no name is given."""

    def test_only_what_fits(self) -> None:
        """Tiles that do not divide, other rows, smoothing and own routing are left out."""
        shipped = kernels(
            row("fits", 256),
            row("tile", 512),
            row("rows", 256, subGU_m=64),
            row("smooth", 256, smf=2),
            row("skip", 256, vskip=0),
            row("flat", 256, flat=1),
        )
        assert shipped.candidates(CALL) == ("fits",)

    def test_a_broken_one_is_picked_as_any_other(self) -> None:
        """C++ does not look into code objects: the best is picked, broken or not; of equals a broken one."""
        assert kernels(row("fits", 384), row("broken", 256, sound=False)).candidates(CALL)[0] == "broken"
        assert kernels(row("fits", 256), row("broken", 384, sound=False)).candidates(CALL)[0] == "fits"
        assert kernels(row("a", 256), row("b", 256, sound=False)).candidates(CALL) == ("b", "a")

    @pytest.mark.parametrize(
        ("blocks", "units", "expected"),
        [
            # 3, 2 and 1 groups of columns: rounds decide first.
            (304, 304, ("one", "two", "three")),
            # One round each: the tile that leaves the fewest units idle.
            (50, 304, ("three", "two", "one")),
        ],
    )
    def test_fewest_rounds_then_fewest_idle(self, blocks: int, units: int, expected: tuple[str, ...]) -> None:
        """Fewer rounds over the compute units come first, then fewer idle units."""
        shipped = kernels(row("three", 256), row("two", 384), row("one", 768), compute_units=units)
        assert shipped.candidates(replace(CALL, blocks=blocks)) == expected

    def test_persistent_before_its_like(self) -> None:
        """Of two kernels that are equal in that, the persistent one comes first."""
        assert kernels(row("plain", 256), row("ps", 256, ps=1)).candidates(CALL) == ("ps", "plain")


class TestProblem:
    """Why a kernel that is named would not be launched."""

    def test_none_for_a_kernel_that_fits(self) -> None:
        """A sound kernel of the call's own manifest has no problem."""
        assert kernels(row("fits", 256)).problem(CALL, "fits") is None

    @pytest.mark.parametrize(
        ("call", "name", "words"),
        [
            (CALL, "gone", "ships no kernel gone"),
            (CALL, "gfx950", "ships no kernel gfx950 for gfx942"),
            (replace(CALL, activation="gelu"), "fits", "and the call looks in hsa/gfx942/fmoe/gelu"),
            (replace(CALL, a="int4"), "fits", "no kernels for int4"),
            (replace(CALL, intermediate=640), "fits", "does not divide"),
            (CALL, "broken", "is broken"),
        ],
    )
    def test_names_what_is_wrong(self, call: AsmCall, name: str, words: str) -> None:
        """The sentence names the kernel, the manifest or the size that is wrong."""
        shipped = kernels(row("fits", 256), row("broken", 256, sound=False))
        assert words in (shipped.problem(call, name) or "")
