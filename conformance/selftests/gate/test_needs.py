"""What a cell needs of a release, as the gate names it."""

from __future__ import annotations

import pytest

from aiter_conformance.axes import Cell
from aiter_conformance.gate.needs import needs

CK_TILE = "file csrc/ck_tile_gemm_moe_2stages/gen_instances.py"
CK = "choice csrc/ck_gemm_moe_2stages_codegen/gen_instances.py silu"


@pytest.mark.parametrize(
    ("cell", "token", "needed"),
    [
        (Cell("gfx950", "fp8-channel", "silu", "out"), CK, True),
        (Cell("gfx950", "fp8-channel", "gelu", "out"), CK, False),
        (Cell("gfx950", "mxfp4-w4a4", "swigluoai", "out"), CK_TILE, True),  # for some of its calls
        (Cell("gfx942", "mxfp4-w4a4", "swigluoai", "out"), CK_TILE, False),
        (Cell("gfx950", "bf16", "situ", "out"), "member ActivationType.Situv2", True),
        (Cell("gfx950", "bf16", "silu", "out"), "member ActivationType.Situv2", False),
    ],
)
def test_needs(cell: Cell, token: str, needed: bool) -> None:
    """The interface, and the files and choices of each family that serves a cell or some of its calls."""
    assert (token in needs(cell)) is needed
