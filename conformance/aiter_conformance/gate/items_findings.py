"""What readers found wrong, as items of their own and with the items that it is about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from aiter_conformance.evidence import Finding
from aiter_conformance.gate.classes import Standing
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.release.findings import Finding as Fault
from aiter_conformance.release.findings import FindingCode

_LINE: Final = re.compile(r"(?<=:)\d+\b|\bline \d+\b")
# Findings that say that a file, or a row of it, cannot be used.
_SPOILS_FILE: Final = frozenset(
    {
        FindingCode.SOURCE_UNREADABLE,
        FindingCode.MANIFEST_UNREADABLE,
        FindingCode.TABLE_UNREADABLE,
        FindingCode.MALFORMED_ROW,
        FindingCode.UNREADABLE_OBJECT,
        FindingCode.WRONG_ARCH,
    }
)


def finding_of(fault: Fault) -> Finding:
    """Return a reader's finding as records have it."""
    return Finding(
        fault.code.value, f"{fault.path}:{fault.line}" if fault.line else fault.path, fault.message
    )


def by_place(faults: Iterable[Fault]) -> dict[tuple[str, int], list[Fault]]:
    """Return findings by the file and the line that they are about."""
    found: dict[tuple[str, int], list[Fault]] = defaultdict(list)
    for fault in faults:
        found[fault.path, fault.line].append(fault)
    return found


def loose_findings(faults: Iterable[Fault]) -> Iterator[Item]:
    """Yield findings that belong to no other item, recognised by what they say and not by their line."""
    for fault in faults:
        yield Item(
            ItemKind.FINDING,
            f"{fault.code.value} {fault.path}: {_LINE.sub('', fault.message)}",
            Standing.BAD,
            fault.message,
            finding_of(fault).path,
            group=fault.code.value,
            provides=(f"file {fault.path}",) if fault.code in _SPOILS_FILE else (),
            findings=(finding_of(fault),),
        )
