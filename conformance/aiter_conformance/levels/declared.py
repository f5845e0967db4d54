"""Level declared: what a subject's leaves say of each cell, against what the contract says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from aiter_conformance import contract
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.protocols import ENABLED, MoEConfigSpec, Subject


def _present() -> Mapping[str, ModuleType]:
    module = ModuleType("aiter")
    module.__spec__ = ModuleSpec("aiter", loader=None, is_package=True)
    module.__path__ = []
    return {"aiter": module}


@dataclass(frozen=True)
class PresentAiter:
    """An AITER that is there and offers nothing: a declaration must not need more than that it is found."""

    version: str = "0"
    modules: Mapping[str, ModuleType] = field(default_factory=_present)


def observe(subject: Subject, cells: Iterable[Cell]) -> dict[Cell, Outcome]:
    """Return for each cell whether the subject's leaf accepts it, or refuses it and why.

    A subject that says otherwise than the contract fails the cell. The reason code of a refusal is the
    contract's, the sentence the subject's own.
    """
    outcomes = {}
    found = PresentAiter()
    for cell in cells:
        expected = contract.declaration(cell)
        with subject.environment(cell.arch, ENABLED, found):
            accepted, reason = _ask(subject, cell, expected.details["leaf"])
        outcomes[cell] = _compare(subject, expected, accepted, reason)
    return outcomes


def _ask(subject: Subject, cell: Cell, leaf_name: str) -> tuple[bool, str | None]:
    """Ask the leaf that serves the cell's scheme whether it supports the cell's configuration."""
    api = subject.api
    scheme = load_axes().schemes[cell.scheme]
    leaf = getattr(api, leaf_name)
    supported, reason = leaf.is_supported_config(
        leaf,
        subject.moe_config(MoEConfigSpec(activation=cell.activation)),
        _key(api, scheme.weight_key),
        _key(api, scheme.activation_key),
        api.FusedMoEActivationFormat.Standard,
    )
    return bool(supported), reason


def _key(api: Any, name: str | None) -> Any:
    return None if name is None else getattr(api, name)


def _compare(subject: Subject, expected: Outcome, accepted: bool, reason: str | None) -> Outcome:
    # What only apply() refuses is no part of the declaration proper: the contract level makes that call.
    refused_in_configuration = expected.kind is Kind.REFUSED and expected.details["when"] == "configuration"
    leaf = expected.details["leaf"]
    if accepted and refused_in_configuration:
        message = f"{leaf} of {subject.name} accepts what the contract refuses ({expected.message})"
        return Outcome(Kind.FAIL, Reason.DECLARATION_DIFFERS, message)
    if not accepted and not refused_in_configuration:
        message = f"{leaf} of {subject.name} refuses what the contract accepts ({reason})"
        return Outcome(Kind.FAIL, Reason.DECLARATION_DIFFERS, message)
    if expected.kind is Kind.PASS:
        return Outcome(Kind.PASS)
    return Outcome(
        Kind.REFUSED, expected.reason, expected.message if accepted else (reason or "no reason given")
    )
