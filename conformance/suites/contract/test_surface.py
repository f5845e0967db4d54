"""SPEC 3, 4 and 9: signatures, configs, and the dispatcher when it is called without a leaf."""

from __future__ import annotations

from collections.abc import Callable

from aiter_conformance.checks import contract_surface as checks
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject

Conforms = Callable[[Report], None]
Needs = Callable[[str], None]


class TestSurface:
    """What other code relies on."""

    def test_signatures(self, subject: Subject, conforms: Conforms) -> None:
        """Public functions and methods have the listed parameters, defaults and order."""
        conforms(checks.signatures(subject))

    def test_quant_configs(self, subject: Subject, conforms: Conforms) -> None:
        """A quantisation config's properties follow from what it was made of."""
        conforms(checks.quant_configs(subject))

    def test_moe_configs(self, subject: Subject, conforms: Conforms) -> None:
        """A layer's config has the listed defaults and refuses what cannot be."""
        conforms(checks.moe_configs(subject))


class TestDispatcher:
    """``rocm_aiter_fused_experts`` and what w4a16 adds to it; both are newer than some subjects."""

    def test_extra_kwargs(self, subject: Subject, needs: Needs, conforms: Conforms) -> None:
        """The w4a16 route names the gate mode and hands on biases, None included."""
        needs("mxfp4_w4a16_extra_kwargs")
        conforms(checks.extra_kwargs(subject))

    def test_arguments(self, subject: Subject, needs: Needs, conforms: Conforms) -> None:
        """What the dispatcher is given goes on to the kernel, and an override beats a hint."""
        needs("mxfp4_w4a16_extra_kwargs")
        conforms(checks.dispatcher(subject))

    def test_refusals(self, subject: Subject, needs: Needs, conforms: Conforms) -> None:
        """Bad router weights and missing sizes are refused before any call."""
        needs("mxfp4_w4a16_extra_kwargs")
        conforms(checks.dispatcher_refusals(subject))
