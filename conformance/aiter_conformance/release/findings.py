"""What a reader reports about a release: the closed list of findings that every reader shares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingCode(StrEnum):
    """What is wrong, as a closed list, so that a table or a gate can select by it."""

    # the inventory of manifests and code objects
    MANIFEST_UNREADABLE = "manifest-unreadable"
    MALFORMED_ROW = "malformed-row"
    DUPLICATE_ROW = "duplicate-row"
    MISSING_OBJECT = "missing-object"
    UNREADABLE_OBJECT = "unreadable-object"
    WRONG_ARCH = "wrong-arch"
    SYMBOL_MISSING = "symbol-missing"
    # facts read from the sources
    SOURCE_UNREADABLE = "source-unreadable"
    IMPORT_UNRESOLVED = "import-unresolved"
    ANCHOR_CHANGED = "anchor-changed"
    # tuned tables; a malformed row is one there too
    TABLE_UNREADABLE = "table-unreadable"
    TUNED_DUPLICATE_KEY = "tuned-duplicate-key"
    TUNED_UNKNOWN_BOARD = "tuned-unknown-board"
    TUNED_AMBIGUOUS_ARCH = "tuned-ambiguous-arch"
    TUNED_WRONG_FP8 = "tuned-wrong-fp8"
    TUNED_KERNEL_MISSING = "tuned-kernel-missing"
    TUNED_KERNEL_DIFFERS = "tuned-kernel-differs"
    TUNED_KERNEL_UNKNOWN = "tuned-kernel-unknown"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is wrong in a release.

    Attributes:
        path: Release-relative path of the file that is wrong.
        line: Line in that file, counted from 1; 0 when the whole file is meant.
        code: What kind of thing it is.
        message: One sentence: what was expected and what is there.
    """

    path: str
    line: int
    code: FindingCode
    message: str

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {self.code}: {self.message}"
