"""Judging one shipped code object: run at toy shapes that reach its paths, and compared with float64.

What informs and does not judge is kept beside the judgement: the share of its instructions that ran, reads
past the end of an input, and the code that it scales an fp8 intermediate to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from aiter_conformance.errors import HarnessError, UsageError
from aiter_conformance.isa import launch, toy
from aiter_conformance.isa.codeobject import CodeObject
from aiter_conformance.isa.decode import Program
from aiter_conformance.isa.execute import Core
from aiter_conformance.isa.launch import Family
from aiter_conformance.isa.machine import KernelFaultError
from aiter_conformance.isa.toy import Problem, Shape
from aiter_conformance.isa.variant import Variant, read_variant

LIMIT = 8e-3
"""Relative error of a right kernel with a 16-bit output (measured: at most 3.7e-3; faults start at 0.1)."""
ROW_LIMIT = 0.05
"""The same of the worst row, where one code of the intermediate may have flipped (measured: 0.042)."""
COLUMN_LIMIT = 0.15
"""||error|| of the worst column, relative to the columns' root mean square (0.057; faults start at 0.35)."""
INSIDE_LIMIT = 2e-2
"""Of a kernel that quantises activations itself: values near the edge of a code fall either way (0.016)."""
EXACT_LIMIT = 1e-5
"""All three, of partial sums in float32."""
SLACK = 1 << 16
"""Bytes past an input that may be read: many kernels prefetch, and the reads are reported."""
BUDGET = 2_000_000
"""Instructions a wave may execute; the shapes below need fewer than 100,000."""
SEEDS = 2
"""Further inputs that decide where an error is small enough for one flipped code of the intermediate.

A flipped code is an accident of the input: rare, and gone with another input. A fault is not.
"""
OTHER_MAX = 240.0
"""gfx942's largest fp8 code, to which some gfx950 objects scale."""


class Status(StrEnum):
    """What came out for an object."""

    RIGHT = "right"
    WRONG = "wrong"
    NOT_APPLICABLE = "not applicable"
    NOT_EXECUTABLE = "not executable"


