"""Level hardware: what the real kernels on a real GPU made of the inputs of each cell.

A cell passes when everything that ``coverage.toml`` asks for ran and passed, or failed exactly as an entry of
the ledger about these inputs says; one failure among the inputs that ran is enough for it to fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiter_conformance.coverage import problem_id
from aiter_conformance.evidence import Level
from aiter_conformance.hardware.items import Item
from aiter_conformance.ledger import Effect, Entry, Observation, judge
from aiter_conformance.outcome import Kind, Outcome, Reason

# Worst first: what a cell is said to be when its inputs ended in several ways.
_ORDER = (Kind.CRASH, Kind.TIMEOUT, Kind.FAIL, Kind.REFUSED)


@dataclass(frozen=True)
class Ledger:
    """The known findings, as far as they are about single inputs on one board with one release.

    Attributes:
        entries: The entries.
        release: Version of the release.
        board: The board, as ``gfx942:304``.
    """

    entries: Sequence[Entry]
    release: str
    board: str

    def quarantine(self, item: Item) -> str | None:
        """Return why an input must never launch, as a sentence, or None."""
        for entry in self.entries:
            if entry.effect is Effect.QUARANTINE and entry.matches(self._seen(item, None)):
                return f"The ledger keeps it from running: {entry.title} ({entry.id})."
        return None

    def known(self, item: Item, outcome: Outcome) -> str | None:
        """Return the id of the entry that expects just this failure of an input, or None.

        An entry about whole cells explains a cell, in the matrix; none of its inputs.
        """
        seen = self._seen(item, outcome)
        matching = [entry for entry in self.entries if entry.cases and entry.matches(seen)]
        if outcome.kind is Kind.PASS or not matching or judge(matching, [seen], full=False):
            return None
        return matching[0].id

    def _seen(self, item: Item, outcome: Outcome | None) -> Observation:
        cell, case = str(item.case.cell), problem_id(item.name, item.problem)
        if outcome is None:
            return Observation(self.release, cell, case, level=Level.HARDWARE, board=self.board)
        return Observation(
            self.release,
            cell,
            case,
            outcome.kind,
            reason=outcome.reason,
            size=outcome.details.get("relative_error"),
            message=outcome.message,
            level=Level.HARDWARE,
            board=self.board,
        )


def cell_outcome(needed: Sequence[Item], outcomes: Mapping[Item, Outcome], ledger: Ledger) -> Outcome:
    """Return the outcome of a cell.

    Args:
        needed: Everything that the coverage asks of the cell.
        outcomes: The outcomes of the inputs that ran; others than the needed ones may be among them.
        ledger: The known findings.
    """
    known = {item: entry for item, o in outcomes.items() if (entry := ledger.known(item, o)) is not None}
    good = {item for item, outcome in outcomes.items() if outcome.kind is Kind.PASS} | set(known)
    details = {"cases": len(outcomes), "passed": len(good) - len(known)} | _details(outcomes)
    if known:
        details["known"] = dict(sorted(Counter(known.values()).items()))
    for kind in _ORDER:
        bad = [(i, o) for i, o in outcomes.items() if o.kind is kind and i not in known]
        if bad:
            item, outcome = bad[0]
            if sizes := [o.details["relative_error"] for _, o in bad if "relative_error" in o.details]:
                details["size"] = float(f"{max(sizes):.2g}")
            where = f"{len(bad)} of {len(outcomes)} inputs, the first is {_name(item)}"
            return Outcome(kind, outcome.reason, f"{where}: {outcome.message}", details)
    held = sum(item in good for item in needed)
    missing = [item for item in needed if item not in outcomes]
    unclear = [item for item in outcomes if item not in good]
    if not missing and not unclear:
        return Outcome(Kind.PASS, details=details)
    details |= {"ran": held, "of": len(needed)}
    message = f"partial {held}/{len(needed)}: "
    if unclear:
        outcome = outcomes[unclear[0]]
        return Outcome(
            outcome.kind, outcome.reason, f"{message}{_name(unclear[0])}: {outcome.message}", details
        )
    names = ", ".join(dict.fromkeys(item.name for item in missing))
    return Outcome(Kind.NOT_RUN, Reason.INCOMPLETE, f"{message}not run: {names}", details)


def _name(item: Item) -> str:
    return f"{item.name}, rank {item.rank} of {item.case}"


def _details(outcomes: Mapping[Item, Outcome]) -> dict[str, Any]:
    """Return what is recorded besides: kernels and who named them, and what did not pass, by input."""
    seen = [outcome.details for outcome in outcomes.values()]
    details: dict[str, Any] = {
        "kernels": dict(sorted(Counter(name for each in seen for name in each.get("kernels", ())).items())),
        "source": sorted({each["source"] for each in seen if "source" in each}),
        "packed": sorted({each["packed"] for each in seen if "packed" in each}),
        "as_traced": sum(each.get("trace") == "same" for each in seen),
    }
    if unsteady := sum(each.get("deterministic") is False for each in seen):
        details["not_deterministic"] = unsteady
    if layouts := sorted({name for each in seen for name in each.get("layout_differs", ())}):
        details["layout_differs"] = layouts
    not_passed = {
        f"{item.name}/r{item.rank}/M{item.case.tokens}": outcome.kind.value
        for item, outcome in outcomes.items()
        if outcome.kind is not Kind.PASS
    }
    return details | ({"not_passed": not_passed} if not_passed else {})
