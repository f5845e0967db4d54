"""One run of one input on the device: leaf and bridge, poisoned outputs, copied weights, repeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch

from aiter_conformance.golden import apply_leaf, environment_of, live, live_rows
from aiter_conformance.hardware.attempts import Attempt
from aiter_conformance.hardware.items import Item
from aiter_conformance.hardware.kernels import Seen, watch
from aiter_conformance.hardware.shuffles import pack_with
from aiter_conformance.hardware.trouble import Trouble, sentence, trouble
from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.numerics.oracle import Expected, expected, sampled_tokens
from aiter_conformance.numerics.packed import Packed, pack
from aiter_conformance.numerics.pipeline import pipeline_of
from aiter_conformance.numerics.verdict import ROW_ERROR, Verdict, bucket, judge
from aiter_conformance.outcome import Kind, Reason
from aiter_conformance.protocols import KernelCall, Subject
from aiter_conformance.providers.hardware import HardwareProvider, RealAiter, changed, on_device, poison

# More tokens than this are judged by a sample of them.
_ALL_TOKENS: Final = 64
_TIMED_CALLS: Final = 20
# What tells AITER which SiTU kernel is meant (SPEC 7); its own code may read them as early as at its import.
_SITU_SWITCHES: Final = {"a4w4": {"AITER_SITUV2_A4W4": "1"}, "a8w4": {"AITER_SITUV2_A8W4": "1"}}


@dataclass(frozen=True)
class Setting:
    """What runs of inputs have in common.

    Attributes:
        subject: The implementation whose leaf and bridge are called.
        library: The AITER.
        device: ``cuda``, or ``cpu`` for a simulated one.
        variables: Variables of the user's that AITER reads, ``AITER_*``.
    """

    subject: Subject
    library: RealAiter
    device: str
    variables: Mapping[str, str]


def variables_of(problem: Problem, user: Mapping[str, str]) -> dict[str, str]:
    """Return every VLLM_* and AITER_* variable under which the problem runs."""
    wanted = environment_of(problem)
    situ = wanted.get("VLLM_ROCM_USE_AITER_MOE_SITUV2", "")
    return {**user, **wanted, **_SITU_SWITCHES.get(situ, {})}


def build_item(item: Item, setting: Setting) -> Attempt:
    """Make the call of an input once, so that AITER builds what it needs; only a failed build is no pass."""
    try:
        problem = item.problem
        _leaf(problem, pack_with(setting.library, problem, pack(problem))[0], setting)
    except Exception as error:  # all but a failed build comes again, and is judged then
        what = trouble(error.error if isinstance(error, _Raised) else error)
        if what.reason is Reason.BUILD_FAILED:
            return _failed(item, what)
    return Attempt(str(item), 0, Kind.PASS)


def run_item(item: Item, setting: Setting, *, timed: bool = True) -> Attempt:
    """Run an input and judge it; whatever goes wrong in it becomes the attempt's outcome.

    Three calls are made: two through the leaf, one through the bridge with the arguments that the leaf
    passes. All of them are judged.
    """
    details: dict[str, Any] = {}
    try:
        return _run(item, setting, details, timed=timed)
    except _Raised as raised:
        return _failed(item, trouble(raised.error), details)
    except (
        Exception
    ) as error:  # around the calls: no fault of the kernel, but for what the device reports late
        what = trouble(error)
        if what.reason not in (Reason.CRASHED, Reason.OUT_OF_MEMORY):
            said = f"The harness could not run it ({type(error).__name__}: {sentence(str(error))})."
            what = Trouble(Kind.NOT_RUN, Reason.INFRASTRUCTURE, said)
        return _failed(item, what, details)


class _Raised(Exception):  # noqa: N818 -- it carries an error
    """What AITER or the subject raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def _calling() -> Iterator[None]:
    """Mark what is raised inside the ``with`` block as raised by AITER or the subject."""
    try:
        yield
    except Exception as error:
        raise _Raised(error) from error


def _failed(item: Item, what: Trouble, details: dict[str, Any] | None = None) -> Attempt:
    return Attempt(str(item), 0, what.kind, what.reason, what.message, details or {})


