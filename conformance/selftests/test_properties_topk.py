"""The oracle of grouped top-k is right by hand-made cases, and the properties over it can fail."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given

from aiter_conformance import strategies
from aiter_conformance.checks import properties_topk as checks
from aiter_conformance.checks.properties_faulty import Fault, answer, called_with, forgiving, with_buffers
from aiter_conformance.checks.properties_topk import Routing
from aiter_conformance.protocols import Subject
from aiter_conformance.subjects import load_subject
from aiter_conformance.topk_oracle import OPERATORS, Scoring, expert_scores, grouped_topk, simulate_routing


@pytest.fixture(scope="module")
def impl() -> Subject:
    """The subject that faults are planted in."""
    return load_subject("impl")


ROUTING = Routing(
    ((0.1, 2.0, -1.0, 0.5, 1.5, -0.25), (3.0, 0.2, 0.4, -2.0, 0.1, 1.25)),
    topk=2,
    groups=3,
    topk_groups=2,
    scoring="sigmoid",
    scale=2.5,
    bias=(0.1, -0.2, 0.3, 0.05, 0.0, 0.4),
    shared=1,
    is_ep=True,
)
PLAIN = replace(ROUTING, bias=None, scoring="softmax", shared=0)


def logits_of(*scores: float) -> np.ndarray:
    """Return one token's logits whose sigmoids are the scores."""
    return np.array([[math.log(score / (1 - score)) for score in scores]])


class TestExpertScores:
    """`expert_scores`."""

    def test_softmax(self) -> None:
        """Softmax of log 1, log 2, log 5 is 1/8, 2/8, 5/8, however far the logits are from 0."""
        logits = np.log([[1.0, 2.0, 5.0]]) + 800.0
        np.testing.assert_allclose(expert_scores(logits, "softmax"), [[0.125, 0.25, 0.625]], rtol=1e-13)

    def test_sigmoid(self) -> None:
        """Sigmoid of 0 is a half, and of log 3 three quarters."""
        scores = expert_scores(np.array([[0.0, math.log(3.0)]]), "sigmoid")
        np.testing.assert_allclose(scores, [[0.5, 0.75]], rtol=1e-15)

    def test_refuses_another(self) -> None:
        """Another scoring function is refused by name."""
        with pytest.raises(ValueError, match=r"must be softmax or sigmoid \(got 'relu'\)"):
            expert_scores(np.zeros((1, 2)), "relu")  # type: ignore[arg-type]


