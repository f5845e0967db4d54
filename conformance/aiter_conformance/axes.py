"""The axes of the matrix and the cells they span, read from ``matrices/spec/axes.toml``."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from aiter_conformance.errors import UsageError

Router = Literal["out", "in"]
ROUTERS: tuple[Router, ...] = get_args(Router)


@dataclass(frozen=True, slots=True)
class Arch:
    """One GPU architecture.

    Attributes:
        name: Target name, e.g. ``gfx942``.
        title: What people call it.
        cu_counts: Compute units of the boards that carry it; kernel choice depends on both.
        fp8: The fp8 flavour its matrix cores read, ``e4m3fnuz`` or ``e4m3fn``.
    """

    name: str
    title: str
    cu_counts: tuple[int, ...]
    fp8: str


@dataclass(frozen=True, slots=True)
class Scheme:
    """A quantisation scheme: one (weight key, activation key) pair of vLLM's quant keys.

    Attributes:
        name: Name used in cells, e.g. ``fp8-block``.
        title: One line for people.
        weight_key: Name of the weight's quant key, or None for unquantised weights.
        activation_key: Name of the activation's quant key, or None for unquantised activations.
    """

    name: str
    title: str
    weight_key: str | None
    activation_key: str | None


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One cell of the matrix.

    Attributes:
        arch: An `Arch` name.
        scheme: A `Scheme` name.
        activation: A value of ``MoEActivation``.
        router: Where the router weight multiplies: ``out`` (the result) or ``in`` (before the activation).
    """

    arch: str
    scheme: str
    activation: str
    router: Router

    def __str__(self) -> str:
        return f"{self.arch}/{self.scheme}/{self.activation}/{self.router}"


@dataclass(frozen=True)
class Axes:
    """Everything the matrix is spanned by, in the order in which it is shown."""

    archs: dict[str, Arch]
    schemes: dict[str, Scheme]
    activations: tuple[str, ...]

    def cells(self) -> list[Cell]:
        """Return every cell, in display order."""
        product = itertools.product(self.archs, self.schemes, self.activations, ROUTERS)
        return [Cell(*values) for values in product]

    def parse_cell(self, text: str) -> Cell:
        """Return the cell that ``arch/scheme/activation/router`` names.

        Raises:
            UsageError: A part is missing or is not a value of its axis.
        """
        parts = text.split("/")
        if len(parts) != 4:
            msg = f"a cell must be arch/scheme/activation/router (got {text!r})"
            raise UsageError(msg)
        for part, axis, known in (
            (parts[0], "arch", self.archs),
            (parts[1], "scheme", self.schemes),
            (parts[2], "activation", self.activations),
            (parts[3], "router", ROUTERS),
        ):
            if part not in known:
                msg = f"{axis} must be one of {', '.join(known)} (got {part!r} in {text!r})"
                raise UsageError(msg)
        router: Router = "in" if parts[3] == "in" else "out"
        return Cell(parts[0], parts[1], parts[2], router)


def spec_dir() -> Path:
    """Return the folder of the hand-written specification data.

    In an installed wheel it lies inside the package, in a checkout it is ``matrices/spec``.
    """
    package = Path(__file__).parent
    installed = package / "spec"
    return installed if installed.is_dir() else package.parents[1] / "matrices" / "spec"


@cache
def load_axes() -> Axes:
    """Read the axes from ``axes.toml``."""
    data = tomllib.loads((spec_dir() / "axes.toml").read_text(encoding="utf-8"))
    archs = {a["name"]: Arch(a["name"], a["title"], tuple(a["cu_counts"]), a["fp8"]) for a in data["arch"]}
    schemes = {
        s["name"]: Scheme(s["name"], s["title"], s.get("weight_key"), s.get("activation_key"))
        for s in data["scheme"]
    }
    return Axes(archs, schemes, tuple(data["activations"]))
