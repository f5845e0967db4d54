"""Whether a model of the catalogue will run with a release on a board, on which kernels, or what is wrong."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aiter_conformance import __version__, contract
from aiter_conformance.axes import Cell
from aiter_conformance.evidence import ReleaseId
from aiter_conformance.modelfile import Line, ModelFile
from aiter_conformance.models import Deployment, Model, load_models, model_calls
from aiter_conformance.outcome import Kind
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.inventory import Inventory, take_inventory
from aiter_conformance.release.tuned import TunedTables, read_tuned
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.cached import cached_run
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.findings import Cause, Finding, by_call, group
from aiter_conformance.trace.record import Dispatch, Status, Trace
from aiter_conformance.trace.run_checks import check_run


@dataclass(frozen=True, slots=True)
class Row:
    """What one deployment of a model gets for one number of tokens.

    Attributes:
        model: The model's name.
        scheme: The quantisation.
        deployment: How it is divided.
        trace: What the release does.
        findings: What is wrong.
    """

    model: str
    scheme: str
    deployment: Deployment
    trace: Trace
    findings: tuple[Finding, ...]

    @property
    def runs(self) -> bool:
        """Whether it launches kernels and nothing is found that makes it fail."""
        return self.trace.status is Status.LAUNCHED and not any(finding.fails for finding in self.findings)


@dataclass(frozen=True)
class ModelReport:
    """What a release does with some models on a board.

    Attributes:
        board: The board.
        rows: Every deployment and number of tokens of every model and scheme that the leaf accepts there.
        refused: Reason of each (model, scheme) that the leaf refuses on this arch.
        causes: Everything that is wrong, causes before consequences.
    """

    board: Board
    rows: tuple[Row, ...]
    refused: dict[tuple[str, str], str]
    causes: tuple[Cause, ...]

    def is_good(self, model: str) -> bool:
        """Whether a model runs in at least one scheme, in every deployment and for every number of tokens."""
        schemes = {row.scheme for row in self.rows if row.model == model}
        return any(all(row.runs for row in self.of(model, scheme)) for scheme in schemes)

    def of(self, model: str, scheme: str) -> tuple[Row, ...]:
        """Return the rows of a model in a scheme."""
        return tuple(row for row in self.rows if (row.model, row.scheme) == (model, scheme))


def report_models(
    release: Release,
    board: Board,
    models: Iterable[Model] | None = None,
    *,
    folder: Path,
    inventory: Inventory | None = None,
    tuned: TunedTables | None = None,
) -> ModelReport:
    """Trace models of the catalogue.

    Args:
        release: The release.
        board: The board.
        models: The models; all of the catalogue where None.
        folder: Folder that keeps runs, e.g. ``build/trace``.
        inventory: What the release ships, where that is known already.
        tuned: Its tuned tables, where they were read already.

    Raises:
        InfrastructureError: The release cannot be read or imported on the board.
    """
    wanted = tuple(load_models().models.values() if models is None else models)
    shipped = take_inventory(release) if inventory is None else inventory
    tables = read_tuned(release, shipped) if tuned is None else tuned
    asked, refused = _asked(board, wanted)
    calls = list(dict.fromkeys(call for *_, call in asked))
    run = cached_run(release, board, calls, folder, inventory=shipped)
    findings = check_run(run, tables)
    wrong = by_call(findings)
    traces = {trace.call: trace for trace in run.traces}
    rows = tuple(
        Row(name, scheme, where, traces[call], tuple(wrong.get(call, ())))
        for name, scheme, where, call in asked
    )
    return ModelReport(board, rows, refused, group(findings))


def calls_of(board: Board, models: Iterable[Model]) -> list[Call]:
    """Return what `report_models` asks of a release."""
    return list(dict.fromkeys(call for *_, call in _asked(board, models)[0]))


def _asked(
    board: Board, models: Iterable[Model]
) -> tuple[list[tuple[str, str, Deployment, Call]], dict[tuple[str, str], str]]:
    """Return the calls of models and schemes that the leaf accepts, and why it refuses the others."""
    refused: dict[tuple[str, str], str] = {}
    asked: list[tuple[str, str, Deployment, Call]] = []
    for model in models:
        for scheme in model.schemes:
            cell = Cell(board.arch, scheme, model.activation, model.router)
            declared = contract.declaration(cell)
            if declared.kind is not Kind.PASS:
                refused[model.name, scheme] = declared.message or ""
                continue
            asked += [(model.name, scheme, where, call) for where, call in model_calls(model, scheme)]
    return asked, refused


def lines(report: ModelReport) -> list[Line]:
    """Return what a report says, deployments that fare alike in one line."""
    groups: dict[tuple[str, str, Deployment], list[Row]] = {}
    for row in report.rows:
        groups.setdefault((row.model, row.scheme, row.deployment), []).append(row)
    alike: dict[tuple[str, str, tuple[str, str, str, str]], list[str]] = {}
    for (model, scheme, where), rows in groups.items():
        alike.setdefault((model, scheme, _fares(rows)), []).append(str(where))
    found = [Line(model, scheme, ", ".join(where), *rest) for (model, scheme, rest), where in alike.items()]
    found += [Line(m, scheme, "", "refused", "", "", why) for (m, scheme), why in report.refused.items()]
    return found


def record(report: ModelReport, release: ReleaseId) -> ModelFile:
    """Return the record of a report made today."""
    names = dict.fromkeys(row.model for row in report.rows)
    return ModelFile(
        release=release,
        board=str(report.board),
        observed=dt.date.today().isoformat(),
        harness=__version__,
        good=tuple(name for name in names if report.is_good(name)),
        lines=tuple(lines(report)),
    )


def _fares(rows: list[Row]) -> tuple[str, str, str, str]:
    """Return what is shown of one deployment: runs, tuned, kernels, what is wrong."""
    tuned = sum(row.trace.dispatch in (Dispatch.TUNED, Dispatch.TUNED_BLIND) for row in rows)
    kernels = dict.fromkeys(_kernels(row.trace) for row in rows if row.trace.products)
    running = sum(row.runs for row in rows)
    return (
        "yes" if running == len(rows) else f"{running}/{len(rows)}",
        f"{tuned}/{len(rows)}",
        "; ".join(kernels),
        "; ".join(_wrong(rows)),
    )


def _kernels(trace: Trace) -> str:
    families = " + ".join(dict.fromkeys(launch.family for launch in trace.products))
    return f"{families} ({trace.activation_dtype or '?'})"


def _wrong(rows: list[Row]) -> list[str]:
    """Return what is wrong, each with the numbers of tokens that it is about."""
    about: dict[str, list[str]] = {}
    for row in rows:
        codes = dict.fromkeys(finding.code.value for finding in row.findings if finding.fails)
        if row.trace.status is Status.REFUSED:
            codes["refused by the release"] = None
        for code in codes:
            about.setdefault(code, []).append(str(row.trace.call.tokens))
    return [f"{code} (M {', '.join(tokens)})" for code, tokens in about.items()]
