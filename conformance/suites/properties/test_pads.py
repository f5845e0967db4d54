"""SPEC 5 and step 5 of SPEC 4: the padding that kernels are told about."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from aiter_conformance import strategies
from aiter_conformance.checks import properties_pads as checks
from aiter_conformance.checks.properties_pads import PaddedCall, Pads
from aiter_conformance.protocols import Subject


class TestAiterMoePads:
    """``aiter_moe_pads`` itself."""

    @given(pads=strategies.pads())
    # gpt-oss at 2880 padded to 3072 with TP 1, 2, 4 and 8 (C2 of the public cases).
    @example(pads=Pads(192, 192, "swigluoai", tp_size=1))
    @example(pads=Pads(192, 96, "swigluoai", tp_size=2))
    @example(pads=Pads(192, 48, "swigluoai", tp_size=4))
    @example(pads=Pads(192, 152, "swigluoai", tp_size=8))
    @example(pads=Pads(192, 192, "silu", w4a4=True, tp_size=1))
    @example(pads=Pads(192, 192, "gelu", w4a4=True, tp_size=1))
    @example(pads=Pads(100, 33, "situ", tp_size=1))
    def test_rounds_and_doubles(self, subject: Subject, pads: Pads) -> None:
        """Rounded down to whole tiles, doubled where the contract says so, else never more than is dead."""
        assert checks.check_pads(subject, pads).problems(subject) == []

    @given(pads=strategies.pads(), hidden=st.integers(0, 300), intermediate=st.integers(0, 300))
    def test_is_monotone(self, subject: Subject, pads: Pads, hidden: int, intermediate: int) -> None:
        """More padding never means fewer masked rows, and the two pads do not mix."""
        report = checks.check_pads_monotone(subject, pads, hidden, intermediate)
        assert report.problems(subject) == []

    @given(pads=strategies.pads())
    def test_is_stable(self, subject: Subject, pads: Pads) -> None:
        """Rounding twice is rounding once, and only tp_size 1 differs from any other."""
        assert checks.check_pads_stable(subject, pads).problems(subject) == []

    @given(pads=strategies.bad_pads())
    @example(pads=Pads(-1, 0, "situ"))
    @example(pads=Pads(0, -1, "silu"))
    @example(pads=Pads(0, 0, "silu", tp_size=0))
    def test_refuses_bad_input(self, subject: Subject, pads: Pads) -> None:
        """A negative pad and a tp_size below 1 are refused for every activation."""
        assert checks.check_bad_pads_refused(subject, pads).problems(subject) == []


class TestPadsInTheCall:
    """What reaches the kernel: sizes, parallelism and scheme of the layer, through ``aiter_moe_pads``."""

    @given(call=strategies.padded_calls())
    def test_kernel_is_told_the_layers_pads(self, subject: Subject, call: PaddedCall) -> None:
        """EP counts as tp_size 1, DP and PCP do not; an explicit pad replaces the computed one."""
        assert checks.check_pads_in_call(subject, call).problems(subject) == []

    @given(call=strategies.padded_calls(negative=True))
    def test_negative_sizes_are_refused(self, subject: Subject, call: PaddedCall) -> None:
        """An unpadded size above the padded one never becomes a kernel call."""
        assert checks.check_negative_sizes_refused(subject, call).problems(subject) == []
