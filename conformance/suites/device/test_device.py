"""The device contract over the subject: on the GPU where there is one, else what of it a CPU can show."""

from __future__ import annotations

import pytest

from aiter_conformance.device.call import default_device
from aiter_conformance.device.checks import Check, make_checks
from aiter_conformance.device.run import perform
from aiter_conformance.device.variants import Variant, load_variants
from aiter_conformance.outcome import Kind
from aiter_conformance.protocols import Subject

# A thousand calls are for `python -m aiter_conformance.device`, which keeps a record.
CHECKS = make_checks(calls=20)
CALLS = [
    (variant, check) for variant in load_variants() for check in CHECKS.values() if check.concerns(variant)
]


@pytest.mark.parametrize(("variant", "check"), CALLS, ids=[f"{v.name}-{c.name}" for v, c in CALLS])
def test_contract(subject: Subject, variant: Variant, check: Check) -> None:
    """What the check says holds of the call."""
    outcome, message = perform(check, variant, subject, default_device())
    if outcome is Kind.NOT_RUN:
        pytest.skip(str(message))
    assert message is None, f"{variant.leaf}, {variant.problem.case}: {message}"
