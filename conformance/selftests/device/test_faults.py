"""Each check of the device contract catches the faults that it is there for."""

from __future__ import annotations

import pytest

from aiter_conformance import subjects
from aiter_conformance.device.call import default_device
from aiter_conformance.device.checks import make_checks
from aiter_conformance.device.faulty import FAULTS, Fault
from aiter_conformance.device.run import perform
from aiter_conformance.device.variants import load_variants
from aiter_conformance.outcome import Kind

CHECKS = make_checks(calls=20)
VARIANTS = {variant.name: variant for variant in load_variants()}
CAUGHT = [(fault, name) for fault in FAULTS.values() for name in fault.caught_by]


class TestFaults:
    """`aiter_conformance.device.faulty`."""

    @pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # which is one of the faults
    @pytest.mark.parametrize(("fault", "name"), CAUGHT, ids=[f"{f.name}: {n}" for f, n in CAUGHT])
    def test_is_caught(self, fault: Fault, name: str) -> None:
        """The check fails with the fault, and passes on the same call without it."""
        check, variant = CHECKS[name], VARIANTS[fault.variant]
        subject, device = subjects.load_subject("impl"), default_device()
        planted, said = perform(check, variant, subject, device, fault)
        if planted is Kind.NOT_RUN:
            pytest.skip(str(said))
        assert planted is Kind.FAIL
        assert perform(check, variant, subject, device) == (Kind.PASS, None)

    def test_every_check_has_one(self) -> None:
        """No check is left that has never been seen to fail."""
        assert {name for _, name in CAUGHT} == set(CHECKS)
