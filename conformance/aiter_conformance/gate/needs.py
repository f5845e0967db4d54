"""What a cell needs of a release, as the tokens by which a change is put under its cause."""

from __future__ import annotations

from functools import cache

from aiter_conformance.axes import Cell
from aiter_conformance.contract import NeedKind, api_needs
from aiter_conformance.families import load_families


@cache
def needs(cell: Cell) -> tuple[str, ...]:
    """Return the tokens of what can be why a cell is otherwise."""
    found = [f"arch {cell.arch}"]
    for need in api_needs(cell):
        found.append(f"file {need.module.replace('.', '/')}.py")
        found.append(
            {
                NeedKind.FUNCTION: f"function {need.name}",
                NeedKind.ARGUMENT: f"parameter {need.function}({need.name})",
                NeedKind.ACTIVATION: f"member ActivationType.{need.name}",
                NeedKind.QUANT_TYPE: f"member QuantType.{need.name}",
            }[need.kind]
        )
    for family in load_families():
        if not family.may_launch(cell):
            continue
        found += [f"file {path}" for path in family.needs]
        if family.generator is not None:
            found.append(f"choice {family.generator} {family.activations[cell.activation]}")
        if family.manifest is not None:
            path = family.manifest_of(cell)
            found += [f"manifest {path}", f"rows of {path}"]
    return tuple(dict.fromkeys(found))
