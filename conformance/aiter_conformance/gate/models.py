"""What a release does with the models of the catalogue, call by call, as items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Finding
from aiter_conformance.gate.calls import model_item
from aiter_conformance.gate.item import Item
from aiter_conformance.levels import trace
from aiter_conformance.levels.inventory import Contents
from aiter_conformance.models import Model, load_models
from aiter_conformance.release.artefact import Release
from aiter_conformance.runner import Progress
from aiter_conformance.trace import model_report
from aiter_conformance.trace.board import Board, all_boards
from aiter_conformance.trace.cached import cached_run


def model_items(
    release: Release, contents: Contents, folder: Path, progress: Progress | None = None
) -> Iterator[Item]:
    """Trace every model of the catalogue on every board.

    The calls that level trace asks for are traced by the same process and kept, since starting one takes
    seconds: observe that level afterwards.

    Args:
        release: The release.
        contents: What was read of it.
        folder: Folder that keeps traces.
        progress: See `runner.collect`.

    A board on which the release cannot be imported has no models; level trace says so.
    """
    models = list(load_models().models.values())
    boards = all_boards()
    for number, board in enumerate(boards):
        if progress is not None:
            progress("boards traced", number, len(boards))
        cells = [cell for cell in load_axes().cells() if cell.arch == board.arch]
        calls = [call for each in trace.calls_of(cells).values() for _, call in each]
        calls += model_report.calls_of(board, models)
        try:
            cached_run(release, board, dict.fromkeys(calls), folder, inventory=contents.inventory)
        except InfrastructureError:
            continue
        yield from _items(release, contents, board, models, folder)


def _items(
    release: Release, contents: Contents, board: Board, models: list[Model], folder: Path
) -> Iterator[Item]:
    known = load_models().models
    report = model_report.report_models(
        release, board, models, folder=folder, inventory=contents.inventory, tuned=contents.tuned
    )
    for row in report.rows:
        model = known[row.model]
        cell = Cell(board.arch, row.scheme, model.activation, model.router)
        findings = {
            f.code.value: Finding(f.code.value, str(board), f.message) for f in row.findings if f.fails
        }
        text = trace.summary(row.trace) + (f"; wrong: {', '.join(sorted(findings))}" if findings else "")
        yield model_item(
            row.model, str(row.deployment), cell, str(board), row.trace.call, text, findings.values()
        )
