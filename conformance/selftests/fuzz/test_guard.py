"""The fuzzing itself can fail: its guard sees writes and hangs, its mutations reach what they should."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import find, settings

from aiter_conformance.release.codeobject import CodeObjectError, parse_code_object
from aiter_conformance.release.mutations import mutated
from aiter_conformance.release.samples import code_object

OBJECT = code_object("gfx942", ["first_kernel"])
searching = settings(max_examples=5000, derandomize=True, database=None)


class TestGuarded:
    """The fixture ``guarded``."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda folder: (folder / "new").write_text(""),
            lambda folder: (folder / "old").open("a").close(),
            lambda folder: (folder / "old").unlink(),
            lambda folder: (folder / "folder").mkdir(),
            lambda folder: (folder / "old").rename(folder / "new"),
        ],
    )
    def test_a_write_is_seen(
        self,
        guarded: Callable[..., AbstractContextManager[None]],
        tmp_path: Path,
        change: Callable[[Path], object],
    ) -> None:
        """A reader that writes, renames or removes anything fails."""
        (tmp_path / "old").write_text("")
        with pytest.raises(AssertionError, match="must not write"), guarded():
            change(tmp_path)

    def test_a_read_is_allowed(
        self, guarded: Callable[..., AbstractContextManager[None]], tmp_path: Path
    ) -> None:
        """Reading is what readers do."""
        (tmp_path / "old").write_text("x")
        with guarded():
            assert (tmp_path / "old").read_text() == "x"

    def test_a_hang_is_ended(self, guarded: Callable[..., AbstractContextManager[None]]) -> None:
        """A reader that does not come to an end is stopped."""
        with pytest.raises(TimeoutError, match="must come to an end"), guarded(seconds=0.05):
            time.sleep(5)


class TestMutated:
    """`mutated`."""

    @pytest.mark.parametrize(
        "said",
        ["must start as", "header", "every section must lie", "section table must lie"],
    )
    def test_refusals_are_reached(self, said: str) -> None:
        """The mutations of a code object reach each of these refusals."""

        def refused(data: bytes) -> bool:
            try:
                parse_code_object(data)
            except CodeObjectError as error:
                return said in str(error)
            return False

        assert refused(find(mutated(OBJECT), refused, settings=searching))

    def test_other_facts_are_reached(self) -> None:
        """They also reach sound objects that say something else, which only a second reader can judge."""

        def differs(data: bytes) -> bool:
            try:
                return not parse_code_object(data).has_kernel("first_kernel")
            except CodeObjectError:
                return False

        assert differs(find(mutated(OBJECT), differs, settings=searching))