def _run(item: Item, setting: Setting, details: dict[str, Any], *, timed: bool) -> Attempt:
    problem = item.problem
    ours = pack(problem)
    with _calling():  # AITER's own shuffles may refuse a shape
        packed, differing = pack_with(setting.library, problem, ours)
    details["packed"] = "aiter" if differing is not None else "harness"
    if differing:
        details["layout_differs"] = differing
    expect = _expected(problem)
    call = _call_of(problem, packed, setting)

    outputs: list[tuple[str, torch.Tensor]] = []
    seen = Seen()
    for number in (1, 2):
        handed = on_device(packed, setting.device)
        made = _caller(problem, handed, setting)
        output, watched = watch(made, profile=number == 1 and setting.device != "cpu")
        seen = watched if number == 1 else seen
        outputs.append((f"leaf, call {number}", output.cpu()))
        if touched := changed(packed, handed):
            message = f"A kernel must leave its inputs alone (changed: {', '.join(touched)})."
            return _failed(item, Trouble(Kind.FAIL, Reason.INPUTS_CHANGED, message), details)
    outputs.append(("bridge", _through_bridge(problem, call, setting)))
    products = seen.products
    details |= {"kernels": list(products), "others": len(seen.names) - len(products), "source": seen.source}
    details["deterministic"] = all(torch.equal(_bits(o), _bits(outputs[0][1])) for _, o in outputs)

    verdicts = [(name, _judged(output, expect, problem)) for name, output in outputs]
    details |= _margins([verdict for _, verdict in verdicts])
    wrong = [(name, verdict) for name, verdict in verdicts if not verdict.passed]
    if wrong:
        name, verdict = wrong[0]
        message = f"{len(wrong)} of {len(verdicts)} calls are wrong; {name}: {verdict.message}"
        return _failed(item, Trouble(Kind.FAIL, Reason.NUMBERS_DIFFER, message), details)
    if timed:
        details["seconds"] = _time(problem, call, setting)
    return Attempt(str(item), 0, Kind.PASS, details=details)


def _expected(problem: Problem) -> Expected:
    tokens = problem.case.tokens
    chosen = None if tokens <= _ALL_TOKENS else sampled_tokens(tokens)
    return live(expected(problem, pipeline_of(problem), chosen), problem)


def _leaf(problem: Problem, packed: Packed, setting: Setting) -> torch.Tensor:
    """Call the leaf, unrecorded: it reaches AITER through its own bridge."""
    poison(packed.hidden_states)
    env = variables_of(problem, setting.variables)
    with _calling():
        output, _ = apply_leaf(problem, packed, setting.subject, None, env=env, installed=setting.library)
        HardwareProvider(setting.subject, setting.device).finish()
    return output


def _caller(problem: Problem, packed: Packed, setting: Setting) -> Callable[[], torch.Tensor]:
    _forget_choices(setting.library)
    return lambda: _leaf(problem, packed, setting)


def _forget_choices(library: RealAiter) -> None:
    """Make AITER look its choice of kernels up again, so that its log names it for every input."""
    forget = getattr(
        getattr(library.modules["aiter.fused_moe"], "get_2stage_cfgs", None), "cache_clear", None
    )
    if forget is not None:
        forget()


def _call_of(problem: Problem, packed: Packed, setting: Setting) -> KernelCall:
    """Return the call that the leaf makes, on tensors of the device, without making it."""
    handed = on_device(packed, setting.device)
    env = variables_of(problem, setting.variables)
    subject, library = setting.subject, setting.library
    with _calling():
        _, calls = apply_leaf(
            problem,
            handed,
            subject,
            lambda call: torch.zeros_like(call.arguments["hidden_states"]),
            env=env,
            installed=library,
        )
    return calls[0]


def _through_bridge(problem: Problem, call: KernelCall, setting: Setting) -> torch.Tensor:
    cell = problem.case.cell
    env = variables_of(problem, setting.variables)
    poison(call.arguments["hidden_states"])
    with _calling(), setting.subject.environment(cell.arch, env, setting.library):
        return HardwareProvider(setting.subject, setting.device).compute(call, cell.arch).cpu()


def _time(problem: Problem, call: KernelCall, setting: Setting) -> float:
    """Return seconds a call: the mean of calls that follow one another through the bridge, after one more."""
    cell = problem.case.cell
    provider = HardwareProvider(setting.subject, setting.device)
    calls = _TIMED_CALLS if setting.device != "cpu" else 1
    env = variables_of(problem, setting.variables)
    with _calling(), setting.subject.environment(cell.arch, env, setting.library):
        entry = setting.subject.entry(call.entry).wrapper
        entry(**call.arguments)
        provider.finish()
        start = time.perf_counter()
        for _ in range(calls):
            entry(**call.arguments)
        provider.finish()
        return (time.perf_counter() - start) / calls


def _judged(output: torch.Tensor, expect: Expected, problem: Problem) -> Verdict:
    return judge(live_rows(output, problem)[expect.tokens], expect)


def _bits(output: torch.Tensor) -> torch.Tensor:
    return output.contiguous().view(torch.uint8)


def _margins(verdicts: list[Verdict]) -> dict[str, Any]:
    return {
        "relative_error": max(verdict.relative_error for verdict in verdicts),
        "bound_ratio": bucket(max(verdict.bound_ratio for verdict in verdicts)),
        "row_error": bucket(max(verdict.row_error for verdict in verdicts) / ROW_ERROR),
    }
