"""The page ``reports/device/README.md``: what was seen on which board, made from the records alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aiter_conformance.device.checks import Check, make_checks
from aiter_conformance.device.record import DeviceRecord
from aiter_conformance.outcome import Kind
from aiter_conformance.publish.markdown import table, template

_MARKS = {Kind.PASS: "yes", Kind.FAIL: "**no**", Kind.NOT_RUN: "not run"}


def render(records: Sequence[DeviceRecord]) -> str:
    """Return the page of some boards, ending in a newline."""
    checks = make_checks()
    text = template("device.md.j2").render(
        checks=table(["check", "holds of a call that passes"], [[c.name, c.says] for c in checks.values()]),
        boards=[
            {
                "record": record,
                "device": [(key, value) for key, value in record.device.items() if value is not None],
                "passed": sum(o.outcome is Kind.PASS for o in record.outcomes),
                "caught": sum(p.caught for p in record.planted),
                "outcomes": _outcomes(record, checks),
                "failures": [o for o in record.outcomes if o.outcome is not Kind.PASS],
                "planted": _planted(record),
            }
            for record in records
        ],
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _outcomes(record: DeviceRecord, checks: dict[str, Check]) -> str:
    found = {(o.variant, o.check): o for o in record.outcomes}
    variants = list(dict.fromkeys((o.variant, o.leaf, o.entry) for o in record.outcomes))
    body = []
    for name, leaf, entry in variants:
        marks = [found.get((name, check)) for check in checks]
        body.append([name, leaf, entry, *("-" if o is None else _MARKS[o.outcome] for o in marks)])
    return table(["call", "leaf", "kernel entry", *checks], body)


def _planted(record: DeviceRecord) -> str:
    words = {Kind.FAIL: "caught", Kind.PASS: "**missed**", Kind.NOT_RUN: "not run"}
    by_fault: dict[str, list[str]] = {}
    for one in record.planted:
        by_fault.setdefault(one.fault, []).append(f"{one.check}: {words[one.outcome]}")
    return table(["a leaf that", "checks"], [[fault, ", ".join(said)] for fault, said in by_fault.items()])
