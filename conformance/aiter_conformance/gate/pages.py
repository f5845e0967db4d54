"""Makes the committed pages about AITER's releases: ``python -m aiter_conformance.gate.pages GITDIR``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aiter_conformance.documents import write_text
from aiter_conformance.errors import HarnessError, UsageError
from aiter_conformance.evidence import Level
from aiter_conformance.gate import page
from aiter_conformance.gate.classes import FAILING
from aiter_conformance.gate.pair import observe_pair
from aiter_conformance.gate.report import Report, compare
from aiter_conformance.ledgerfile import load_ledger
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


def main(arguments: list[str]) -> int:
    """Write a page for each pair into ``reports/gate`` of the current folder, a checkout of this project."""
    try:
        if len(arguments) != 1 or not Path("reports/gate").is_dir():
            msg = "GITDIR, a clone of ROCm/aiter, must be given, in a checkout of this project"
            raise UsageError(msg)
        for report in reports(arguments[0], Path("build")):
            name = f"{report.old.version}..{report.new.version}"
            write_text(Path("reports/gate") / f"{name}.txt", page.render(report))
            sys.stdout.write(f"{name}: {page.decision(report)}\n")
            sys.stdout.flush()
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
