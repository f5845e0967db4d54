"""The page across releases: how they compare, and what appeared, disappeared or changed when."""

from __future__ import annotations

from collections.abc import Sequence

from aiter_conformance.axes import load_axes
from aiter_conformance.evidence import Level
from aiter_conformance.matrix import Matrix
from aiter_conformance.publish.markdown import table, template
from aiter_conformance.publish.tables import count_verdicts, never_run
from aiter_conformance.release.facts import FactsTable
from aiter_conformance.verdicts import Verdict

# What a release engineer looks up first; everything else is in the list of changes.
_HEADLINES = ("fused_moe", "asm_moe_tkw1", "flydsl")
_TUNED = "tuned rows for "


def render(matrices: Sequence[Matrix], facts: FactsTable) -> str:
    """Return the page across releases, ending in a newline.

    Args:
        matrices: One for each published release, oldest first.
        facts: The facts of the releases of which any were recorded.
    """
    return template("releases.md.j2").render(
        archs=list(load_axes().archs),
        verdicts=_verdicts(matrices),
        headlines=_headlines(facts),
        changes=_changes(facts),
        meanings=table(["verdict", "means"], [[v.value, v.meaning] for v in Verdict]),
    )


def _verdicts(matrices: Sequence[Matrix]) -> str:
    archs = list(load_axes().archs)
    counted = [{arch: count_verdicts(matrix, arch) for arch in archs} for matrix in matrices]
    shown = [v for v in Verdict if any(v in counts for by_arch in counted for counts in by_arch.values())]
    body = [
        [
            f"[{matrix.release.version}]({matrix.release.version}/README.md)",
            *(" / ".join(str(by_arch[arch].get(verdict, 0)) for arch in archs) for verdict in shown),
            _observed(matrix),
            str(len(matrix.findings)),
            str(sum(finding.known is None for finding in matrix.findings)),
        ]
        for matrix, by_arch in zip(matrices, counted, strict=True)
    ]
    return table(
        ["release", *(verdict.value for verdict in shown), "levels", "findings", "of them new"], body
    )


def _observed(matrix: Matrix) -> str:
    """Return the levels of the release that were looked at: a verdict that none of them gives is no loss."""
    never = never_run(matrix)
    return ", ".join(level.value for level in Level if level.about_release and level not in never) or "-"


def _headlines(facts: FactsTable) -> str:
    names = [name for name in facts.rows if name in _HEADLINES or name.startswith(_TUNED)]
    return table(["fact", *facts.versions], [[n, *(text or "-" for text in facts.rows[n])] for n in names])


def _changes(facts: FactsTable) -> list[dict[str, str]]:
    by_version: dict[str, list[list[str]]] = {version: [] for version in facts.versions[1:]}
    for change in facts.changes():
        if not change.fact.startswith(_TUNED):  # they change with every release and stand in the table above
            row = [change.fact, change.kind.value, change.before or "-", change.after or "-"]
            by_version[change.version].append(row)
    return [
        {
            "version": version,
            "before": before,
            "rows": table(["fact", "how", "before", "since"], rows) if rows else "",
        }
        for before, (version, rows) in zip(facts.versions, by_version.items(), strict=False)
    ]
