"""The page of one release: its matrix in Markdown, made from the matrix alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tabulate import tabulate

from aiter_conformance.axes import ROUTERS, Axes, Cell
from aiter_conformance.evidence import Level
from aiter_conformance.matrix import CellState, Matrix, Verdict
from aiter_conformance.publish.tables import (
    ROUTER_WORDS,
    count_verdicts,
    level_words,
    never_run,
    peer_rows,
    peers,
    rows,
)


def render(matrix: Matrix, axes: Axes) -> str:
    """Return the page of a release, ending in a newline.

    Paths to evidence are relative to ``matrices/published/<release>/``.
    """
    sections = [
        _title(matrix),
        _how_strong(matrix),
        _at_a_glance(matrix, axes),
        *(_arch(matrix, axes, arch) for arch in axes.archs),
        *(_peer(matrix, axes, peer) for peer in peers(matrix)),
        _findings(matrix),
        _words(),
        _evidence(matrix),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in body]
    aligned = tabulate(escaped, headers=list(header), tablefmt="github", disable_numparse=True)
    # Long sentences would make most of the page padding.
    return re.sub(r"-{4,}", "---", re.sub(r" {2,}", " ", aligned))


def _title(matrix: Matrix) -> str:
    return (
        f"# AITER {matrix.release.version}: fused MoE as vLLM uses it\n\n"
        f"Made by `aiter-conformance matrix publish` (version {matrix.harness}) for the subject "
        f"`{matrix.subject}`; do not edit. The same data for machines: [matrix.json](matrix.json).\n\n"
        f"Release read as a {matrix.release.kind}; content identity `{matrix.release.identity}`.\n\n"
        "A *cell* is one combination of GPU architecture, quantisation scheme, activation and the place "
        "where the router weight multiplies (the experts' *output*, or their *input*)."
    )


def _how_strong(matrix: Matrix) -> str:
    run = [level for level in Level if level not in never_run(matrix)]
    lines = ["## How strong the evidence is", "", "Looked at:", ""]
    lines += [f"* **{level.value}**: {level.meaning}." for level in run]
    lines += ["", "Never tried for this release:", ""]
    lines += [f"* **{level.value}**: {level.meaning}." for level in never_run(matrix)] or ["* nothing"]
    strongest = [v for v in (Verdict.VALIDATED, Verdict.EMULATED, Verdict.MODELLED) if _has(matrix, v)]
    if not strongest:
        lines += [
            "",
            "**No cell's numbers were checked for this release.** The best verdict here is `declared`.",
        ]
    return "\n".join(lines)


def _has(matrix: Matrix, verdict: Verdict) -> bool:
    return any(state.verdict is verdict for state in matrix.cells.values())


def _at_a_glance(matrix: Matrix, axes: Axes) -> str:
    counts = [
        [arch, axes.archs[arch].title, *(str(count_verdicts(matrix, arch).get(v, 0)) for v in _shown(matrix))]
        for arch in axes.archs
    ]
    header = ["arch", "boards", *(f"{v.value} cells" for v in _shown(matrix))]
    lines = ["## At a glance", "", _table(header, counts), ""]
    accepted = [a for a in axes.activations if _ever_accepted(matrix, a)]
    lines += [
        "Verdicts by scheme and activation, for router weights on the output. Where the verdict for router "
        "weights on the input is another, it follows after a slash. Activations that are not in the tables "
        "are `unsupported` everywhere.",
        "",
    ]
    for arch in axes.archs:
        body = [
            [scheme, *(_glance(matrix, arch, scheme, activation) for activation in accepted)]
            for scheme in axes.schemes
        ]
        lines += [f"**{arch}**", "", _table(["scheme", *accepted], body), ""]
    return "\n".join(lines).rstrip()


def _shown(matrix: Matrix) -> list[Verdict]:
    return [verdict for verdict in Verdict if _has(matrix, verdict)]


def _ever_accepted(matrix: Matrix, activation: str) -> bool:
    return any(
        state.verdict is not Verdict.UNSUPPORTED
        for cell, state in matrix.cells.items()
        if cell.activation == activation
    )


def _glance(matrix: Matrix, arch: str, scheme: str, activation: str) -> str:
    out, on_input = (matrix.cells[Cell(arch, scheme, activation, router)].verdict.value for router in ROUTERS)
    return out if out == on_input else f"{out} / {on_input}"


def _arch(matrix: Matrix, axes: Axes, arch: str) -> str:
    cells = [cell for cell in matrix.cells if cell.arch == arch]
    body = [
        [
            row.scheme,
            ", ".join(row.activations),
            ", ".join(ROUTER_WORDS[router] for router in row.routers),
            row.state.verdict.value,
            level_words(row.state),
            why(row.state),
            " ".join(f"[E{i + 1}](#e{i + 1})" for i in row.state.evidence),
        ]
        for row in rows(matrix, axes, cells)
    ]
    header = ["scheme", "activations", "router weight on", "verdict", "levels", "why", "evidence"]
    return f"## {arch}\n\n{axes.archs[arch].title}.\n\n{_table(header, body)}"


def _peer(matrix: Matrix, axes: Axes, peer: str) -> str:
    archs: dict[tuple[str, ...], list[str]] = {}
    for row in peer_rows(matrix, axes, peer):
        said = (
            row.scheme,
            ", ".join(row.activations),
            ", ".join(ROUTER_WORDS[router] for router in row.routers),
            level_words(row.state),
            row.state.message or "-",
        )
        archs.setdefault(said, []).append(row.arch)
    header = ["archs", "scheme", "activations", "router weight on", "levels", "differences"]
    body = [[", ".join(where), *said] for said, where in archs.items()]
    return (
        f"## {peer}, held against the same contract\n\n"
        "What this subject does by itself, whatever the release; the verdicts above do not rest on it. Cells "
        "that it refuses are left out. The differences are explained, with a script for each, in "
        f"[reports/findings](../../../reports/findings).\n\n{_table(header, body)}"
    )


def why(state: CellState) -> str:
    """Return what stands behind a verdict: the reason, and the kernels that the release has."""
    said = [state.message.rstrip(".") + "."] if state.message else []
    if state.kernels:
        kernels = ", ".join(
            f"{name} ({count} objects)" if count else f"{name} (built on first use)"
            for name, count in state.kernels.items()
        )
        said.append(f"Kernels: {kernels}.")
    return " ".join(said) or "-"


def _findings(matrix: Matrix) -> str:
    lines = ["## Findings in the release", ""]
    if not matrix.findings:
        lines.append("None: every manifest row names a sound code object of the right arch.")
        return "\n".join(lines)
    lines.append(_table(["code", "where", "what"], [[f.code, f.path, f.message] for f in matrix.findings]))
    return "\n".join(lines)


def _words() -> str:
    verdicts = _table(["verdict", "means"], [[v.value, v.meaning] for v in Verdict])
    return (
        "## What the words mean\n\n"
        f"{verdicts}\n\n"
        "Levels: *yes* passed, *no* failed or was refused, *not shown* could not be decided at that level; "
        "a level that is not named was never tried for the cell."
    )


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
    return "## Evidence\n\n" + _table(["", "level", "board", "subject", "observed", "record"], body)
