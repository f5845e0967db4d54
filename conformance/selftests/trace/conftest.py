"""What the tests of the tracer share: releases made by hand, and the calls that are made on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from aiter_conformance.release import open_release
from aiter_conformance.release.samples import write_tree
from aiter_conformance.release.tuned import read_tuned
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.findings import Finding
from aiter_conformance.trace.run import Run, run_calls
from aiter_conformance.trace.run_checks import check_run

Tracing = Callable[[Mapping[str, bytes], Board, Iterable[Call]], tuple[Run, tuple[Finding, ...]]]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for compiled Python that all tests share."""
    return tmp_path_factory.mktemp("code")


@pytest.fixture
def tracing(tmp_path: Path, cache: Path) -> Tracing:
    """A function that writes a release, traces calls on a board, and checks what came out."""

    def run(
        files: Mapping[str, bytes], board: Board, calls: Iterable[Call]
    ) -> tuple[Run, tuple[Finding, ...]]:
        tree = write_tree(tmp_path / "release", files)
        with open_release(str(tree)) as release:
            traced = run_calls(release, board, calls, cache=cache)
            return traced, check_run(traced, read_tuned(release))

    return run
