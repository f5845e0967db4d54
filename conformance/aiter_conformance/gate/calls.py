"""Traced calls thing by thing: the inputs of every cell, what a call's kernels did, and why that moved.

A cell's verdict sums up many calls. One of them that goes wrong in a cell that was bad already, or a kernel
that is another for one token bucket only, shows here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Final

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.evidence import Evidence, Finding, Level
from aiter_conformance.gate.call_state import State, read_state
from aiter_conformance.gate.classes import ChangeClass, Standing
from aiter_conformance.gate.item import Item, ItemKind
from aiter_conformance.gate.needs import needs
from aiter_conformance.ledger import Entry, Observation, explains, without_line
from aiter_conformance.levels import trace
from aiter_conformance.outcome import Kind, Outcome
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.findings import Code

CALLS: Final = (ItemKind.CASE, ItemKind.MODEL)
# What a trace knows of the dispatch besides what fails a call.
_DISPATCH: Final = {
    Code.TUNED_NEVER.value: ("anchor tuned-key-activation",),
    Code.TUNED_KEY_DIFFERS.value: (),
    Code.TUNED_NOT_MADE.value: ("anchor tuned-key-activation",),
    Code.TUNED_FOR_OTHER.value: ("anchor tuned-key-activation",),
    Code.TUNED_CONFLICT.value: (),
}
# What can be why a call is wrong in this way.
_BECAUSE: Final = {
    Code.SPLIT_TOO_FINE.value: ("anchor block-fp8-split-k-guard",),
    Code.WRONG_FP8.value: ("anchor fp8-dtype-of-arch", "anchor fp8-by-runtime-arch"),
}
# How the dispatch names a row that was found whatever its activation, and what can be wrong because of that.
_BLIND: Final = "tuned-whatever-the-activation"
_BY_BLIND_LOOKUP: Final = (Code.WRONG_ACTIVATION.value, Code.NO_KERNEL.value)
_TUNED: Final = frozenset({"tuned", _BLIND})
_LINE: Final = re.compile(r"\.py:\d+")
_NUMBER: Final = re.compile(r"\d+")
# Levels whose details say how far the numbers of a cell's cases are from the oracle.
_NUMBERS: Final = ("bound_ratio", "row_error")


def case_items(records: Iterable[Evidence]) -> Iterator[Item]:
    """Yield what evidence holds below its cells: traced inputs, numbers, what is known of the dispatch."""
    for record in records:
        for cell, outcome in record.outcomes.items():
            yield from _inputs(record, cell, outcome)
            if all(name in outcome.details for name in _NUMBERS):
                yield _numbers(record, cell, outcome)
        if record.level is Level.TRACE:
            yield from _dispatch(record)


def _inputs(record: Evidence, cell: Cell, outcome: Outcome) -> Iterator[Item]:
    level = "" if record.level is Level.TRACE else f"{record.level.value}:"
    for name, buckets in outcome.details.get("inputs", {}).items():
        for bucket, text in trace.each_bucket(buckets):
            state = read_state(text)
            message = outcome.message or ""
            yield Item(
                ItemKind.CASE,
                f"{cell} {record.board} {level}{name} {bucket}",
                state.standing,
                text,
                note=record.board,
                rests_on=(f"cell {cell}",),
                findings=tuple(Finding(code, record.board, message) for code in sorted(state.wrong)),
            )


def _numbers(record: Evidence, cell: Cell, outcome: Outcome) -> Item:
    shown = ", ".join(f"{name.replace('_', ' ')} {outcome.details[name]}" for name in _NUMBERS)
    reason = (
        ()
        if outcome.reason is None
        else (Finding(outcome.reason.value, record.board, outcome.message or ""),)
    )
    return Item(
        ItemKind.CASE,
        f"{cell} {record.board} numbers at level {record.level.value}",
        Standing.GOOD if outcome.kind is Kind.PASS else Standing.BAD,
        f"{shown}, worst of {outcome.details.get('cases', '?')} inputs",
        group=f"numbers at level {record.level.value}",
        note=record.board,
        rests_on=(f"cell {cell}",),
        findings=reason,
    )


def _dispatch(record: Evidence) -> Iterator[Item]:
    seen: set[str] = set()
    for finding in record.findings:
        key = f"{finding.code} on {record.board}: {_NUMBER.sub('N', finding.message)}"
        if finding.code not in _DISPATCH or key in seen:
            continue
        seen.add(key)
        yield Item(
            ItemKind.DISPATCH,
            key,
            Standing.BAD,
            finding.message,
            group=f"{finding.code} on {record.board}",
            note=record.board,
            rests_on=_DISPATCH[finding.code],
            findings=(finding,),
        )


def model_item(
    model: str, where: str, cell: Cell, board: str, call: Call, text: str, findings: Iterable[Finding]
) -> Item:
    """Return one call of a model of the catalogue.

    Args:
        model: The model's name.
        where: How the model is divided.
        cell: The cell that it is in.
        board: The board.
        call: The call.
        text: What became of it, as `levels.trace.summary` says it.
        findings: What is wrong.
    """
    return Item(
        ItemKind.MODEL,
        f"{model} {call.scheme} {board} {where} M={call.tokens}",
        read_state(text).standing,
        text,
        group=f"{model} {call.scheme} on {board}",
        note=f"{where} M={call.tokens}",
        rests_on=(f"cell {cell}", tuned_token(board, call)),
        findings=tuple(findings),
    )


def tuned_token(board: str, call: Call) -> str:
    """Return the token of the tuned rows that a call's board and shape have; its activation plays no part."""
    return shape_token(board, call.hidden, call.intermediate, call.local_experts, call.topk)


