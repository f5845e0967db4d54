"""The matrix as a JSON document: one line a cell, what is said of many cells written once."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from aiter_conformance import documents
from aiter_conformance.axes import load_axes
from aiter_conformance.evidence import Level, ReleaseId
from aiter_conformance.matrix import CellState, KnownFinding, Matrix, PeerState, Source
from aiter_conformance.verdicts import Verdict

SCHEMA: Final = "aiter-conformance/matrix/1"


def to_json(matrix: Matrix) -> str:
    """Return the matrix as text, one line a cell; what is said of many cells is written once."""
    said = [(state.reason, state.message) for state in matrix.cells.values()]
    said += [(None, peer.message) for state in matrix.cells.values() for peer in state.peers.values()]
    because = list(dict.fromkeys(said))
    return documents.render(
        {
            "schema": SCHEMA,
            "release": asdict(matrix.release),
            "subject": matrix.subject,
            "harness": matrix.harness,
            "verdicts": {verdict.value: verdict.meaning for verdict in Verdict},
            "because": [{"reason": reason, "message": message} for reason, message in because],
            "cells": [
                {
                    "cell": str(cell),
                    "verdict": state.verdict.value,
                    "levels": state.levels,
                    "because": because.index((state.reason, state.message)),
                    "kernels": state.kernels,
                    "evidence": state.evidence,
                    "peers": {
                        who: {"levels": peer.levels, "because": because.index((None, peer.message))}
                        for who, peer in state.peers.items()
                    },
                }
                | ({"known": state.known} if state.known else {})
                for cell, state in matrix.cells.items()
            ],
            "findings": [asdict(finding) for finding in matrix.findings],
            "differences": matrix.differences,
            "evidence": [asdict(source) for source in matrix.sources],
        },
        compact=True,
    )


def from_json(text: str, source: str) -> Matrix:
    """Return the matrix that a text holds.

    Raises:
        InfrastructureError: The text is not a matrix that the schema accepts.
    """
    data = documents.parse(text, schema="matrix", source=source)
    axes = load_axes()
    cells = {
        axes.parse_cell(item["cell"]): CellState(
            Verdict(item["verdict"]),
            {Level(level): how for level, how in item["levels"].items()},
            data["because"][item["because"]]["reason"],
            data["because"][item["because"]]["message"],
            item["kernels"],
            tuple(item["evidence"]),
            {
                who: PeerState(
                    {Level(level): how for level, how in peer["levels"].items()},
                    data["because"][peer["because"]]["message"],
                )
                for who, peer in item["peers"].items()
            },
            item.get("known", {}),
        )
        for item in data["cells"]
    }
    return Matrix(
        release=ReleaseId(**data["release"]),
        subject=data["subject"],
        harness=data["harness"],
        cells=cells,
        findings=tuple(KnownFinding(**finding) for finding in data["findings"]),
        differences=data["differences"],
        sources=tuple(Source(**(item | {"level": Level(item["level"])})) for item in data["evidence"]),
    )
