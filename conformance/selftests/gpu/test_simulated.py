"""Each lie and each fault of a simulated AITER has the right outcome, and the rest completes."""

from __future__ import annotations

from typing import Any

from aiter_conformance.hardware.attempts import Attempt, decide
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.simulated_rocm.plan import Fault

# The fixtures' types live in conftest.py, which no test imports.
Run = Any
Simulate = Any


def outcome(attempts: list[Attempt]) -> Outcome:
    """Return what the attempts decide."""
    decided = decide(attempts)
    assert decided is not None
    return decided


class TestDeadly:
    """Faults that end the process of a worker, beside others."""

    def test_each_way_to_die_is_told_apart(self, broken: Run) -> None:
        """A fault of the device and a signal are crashes with their names; no end is a timeout."""
        attempts = broken.attempts(1)
        assert [each.kind for each in attempts] == [Kind.CRASH, Kind.TIMEOUT, Kind.CRASH]
        faulted, hung, died = (str(each.message) for each in attempts)
        assert "The device reported a fault" in faulted
        assert hung.startswith("It did not end within ")
        assert "SIGSEGV" in died

    def test_an_input_that_never_ends_well_is_a_crash(self, broken: Run) -> None:
        """The first failure is the outcome."""
        assert (outcome(broken.attempts(1)).kind, outcome(broken.attempts(1)).reason) == (
            Kind.CRASH,
            Reason.CRASHED,
        )

    def test_a_wrong_number_is_a_failure(self, broken: Run) -> None:
        """One wrong element in every run is a failure that says where."""
        attempts = broken.attempts(3)
        assert [each.kind for each in attempts] == [Kind.FAIL] * 3
        assert outcome(attempts).reason is Reason.NUMBERS_DIFFER
        assert "token 0, column 0" in str(outcome(attempts).message)

    def test_a_rare_wrong_number_is_counted(self, broken: Run) -> None:
        """A lie in the first of three runs is ``fail (1/3)``, and all three are kept."""
        attempts = broken.attempts(4)
        assert [each.kind for each in attempts] == [Kind.FAIL, Kind.PASS, Kind.PASS]
        assert outcome(attempts).kind is Kind.FAIL
        assert outcome(attempts).details["failed"] == "1/3"
        assert "1/3 runs" in str(outcome(attempts).message)

    def test_a_spoilt_weight_is_a_failure(self, broken: Run) -> None:
        """A kernel that writes into a weight fails, whatever its numbers are."""
        assert outcome(broken.attempts(5)).reason is Reason.INPUTS_CHANGED

    def test_the_rest_completes(self, broken: Run) -> None:
        """An input without a fault after them passes at once, with its kernels as traced."""
        (attempt,) = broken.attempts(13)
        assert attempt.kind is Kind.PASS
        assert attempt.details["trace"] == "same"
        assert attempt.details["source"] == "log"

    def test_attempts_are_numbered(self, broken: Run) -> None:
        """Each attempt at an input has the next number: none is repeated, none is lost."""
        assert [each.number for each in broken.attempts(3)] == [1, 2, 3]


class TestTroubled:
    """Faults that a worker can tell of."""

    def test_nan_is_found(self, broken: Run) -> None:
        """One NaN is a failure that says where."""
        assert "token 6, column 1: must be finite" in str(outcome(broken.attempts(7)).message)

    def test_out_of_memory_is_no_failure_of_the_kernel(self, broken: Run) -> None:
        """It is not run, with a reason of its own."""
        assert (outcome(broken.attempts(8)).kind, outcome(broken.attempts(8)).reason) == (
            Kind.NOT_RUN,
            Reason.OUT_OF_MEMORY,
        )

    def test_an_exception_is_a_failure_without_paths(self, broken: Run) -> None:
        """What AITER raises is in the message; a path of the machine is not."""
        found = outcome(broken.attempts(9))
        assert (found.kind, found.reason) == (Kind.FAIL, Reason.CALL_RAISES)
        assert "RuntimeError: no kernel for (a path)" in str(found.message)

    def test_right_numbers_by_another_kernel_are_a_failure(self, broken: Run) -> None:
        """A silent other path fails at its first run, and names both families."""
        (attempt,) = broken.attempts(10)
        assert (attempt.kind, attempt.reason) == (Kind.FAIL, Reason.OTHER_KERNEL)
        assert "the trace launches ck, but flydsl ran" in str(attempt.message)

    def test_right_numbers_by_unknown_kernels_are_not_evidence(self, broken: Run) -> None:
        """Where nothing says which kernels ran, the input does not pass."""
        (attempt,) = broken.attempts(11)
        assert (attempt.kind, attempt.reason) == (Kind.NOT_RUN, Reason.KERNELS_UNSEEN)


class TestOthers:
    """Faults of the package, its build and its interface; and inputs that never launch."""

    def test_a_lost_argument_is_a_refusal(self, simulate: Simulate) -> None:
        """An AITER whose signature lost an argument refuses at once, with the reason of the interface."""
        run = simulate(
            Fault("drop-argument"), tokens=[17], cell="gfx950/mxfp4-w4a16/swigluoai/out", name="biases"
        )
        (attempt,) = run.attempts(17)
        assert (attempt.kind, attempt.reason) == (Kind.REFUSED, Reason.API_MISSING_ARGUMENT)

    def test_a_failed_build_settles_the_cell(self, simulate: Simulate) -> None:
        """A build that fails is an outcome of its own, of every input of the cell, and none is launched."""
        run = simulate(Fault("build-fails", tokens=1), tokens=[1, 17, 33], build=True)
        assert {outcome(run.attempts(m)).reason for m in (1, 17, 33)} == {Reason.BUILD_FAILED}

    def test_a_quarantined_input_never_launches(self, broken: Run) -> None:
        """It is skipped with the ledger's reason, although it would kill; its neighbour runs."""
        assert [(a.kind, a.reason) for a in broken.attempts(12)] == [(Kind.SKIPPED, Reason.QUARANTINED)]
        assert outcome(broken.attempts(13)).kind is Kind.PASS
