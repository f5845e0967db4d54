"""The two subjects of the differential suite."""

from __future__ import annotations

import pytest

from aiter_conformance import subjects
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.protocols import Subject


@pytest.fixture(scope="session")
def impl() -> Subject:
    """Return our own leaves."""
    return subjects.load_subject("impl")


@pytest.fixture(scope="session")
def vllm() -> Subject:
    """Return the module of vLLM, where there is a wheel of it."""
    try:
        subjects.find_version("vllm")
    except InfrastructureError as error:
        pytest.skip(str(error))
    return subjects.load_subject("vllm")
