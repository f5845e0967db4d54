"""What the CK-Tile kernels of a release can do, read from its C++."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiter_conformance.release import open_release
from aiter_conformance.release.samples import write_tree
from aiter_conformance.trace.ck_tile import CkTileKernels, read_ck_tile
from aiter_conformance.trace.samples import sound_release

PATH = "csrc/ck_tile_gemm_moe_2stages/moe_cktile2stages.cu"
NAMES = {0: "Silu", 1: "Gelu", 2: "Swiglu"}
DISPATCH = b"""\
    if(split_k > 1) { if(activation == 2 && has_bias) return a; }
    else { if(activation == 0) return b; }
"""


class TestReadCkTile:
    """``read_ck_tile``."""

    @pytest.mark.parametrize(
        ("text", "activations"),
        [(DISPATCH, {"silu", "swiglu"}), (b"return a;", None), (b"if(activation == 7) return a;", {"7"})],
        ids=["two", "whatever the activation", "one without a name"],
    )
    def test_activations(self, tmp_path: Path, text: bytes, activations: set[str] | None) -> None:
        """The activations are those that the dispatch compares with, by name; none where it compares none."""
        files = {**sound_release(), PATH: text}
        with open_release(str(write_tree(tmp_path, files))) as release:
            assert read_ck_tile(release, NAMES).activations == activations

    def test_a_release_without_ck_tile(self, tmp_path: Path) -> None:
        """Without the file nothing is known, and nothing is refused for its activation."""
        with open_release(str(write_tree(tmp_path, sound_release()))) as release:
            assert read_ck_tile(release, NAMES) == CkTileKernels(None)


class TestProblem:
    """``CkTileKernels.problem``."""

    @pytest.mark.parametrize("activation", ["silu", "swiglu", None])
    def test_what_there_are_kernels_for(self, activation: str | None) -> None:
        """Known activations, and calls that hand on none, have kernels."""
        assert CkTileKernels(frozenset({"silu", "swiglu"})).problem(activation, "fp4") is None

    def test_an_activation_without_kernels(self) -> None:
        """Another activation is said by name, beside the known ones."""
        found = CkTileKernels(frozenset({"silu", "swiglu"})).problem("gelu", "fp4")
        assert (
            found == "CK-Tile has kernels for silu and swiglu, and runs off the end of its dispatch for gelu"
        )

    def test_other_weights(self) -> None:
        """Weights that are not MXFP4 are refused, whatever the activation."""
        found = CkTileKernels(None).problem("silu", "int4")
        assert found == "the operators of CK-Tile take fp4 weights (got int4)"
