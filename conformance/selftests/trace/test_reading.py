"""The worker's answers, read as traces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aiter_conformance.release import open_release, take_inventory
from aiter_conformance.release.samples import write_tree
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.call import Call
from aiter_conformance.trace.launches import LaunchReader
from aiter_conformance.trace.reading import read_trace
from aiter_conformance.trace.record import Role
from aiter_conformance.trace.run import launch_reader
from aiter_conformance.trace.samples import sound_release
from aiter_conformance.trace.tracer import Answer

BOARD = Board("gfx1250", 256)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaunchReader]:
    """A reader of the sound release's launches."""
    tree = write_tree(tmp_path_factory.mktemp("reading") / "release", sound_release())
    with open_release(str(tree)) as release:
        yield launch_reader(release, BOARD, take_inventory(release))


def launched(*names: str) -> Answer:
    """Return the answer of a call that launched FlyDSL kernels of these names."""
    events: tuple[dict[str, Any], ...] = tuple(
        {"event": "flydsl", "name": name, "parameters": {}} for name in names
    )
    return Answer(events, None, ())


class TestReadTrace:
    """``read_trace``, where stages are not in the names."""

    def test_one_product_for_both_stages(self, reader: LaunchReader) -> None:
        """Two launches of a product without a stage are stage 1 and stage 2, in their order."""
        answer = launched("maps.build_rows", "tdm.launch_gemm_a8w4", "tdm.launch_gemm_a8w4", "sum.reduce")
        trace = read_trace(answer, Call(), str(BOARD), reader)
        assert [(launch.role, launch.family) for launch in trace.products] == [
            (Role.STAGE1, "grouped"),
            (Role.STAGE2, "grouped"),
        ]

    @pytest.mark.parametrize(
        "names", [("tdm.launch_gemm",), ("tdm.launch_gemm",) * 3, ("gemm.build", "gemm.build")], ids=str
    )
    def test_anything_else_is_no_product(self, reader: LaunchReader, names: tuple[str, ...]) -> None:
        """One such launch, three, or two of a module that only has the word in its name, are left alone."""
        assert read_trace(launched(*names), Call(), str(BOARD), reader).products == ()

    def test_an_activation_of_torch(self, reader: LaunchReader) -> None:
        """What the release leaves to torch is a launch that applies an activation."""
        answer = Answer(({"event": "torch", "name": "gelu"},), None, ())
        (launch,) = read_trace(answer, Call(), str(BOARD), reader).launches
        assert (launch.role, launch.family, launch.activation) == (Role.ACTIVATION, "torch", "gelu")