@dataclass(frozen=True, slots=True)
class Case:
    """One launch of an object.

    Attributes:
        name: What the shape is there for.
        shape: Its sizes.
        gelu: Whether stage 1 is asked for GELU; one-stage objects have their own activation.
    """

    name: str
    shape: Shape
    gelu: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """What one launch gave.

    Attributes:
        case: Name of the case.
        shape: Its sizes, in words for people.
        error: ||output - expected|| / ||expected||; None where the output has a NaN or there is none.
        worst_row: The same of the worst row.
        worst_column: ||error|| of the worst column, relative to the root mean square of the columns' norms.
        fault: What the kernel did that it must not; None when it ended.
        right: Whether it ended and is within the limits.
        scaled_to: Code that the intermediate is scaled to, where that is not the format's largest.
        instructions: Wave-instructions.
        over_read: Farthest byte read past the end of an input.
        partly_outside: Accesses with a dword that lies partly beyond its buffer descriptor: read as 0, where
            hardware may do otherwise.
    """

    case: str
    shape: str
    error: float | None
    worst_row: float | None
    worst_column: float | None
    fault: str | None
    right: bool
    scaled_to: float | None
    instructions: int
    over_read: int
    partly_outside: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found about an object.

    Attributes:
        status: The result.
        reason: One sentence; None when it is right.
        share: Share of its instructions that ran in some case; None when none did.
        observations: What each case gave.
    """

    status: Status
    reason: str | None
    share: float | None
    observations: tuple[Observation, ...] = ()


@cache
def source_digest() -> str:
    """Digest of everything that a judgement depends on: every module of the emulator, but not the sweep."""
    folder = Path(__file__).parent
    files = sorted(f for f in folder.rglob("*.py") if f.name != "sweep.py")
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


def cases(kind: Variant) -> tuple[Case, ...]:
    """The launches that reach a kernel's paths.

    * ``few``: fewer tokens than most tiles have rows, experts without tokens, one slice; a persistent kernel
      has one group of work-groups for several blocks.
    * ``full``: a block that is exactly full, more K tiles, two slices; more groups than blocks.
    * ``more``: blocks that are full and ones that are not; a number of groups that does not divide them.
    * ``deep``: a model dimension of 2048, for pipelines that are longer than the others' K.
    * stage 1: GELU, and K divided among work-groups, with each activation.
    * ``odd``: a model dimension that is an odd multiple of 256, as some models have. It is the last, so that
      an object of which it is the first to be wrong is wrong in nothing else.

    The intermediate is always a multiple of the slice: AITER's host code picks no other kernel.
    """
    tile, one, two = kind.tile_m, kind.tile_n, 2 * kind.tile_n
    few = Shape(tokens=3, experts=7, topk=2, hidden=512, intermediate=one, groups=1)
    full = Shape(tokens=tile, experts=1, topk=1, hidden=1024, intermediate=two, groups=3)
    more = Shape(tokens=tile + 5, experts=2, topk=2, hidden=1536, intermediate=one, groups=3)
    deep = Shape(tokens=3, experts=1, topk=1, hidden=2048, intermediate=two, groups=1)
    odd = Shape(tokens=3, experts=2, topk=1, hidden=768, intermediate=one, groups=1)
    if kind.family is Family.ONE_STAGE:
        return Case("few", few), Case("full", full), Case("more", more), Case("deep", deep), Case("odd", odd)
    split, quarter = replace(few, hidden=1024, ksplit=1), replace(few, hidden=1024, ksplit=2)
    return (
        Case("few", few),
        Case("full, gelu", full, gelu=True),
        Case("more", more),
        Case("deep", deep),
        Case("K split in 2", split),
        Case("K split in 4, gelu", quarter, gelu=True),
        Case("odd", odd),
    )


def describe(shape: Shape) -> str:
    """A shape in words: what `isa run` takes back."""
    text = (
        f"tokens={shape.tokens},experts={shape.experts},topk={shape.topk},hidden={shape.hidden},"
        f"intermediate={shape.intermediate},groups={shape.groups}"
    )
    text += f",ksplit={shape.ksplit}" if shape.ksplit else ""
    return f"{text},seed={shape.seed}" if shape.seed else text


def problem_of(kind: Variant, case: Case) -> Problem:
    """The problem of a case, with the activation that it asks for; errors as for `toy.problem`."""
    return toy.problem(replace(kind, gelu=case.gelu or kind.gelu), case.shape)


def run_problem(code: CodeObject, program: Program, problem: Problem, core: Core) -> launch.Result:
    """Run a problem with the slack and the budget of every judgement; errors as for `launch.run`."""
    return launch.run(code, program, problem.launch, core=core, slack=SLACK, budget=BUDGET)


def limits_of(kind: Variant, case: Case) -> tuple[float, float, float]:
    """The limits of a case: of the whole output, its worst row and its worst column."""
    if case.shape.ksplit:
        return (EXACT_LIMIT,) * 3
    return INSIDE_LIMIT if kind.quantises else LIMIT, ROW_LIMIT, COLUMN_LIMIT


def _errors(problem: Problem, output: npt.NDArray[Any]) -> tuple[float, float, float]:
    """Relative errors of all, of the worst row and of the worst column; NaN where the output has one."""
    expected = problem.expected.reshape(-1, problem.expected.shape[-1])
    difference = problem.decode(output).reshape(expected.shape) - expected
    rows = np.linalg.norm(difference, axis=1) / np.maximum(np.linalg.norm(expected, axis=1), 1e-30)
    # A column has few elements, whose own norm may be small by chance.
    columns = np.linalg.norm(difference, axis=0) / np.sqrt((expected**2).sum(0).mean())
    return problem.error(output), float(rows.max()), float(columns.max())


def _within(errors: Sequence[float], limits: Sequence[float]) -> bool:
    return all(error < limit for error, limit in zip(errors, limits, strict=True))  # False for NaN


def observe(
    code: CodeObject, program: Program, kind: Variant, case: Case, core: Core
) -> tuple[Observation, npt.NDArray[np.int64]]:
    """Run one case; where its error may be one flipped code, other inputs decide whether it is right.

    Returns:
        What it gave, and int64 [instructions of the program], how often each was executed (all 0 where a
        fault ended it).

    Raises:
        HarnessError: It could not be launched.
    """
    first, counts = _observe(code, program, kind, case, core)
    if first.right or case.shape.ksplit or first.worst_row is None or first.worst_column is None:
        return first, counts
    if first.worst_row >= ROW_LIMIT or first.worst_column >= COLUMN_LIMIT:
        return first, counts
    seeds = range(case.shape.seed + 1, case.shape.seed + 1 + SEEDS)
    again = [replace(case, shape=replace(case.shape, seed=seed)) for seed in seeds]
    right = all(_observe(code, program, kind, other, core)[0].right for other in again)
    return replace(first, right=right), counts


def _observe(
    code: CodeObject, program: Program, kind: Variant, case: Case, core: Core
) -> tuple[Observation, npt.NDArray[np.int64]]:
    problem = problem_of(kind, case)
    words = describe(case.shape)
    try:
        result = run_problem(code, program, problem, core)
    except KernelFaultError as error:
        nothing = np.zeros(len(program.texts), np.int64)
        return Observation(case.name, words, None, None, None, str(error), False, None, 0, 0), nothing
    limits = limits_of(kind, case)
    output = result.outputs["O"]
    errors, scaled_to = _errors(problem, output), None
    right = _within(errors, limits)
    if not right and kind.scheme.startswith("fp8") and kind.requant_max != OTHER_MAX:
        other = problem_of(replace(kind, requant_max=OTHER_MAX), case)
        again = _errors(other, output)
        if _within(again, limits):
            errors, scaled_to, right = again, OTHER_MAX, True
    total, row, column = (None if np.isnan(e) else e for e in errors)
    furthest = max((o.furthest for o in result.execution.over_reads), default=0)
    ran = result.execution
    seen = Observation(
        *(case.name, words, total, row, column, None, right, scaled_to),
        *(ran.instructions, furthest, ran.partly_outside),
    )
    return seen, ran.counts


def _why(seen: Observation) -> str:
    if seen.fault is not None:
        return f"{seen.case} ({seen.shape}): {seen.fault}"
    if seen.error is None:
        return f"{seen.case} ({seen.shape}): output has NaN"
    partly = f"; {seen.partly_outside} accesses partly beyond a descriptor" if seen.partly_outside else ""
    return (
        f"{seen.case} ({seen.shape}): relative error {seen.error:.2g}, "
        f"of the worst row {seen.worst_row:.2g}, of the worst column {seen.worst_column:.2g}{partly}"
    )


def judge(code: CodeObject, program: Program, path: str, core: Core) -> Judgement:
    """Judge an object.

    Args:
        code: The object.
        program: It decoded.
        path: Release-relative path; its name says what the kernel computes.
        core: The interpreter.

    Returns:
        Wrong as soon as one case is; not executable when its launch is not modelled, or a case could not be
        launched and none is wrong.
    """
    try:
        kind = read_variant(code.arch, PurePosixPath(path).name)
    except UsageError as error:
        return Judgement(Status.NOT_EXECUTABLE, str(error), None)
    seen: list[Observation] = []
    counts = np.zeros(len(program.texts), np.int64)
    refused: str | None = None
    for case in cases(kind):
        try:
            observation, ran = observe(code, program, kind, case, core)
        except HarnessError as error:
            refused = refused or f"{case.name} ({describe(case.shape)}): {error}"
            continue
        seen.append(observation)
        counts += ran
    wrong = [observation for observation in seen if not observation.right]
    share = float((counts > 0).mean()) if seen else None
    if wrong:
        return Judgement(Status.WRONG, _why(wrong[0]), share, tuple(seen))
    if refused:
        return Judgement(Status.NOT_EXECUTABLE, refused, share, tuple(seen))
    return Judgement(Status.RIGHT, None, share, tuple(seen))
