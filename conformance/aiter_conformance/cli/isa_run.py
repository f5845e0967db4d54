"""``isa run``: one shipped object on small inputs, and where it is wrong."""

from __future__ import annotations

import shlex
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import numpy.typing as npt

from aiter_conformance.cli.matrix import root_option
from aiter_conformance.cli.output import json_option, print_json, print_table
from aiter_conformance.errors import UsageError

if TYPE_CHECKING:
    from aiter_conformance.isa.judge import Case, Observation
    from aiter_conformance.isa.objects import Opened
    from aiter_conformance.isa.variant import Variant

MOST = 4096
K_TILE = 256
"""K of the parts that ``get_ksplit`` of AITER's ``fused_moe.py`` makes; kernels read past smaller ones."""
FAR = 25
"""Times the limit of a whole output that one element is off when it is named as wrong."""


@click.command("run")
@click.argument("release_text", metavar="RELEASE")
@click.argument("object_text", metavar="OBJECT")
@click.option(
    "--shape",
    "shape_text",
    metavar="NAME|SIZES",
    help="A case of the sweep by name, or sizes as tokens=12,experts=4,topk=2,hidden=512[,intermediate=256]"
    "[,groups=3][,ksplit=1][,seed=0]; what is left out has these defaults. Without it: every case.",
)
@click.option("--gelu", is_flag=True, help="With sizes: ask a stage-1 object for GELU instead of SiLU.")
@root_option
@json_option
def run_command(
    release_text: str, object_text: str, shape_text: str | None, gelu: bool, root: Path, as_json: bool
) -> int:
    """Execute a shipped OBJECT of RELEASE on small inputs and compare it with float64.

    OBJECT is a path in the release, or a part of it that only one object has. Exit code 1 if it is wrong.
    """
    from aiter_conformance.isa import judge, objects
    from aiter_conformance.isa.machine import ENDLESS

    opened = objects.open_object(release_text, object_text, root / "build" / "isa")
    path = opened.path
    chosen = choose_cases(opened.kind, shape_text, gelu)
    observations = [opened.observe(case) for case in chosen]
    wrong = [seen for seen in observations if not seen.right]
    if as_json:
        print_json(
            {"path": path, "arch": opened.kind.arch, "observations": [asdict(o) for o in observations]}
        )
        return int(bool(wrong))
    click.echo(f"{path}\n{describe_variant(opened.kind)}\n")
    body = [
        [
            o.case,
            o.shape.replace(",", " "),
            "right" if o.right else "DOES NOT END" if (o.fault or "").startswith(ENDLESS) else "WRONG",
            _number(o.error),
            _number(o.worst_row),
            _number(o.worst_column),
            str(o.instructions),
            str(o.over_read),
        ]
        for o in observations
    ]
    header = [
        *("case", "shape", "result", "error", "worst row", "worst column"),
        *("instructions", "bytes read past an end"),
    ]
    print_table(header, body, wrap=[1])
    said_endless = False
    for seen, case in zip(observations, chosen, strict=True):
        if seen.scaled_to is not None:
            click.echo(
                f"\n{seen.case}: right for an intermediate scaled to {seen.scaled_to:g}, not to the largest"
            )
        # What does not end is said once: its cases differ in nothing else.
        endless = (seen.fault or "").startswith(ENDLESS)
        if seen.right or (endless and said_endless):
            continue
        said_endless |= endless
        found = seen.fault or _over(seen, judge.limits_of(opened.kind, case))
        click.echo(f"\n{found}" if endless else f"\n{seen.case}: {found}")
        if seen.partly_outside:
            click.echo(
                f"  {seen.partly_outside} accesses have a dword partly beyond a buffer descriptor, which is "
                "read as 0 here; hardware may read it: see mxfp4_flat_sizes in reports/findings/isa"
            )
        if seen.fault is None:
            click.echo(f"  {_where(opened, case)}")
        again = ["--shape", seen.shape, *(["--gelu"] if case.gelu else [])]
        click.echo(f"  again: {shlex.join(['aiter-conformance', 'isa', 'run', release_text, path, *again])}")
    return int(bool(wrong))


def _over(seen: Observation, allowed: tuple[float, float, float]) -> str:
    """Which limits a wrong output passed, and what they are."""
    names = ("of the whole", "of the worst row", "of the worst column")
    errors = (seen.error, seen.worst_row, seen.worst_column)
    over = [
        f"{name} {error:.2g} (limit {limit:g})"
        for name, error, limit in zip(names, errors, allowed, strict=True)
        if error is not None and error >= limit
    ]
    return f"error {', '.join(over)}" if over else "the output has a NaN"


