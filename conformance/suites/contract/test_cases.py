"""Public reports as tests, each with its kind. C7 is in test_bridge, C10 in test_declared."""

from __future__ import annotations

from collections.abc import Callable

from aiter_conformance.checks import contract_cases as checks
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject

Conforms = Callable[[Report], None]


class TestCases:
    """One report each."""

    def test_c3_gate_mode(self, subject: Subject, conforms: Conforms) -> None:
        """vllm-project/vllm#44893: interleaved weights are said to be, or the call is an error."""
        conforms(checks.gate_mode_reaches_aiter(subject))

    def test_c5_expert_token_counts(self, subject: Subject, conforms: Conforms) -> None:
        """vllm-project/vllm#53261: counts per expert become no row count, by element or by sum."""
        conforms(checks.expert_token_counts(subject))

    def test_c6_padding_rows(self, subject: Subject, conforms: Conforms) -> None:
        """vllm-project/vllm#57036: ids below 0 do not reach AITER, and their rows weigh nothing."""
        conforms(checks.padding_rows(subject))

    def test_c9_padded_sizes(
        self, subject: Subject, needs: Callable[[str], None], conforms: Conforms
    ) -> None:
        """vllm-project/vllm#55368: sizes are padded to what the kernels' tiles need."""
        needs("padded_sizes")
        conforms(checks.padded_sizes(subject))

    def test_c12_too_many_tokens(self, subject: Subject, conforms: Conforms) -> None:
        """vllm-project/vllm#54732: too small a buffer is an error with both numbers and what to do."""
        conforms(checks.too_many_tokens(subject))

    def test_activations_by_release(self, subject: Subject, conforms: Conforms) -> None:
        """An activation that AITER does not have is an error, and not another activation (vllm#50319)."""
        conforms(checks.activations_by_release(subject))