class TestGroupedTopk:
    """`grouped_topk`, by cases worked out by hand."""

    def route(
        self,
        logits: np.ndarray,
        topk: int = 2,
        groups: int = 1,
        topk_groups: int = 1,
        scoring: Scoring = "sigmoid",
        renormalize: bool = False,
        scale: float = 1.0,
        bias: np.ndarray | None = None,
    ) -> tuple[list[int], list[float]]:
        """Route one token."""
        routed = grouped_topk(
            logits,
            topk,
            renormalize=renormalize,
            groups=groups,
            topk_groups=topk_groups,
            scoring=scoring,
            scale=scale,
            bias=bias,
        )
        return routed.ids[0].tolist(), routed.weights[0].round(12).tolist()

    def test_one_group(self) -> None:
        """Without groups the best experts win, with their own scores."""
        assert self.route(logits_of(0.2, 0.7, 0.1, 0.6)) == ([1, 3], [0.7, 0.6])

    def test_softmax_is_over_all_experts(self) -> None:
        """The sum under a softmax score has the experts that are not chosen in it."""
        assert self.route(np.log([[1.0, 2.0, 4.0, 1.0]]), 1, scoring="softmax") == ([2], [0.5])

    def test_best_group_by_its_best_expert(self) -> None:
        """Without a bias the group of the best expert wins, though the other's sum is larger."""
        assert self.route(logits_of(0.9, 0.1, 0.8, 0.7), groups=2) == ([0, 1], [0.9, 0.1])

    def test_best_group_by_its_best_two(self) -> None:
        """With a bias the group with the larger sum of two wins."""
        assert self.route(logits_of(0.9, 0.1, 0.8, 0.7), groups=2, bias=np.zeros(4)) == ([2, 3], [0.8, 0.7])

    def test_third_best_does_not_count(self) -> None:
        """With a bias a group's third expert adds nothing to its worth."""
        logits = logits_of(0.6, 0.59, 0.58, 0.7, 0.55, 0.1)
        assert self.route(logits, 1, groups=2, bias=np.zeros(6)) == ([3], [0.7])

    def test_bias_chooses_and_does_not_weigh(self) -> None:
        """The bias decides who is chosen; the weight is the score without it."""
        bias = np.array([0.0, 0.0, 0.5, 0.0])
        assert self.route(logits_of(0.6, 0.5, 0.2, 0.1), bias=bias) == ([2, 0], [0.2, 0.6])

    def test_an_expert_of_another_group_is_out(self) -> None:
        """The second best expert loses to one of the best group, even if that has a negative biased score."""
        bias = np.array([0.0, -0.9, 0.0, -0.9])
        assert self.route(logits_of(0.9, 0.1, 0.8, 0.1), groups=2, bias=bias) == ([0, 1], [0.9, 0.1])

    def test_renormalised_then_scaled(self) -> None:
        """Weights are divided by their sum and then multiplied, so that they sum to the factor."""
        ids, weights = self.route(logits_of(0.2, 0.75, 0.1, 0.25), renormalize=True, scale=2.0)
        assert (ids, weights) == ([1, 3], [1.5, 0.5])

    def test_scaled_without_renormalisation(self) -> None:
        """The factor counts without renormalisation too."""
        assert self.route(logits_of(0.25, 0.5), 1, scale=2.5) == ([1], [1.25])

    def test_margin(self) -> None:
        """The margin is the smallest gap between a winner and a loser, over experts and groups."""
        logits = logits_of(0.9, 0.5, 0.8, 0.4)
        routed = grouped_topk(logits, 1, renormalize=False, groups=2, topk_groups=1, scoring="sigmoid")
        assert routed.margin == pytest.approx(0.1)
        routed = grouped_topk(logits, 2, renormalize=False, groups=1, topk_groups=1, scoring="sigmoid")
        assert routed.margin == pytest.approx(0.3)

    @pytest.mark.parametrize(("groups", "topk_groups"), [(3, 1), (0, 0), (2, 3), (2, 0)])
    def test_refuses_groups(self, groups: int, topk_groups: int) -> None:
        """Groups that do not divide the experts are refused, and so are too many or too few to keep."""
        with pytest.raises(ValueError, match="groups must divide 4 experts"):
            self.route(logits_of(0.1, 0.2, 0.3, 0.4), 1, groups, topk_groups)

    def test_refuses_too_many_experts(self) -> None:
        """More experts than the kept groups have are refused."""
        with pytest.raises(ValueError, match="topk must be at most 2"):
            self.route(logits_of(0.1, 0.2, 0.3, 0.4), 3, groups=2)


class TestSimulateRouting:
    """`simulate_routing`."""

    def test_calls_are_recorded_with_all_arguments(self) -> None:
        """A call is recorded under its operator's name, arguments left out included."""
        found = simulate_routing()
        weights, ids = torch.empty(1, 1), torch.empty(1, 1, dtype=torch.int32)
        found.modules["aiter"].grouped_topk(torch.tensor([[0.0, 1.0]]), weights, ids, 1, 1, True)
        assert [call.operator for call in found.calls] == ["grouped_topk"]
        assert found.calls[0].arguments["is_softmax"] is True
        assert (weights.tolist(), ids.tolist()) == ([[1.0]], [[1]])

    def test_both_homes_are_the_same(self) -> None:
        """The package and its module of routing operators have the same functions."""
        modules = simulate_routing().modules
        homes = modules["aiter"], modules["aiter.ops.topk"]
        assert [getattr(homes[0], name) for name in OPERATORS] == [
            getattr(homes[1], name) for name in OPERATORS
        ]