def shape_token(board: str, hidden: int, intermediate: int, experts: int, topk: int) -> str:
    """Return the token of the tuned rows of a board and shape."""
    return f"tuned {board} H{hidden} I{intermediate} E{experts} k{topk}"


def new_codes(before: Item | None, now: Item | None) -> list[str]:
    """Return the codes of what is wrong with a call now and was not before, or not silently, sorted."""
    was, is_ = (State() if item is None else read_state(item.text) for item in (before, now))
    return sorted(is_.wrong if is_.silent and not was.silent else is_.wrong - was.wrong)


def classify(before: Item, now: Item) -> ChangeClass:
    """Return what the change of a call is called that stands as before and says something else.

    A call that failed for all to see, and is silently wrong now, got worse; one that is wrong in another way
    is still bad.
    """
    was, is_ = read_state(before.text), read_state(now.text)
    if replace(was, loud=_unplaced(was.loud)) == replace(is_, loud=_unplaced(is_.loud)):
        return ChangeClass.SAME  # the line that raises is another one
    if is_.silent and not was.silent:
        return ChangeClass.REGRESSED
    return ChangeClass.STILL_BAD if now.standing is Standing.BAD else ChangeClass.KERNEL_CHANGED


def _unplaced(text: str) -> str:
    return _LINE.sub(".py", text)


def explained(before: Item | None, now: Item | None) -> tuple[Item | None, Item | None]:
    """Return both sides of a call that moved, each with its group and with what it rests on."""
    sides = [item for item in (before, now) if item is not None]
    was, is_ = (State() if item is None else read_state(item.text) for item in (before, now))
    tokens = [token for item in sides for token in item.rests_on]
    if before is not None and now is not None:
        tokens += _reasons(was, is_, now)
    if was.standing is not is_.standing:
        tokens += needs(load_axes().parse_cell(cell_of(sides[0])))
    group = how(before, now)

    def told(item: Item | None) -> Item | None:
        if item is None:
            return None
        return replace(item, group=item.group or group or item.key, rests_on=tuple(dict.fromkeys(tokens)))

    return told(before), told(now)


def _reasons(was: State, is_: State, item: Item) -> Iterator[str]:
    """Yield the tokens of what can be why a call moved from one state to another."""
    if was.dispatch != is_.dispatch and {was.dispatch, is_.dispatch} == _TUNED:
        yield "anchor tuned-key-activation"
    if (" split " in was.kernels) != (" split " in is_.kernels):
        yield "anchor block-fp8-split-k-guard"
    blind = _BLIND in (was.dispatch, is_.dispatch)
    for code in sorted(was.wrong ^ is_.wrong):
        yield from _BECAUSE.get(code, ())
        yield from ("anchor tuned-key-activation",) if blind and code in _BY_BLIND_LOOKUP else ()
    call = _call(item)
    if call is not None:
        yield tuned_token(item.note, call)


def _call(item: Item) -> Call | None:
    """Return the call behind a traced input of a cell; None for anything else."""
    words = item.key.split(" ")
    if item.kind is not ItemKind.CASE or len(words) != 4:
        return None
    cell, _, name, bucket = words
    return _calls_of(cell).get((name, bucket))


@cache
def _calls_of(cell: str) -> dict[tuple[str, str], Call]:
    """Return what level trace asks of a cell, by the name of the input and the token bucket."""
    (calls,) = trace.calls_of([load_axes().parse_cell(cell)]).values()
    return {(name, f"M={call.tokens}"): call for name, call in calls}


def how(before: Item | None, now: Item | None) -> str:
    """Return in words how a call moved, the same for calls that moved alike."""
    if before is None or now is None:
        return "seen now only" if before is None else "seen before only"
    was, is_ = read_state(before.text), read_state(now.text)
    new = new_codes(before, now)
    if new:
        silently = is_.silent and was.standing is Standing.BAD
        return f"now {', '.join(new)}{' in silence' if silently else ''}"
    if was.loud or is_.loud:
        ends = [_NUMBER.sub("N", s.loud)[:60] if s.loud else s.families for s in (was, is_)]
        return f"{ends[0]} -> {ends[1]}"
    if was.wrong - is_.wrong:
        return f"no longer {', '.join(sorted(was.wrong - is_.wrong))}"
    parts = []
    if was.families != is_.families:
        parts.append(f"{was.families} -> {is_.families}")
    elif was.kernels != is_.kernels:
        parts.append(f"other sizes of {is_.families}")
    parts += [
        f"{a or '-'} -> {b or '-'}"
        for a, b in ((was.dtype, is_.dtype), (was.dispatch, is_.dispatch))
        if a != b
    ]
    return ", ".join(parts) or "other numbers"


def cell_of(item: Item) -> str:
    """Return the cell that a call is in."""
    return next(token.removeprefix("cell ") for token in item.rests_on if token.startswith("cell "))


def covered(now: Item, version: str, ledger: Iterable[Entry]) -> str | None:
    """Return the ledger entries that explain all that is wrong with a call, or None."""
    cell = cell_of(now)
    entries = list(ledger)
    board = now.findings[0].path if now.findings else None
    found = [
        explains(
            entries,
            Observation(
                version,
                cell=cell,
                kind=Kind.FAIL,
                reason=finding.code,
                message=finding.message,
                level=Level.TRACE,
                board=None if board is None else without_line(board),
            ),
        )
        for finding in now.findings
    ]
    names = [f"ledger: {entry.id} ({entry.reported})" for entry in found if entry is not None]
    return ", ".join(dict.fromkeys(names)) if found and len(names) == len(found) else None
