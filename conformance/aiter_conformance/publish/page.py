"""The page of one release in Markdown, made from its matrix and the sweep over its machine code alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from aiter_conformance.axes import ROUTERS, Axes, Cell
from aiter_conformance.evidence import Level
from aiter_conformance.families import load_families
from aiter_conformance.matrix import CellState, Matrix
from aiter_conformance.publish.markdown import table, template
from aiter_conformance.publish.sweep import WRONG_AT_ODD, Line
from aiter_conformance.publish.tables import (
    ROUTER_WORDS,
    count_verdicts,
    level_words,
    never_run,
    peer_rows,
    peers,
    rows,
)
from aiter_conformance.verdicts import Verdict

_NUMBERS_CHECKED = (Verdict.VALIDATED, Verdict.EMULATED, Verdict.MODELLED)


def render(matrix: Matrix, axes: Axes, swept: Sequence[Line] | None = None) -> str:
    """Return the page of a release, ending in a newline.

    Paths to evidence are relative to ``matrices/published/<release>/``.

    Args:
        matrix: The matrix of the release.
        axes: The axes.
        swept: What the sweep over the release's machine code found; None where there was no sweep.
    """
    never = [a for a in axes.activations if not _ever_accepted(matrix, a)]
    not_run = never_run(matrix)
    return template("page.md.j2").render(
        matrix=matrix,
        never_accepted=never,
        run=[level for level in Level if level not in not_run],
        not_run=not_run,
        numbers_checked=any(state.verdict in _NUMBERS_CHECKED for state in matrix.cells.values()),
        swept=_swept(swept or ()),
        verdicts=table(["verdict", "means"], [[v.value, v.meaning] for v in Verdict]),
        counts=_counts(matrix, axes),
        archs=[
            {
                "name": arch,
                "title": axes.archs[arch].title,
                "glance": _glance(matrix, axes, arch, never),
                "rows": _rows(matrix, axes, arch, never),
            }
            for arch in axes.archs
        ],
        peers=[_peer(matrix, axes, name) for name in peers(matrix)],
        findings=_findings(matrix),
        families=_families(matrix),
        evidence=_evidence(matrix),
    )


def _swept(lines: Sequence[Line]) -> list[str]:
    """Return for each arch how many of its objects computed wrong in the emulator, as clauses."""
    said = []
    for arch in sorted({line.arch for line in lines}):
        results = Counter(line.result for line in lines if line.arch == arch)
        clause = f"{results['wrong']} of {results.total()} objects of {arch} computed wrong"
        if results[WRONG_AT_ODD]:
            clause += f", {results[WRONG_AT_ODD]} more at a hidden size that is an odd multiple of 256"
        if results["not executable"]:
            clause += f", and {results['not executable']} could not be executed"
        said.append(clause)
    return said


def _ever_accepted(matrix: Matrix, activation: str) -> bool:
    return any(
        state.verdict is not Verdict.UNSUPPORTED
        for cell, state in matrix.cells.items()
        if cell.activation == activation
    )


def _counts(matrix: Matrix, axes: Axes) -> str:
    counted = {arch: count_verdicts(matrix, arch) for arch in axes.archs}
    shown = [verdict for verdict in Verdict if any(verdict in counts for counts in counted.values())]
    body = [
        [arch, axes.archs[arch].title, *(str(counts.get(verdict, 0)) for verdict in shown)]
        for arch, counts in counted.items()
    ]
    return table(["arch", "boards", *(f"{verdict.value} cells" for verdict in shown)], body)


def _glance(matrix: Matrix, axes: Axes, arch: str, never: Sequence[str]) -> str:
    accepted = [activation for activation in axes.activations if activation not in never]
    body = []
    for scheme in axes.schemes:
        row = [scheme]
        for activation in accepted:
            out, on_input = (
                _glance_word(matrix.cells[Cell(arch, scheme, activation, router)]) for router in ROUTERS
            )
            row.append(out if out == on_input else f"{out} / {on_input}")
        body.append(row)
    return table(["scheme", *accepted], body)


def _glance_word(state: CellState) -> str:
    shipped = state.verdict is not Verdict.UNSUPPORTED and state.levels.get(Level.INVENTORY) == "pass"
    return f"{state.verdict.value}, shipped" if shipped else state.verdict.value


def _rows(matrix: Matrix, axes: Axes, arch: str, never: Sequence[str]) -> str:
    cells = [cell for cell in matrix.cells if cell.arch == arch and cell.activation not in never]
    body = [
        [
            row.scheme,
            ", ".join(row.activations),
            ", ".join(ROUTER_WORDS[router] for router in row.routers),
            row.state.verdict.value,
            level_words(row.state),
            why(row.state),
            _references(row.state.evidence),
        ]
        for row in rows(matrix, axes, cells)
    ]
    header = ["scheme", "activations", "router weight on", "verdict", "levels", "why", "evidence"]
    return table(header, body)


def _references(indices: Sequence[int]) -> str:
    return " ".join(f"[E{index + 1}](#e{index + 1})" for index in indices)


def why(state: CellState) -> str:
    """Return what stands behind a verdict: the reason, what is known of single inputs, and the kernels."""
    said = [state.message.rstrip(".") + "."] if state.message else []
    if state.known and state.verdict is not Verdict.UNSUPPORTED:
        known = ", ".join(f"{entry} ({count})" for entry, count in state.known.items())
        said.append(f"Known of single inputs: {known}.")
    if state.kernels and state.verdict is not Verdict.UNSUPPORTED:
        kernels = ", ".join(
            f"{name} ({count} objects)" if count else f"{name} (built on first use)"
            for name, count in state.kernels.items()
        )
        said.append(f"Kernels: {kernels}.")
    return " ".join(said) or "-"


def _peer(matrix: Matrix, axes: Axes, name: str) -> dict[str, Any]:
    archs: dict[tuple[str, ...], list[str]] = {}
    for row in peer_rows(matrix, axes, name):
        said = (
            row.scheme,
            ", ".join(row.activations),
            ", ".join(ROUTER_WORDS[router] for router in row.routers),
            level_words(row.state),
            row.state.message or "-",
        )
        archs.setdefault(said, []).append(row.arch)
    heading = f"{name}, held against the same contract"
    known = matrix.differences.get(name, {})
    return {
        "name": name,
        "heading": heading,
        # what a Markdown renderer makes of the heading
        "anchor": re.sub(r"[^a-z0-9_-]", "", heading.lower().replace(" ", "-")),
        "evidence": _references([i for i, source in enumerate(matrix.sources) if source.subject == name]),
        "rows": table(
            ["archs", "scheme", "activations", "router weight on", "levels", "differences"],
            [[", ".join(where), *said] for said, where in archs.items()],
        ),
        "differences": table(["difference", "consequence"], list(known.items())) if known else "",
    }


def _findings(matrix: Matrix) -> str:
    # A dispatch goes wrong in the same words on several boards.
    where: dict[tuple[str, str, str], list[str]] = {}
    for finding in matrix.findings:
        said = (finding.code, finding.message, finding.known or "new")
        where.setdefault(said, []).append(finding.path)
    body = [[code, ", ".join(places), what, known] for (code, what, known), places in where.items()]
    return table(["code", "where", "what", "in the ledger"], body) if body else ""


def _families(matrix: Matrix) -> str:
    named = {name for state in matrix.cells.values() for name in state.kernels}
    body = [[family.name, family.title] for family in load_families() if family.name in named]
    return table(["name", "what it is"], body)


def _evidence(matrix: Matrix) -> str:
    body = [
        [
            f'<a id="e{number}"></a>E{number}',
            source.level.value,
            source.board,
            source.subject or "-",
            source.observed,
            f"[{source.path}](../../../reports/{source.path})",
        ]
        for number, source in enumerate(matrix.sources, start=1)
    ]
    return table(["id", "level", "board", "subject", "observed", "record"], body)
