"""What a release is taken apart into, so that two of them can be compared thing by thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from aiter_conformance.evidence import Finding
from aiter_conformance.gate.classes import Standing

# Before the hash of its machine code in a kernel's text, and in the place of the hash of what is missing.
CODE: Final = ", code "
MISSING: Final = "missing"


class ItemKind(StrEnum):
    """What is compared, in the order of causes: what comes first can be why what follows is otherwise."""

    FINDING = "finding"  # one that belongs to no other item, such as a file that cannot be read
    MODULE = "module"
    ARCH = "arch"
    FUNCTION = "function"
    PARAMETER = "parameter"
    ENUM = "enum"
    MEMBER = "member"
    REQUIREMENT = "requirement"
    CHOICE = "choice"  # what a generator of kernels takes
    MANIFEST = "manifest"
    KERNEL = "kernel"
    IMPORT = "import"
    ANCHOR = "anchor"
    TUNED = "tuned"
    DISPATCH = "dispatch"  # what a trace finds in a dispatcher besides calls that fail
    CELL = "cell"
    CASE = "case"  # one input of a cell
    MODEL = "model"  # one call of a model of the catalogue

    @property
    def rank(self) -> int:
        """How deep down a cause of this kind lies; 0 is deepest."""
        return list(ItemKind).index(self)


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of one release.

    Attributes:
        kind: What it is.
        key: What it is recognised by in another release.
        standing: How it stands.
        text: What is there: another text in another release is a change.
        where: Release-relative file, with ``:line`` where there is one; empty for a cell.
        group: What it is shown together with, e.g. its manifest.
        note: What helps a reader and is not compared.
        provides: Tokens that other items rest on.
        rests_on: Tokens of the items that this one can be otherwise because of.
        findings: What is wrong with it.
    """

    kind: ItemKind
    key: str
    standing: Standing
    text: str
    where: str = ""
    group: str = ""
    note: str = ""
    provides: tuple[str, ...] = ()
    rests_on: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def id(self) -> str:
        """How the item is named on the command line: its kind and its key."""
        return f"{self.kind.value}:{self.key}"

    @property
    def code(self) -> str | None:
        """How the hash of a kernel's machine code begins; None where its object is missing, or it is none."""
        _, said, digest = self.text.rpartition(CODE)
        return digest if said and self.kind is ItemKind.KERNEL and digest != MISSING else None

    def to_json(self) -> dict[str, Any]:
        """Return the item as JSON; what is empty is left out."""
        return {name: value for name, value in asdict(self).items() if value not in ("", ())}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Item:
        """Return the item that `to_json` made."""
        return cls(
            kind=ItemKind(data["kind"]),
            key=data["key"],
            standing=Standing(data["standing"]),
            text=data.get("text", ""),
            where=data.get("where", ""),
            group=data.get("group", ""),
            note=data.get("note", ""),
            provides=tuple(data.get("provides", ())),
            rests_on=tuple(data.get("rests_on", ())),
            findings=tuple(Finding(**finding) for finding in data.get("findings", ())),
        )
