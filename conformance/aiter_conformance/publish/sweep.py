"""What a sweep over a release's machine code is published as: a table of its objects, and a page over all.

The table is CSV, one line an object, so that two releases can be compared line by line. Numbers are rounded
to what does not depend on the machine.
"""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiter_conformance.documents import write_text
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.publish.markdown import table, template
from aiter_conformance.release.version import version_key

if TYPE_CHECKING:  # the sweep needs numba, its page does not
    from aiter_conformance.isa.sweep import Result

ODD: Final = "odd"
"""The sweep's last case: its hidden size is an odd multiple of 256. Many objects are wrong in that alone."""
LOW_SHARE: Final = 0.7
"""Objects of which less was executed are listed."""
WRONG_AT_ODD: Final = "wrong at an odd multiple of 256 alone"
RESULTS: Final = ("right", "wrong", WRONG_AT_ODD, "not executable", "not applicable")
"""Every `Line.result`, in the order in which they are shown."""
_PREFIX, _SUFFIX = "hsa/", ".co"
_SIZES: Final = re.compile(r"_\d+x\d+.*|_\d+tg.*")


@dataclass(frozen=True, slots=True)
class Line:
    """What is published of one object.

    Attributes:
        object: Its path below ``hsa/``, without ``.co``.
        status: ``right``, ``wrong``, ``not applicable`` or ``not executable``.
        share: Share of its instructions that ran in some case, as ``0.987``; empty where none did.
        error: Largest relative error of a case, as ``3.1e-03``; ``nan``, or empty where none ended.
        scaled_to: Code that the intermediate is scaled to, where that is not the format's largest.
        over_read: Farthest byte read past the end of an input.
        reason: One sentence; empty where it is right.
    """

    object: str
    status: str
    share: str
    error: str
    scaled_to: str
    over_read: str
    reason: str

    @property
    def arch(self) -> str:
        """The arch of its folder."""
        return self.object.partition("/")[0]

    @property
    def result(self) -> str:
        """Its status, told apart where it is wrong in the last case alone."""
        return WRONG_AT_ODD if self.reason.startswith(f"{ODD} (") else self.status

    @property
    def kind(self) -> str:
        """Its name without arch and sizes."""
        return _SIZES.sub("", self.object.rpartition("/")[2])


def object_of(path: str) -> str:
    """Return what is shown of an object's path."""
    return path.removeprefix(_PREFIX).removesuffix(_SUFFIX)


_COLUMNS: Final = [field.name for field in fields(Line)]


def line(result: Result) -> Line:
    """Return what is published of a result."""
    seen = result.judgement.observations
    ended = [one for one in seen if one.fault is None]
    errors = [one.error for one in ended]
    largest = "nan" if None in errors else f"{max((e for e in errors if e is not None), default=0.0):.1e}"
    scaled = {one.scaled_to for one in seen if one.scaled_to is not None}
    share = result.judgement.share
    return Line(
        object=object_of(result.path),
        status=result.judgement.status.value,
        share="" if share is None else f"{share:.3f}",
        error=largest if ended else "",
        scaled_to=" ".join(f"{code:g}" for code in sorted(scaled)),
        over_read=str(max((one.over_read for one in seen), default=0) or ""),
        reason=result.judgement.reason or "",
    )


def to_csv(results: Iterable[Result]) -> str:
    """Return the table of a release."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for result in results:
        found = line(result)
        writer.writerow([getattr(found, name) for name in _COLUMNS])
    return out.getvalue()


def from_csv(text: str, source: str) -> list[Line]:
    """Return the lines of a table.

    Raises:
        InfrastructureError: It has other columns.
    """
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or rows[0] != _COLUMNS or any(len(row) != len(_COLUMNS) for row in rows):
        msg = f"{source} must have the columns {', '.join(_COLUMNS)} (got {rows[0] if rows else 'nothing'})"
        raise InfrastructureError(msg)
    return [Line(*row) for row in rows[1:]]


def read(folder: Path, version: str) -> list[Line] | None:
    """Return the table of a release in ``reports/isa``; None for a release that was not swept.

    Raises:
        InfrastructureError: It has other columns.
    """
    file = folder / f"{version}.csv"
    return from_csv(file.read_text("utf-8"), file.name) if file.is_file() else None


def publish(folder: Path, version: str, results: Iterable[Result]) -> list[Path]:
    """Write the table of a release, and the page over every table in the folder.

    Args:
        folder: ``reports/isa``.
        version: The release.
        results: What the sweep of all its objects found.
    """
    written = folder / f"{version}.csv"
    write_text(written, to_csv(results))
    tables = {file.stem: from_csv(file.read_text("utf-8"), file.name) for file in folder.glob("*.csv")}
    write_text(folder / "README.md", page(tables))
    return [written, folder / "README.md"]


def page(tables: Mapping[str, Sequence[Line]]) -> str:
    """Return the page over the tables of several releases, newest first."""
    releases = sorted(tables, key=version_key, reverse=True)
    return template("sweep.md.j2").render(
        low=f"{LOW_SHARE:.0%}",
        counts=_counts(tables, releases),
        releases=[{"version": version, "sections": _sections(tables[version])} for version in releases],
    )


def _sections(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """Titles and tables of what is not simply right."""
    sections = []
    for result in RESULTS[1:]:
        chosen = [one for one in lines if one.result == result]
        if chosen:
            sections.append((result.capitalize(), _kinds(chosen)))
    low = [one for one in lines if one.share and float(one.share) < LOW_SHARE]
    if low:
        body = [[f"{float(one.share):.0%}", one.status, f"`{one.object}`"] for one in low]
        sections.append((f"Less than {LOW_SHARE:.0%} of it ran", table(["share", "result", "object"], body)))
    return sections


def _counts(tables: Mapping[str, Sequence[Line]], releases: Sequence[str]) -> str:
    body = []
    for release in releases:
        for arch in sorted({one.arch for one in tables[release]}):
            lines = [one for one in tables[release] if one.arch == arch]
            counts = Counter(one.result for one in lines)
            shares = [float(one.share) for one in lines if one.share]
            median = f"{statistics.median(shares):.1%}" if shares else "-"
            low = sum(share < LOW_SHARE for share in shares)
            body.append([release, arch, *(str(counts[result]) for result in RESULTS), median, str(low)])
    return table(["release", "arch", *RESULTS, "median share that ran", f"below {LOW_SHARE:.0%}"], body)


def _kinds(lines: Sequence[Line]) -> str:
    """Objects of one kind are one row, with the reason of the first."""
    kinds: dict[tuple[str, str], list[Line]] = {}
    for one in lines:
        kinds.setdefault((one.arch, one.kind), []).append(one)
    body = [
        [arch, f"`{kind}`", str(len(chosen)), chosen[0].reason]
        for (arch, kind), chosen in sorted(kinds.items())
    ]
    return table(["arch", "objects", "number", "what is said of the first"], body)
