"""The kernel families of ``matrices/spec/families.toml``: which cells each can serve, how each shows."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Literal

from aiter_conformance.axes import Cell, spec_dir


@dataclass(frozen=True, slots=True)
class Family:
    """One kernel family.

    Attributes:
        name: Short name, e.g. ``asm-1stage-ptpc``.
        title: What it is, for people.
        kind: ``object`` for machine code that a release ships, ``source`` for what is compiled on first use.
        manifest: For ``object``: path of its manifest, with ``{arch}`` and ``{activation}``.
        needs: Files that must be in the release besides.
        complete: Whether shipped machine code is all that a call needs; false where it works only together
            with something that is built on first use.
        through: Function, as ``file:function``, that must hand its call on to ``fused_moe``, or None where
            the leaf calls that itself.
        traced_only: Whether only a trace can say that it serves a call: it does so for some sizes, or in some
            releases. Levels that look at a whole cell, or at no release, leave it out.
        generator: Program of the release whose option ``--activation`` lists what it takes, or None.
        archs: Archs it can serve.
        schemes: Schemes it can serve.
        routers: Where the router weight may multiply.
        activations: Activations it can serve, each with the family's own name for it.
        source: Where in AITER this was read.
    """

    name: str
    title: str
    kind: Literal["object", "source"]
    archs: tuple[str, ...]
    schemes: tuple[str, ...]
    routers: tuple[str, ...]
    activations: dict[str, str]
    source: str
    manifest: str | None = None
    needs: tuple[str, ...] = ()
    complete: bool = True
    through: str | None = None
    traced_only: bool = False
    generator: str | None = None

    def serves(self, cell: Cell) -> bool:
        """Return whether the family can serve a cell whole, in any release that has all that it needs."""
        return not self.traced_only and self.may_launch(cell)

    def may_launch(self, cell: Cell) -> bool:
        """Return whether some release does right to launch the family for some call of a cell."""
        return (
            cell.arch in self.archs
            and cell.scheme in self.schemes
            and cell.router in self.routers
            and cell.activation in self.activations
        )

    def manifest_of(self, cell: Cell) -> str:
        """Return the path of the manifest that lists the family's kernels for a cell."""
        assert self.manifest is not None  # noqa: S101 -- load_families checks it
        return self.manifest.format(arch=cell.arch, activation=self.activations[cell.activation])


@cache
def load_families() -> tuple[Family, ...]:
    """Read the table of kernel families.

    Raises:
        ValueError: An ``object`` family names no manifest, or a ``source`` family names one.
    """
    data = tomllib.loads((spec_dir() / "families.toml").read_text(encoding="utf-8"))
    families = []
    for entry in data["family"]:
        lists = {key: tuple(entry.get(key, ())) for key in ("archs", "schemes", "routers", "needs")}
        family = Family(**(entry | lists))
        if (family.kind == "object") != (family.manifest is not None):
            msg = f"a family must name a manifest exactly when its kind is 'object' (got {family.name})"
            raise ValueError(msg)
        families.append(family)
    return tuple(families)


def launch_kind(name: str) -> str:
    """Return the kind of kernel of a family, as a trace names what is launched."""
    kinds = {"asm-1stage": "asm-1stage", "asm-stage1": "asm-stage1", "ck-": "ck", "cktile": "ck-tile"}
    return next(
        (kind for prefix, kind in (kinds | {"flydsl": "flydsl"}).items() if name.startswith(prefix)), name
    )
