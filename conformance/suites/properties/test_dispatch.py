"""What holds of every kernel call, whatever the routing (SPEC 3, step 3 of SPEC 4, SPEC 11)."""

from __future__ import annotations

from hypothesis import example, given

from aiter_conformance import strategies
from aiter_conformance.checks import properties_dispatch as checks
from aiter_conformance.checks.properties_leaf import LeafCase
from aiter_conformance.protocols import MoEConfigSpec, Subject

FOUR_EXPERTS = MoEConfigSpec(num_experts=4, hidden_dim=64, intermediate_size=32)


class TestRouting:
    """Router weights and ids."""

    @given(case=strategies.leaf_cases())
    # C6 of the public cases: a padding row, with and without an expert mask.
    @example(case=LeafCase("bf16", FOUR_EXPERTS, ((-1, -1), (0, 3))))
    @example(case=LeafCase("bf16", FOUR_EXPERTS, ((-1, -1), (0, 3)), masked=True))
    def test_every_id_means_something_to_aiter(self, subject: Subject, case: LeafCase) -> None:
        """Padding rows reach the kernel as sentinel, or as an expert with weight 0; the rest is cast only."""
        assert checks.check_routing(subject, case).problems(subject) == []

    @given(case=strategies.leaf_cases(min_topk=2))
    def test_on_input_needs_one_expert_a_token(self, subject: Subject, case: LeafCase) -> None:
        """Router weights cannot be applied to the input of several experts at once."""
        assert checks.check_on_input_needs_one_expert(subject, case).problems(subject) == []


class TestTensors:
    """What happens to the tensors of a call."""

    @given(case=strategies.leaf_cases(with_local_tokens=True))
    def test_inputs_are_left_as_they_are(self, subject: Subject, case: LeafCase) -> None:
        """The shared expert may read hidden states, weights and ids after the call."""
        assert checks.check_inputs_untouched(subject, case).problems(subject) == []

    @given(case=strategies.leaf_cases(with_local_tokens=True))
    def test_values_are_not_read(self, subject: Subject, case: LeafCase) -> None:
        """Tensors without values go through: no synchronisation, no shape that depends on data."""
        assert checks.check_without_values(subject, case).problems(subject) == []


class TestLocalTokens:
    """``num_local_tokens``, of which AITER reads the first element as the number of rows."""

    @given(case=strategies.leaf_cases(on_input=False, with_local_tokens=True))
    # C5 of the public cases: a count per expert is not a row count.
    @example(case=LeafCase("bf16", FOUR_EXPERTS, ((0, 1),) * 8, local_tokens=(0, 5, 3, 0)))
    @example(case=LeafCase("bf16", FOUR_EXPERTS, ((0, 1),) * 8, local_tokens=(5,)))
    def test_one_number_or_none(self, subject: Subject, case: LeafCase) -> None:
        """One element is handed on as it is; a vector, no metadata and empty metadata are None."""
        assert checks.check_local_tokens(subject, case).problems(subject) == []
