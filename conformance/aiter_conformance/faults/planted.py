"""Faults planted by hand, read from ``matrices/spec/faults.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from aiter_conformance.axes import spec_dir
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.faults.variant import Variant, changed_lines, source_of


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake that somebody could make.

    Attributes:
        id: Unique name.
        module: The module that it is in, e.g. ``aiter_moe.pads``.
        spec: The section of the contract that it breaks.
        breaks: What goes wrong for whom, in a sentence.
        anchor: The text in the module that it replaces; it must be there once.
        replacement: What stands there instead.
    """

    id: str
    module: str
    spec: str
    breaks: str
    anchor: str
    replacement: str


def load_faults(path: Path | None = None) -> list[Fault]:
    """Return the faults of a file, by default those of the project.

    Raises:
        InfrastructureError: The file does not hold faults, or holds one id twice.
    """
    path = spec_dir() / "faults.toml" if path is None else path
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("fault", [])
    faults = [_fault(entry, path) for entry in entries]
    if len({fault.id for fault in faults}) != len(faults) or not faults:
        msg = f"{path.name} must hold faults, each with an id of its own (got {len(faults)})"
        raise InfrastructureError(msg)
    return faults


def _fault(entry: Mapping[str, str], path: Path) -> Fault:
    names = [field.name for field in fields(Fault)]
    if sorted(entry) != sorted(names):
        msg = f"a fault of {path.name} must have {', '.join(names)} (got {', '.join(entry)})"
        raise InfrastructureError(msg)
    return Fault(**entry)


def plant(fault: Fault) -> Variant:
    """Return the fault as a variant of its module.

    Raises:
        InfrastructureError: The anchor is not in the module, or is there more than once, or the replacement
            is the anchor itself: the code has moved on, and the fault has to follow.
    """
    source = source_of(fault.module).read_text(encoding="utf-8")
    found = source.count(fault.anchor)
    changed = source.replace(fault.anchor, fault.replacement)
    if found != 1 or changed == source:
        msg = (
            f"the anchor of fault {fault.id} must be in {fault.module} once and differ from its replacement "
            f"(got it {found} times); rewrite the fault for the code as it is: {fault.anchor!r}"
        )
        raise InfrastructureError(msg)
    return Variant(fault.id, fault.module, *changed_lines(source, changed), changed)
