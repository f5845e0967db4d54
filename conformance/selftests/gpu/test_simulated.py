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

    def test_a_segfault_is_a_crash_of_its_input(self, deadly: Run) -> None:
        """An input that kills its worker three times is a crash, and the message names the signal."""
        attempts = deadly.attempts(1)
        assert [each.kind for each in attempts] == [Kind.CRASH] * 3
        assert outcome(attempts).reason is Reason.CRASHED
        assert "SIGSEGV" in str(outcome(attempts).message)

    def test_a_hang_is_a_timeout_of_its_input(self, deadly: Run) -> None:
        """An input that does not end is killed; here its other runs end, which makes it ``fail (1/3)``."""
        attempts = deadly.attempts(33)
        assert [each.kind for each in attempts] == [Kind.TIMEOUT, Kind.PASS, Kind.PASS]
        assert (outcome(attempts).kind, outcome(attempts).reason) == (Kind.FAIL, Reason.TIMED_OUT)

    def test_a_wrong_number_is_a_failure(self, deadly: Run) -> None:
        """One wrong element in every run is a failure that says where."""
        attempts = deadly.attempts(37)
        assert [each.kind for each in attempts] == [Kind.FAIL] * 3
        assert outcome(attempts).reason is Reason.NUMBERS_DIFFER
        assert "token 0, column 0" in str(outcome(attempts).message)

    def test_a_rare_wrong_number_is_counted(self, deadly: Run) -> None:
        """A lie in the first of three runs is ``fail (1/3)``, and all three are kept."""
        attempts = deadly.attempts(20)
        assert [each.kind for each in attempts] == [Kind.FAIL, Kind.PASS, Kind.PASS]
        assert outcome(attempts).kind is Kind.FAIL
        assert outcome(attempts).details["failed"] == "1/3"
        assert "1/3 runs" in str(outcome(attempts).message)

    def test_a_spoilt_weight_is_a_failure(self, deadly: Run) -> None:
        """A kernel that writes into a weight fails, whatever its numbers are."""
        assert outcome(deadly.attempts(17, hidden=512)).reason is Reason.INPUTS_CHANGED

    def test_the_rest_completes(self, deadly: Run) -> None:
        """An input without a fault among them passes at once, with its kernels as traced."""
        (attempt,) = deadly.attempts(17)
        assert attempt.kind is Kind.PASS
        assert attempt.details["trace"] == "same"
        assert attempt.details["source"] == "log"

    def test_attempts_are_numbered(self, deadly: Run) -> None:
        """Each attempt at an input has the next number: none is repeated, none is lost."""
        assert [each.number for each in deadly.attempts(37)] == [1, 2, 3]


class TestTroubled:
    """Faults that a worker can tell of."""

    def test_a_fault_of_the_device_is_a_crash(self, troubled: Run) -> None:
        """An error that leaves the device's context lost is a crash, and the inputs after it run."""
        attempts = troubled.attempts(1)
        assert [each.kind for each in attempts] == [Kind.CRASH] * 3
        assert troubled.attempts(20) != []

    def test_nan_is_found(self, troubled: Run) -> None:
        """One NaN is a failure that says where."""
        assert "token 16, column 1: must be finite" in str(outcome(troubled.attempts(17)).message)

    def test_out_of_memory_is_no_failure_of_the_kernel(self, troubled: Run) -> None:
        """It is not run, with a reason of its own."""
        assert (outcome(troubled.attempts(33)).kind, outcome(troubled.attempts(33)).reason) == (
            Kind.NOT_RUN,
            Reason.OUT_OF_MEMORY,
        )

    def test_an_exception_is_a_failure_without_paths(self, troubled: Run) -> None:
        """What AITER raises is in the message; a path of the machine is not."""
        found = outcome(troubled.attempts(37))
        assert (found.kind, found.reason) == (Kind.FAIL, Reason.CALL_RAISES)
        assert "RuntimeError: no kernel for (a path)" in str(found.message)

    def test_right_numbers_by_another_kernel_are_a_failure(self, troubled: Run) -> None:
        """A silent other path fails at its first run, and names both families."""
        (attempt,) = troubled.attempts(20)
        assert (attempt.kind, attempt.reason) == (Kind.FAIL, Reason.OTHER_KERNEL)
        assert "the trace launches ck, but flydsl ran" in str(attempt.message)

    def test_right_numbers_by_unknown_kernels_are_not_evidence(self, troubled: Run) -> None:
        """Where nothing says which kernels ran, the input does not pass."""
        (attempt,) = troubled.attempts(17, hidden=512)
        assert (attempt.kind, attempt.reason) == (Kind.NOT_RUN, Reason.KERNELS_UNSEEN)


class TestOthers:
    """Faults of the package, its build and its interface; and inputs that never launch."""

    def test_a_lost_argument_is_a_refusal(self, simulate: Simulate) -> None:
        """An AITER whose signature lost an argument refuses at once, with the reason of the interface."""
        run = simulate(Fault("drop-argument"), cell="gfx950/mxfp4-w4a16/swigluoai/out", only="biases")
        (attempt,) = run.attempts(17)
        assert (attempt.kind, attempt.reason) == (Kind.REFUSED, Reason.API_MISSING_ARGUMENT)

    def test_a_failed_build_settles_the_cell(self, simulate: Simulate) -> None:
        """A build that fails is an outcome of its own, of every input of the cell, and none is launched."""
        run = simulate(Fault("build-fails", tokens=1), first=3, build=True)
        assert {outcome(run.attempts(m)).reason for m in (1, 17, 33)} == {Reason.BUILD_FAILED}

    def test_a_package_that_dies_is_infrastructure(self, simulate: Simulate) -> None:
        """Workers that never start say nothing of any input; the GPU is given up."""
        run = simulate(Fault("import-dies"), first=2)
        assert [run.attempts(m) for m in (1, 17)] == [[], []]
        assert any("SIGABRT" in sentence for sentence in run.said)
        assert run.said[-1] == "GPU 0 is given up: workers do not start on it"

    def test_a_quarantined_input_never_launches(self, simulate: Simulate) -> None:
        """It is skipped with the ledger's reason, although it would kill; its neighbour runs."""
        run = simulate(Fault("abort", tokens=1), first=2, quarantined=(1,))
        assert [(a.kind, a.reason) for a in run.attempts(1)] == [(Kind.SKIPPED, Reason.QUARANTINED)]
        assert outcome(run.attempts(17)).kind is Kind.PASS
