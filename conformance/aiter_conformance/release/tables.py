"""The CSV files of a release: manifests and tuned tables."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

_COMMENT = re.compile(r"//|#")


class TableError(ValueError):
    """The file is not a table; the message says why."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it stands in its file.

    Attributes:
        header_line: Line of the header, counted from 1; 0 if there is none.
        header: Names of the columns; empty if the file has nothing but comments and blank lines.
        rows: (line, cells) of each row, as many cells as there are: a row may be short or long.
    """

    header_line: int
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]


def read_table(content: bytes) -> Table:
    """Read a CSV file: UTF-8 with or without a byte-order mark, one record a line, LF or CRLF.

    Blank lines do not count, nor does what follows ``//`` or ``#`` in a line. Cells are stripped of blanks.

    Raises:
        TableError: It is not UTF-8, or a line is not CSV.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"must be UTF-8 (got {error.object[error.start : error.end]!r} at byte {error.start})"
        raise TableError(msg) from error
    records: list[tuple[int, tuple[str, ...]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        plain = _COMMENT.split(line, maxsplit=1)[0].strip()
        if not plain:
            continue
        try:
            cells = next(csv.reader([plain], strict=True))
        except csv.Error as error:
            msg = f"must be CSV (line {number}: {error})"
            raise TableError(msg) from error
        records.append((number, tuple(cell.strip() for cell in cells)))
    if not records:
        return Table(0, (), ())
    (header_line, header), *rows = records
    return Table(header_line, header, tuple(rows))