def _where(opened: Opened, case: Case) -> str:
    """Which part of a wrong output is wrong, and its first element, found by running it once more."""
    from aiter_conformance.isa import judge

    problem = judge.problem_of(opened.kind, case)
    ran = judge.run_problem(opened.code, opened.program, problem, opened.core)
    got = problem.decode(ran.outputs["O"])
    got = got.reshape(-1, got.shape[-1])
    expected = problem.expected.reshape(got.shape)
    size = np.linalg.norm(expected, axis=-1, keepdims=True) / np.sqrt(got.shape[-1])
    far = FAR * (judge.EXACT_LIMIT if case.shape.ksplit else judge.LIMIT)
    wrong = ~(np.abs(got - expected) <= far * size)
    if not wrong.any():
        off, rows = np.abs(got - expected), np.linalg.norm(expected, axis=1)
        worst = int(np.argmax(np.linalg.norm(off, axis=1) / np.maximum(rows, 1e-30)))
        return (
            f"no element alone is off by more than {far:.2g} of its row's root mean square; "
            f"the worst row is {worst} of {len(off)}, "
            f"the worst column {np.argmax(np.linalg.norm(off, axis=0))} of {off.shape[1]}"
        )
    row, column = np.argwhere(wrong)[0]
    one = wrong.sum() == 1
    return (
        f"{wrong.sum()} of {wrong.size} elements {'is' if one else 'are'} off by more than {far:.2g} of the "
        f"row's root mean square, in {_span('row', wrong.any(1))} and {_span('column', wrong.any(0))}; "
        f"{'it' if one else 'the first'} is [{row}, {column}], "
        f"which must be {expected[row, column]:.5g} (got {got[row, column]:.5g})"
    )


def _span(name: str, chosen: npt.NDArray[np.bool_]) -> str:
    """The first and the last of those that are chosen, or the only one, and how many there are in all."""
    found = np.flatnonzero(chosen)
    if len(found) == 1:
        return f"{name} {found[0]} of {len(chosen)}"
    return f"{name}s {found[0]} to {found[-1]} of {len(chosen)}"


def choose_cases(kind: Variant, text: str | None, gelu: bool) -> tuple[Case, ...]:
    """The cases that ``--shape`` names; every case of the sweep without it.

    Raises:
        UsageError: There is no such case, sizes do not fit the kernel, or they ask a kernel of both stages
            for what is an argument of stage 1 alone: it would not hear of it, and be called wrong.
    """
    from aiter_conformance.isa import judge, toy
    from aiter_conformance.isa.launch import Family

    known = judge.cases(kind)
    if text is None or "=" not in text:
        chosen = tuple(case for case in known if text in (None, case.name))
        if not chosen:
            names = ", ".join(repr(case.name) for case in known)
            raise UsageError(f"--shape must be one of {names}, or sizes such as tokens=12 (got {text!r})")
        if gelu:
            got = "none" if text is None else repr(text)
            raise UsageError(f"--gelu must come with sizes: a case has its own activation (got {got})")
        return chosen
    sizes = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        allowed = [field.name for field in fields(toy.Shape)]
        if name not in allowed or not value.isdecimal():
            raise UsageError(f"--shape must be NAME=NUMBER of {', '.join(allowed)} (got {part!r})")
        sizes[name] = int(value)
    shape = toy.Shape(**{"intermediate": kind.tile_n, **sizes})
    for name, step in (
        ("hidden", 128),
        ("intermediate", kind.tile_n),
        ("tokens", 1),
        ("topk", 1),
        ("groups", 1),
    ):
        value = getattr(shape, name)
        if value < step or value % step:
            raise UsageError(f"{name} must be a positive multiple of {step} (got {value})")
    if shape.topk > shape.experts or shape.experts > MOST or shape.tokens > MOST or shape.ksplit > 4:
        raise UsageError(f"topk must be at most experts, experts and tokens {MOST}, ksplit 4 (got {text})")
    if kind.family is not Family.STAGE1 and (gelu or shape.ksplit):
        asked = "--gelu" if gelu else "ksplit"
        raise UsageError(f"{asked} must be asked of a stage-1 object (got one of both stages)")
    if shape.ksplit and shape.hidden % (K_TILE << shape.ksplit):
        raise UsageError(
            f"hidden must be a multiple of {K_TILE << shape.ksplit} with ksplit={shape.ksplit}, as AITER "
            f"divides K in parts of {K_TILE} alone (got {shape.hidden})"
        )
    return (judge.Case("as given", shape, gelu),)


def describe_variant(kind: Variant) -> str:
    """What the object's name says that it computes."""
    parts = [
        kind.arch,
        "stage 1" if kind.family.name == "STAGE1" else "both stages",
        f"{kind.scheme} {'gate and up' if kind.gated else 'without gate'}",
        f"tile {kind.tile_m} x {kind.tile_n}",
        "router weight before the activation" if kind.weight_in else "",
        "persistent" if kind.persistent else "",
        "" if kind.routing == "sorted" else "tokens not sorted by the host",
        "float16" if kind.half else "bfloat16",
    ]
    return ", ".join(part for part in parts if part)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
