"""``rocm_aiter_grouped_topk`` (SPEC 10) against DeepSeek's rule: the ids decide everything else.

AITER's operators are simulated. See `aiter_conformance.topk_oracle` for what that shows and what it does not.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiter_conformance import strategies
from aiter_conformance.checks import properties_topk as checks
from aiter_conformance.checks.properties_topk import Routing
from aiter_conformance.protocols import Subject


class TestRocmAiterGroupedTopk:
    """``rocm_aiter_grouped_topk``."""

    @given(routing=strategies.routings())
    def test_routes_by_the_rule(self, subject: Subject, routing: Routing) -> None:
        """The right operator gets the right arguments and columns; ids and weights are the oracle's."""
        assert checks.check_routing_by_rule(subject, routing).problems(subject) == []

    @given(routing=strategies.routings())
    def test_fusion_off(self, subject: Subject, routing: Routing) -> None:
        """Without fusion the result is fresh, topk wide, and the buffers are left alone."""
        assert checks.check_fusion_off(subject, routing).problems(subject) == []

    @given(routing=strategies.routings(min_shared=1))
    def test_then_injection(self, subject: Subject, routing: Routing) -> None:
        """A routed result that lies in the buffers gets its gates there, and no poisoned slot is left."""
        assert checks.check_routing_then_injection(subject, routing).problems(subject) == []

    @given(routing=strategies.routings(min_tokens=2, min_shared=1))
    def test_errors(self, subject: Subject, routing: Routing) -> None:
        """Missing or too small buffers stop the call before anything is routed or written."""
        assert checks.check_routing_errors(subject, routing).problems(subject) == []

    @given(routing=strategies.routings(), scoring=st.sampled_from(("sqrtsoftplus", "", "Softmax", "relu")))
    def test_scoring(self, subject: Subject, routing: Routing, scoring: str) -> None:
        """Only softmax and sigmoid are scoring functions; with a bias the argument is not read."""
        assert checks.check_scoring(subject, routing, scoring).problems(subject) == []
