"""How the speed of the tracer is measured; the figures themselves are for the bench."""

from __future__ import annotations

from pathlib import Path

from aiter_conformance.axes import load_axes
from aiter_conformance.levels.trace import calls_of
from aiter_conformance.release import open_release
from aiter_conformance.release.samples import write_tree
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.samples import sound_release
from aiter_conformance.trace.speed import measure_speed


class TestMeasureSpeed:
    """``measure_speed``."""

    def test_every_call_of_the_level_is_made(self, tmp_path: Path, cache: Path) -> None:
        """All distinct calls of the level count, and both figures are positive."""
        board = Board("gfx942", 304)
        with open_release(str(write_tree(tmp_path / "release", sound_release()))) as release:
            speed = measure_speed(release, board, cache)
        cells = [cell for cell in load_axes().cells() if cell.arch == board.arch]
        assert speed.calls == len({call for inputs in calls_of(cells).values() for _, call in inputs})
        assert speed.calls > 500
        assert speed.start > 0
        assert speed.rate > 0
