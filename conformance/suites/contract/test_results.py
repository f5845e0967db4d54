"""SPEC 6: how the result gets into the output."""

from __future__ import annotations

from collections.abc import Callable

from aiter_conformance.checks import contract_results as checks
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject

Conforms = Callable[[Report], None]


class TestResult:
    """Both routes to a result, the common dispatcher and tkw1."""

    def test_storage_and_views(self, subject: Subject, conforms: Conforms) -> None:
        """Storage is taken over where output and result agree; otherwise the values are copied."""
        conforms(checks.writing(subject))

    def test_other_shapes(self, subject: Subject, conforms: Conforms) -> None:
        """A result of another shape is an error, and is not broadcast."""
        conforms(checks.other_shapes(subject))
