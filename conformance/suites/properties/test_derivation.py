"""``derive_aiter_quant_method`` (SPEC 4): total, in order of precedence, and the leaves' own answer."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given

from aiter_conformance import strategies
from aiter_conformance.checks import properties_derivation as checks
from aiter_conformance.checks.properties_derivation import KNOWN_DISAGREEMENTS, Answers, Disagreement
from aiter_conformance.contract import SCHEME_CONFIGS, SUPPORTED_ARCHS, leaf_of_scheme
from aiter_conformance.protocols import QuantSpec, Subject

CONFIGS = [
    QuantSpec(*values)
    for values in itertools.product(
        (None, "fp8", "mxfp4"),
        (None, "fp8", "mxfp4", "int4"),
        (False, True),
        (False, True),
        (None, (128, 128), (64, 128)),
    )
]


class TestDeriveAiterQuantMethod:
    """``derive_aiter_quant_method``."""

    NEEDS = ("derive_aiter_quant_method",)

    @given(answers=strategies.answers())
    def test_first_rule_that_matches_wins(self, subject: Subject, answers: Answers) -> None:
        """Every combination of answers has a method, that of the first rule."""
        assert checks.check_derivation(subject, answers).problems(subject) == []

    @pytest.mark.parametrize("arch", SUPPORTED_ARCHS)
    def test_every_config_that_can_be_made(self, subject: Subject, arch: str) -> None:
        """All 144 configs are derived by the same rules, on both fp8 flavours, or ``make`` refuses them."""
        reports = [checks.check_derivation_of_config(subject, arch, spec) for spec in CONFIGS]
        assert [line for report in reports for line in report.problems(subject)] == []

    @pytest.mark.parametrize("scheme", SCHEME_CONFIGS)
    def test_leaf_and_derivation_agree(self, subject: Subject, scheme: str) -> None:
        """What a leaf declares is what is derived from its scheme's config, on each arch that it takes."""
        leaf = leaf_of_scheme(scheme)
        archs = [a for a in SUPPORTED_ARCHS if any(a in archs for archs in leaf.pairs.values())]
        reports = [checks.check_derivation_agrees(subject, scheme, arch) for arch in archs]
        assert [line for report in reports for line in report.problems(subject)] == []

    @pytest.mark.parametrize("known", KNOWN_DISAGREEMENTS, ids=lambda known: known.scheme)
    def test_known_disagreements_are_still_there(self, subject: Subject, known: Disagreement) -> None:
        """A hazard on the list is still as it is listed: whoever repairs it takes it off the list."""
        assert checks.check_known_disagreement(subject, known).problems(subject) == []