class TestStrategy:
    """`strategies.routings`."""

    @given(routing=strategies.routings())
    def test_no_ties(self, routing: Routing) -> None:
        """Every decision of a generated routing is taken by more than float32 can be off."""
        assert routing.oracle().margin > 50 * checks.TOLERANCE


FAULTS = (
    Fault(
        "weights are not renormalised",
        lambda s: checks.check_routing_by_rule(s, ROUTING),
        {"rocm_aiter_grouped_topk": called_with(lambda a: [*a[:3], False, *a[4:]])},
    ),
    Fault(
        "the logits are looked at",
        lambda s: checks.check_routing_by_rule(s, ROUTING),
        {"rocm_aiter_grouped_topk": called_with(lambda a: a if a[1].isfinite().all() else [])},
    ),
    Fault(
        "the scaling factor is dropped",
        lambda s: checks.check_routing_by_rule(s, ROUTING),
        {"rocm_aiter_grouped_topk": called_with(lambda a: [*a[:7], 1.0, *a[8:]])},
    ),
    Fault(
        "the correction bias is dropped",
        lambda s: checks.check_routing_by_rule(s, ROUTING),
        {"rocm_aiter_grouped_topk": called_with(lambda a: [*a[:8], None, *a[9:]])},
    ),
    Fault(
        "groups and groups to keep are exchanged",
        lambda s: checks.check_routing_by_rule(s, ROUTING),
        {"rocm_aiter_grouped_topk": called_with(lambda a: [*a[:4], a[5], a[5], *a[6:]])},
    ),
    Fault(
        "sigmoid for softmax",
        lambda s: checks.check_routing_by_rule(s, PLAIN),
        {"rocm_aiter_grouped_topk": called_with(lambda a: [*a[:6], "sigmoid", *a[7:]])},
    ),
    Fault(
        "copies of the buffers are returned",
        lambda s: checks.check_routing_by_rule(s, ROUTING),
        {"rocm_aiter_grouped_topk": answer(lambda pair: tuple(t.clone() for t in pair))},
    ),
    Fault(
        "ids of two tokens are exchanged after the operator",
        lambda s: checks.check_routing_by_rule(s, PLAIN),
        {"rocm_aiter_grouped_topk": answer(lambda pair: (pair[0], pair[1].flip(0)))},
    ),
    Fault(
        "a router weight is off by 1e-5 of itself",
        lambda s: checks.check_routing_by_rule(s, PLAIN),
        {"rocm_aiter_grouped_topk": answer(lambda pair: (pair[0] * (1 + 1e-5), pair[1]))},
    ),
    Fault(
        "the buffers are used although fusion is off",
        lambda s: checks.check_fusion_off(s, ROUTING),
        {"rocm_aiter_grouped_topk": with_buffers(lambda weights, _ids: weights[:, :2].fill_(0.5))},
    ),
    Fault(
        "the gates of a routed result are left out",
        lambda s: checks.check_routing_then_injection(s, ROUTING),
        {"inject_shared_expert_weights": called_with(lambda a: [*a[:4], None])},
    ),
    Fault(
        "routing goes on with buffers that are too small",
        lambda s: checks.check_routing_errors(s, ROUTING),
        {"rocm_aiter_grouped_topk": forgiving},
    ),
    Fault(
        "an unknown scoring function is taken for softmax",
        lambda s: checks.check_scoring(s, PLAIN, "sqrtsoftplus"),
        {"rocm_aiter_grouped_topk": called_with(lambda a: [*a[:6], "softmax", *a[7:]])},
    ),
)


class TestPlantedFaults:
    """Each check against a subject with one fault."""

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
    def test_is_caught(self, impl: Subject, fault: Fault) -> None:
        """The check is silent about the sound subject, and speaks about the faulty one."""
        sound, faulty = fault.problems(impl)
        assert sound == []
        assert faulty != []
