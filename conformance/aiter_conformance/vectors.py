"""Golden vectors: small inputs with their expected outputs, for people who test kernels of their own.

A committed vector is the recipe of an input (its case, the hash of its bits) and the expected output as raw
float64 bytes; the input itself is rebuilt from the case. `export` writes everything in full.
``python -m aiter_conformance.vectors FOLDER`` makes the committed ones anew.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from aiter_conformance import contract, documents
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.case import Case
from aiter_conformance.coverage import parse_problem
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.numerics.formats import Floats
from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.numerics.oracle import expected
from aiter_conformance.numerics.pipeline import nominal_pipeline, pipeline_of
from aiter_conformance.outcome import Kind

SCHEMA: Final = "aiter-conformance/vectors/1"
# Expected values are float64 sums, whose last bits depend on the order of addition.
TOLERANCE: Final = 1e-12

_SIZES: Final = {"experts": 3, "hidden": 128, "intermediate": 128, "tokens": 2}


def vector_cases(arch: str) -> list[Case]:
    """Return the small case of each accepted cell of an arch."""
    cells = [cell for cell in load_axes().cells() if cell.arch == arch]
    accepted = [cell for cell in cells if contract.declaration(cell).kind is Kind.PASS]
    return [_small(cell) for cell in accepted]


def _small(cell: Cell) -> Case:
    return Case(cell, topk=1 if cell.router == "in" else 2, **_SIZES)


def make_vectors(arch: str) -> dict[str, Any]:
    """Compute the committed vectors of an arch."""
    return {
        "schema": SCHEMA,
        "dtype": "float64",
        "byte_order": "little",
        "encoding": "base64",
        "vectors": [_vector(case) for case in vector_cases(arch)],
    }


def _vector(case: Case) -> dict[str, Any]:
    problem = Problem(case)
    values = expected(problem, nominal_pipeline(case.cell)).values
    data = base64.b64encode(values.astype("<f8").tobytes()).decode("ascii")
    return {"case": str(case), "inputs": problem.digest(), "shape": list(values.shape), "expected": data}


def read_expected(vector: dict[str, Any]) -> Floats:
    """Return the expected output of a committed vector, float64 [M, K]."""
    data = np.frombuffer(base64.b64decode(vector["expected"]), "<f8")
    return data.reshape(vector["shape"]).astype(np.float64)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--arch", "archs", multiple=True, type=click.Choice(tuple(load_axes().archs)), help="Default: all."
)
def main(folder: Path, archs: tuple[str, ...]) -> None:
    """Write the vectors of each arch as FOLDER/<arch>.json, each whole or not at all.

    Those that are committed lie in conformance/suites/golden/vectors.
    """
    for arch in archs or load_axes().archs:
        documents.write_text(folder / f"{arch}.json", documents.render(make_vectors(arch)))
        click.echo(f"wrote {arch}.json")


def export(case: str, path: Path) -> None:
    """Write an input in full as ``.npz``: inputs, logical weights with their scales, output and bound.

    bfloat16 is stored as its bits (uint16), fp8, e2m1 and e8m0 as their codes (uint8), int4 as int8. Arrays
    of an expert are named ``w1.3`` and the like. Router weights and biases are float32, expected values
    float64.

    Args:
        case: An id of `coverage.parse_problem`.
        path: The file.

    Raises:
        UsageError: The id names no input.
        InfrastructureError: The file cannot be written.
    """
    problem = parse_problem(case)
    expect = expected(problem, pipeline_of(problem))
    arrays: dict[str, Any] = {
        "hidden_bf16": problem.hidden_bits,
        "topk_ids": problem.topk_ids,
        "topk_weights": problem.topk_weights,
        "expected": expect.values,
        "bound": expect.bound,
        "fragile": expect.fragile,
    }
    if problem.expert_mask is not None:
        arrays["expert_mask"] = problem.expert_mask
    for expert in problem.held_experts:
        made = problem.expert(expert)
        for name, weights in (("w1", made.w1), ("w2", made.w2)):
            arrays[f"{name}.{expert}"] = weights.codes
            if weights.scales is not None:
                arrays[f"{name}_scale.{expert}"] = weights.scales
        arrays |= {
            f"{b}.{expert}": bias for b, bias in (("b1", made.b1), ("b2", made.b2)) if bias is not None
        }
    temporary = path.with_name(f".{path.name}.{os.getpid()}.npz")
    try:
        np.savez_compressed(temporary, **arrays)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        msg = f"cannot write {path.name}: {error.strerror}"
        raise InfrastructureError(msg) from error


if __name__ == "__main__":
    main()
