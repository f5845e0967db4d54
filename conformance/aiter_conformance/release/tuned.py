"""A release's tuned tables: which kernels it picks for which shapes, and whether the rows can be right.

The tables are ``aiter/configs/tuned_fmoe.csv`` and the files of its kind under ``model_configs/``; AITER
merges them and looks a call up by board, token bucket, shape, activation and dtypes.
``tuned_grouped_fmoe.csv`` is a table of its own, for the grouped kernels of gfx1250, with the same key and a
little more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from aiter_conformance.release.artefact import Release
from aiter_conformance.release.findings import Finding
from aiter_conformance.release.inventory import Inventory, take_inventory
from aiter_conformance.release.pysource import Sources
from aiter_conformance.release.tuned_checks import TunedChecks
from aiter_conformance.release.tuned_rows import TunedRow, parse_tuned, short_dtype

TABLE_PATH = re.compile(
    r"aiter/configs/(?:model_configs/)?(?!.*untuned)[^/]*tuned_(?:grouped_)?fmoe[^/]*\.csv"
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The token buckets that are tuned for one shape on one board.

    Attributes:
        gfx: The arch.
        cu_num: Compute units of the board.
        quant: QuantType and the dtypes of activations and weights, e.g. ``per_1x32 fp4 x fp4``.
        activation: Member of ``ActivationType``.
        router: ``in`` or ``out``: where the router weight multiplies.
        shape: (K, N, experts, topk).
        tokens: The buckets, ascending.
    """

    gfx: str
    cu_num: int
    quant: str
    activation: str
    router: str
    shape: tuple[int, int, int, int]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TunedTables:
    """Every tuned row of a release.

    Attributes:
        paths: The tables, sorted.
        rows: The well-formed rows, by table and line.
        findings: Sorted.
    """

    paths: tuple[str, ...]
    rows: tuple[TunedRow, ...]
    findings: tuple[Finding, ...]

    def matching(self, **wanted: str | int | bool) -> tuple[TunedRow, ...]:
        """Return the rows, no stand-ins, whose key has all of *wanted*, e.g. ``gfx="gfx950", topk=8``."""
        return tuple(
            row
            for row in self.rows
            if not row.fallback and all(getattr(row.key, name) == value for name, value in wanted.items())
        )

    def coverage(self) -> tuple[Coverage, ...]:
        """Return the tuned token buckets by board, quantisation, activation, router weight and shape."""
        tokens: dict[tuple[str, int, str, str, str, tuple[int, int, int, int]], set[int]] = {}
        for row in self.matching():
            key = row.key
            a, w = short_dtype(key.q_dtype_a), short_dtype(key.q_dtype_w)
            shape = (key.model_dim, key.inter_dim, key.expert, key.topk)
            router = "in" if key.doweight_stage1 else "out"
            group = (key.gfx, key.cu_num, f"{key.q_type} {a} x {w}", key.act_type, router, shape)
            tokens.setdefault(group, set()).add(key.token)
        return tuple(Coverage(*group, tuple(sorted(tokens[group]))) for group in sorted(tokens))


def read_tuned(
    release: Release, inventory: Inventory | None = None, *, sources: Sources | None = None
) -> TunedTables:
    """Read and check every tuned table of *release*.

    Args:
        release: An open release.
        inventory: Its inventory, if it was taken already: asm kernels must be in it.
        sources: Its sources, if some were parsed already.

    Raises:
        InfrastructureError: A file of the artefact cannot be read at all, as in a damaged archive.
    """
    paths = tuple(path for path in release.files.paths if TABLE_PATH.fullmatch(path))
    checks = TunedChecks(release, inventory or take_inventory(release), sources or Sources(release.files))
    rows: list[TunedRow] = []
    findings: list[Finding] = []
    for path, content in release.files.read_many(paths):
        found, about_table = parse_tuned(path, content)
        findings += about_table + checks.of_table(path, found)
        for row in found:
            faults = checks.of_row(row)
            findings += faults
            rows.append(replace(row, sound=not faults))
    return TunedTables(paths, tuple(rows), tuple(sorted(findings)))
