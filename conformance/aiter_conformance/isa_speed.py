"""How fast the emulator is, on a shipped stage-1 kernel (DESIGN: figures to reach)."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from aiter_conformance.isa import codeobject, decode, fast, launch, toy
from aiter_conformance.isa.execute import Core
from aiter_conformance.isa.judge import SLACK
from aiter_conformance.isa.objects import find_object
from aiter_conformance.isa.variant import read_variant
from aiter_conformance.release.artefact import open_release

OBJECT = "hsa/gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_32x128_3tg_pf3.co"
_TOY = toy.Shape()
_LARGE = toy.Shape(tokens=128, experts=8, hidden=2048, intermediate=512)


@dataclass(frozen=True, slots=True)
class Speed:
    """What was measured on one core.

    Attributes:
        rate: Wave-instructions a second, of the run alone.
        first: Seconds from the bytes of an object to its result at toy size, decoded anew.
        again: The same with its decoded program kept.
    """

    rate: float
    first: float
    again: float


def measure_speed(release: str, folder: Path) -> Speed:
    """Measure on a stage-1 object of a release.

    Args:
        release: The release, as `open_release` takes it.
        folder: Where compiled code is kept; that it is compiled is not measured.

    Raises:
        UsageError: The release does not have the object.
        InfrastructureError: numba or the disassembler is absent.
    """
    with open_release(release) as opened:
        content = opened.files.read(find_object(opened, OBJECT))
    core = fast.load(folder)
    kind = read_variant("gfx942", OBJECT)
    problem = toy.problem(kind, _TOY)
    with tempfile.TemporaryDirectory(prefix="isa-speed-") as made:
        kept = Path(made)
        _run(content, problem, core, kept / "compile")  # compiles the core where that was not done
        first = _run(content, problem, core, kept / "toy")
        again = min(_run(content, problem, core, kept / "toy") for _ in range(3))
        code = codeobject.load(content)
        [program] = decode.decode([code], kept / "toy")
    large = toy.problem(kind, _LARGE)
    start = time.perf_counter()
    result = launch.run(code, program, large.launch, core=core, slack=SLACK)
    return Speed(result.execution.instructions / (time.perf_counter() - start), first, again)


def _run(content: bytes, problem: toy.Problem, core: Core, folder: Path) -> float:
    """Seconds from an object's bytes to its result."""
    start = time.perf_counter()
    code = codeobject.load(content)
    [program] = decode.decode([code], folder)
    launch.run(code, program, problem.launch, core=core, slack=SLACK)
    return time.perf_counter() - start
