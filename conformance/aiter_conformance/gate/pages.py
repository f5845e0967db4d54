"""Makes the committed pages about AITER's releases: ``python -m aiter_conformance.gate.pages GITDIR``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from aiter_conformance.documents import write_text
from aiter_conformance.errors import HarnessError, UsageError
from aiter_conformance.evidence import Level
from aiter_conformance.gate import page
from aiter_conformance.gate.classes import FAILING, ChangeClass
from aiter_conformance.gate.pair import observe_pair
from aiter_conformance.gate.report import Report, compare
from aiter_conformance.ledgerfile import load_ledger
from aiter_conformance.publish.markdown import table
from aiter_conformance.subjects import find_version

# The bumps that there is a page of, as revisions of a clone of ROCm/aiter. The last is main at 2026-08-22.
PAIRS: Final = (
    ("v0.1.13", "v0.1.14"),
    ("v0.1.14", "v0.1.15.post3"),
    ("v0.1.15.post3", "v0.1.16.post3"),
    ("v0.1.16.post5", "v0.1.18"),
    ("v0.1.18", "v0.1.19"),
    ("v0.1.19", "v0.1.19.post2"),
    ("v0.1.19.post2", "v0.1.20.post1"),
    ("v0.1.20.post1", "e4048607"),
)
FOLDER: Final = Path("reports/gate")
# The README's table stands between these lines; all else of it is written by hand.
BEGIN: Final = "<!-- pages: begin -->\n"
END: Final = "<!-- pages: end -->\n"
LEVELS: Final = (Level.DECLARED, Level.INVENTORY, Level.TRACE)


def reports(clone: str, build: Path) -> Iterator[Report]:
    """Yield the comparison of each pair.

    Args:
        clone: Folder of a clone of ROCm/aiter with its tags.
        build: Folder that keeps observations.

    Raises:
        HarnessError: A release cannot be read.
    """
    for pair in PAIRS:
        old, new = observe_pair(
            (f"git:{clone}@{pair[0]}", f"git:{clone}@{pair[1]}"), "impl", LEVELS, build, side_by_side=True
        )
        yield compare(
            old,
            new,
            labels=(f"git:DIR@{pair[0]}", f"git:DIR@{pair[1]}"),
            subject=f"impl@{find_version('impl')}",
            ledger=load_ledger(),
            fail_on=FAILING,
        )


def name_of(report: Report) -> str:
    """Return the name of a page, without its suffix."""
    return f"{report.old.version}..{report.new.version}"


def index_row(report: Report) -> tuple[str, str, str, str]:
    """Return what the README's table says of a page: the bump, its verdict, its regressions, the link."""
    verdict = {0: "PASS", 1: "FAIL", 3: "NOT RUN"}[report.exit_code]
    regressed = [cause for cause in report.causes if cause.change is ChangeClass.REGRESSED]
    explained = sum(cause.covered is not None for cause in regressed)
    aside = f" ({explained} explained)" if explained else ""
    name = name_of(report)
    return (
        f"{report.old.version} -> {report.new.version}",
        verdict,
        f"{len(regressed)}{aside}",
        f"[{name}.txt]({name}.txt)",
    )


def with_index(readme: str, rows: Sequence[tuple[str, str, str, str]]) -> str:
    """Return a README with its table made anew.

    Raises:
        UsageError: There is no place for it.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        msg = f"reports/gate/README.md must hold the lines {BEGIN.strip()} and {END.strip()}"
        raise UsageError(msg)
    made = table(["bump", "verdict", "regressions", "page"], rows)
    return f"{before}{begin}\n{made}\n\n{end}{after}"


def main(arguments: list[str]) -> int:
    """Write a page for each pair, and the table of them, into ``reports/gate`` of a checkout of this project.

    The checkout is the current folder.
    """
    try:
        if len(arguments) != 1 or not FOLDER.is_dir():
            msg = "GITDIR, a clone of ROCm/aiter, must be given, in a checkout of this project"
            raise UsageError(msg)
        rows = []
        for report in reports(arguments[0], Path("build")):
            write_text(FOLDER / f"{name_of(report)}.txt", page.render(report))
            rows.append(index_row(report))
            sys.stdout.write(f"{name_of(report)}: {page.decision(report)}\n")
            sys.stdout.flush()
        readme = FOLDER / "README.md"
        write_text(readme, with_index(readme.read_text(encoding="utf-8"), rows))
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
