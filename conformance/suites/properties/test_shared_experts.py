"""SPEC 10: the buffers of shared experts, and how their weights and ids get into a routed result."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from aiter_conformance import strategies
from aiter_conformance.checks import properties_shared_experts as checks
from aiter_conformance.checks import properties_shared_refusals as refusals
from aiter_conformance.checks.properties_shared_experts import Buffers, Injection
from aiter_conformance.checks.properties_shared_refusals import BadShapes
from aiter_conformance.protocols import Subject


class TestInitAiterTopKMetaData:
    """``init_aiter_topK_meta_data`` and ``reset_aiter_topK_meta_data``."""

    @given(buffers=strategies.buffers())
    @example(buffers=Buffers(8, 1, 2, tp_rank=1, tp_size=2, max_num_tokens=4, is_EP=True))
    def test_fills_the_shared_columns(self, subject: Subject, buffers: Buffers) -> None:
        """Shapes, dtypes, scores and ids are those of SPEC, sentinel rows and column included."""
        assert checks.check_buffers(subject, buffers).problems(subject) == []

    @given(buffers=strategies.buffers(ep=True, shared=True))
    def test_each_token_has_its_shared_experts_once(self, subject: Subject, buffers: Buffers) -> None:
        """Over all ranks each (token, shared expert) is run by one rank, so that the sum is not doubled."""
        assert checks.check_shared_expert_runs_once(subject, buffers).problems(subject) == []

    @given(buffers=strategies.buffers(), other=strategies.buffers())
    def test_again(self, subject: Subject, buffers: Buffers, other: Buffers) -> None:
        """The same arguments are a no-op, other arguments an error, and neither writes."""
        assert checks.check_init_again(subject, buffers, other).problems(subject) == []

    @given(buffers=strategies.buffers())
    def test_again_by_keyword(self, subject: Subject, buffers: Buffers) -> None:
        """The way in which arguments are written does not make them other arguments."""
        assert checks.check_init_again_by_keyword(subject, buffers).problems(subject) == []


class TestReset:
    """``reset_aiter_topK_meta_data`` (ours)."""

    NEEDS = ("reset_aiter_topK_meta_data",)

    @given(buffers=strategies.buffers(), other=strategies.buffers())
    def test_reset_allows_other_buffers(self, subject: Subject, buffers: Buffers, other: Buffers) -> None:
        """After a reset nothing is left of the first buffers."""
        assert checks.check_reset(subject, buffers, other).problems(subject) == []


class TestInjectSharedExpertWeights:
    """``inject_shared_expert_weights``."""

    @given(injection=strategies.injections())
    def test_keeps_the_routing_and_fills_the_gates(self, subject: Subject, injection: Injection) -> None:
        """Routed columns, shared columns, sentinel column, other rows and memory are as SPEC says."""
        assert checks.check_injection(subject, injection).problems(subject) == []

    @given(injection=strategies.injections(), initialised=st.booleans())
    def test_no_shared_experts(self, subject: Subject, injection: Injection, initialised: bool) -> None:
        """Without shared experts the inputs come back as they are."""
        report = checks.check_no_shared_experts(subject, injection, initialised=initialised)
        assert report.problems(subject) == []

    @given(injection=strategies.injections())
    def test_none_keeps_the_last_gates(self, subject: Subject, injection: Injection) -> None:
        """The gates of the last call stay when a call brings none: a hazard that must not change unseen."""
        assert checks.check_gates_are_kept(subject, injection).problems(subject) == []

    @given(injection=strategies.injections())
    def test_missing_buffers(self, subject: Subject, injection: Injection) -> None:
        """Before initialisation the error says what to call and with how much."""
        assert refusals.check_missing_buffers(subject, injection).problems(subject) == []

    @given(injection=strategies.injections())
    @example(injection=Injection(Buffers(128, 1, 8, max_num_tokens=64), tokens=64))
    def test_too_many_tokens(self, subject: Subject, injection: Injection) -> None:
        """More tokens than the buffers have rows: both numbers, what to do, and nothing written."""
        assert refusals.check_too_many_tokens(subject, injection).problems(subject) == []

    @given(bad=strategies.bad_shapes())
    def test_wrong_shapes(self, subject: Subject, bad: BadShapes) -> None:
        """Every kind of shape that does not fit is refused before anything is written."""
        assert refusals.check_bad_shapes_refused(subject, bad).problems(subject) == []
