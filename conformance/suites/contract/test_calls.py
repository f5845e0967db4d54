"""SPEC 3, 4 and 5: the one kernel call that each leaf makes, argument by argument."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiter_conformance.checks import contract_call as checks
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import ACCEPTED_ACTIVATIONS
from aiter_conformance.protocols import Subject

Conforms = Callable[[Report], None]

each_scheme = pytest.mark.parametrize("scheme", checks.SCHEMES)
each_activation = pytest.mark.parametrize("activation", ACCEPTED_ACTIVATIONS)


@each_scheme
class TestCall:
    """The recorded call against the one that SPEC asks for; inputs are left alone in all of them."""

    @each_activation
    def test_pads(self, subject: Subject, scheme: str, activation: str, conforms: Conforms) -> None:
        """The call is exact for both routers, six deployments, nine pads and every variant of the code."""
        conforms(checks.call_of_pads(subject, scheme, activation))

    @each_activation
    def test_arguments(self, subject: Subject, scheme: str, activation: str, conforms: Conforms) -> None:
        """The call is exact for every change of one argument."""
        conforms(checks.call_of_arguments(subject, scheme, activation))

    def test_argument_pairs(self, subject: Subject, scheme: str, conforms: Conforms) -> None:
        """The call is exact for every change of two arguments."""
        conforms(checks.call_of_argument_pairs(subject, scheme))
