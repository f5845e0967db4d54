"""SPEC 12 and SPEC 11's mask: what becomes of weights between the checkpoint and the kernels."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiter_conformance import strategies
from aiter_conformance.checks import properties_mask as masks
from aiter_conformance.checks import properties_weights as checks
from aiter_conformance.checks.properties_checkpoint import Layer
from aiter_conformance.checks.properties_mask import Placement
from aiter_conformance.protocols import Subject

# C9 of the public cases: intermediate sizes of bf16 layers, and what is allocated for them.
BF16_SIZES = {64: 64, 96: 128, 150: 192, 192: 192, 193: 256, 224: 256, 384: 384, 704: 768, 1408: 1408}
# One layer of each layout of SPEC 12.
LAYERS = (
    Layer("bf16", "silu", 64, 96),
    Layer("fp8-channel", "silu", 64, 32, "gfx942"),
    Layer("fp8-channel", "silu", 64, 32, "gfx942", fnuz=True),
    Layer("fp8-tensor-static", "gelu", 64, 32, "gfx942"),
    Layer("fp8-tensor-static", "gelu", 64, 32, "gfx950"),
    Layer("mxfp4-w4a16", "swigluoai", 96, 90),
    Layer("mxfp4-w4a16", "silu", 96, 90, dsv4=True),
    Layer("mxfp4-w4a16", "situ", 96, 90, situ="a16w4"),
    Layer("mxfp4-w4a16", "situ", 96, 90, situ="a8w4", experts=3),
    Layer("mxfp4-w4a4", "silu", 96, 90),
    Layer("int4-w4a16", "situ", 96, 90, "gfx942"),
)


class TestPaddedSizes:
    """``padded_sizes``."""

    NEEDS = ("padded_sizes",)

    @given(sizes=strategies.sizes())
    def test_rounds_up(self, subject: Subject, sizes: tuple[str, str, int, int]) -> None:
        """Sizes are rounded up to the granules of scheme and activation, and once is enough."""
        assert checks.check_sizes(subject, *sizes).problems(subject) == []

    @pytest.mark.parametrize(("intermediate", "allocated"), BF16_SIZES.items())
    def test_bf16(self, subject: Subject, intermediate: int, allocated: int) -> None:
        """The sizes of the public case are those that it asks for, and the hidden size is left alone."""
        with subject.environment("gfx950"):
            api = subject.api
            sizes = api.padded_sizes("bf16", api.MoEActivation("silu"), 100, intermediate)
        assert tuple(sizes) == (100, allocated)


class TestPrepareWeights:
    """``prepare_weights``."""

    NEEDS = ("prepare_weights",)

    @given(layer=strategies.layers())
    def test_bytes_are_where_kernels_read_them(self, subject: Subject, layer: Layer) -> None:
        """Every live byte is at the place that the formulas give, every padding byte of a weight is 0."""
        assert checks.check_prepared(subject, layer).problems(subject) == []

    @pytest.mark.parametrize("layer", LAYERS, ids=str)
    def test_each_layout(self, subject: Subject, layer: Layer) -> None:
        """The same, for one layer of each layout, whatever is generated."""
        assert checks.check_prepared(subject, layer).problems(subject) == []

    @given(layer=strategies.layers())
    def test_twice_is_once(self, subject: Subject, layer: Layer) -> None:
        """Prepared weights stay as and where they are: nothing is shuffled twice."""
        assert checks.check_prepared_again(subject, layer).problems(subject) == []

    @given(layer=strategies.layers())
    def test_reload(self, subject: Subject, layer: Layer) -> None:
        """Other weights go into the same memory, tagged, with the bytes of a fresh preparation."""
        assert checks.check_reload(subject, layer).problems(subject) == []

    @given(layer=strategies.layers())
    def test_reload_of_another_shape(self, subject: Subject, layer: Layer) -> None:
        """Weights that do not fit are refused before a byte is written."""
        assert checks.check_reload_refused(subject, layer).problems(subject) == []


class TestMakeExpertMask:
    """``make_expert_mask``."""

    NEEDS = ("make_expert_mask",)

    @given(placement=strategies.placements())
    # C4 of the public cases: eight experts on two ranks, without and with a shared expert.
    @example(placement=Placement((0, 0, 0, 0, 1, 1, 1, 1), 2))
    @example(placement=Placement((0, 0, 0, 0, 1, 1, 1, 1), 2, shared=1))
    def test_masks(self, subject: Subject, placement: Placement) -> None:
        """Own and shared experts are 1, the rest and the sentinel 0, and over all ranks none is doubled."""
        assert masks.check_mask(subject, placement).problems(subject) == []

    @pytest.mark.parametrize("shared", [0, 1, 3])
    def test_no_mask(self, subject: Subject, shared: int) -> None:
        """Without expert parallelism there is no mask."""
        assert masks.check_no_mask(subject, shared).problems(subject) == []

    @given(expert_map=strategies.bad_expert_maps(), shared=st.integers(0, 2))
    def test_refuses_what_is_no_map(self, subject: Subject, expert_map: tuple[int, ...], shared: int) -> None:
        """A map with a local index twice or missing, such as a mask, is refused."""
        assert masks.check_mask_refuses(subject, expert_map, shared).problems(subject) == []

    @given(placement=strategies.placements(), shared=st.integers(-3, -1))
    def test_refuses_negative_numbers(self, subject: Subject, placement: Placement, shared: int) -> None:
        """A negative number of shared experts is refused."""
        expert_map = tuple(placement.expert_map(0).tolist())
        assert masks.check_mask_refuses(subject, expert_map, shared).problems(subject) == []
