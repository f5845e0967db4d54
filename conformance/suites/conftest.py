"""What every suite shares: how a check's report becomes a test's verdict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject

Conforms = Callable[[Report], None]


@pytest.fixture
def conforms(subject: Subject, request: pytest.FixtureRequest) -> Conforms:
    """Return a function that fails the test unless the report holds, listed differences aside.

    The differences that showed are properties of the test: the terminal's summary and a JUnit report have
    them, so that a test that passes because of one can be told from one that passes.
    """

    def check(report: Report) -> None:
        for identity in sorted(report.known(subject)):
            request.node.user_properties.append(("difference", identity))
        __tracebackhide__ = True
        problems = report.problems(subject)
        assert problems == [], "\n".join(problems)

    return check


@pytest.fixture
def needs(subject: Subject) -> Callable[[str], None]:
    """Return a function that ends a test of a name that the subject is listed not to have."""

    def check(name: str) -> None:
        if name in subject.missing:
            pytest.skip(f"{subject.name} {subject.version} is listed to have no {name}")

    return check
