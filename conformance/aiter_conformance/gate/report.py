"""What the gate found between two releases, and what it decides."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from aiter_conformance import __version__, documents, matrix
from aiter_conformance.errors import UsageError
from aiter_conformance.evidence import Level, ReleaseId
from aiter_conformance.gate.calls import case_items
from aiter_conformance.gate.causes import Cause, find_causes
from aiter_conformance.gate.cells import blind_boards, compare_cells, not_run
from aiter_conformance.gate.classes import ChangeClass
from aiter_conformance.gate.compare import Change, compare_items
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.gate.machine_code import NewCode, find_new_code
from aiter_conformance.gate.scope import board_filter, is_on, model_filter, traced_on
from aiter_conformance.gate.side import Side
from aiter_conformance.ledger import Entry
from aiter_conformance.release.artefact import ReleaseKind

SCHEMA: Final = "aiter-conformance/gate/1"
# What a decision rests on unless it is asked to do with less: no GPU is needed, and it takes minutes at most.
DEFAULT_LEVELS: Final = (Level.DECLARED, Level.INVENTORY, Level.TRACE)


@dataclass(frozen=True)
class Report:
    """A comparison of two releases.

    Attributes:
        old: The old release.
        new: The new release.
        labels: How the two were given, as a command takes them and without a path of a machine.
        given: How the two were given, word for word: for whoever gave them, and for nobody else. None where
            the report is for others.
        subject: ``name@version`` of the implementation that the cells are about.
        board: The board that was looked at, or None for all.
        model: The model that was looked at, or None for all.
        levels: The levels of evidence that the two sides rest on.
        environment: (name, on the old side, on the new side) of what the two observations ran in; None for
            what one side did not have.
        causes: What changed, by cause.
        new_code: The objects with new machine code, which nothing here judges.
        counts: How many things of each class there are, by kind; also those that are the same.
        not_run: What could not be tried, one sentence each: then there is no decision.
        fail_on: The classes that fail.
    """

    old: ReleaseId
    new: ReleaseId
    labels: tuple[str, str]
    given: tuple[str, str] | None
    subject: str
    board: str | None
    model: str | None
    levels: tuple[str, ...]
    environment: tuple[tuple[str, str | None, str | None], ...]
    causes: tuple[Cause, ...]
    new_code: tuple[NewCode, ...]
    counts: dict[ItemKind, dict[ChangeClass, int]]
    not_run: tuple[str, ...]
    fail_on: tuple[ChangeClass, ...]

    @property
    def failing(self) -> tuple[Cause, ...]:
        """The causes that make the gate fail."""
        return tuple(cause for cause in self.causes if cause.fails(self.fail_on))

    @property
    def exit_code(self) -> int:
        """0 good, 1 something fails, 3 where something could not be tried."""
        return 3 if self.not_run else int(bool(self.failing))

    @property
    def left_out(self) -> tuple[str, ...]:
        """The levels of `DEFAULT_LEVELS` that the decision does without."""
        return tuple(level.value for level in DEFAULT_LEVELS if level.value not in self.levels)

    @property
    def _texts(self) -> tuple[str, str]:
        """The two as words of a command line."""
        old, new = self.given or self.labels
        return shlex.quote(old), shlex.quote(new)

    @property
    def title(self) -> str:
        """What is compared, on one line; a tree by its place too, for its version may say nothing."""
        sides = zip((self.old, self.new), self.given or self.labels, strict=True)
        return "AITER " + " -> ".join(
            f"{release.version} ({text})" if release.kind == ReleaseKind.TREE else release.version
            for release, text in sides
        )

    @property
    def command(self) -> str:
        """The command that makes the report again.

        In a report for others ``DIR`` stands for the clone of a release in git, and a tree is named by its
        last folder.
        """
        words = ["aiter-conformance gate run", *self._texts]
        if self.subject.partition("@")[0] != "impl":
            words.append(f"--subject {self.subject.partition('@')[0]}")
        if self.board is not None:
            words.append(f"--board {self.board}")
        if self.model is not None:
            words.append(f"--model {self.model}")
        if self.left_out:
            words += [f"--level {level}" for level in self.levels if level != Level.HARDWARE]
        return " ".join(words)

    @property
    def judge_command(self) -> str:
        """The command that judges the machine code that the gate does not."""
        old, new = self._texts
        arch = "" if self.board is None else f" --arch {self.board.partition(':')[0]}"
        return f"aiter-conformance isa sweep {new} --against {old}{arch}"

    def reproduce(self, cause: Cause) -> str:
        """Return the command that shows a cause alone, and in full."""
        return f"{self.command} --only '{cause.id}'"

    def only(self, id_: str) -> Report:
        """Return the report with the causes of an id, or else of all ids that begin so.

        Raises:
            UsageError: There is no such cause.
        """
        exact = tuple(cause for cause in self.causes if cause.id == id_)
        # `tuned:gfx950 256 CUs` is all shapes of that board, not those of one whose name goes on.
        group = tuple(cause for cause in self.causes if cause.id.startswith(f"{id_.removesuffix(',')},"))
        found = exact or group or tuple(cause for cause in self.causes if cause.id.startswith(id_))
        if not found:
            known = ", ".join(dict.fromkeys(cause.id for cause in self.causes[:8])) or "none: nothing changed"
            msg = f"--only must be the id of a cause, or how it begins, such as {known} (got {id_!r})"
            raise UsageError(msg)
        return replace(self, causes=found)

    def to_json(self) -> str:
        """Return the report as the schema ``gate`` has it."""
        return documents.render(
            {
                "schema": SCHEMA,
                "harness": __version__,
                "old": _release(self.old, self.labels[0]),
                "new": _release(self.new, self.labels[1]),
                "subject": self.subject,
                "board": self.board,
                "model": self.model,
                "levels": list(self.levels),
                "environment": [
                    {"name": name, "old": old, "new": new} for name, old, new in self.environment
                ],
                "fail_on": [found.value for found in self.fail_on],
                "exit_code": self.exit_code,
                "not_run": list(self.not_run),
                "new_code": {
                    "judge": self.judge_command if self.new_code else None,
                    "objects": [asdict(code) for code in self.new_code],
                },
                "counts": {
                    kind.value: {found.value: n for found, n in by_class.items()}
                    for kind, by_class in self.counts.items()
                },
                "causes": [self._cause(cause) for cause in self.causes],
            }
        )

    def _cause(self, cause: Cause) -> dict[str, Any]:
        return {
            "id": cause.id,
            "class": cause.change.value,
            "fails": cause.fails(self.fail_on),
            "covered": cause.covered,
            "reproduce": self.reproduce(cause),
            "changes": [_change(change) for change in cause.changes],
            "consequences": [_change(change) for change in cause.consequences],
        }


def _release(release: ReleaseId, label: str) -> dict[str, str]:
    return {"version": release.version, "identity": release.identity, "kind": release.kind, "label": label}


def _change(change: Change) -> dict[str, Any]:
    return {
        "id": change.id,
        "class": change.change.value,
        "covered": change.covered,
        "old": _side(change.before),
        "new": _side(change.now),
    }


def _side(item: Item | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {
        "standing": item.standing.value,
        "text": item.text,
        "where": item.where or None,
        "note": item.note or None,
        "findings": [f"{f.path}: {f.code}: {f.message}" for f in item.findings],
    }


def compare(
    old: Side,
    new: Side,
    *,
    labels: tuple[str, str],
    subject: str,
    ledger: Sequence[Entry],
    fail_on: Sequence[ChangeClass],
    board: str | None = None,
    model: str | None = None,
    given: tuple[str, str] | None = None,
) -> Report:
    """Compare two releases.

    Args:
        old: What was observed of the old release.
        new: What was observed of the new one; it may be the older of the two by its version.
        labels: How the two were given, without a path of a machine.
        subject: ``name@version`` of the implementation that the cells are about.
        ledger: The known findings.
        fail_on: The classes that fail.
        board: ``arch`` or ``arch:CUs`` to look at alone; None for all.
        model: Model of the catalogue to look at alone; None for all.
        given: How the two were given, word for word; None where the report is for others.

    Raises:
        UsageError: There is no such board or model.
    """
    filters = (board_filter(board), model_filter(model))
    old, new = (
        replace(side, records=tuple(r for r in side.records if is_on(board, r.board))) for side in (old, new)
    )
    known = [[e for e in ledger if e.covers(side.release.version)] for side in (old, new)]
    matrices = [
        matrix.build(side.loaded(), side.release.version, subject, entries)
        for side, entries in zip((old, new), known, strict=True)
    ]
    blind = {board for side in (old, new) for board in blind_boards(side.records)}
    items = [
        [item for item in (*side.items, *case_items(side.records)) if traced_on(item) not in blind]
        for side in (old, new)
    ]
    changes = compare_items(items[0], items[1], new.release.version, known[1])
    changes += compare_cells(matrices[0], matrices[1], (old.records, new.records), known[1])
    changes = [change for change in changes if all(is_about(change) for is_about in filters)]
    counts: dict[ItemKind, dict[ChangeClass, int]] = {}
    for kind in ItemKind:
        counted = Counter(change.change for change in changes if change.item.kind is kind)
        if counted:
            counts[kind] = {found: counted[found] for found in ChangeClass if counted[found]}
    names = sorted({*old.environment, *new.environment})
    levels = {record.level for side in (old, new) for record in side.records}
    return Report(
        old=old.release,
        new=new.release,
        labels=labels,
        given=given,
        subject=subject,
        board=board,
        model=model,
        levels=tuple(level.value for level in Level if level in levels),
        environment=tuple((name, old.environment.get(name), new.environment.get(name)) for name in names),
        causes=find_causes(changes),
        new_code=find_new_code(changes),
        counts=counts,
        not_run=tuple(dict.fromkeys([*not_run(old.records), *not_run(new.records)])),
        fail_on=tuple(fail_on),
    )
