"""The two subjects of the differential suite."""

from __future__ import annotations

import os

import pytest

from aiter_conformance import subjects
from aiter_conformance.protocols import Subject
from aiter_conformance.subjects.vllm import WHEEL_VARIABLE


@pytest.fixture(scope="session")
def impl() -> Subject:
    """Return our own leaves."""
    return subjects.load_subject("impl")


@pytest.fixture(scope="session")
def vllm(request: pytest.FixtureRequest) -> Subject:
    """Return the module of vLLM, where it is asked for; then it must be there."""
    if request.config.getoption("--subject") != "vllm" and not os.environ.get(WHEEL_VARIABLE):
        pytest.skip(f"vLLM is compared where {WHEEL_VARIABLE} names a wheel, or with --subject=vllm")
    return subjects.load_subject("vllm")
