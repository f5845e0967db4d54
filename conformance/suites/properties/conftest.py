"""What the property suite needs of its subject."""

from __future__ import annotations

import pytest

from aiter_conformance.protocols import Subject


@pytest.fixture(autouse=True)
def _needs(request: pytest.FixtureRequest, subject: Subject) -> None:
    """Skip, and say so, what a subject has no name for: a test class lists the names in ``NEEDS``."""
    lacking = [name for name in getattr(request.cls, "NEEDS", ()) if name in subject.missing]
    if lacking:
        pytest.skip(f"{subject.name} {subject.version} has no {', '.join(lacking)}")
