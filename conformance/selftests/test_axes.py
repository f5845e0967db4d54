"""The axes, the kernel families and the other hand-written tables agree with each other."""

from __future__ import annotations

import tomllib

import pytest

from aiter_conformance import contract
from aiter_conformance.axes import ROUTERS, Cell, load_axes, spec_dir
from aiter_conformance.errors import UsageError
from aiter_conformance.families import load_families


class TestAxes:
    """`load_axes`, `Axes.cells` and `Axes.parse_cell`."""

    def test_cells_span_every_axis_once(self) -> None:
        """3 archs, 8 schemes, 12 activations and 2 places of the router weight."""
        cells = load_axes().cells()
        assert len(cells) == len(set(cells)) == 3 * 8 * 12 * 2

    def test_a_cell_is_parsed_back_from_its_name(self) -> None:
        """The name alone gives the cell."""
        axes = load_axes()
        assert [axes.parse_cell(str(cell)) for cell in axes.cells()] == axes.cells()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("gfx950/bf16/silu", "a cell must be arch/scheme/activation/router"),
            ("gfx90a/bf16/silu/out", "arch must be one of gfx942, gfx950, gfx1250 \\(got 'gfx90a'"),
            ("gfx950/fp16/silu/out", "scheme must be one of bf16, "),
            ("gfx950/bf16/tanh/out", "activation must be one of silu, "),
            ("gfx950/bf16/silu/both", "router must be one of out, in"),
        ],
    )
    def test_what_is_no_cell_is_refused(self, text: str, message: str) -> None:
        """The message says what is wrong and what would be right."""
        with pytest.raises(UsageError, match=message):
            load_axes().parse_cell(text)

    def test_activations_are_those_of_the_contract(self) -> None:
        """Accepted, refused and non-gated activations together are the axis."""
        known = {
            *contract.ACCEPTED_ACTIVATIONS,
            *contract.REFUSED_ACTIVATIONS,
            *contract.NON_GATED_ACTIVATIONS,
        }
        assert set(load_axes().activations) == known


class TestFamilies:
    """`load_families`."""

    def test_names_are_unique(self) -> None:
        """A family is known by its name."""
        names = [family.name for family in load_families()]
        assert len(names) == len(set(names))

    def test_values_are_values_of_the_axes(self) -> None:
        """A misspelt arch, scheme, activation or router would never match."""
        axes = load_axes()
        for family in load_families():
            assert set(family.archs) <= set(axes.archs), family.name
            assert set(family.schemes) <= set(axes.schemes), family.name
            assert set(family.activations) <= set(axes.activations), family.name
            assert set(family.routers) <= set(ROUTERS), family.name

    def test_each_serves_a_cell_that_a_leaf_accepts(self) -> None:
        """A family that no accepted cell can use is of no use here."""
        accepted = [c for c in load_axes().cells() if contract.declaration(c).reason is None]
        for family in load_families():
            assert any(family.may_launch(cell) for cell in accepted), family.name

    def test_a_manifest_is_named_for_the_cell(self) -> None:
        """Arch and activation are filled in with the family's own names."""
        family = next(f for f in load_families() if f.name == "asm-1stage-tkw1")
        path = family.manifest_of(Cell("gfx942", "fp8-channel", "gelu", "in"))
        assert path == "hsa/gfx942/fmoe/gelu/fmoe_bf16_pertokenFp8_g1u1_gelu_tkw1.csv"


class TestFirstReleases:
    """``api.toml``."""

    def test_every_need_of_a_cell_has_its_first_release(self) -> None:
        """A message about a missing argument or activation can say since when AITER has it."""
        table = tomllib.loads((spec_dir() / "api.toml").read_text(encoding="utf-8"))
        always = {"activation", "quant_type", "doweight_stage1", "dtype", "fc1_scale", "fc2_scale"}
        always |= {"w1_scale", "w2_scale", "a1_scale", "a2_scale"}
        for cell in load_axes().cells():
            for need in contract.api_needs(cell):
                if need.kind is contract.NeedKind.ARGUMENT and need.name not in always:
                    assert need.name in table["arguments"], need
                if need.kind is contract.NeedKind.ACTIVATION:
                    assert need.name in table["activations"], need
