"""The figures of the emulator's speed; how good they are is for ``nox -s bench`` to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiter_conformance.errors import UsageError
from aiter_conformance.isa_speed import measure_speed
from aiter_conformance.release.samples import sample_files, write_tree


class TestMeasureSpeed:
    """measure_speed."""

    @pytest.mark.usefixtures("disassembler", "fast_core")
    def test_figures(self, wheel: Path, cache_dir: Path) -> None:
        """All three are measured, and a kept program saves the decoding."""
        speed = measure_speed(str(wheel), cache_dir)
        assert speed.rate > 0
        assert 0 < speed.again < speed.first

    def test_no_such_object(self, cache_dir: Path, tmp_path: Path) -> None:
        """A release without the object cannot be measured."""
        tree = write_tree(tmp_path, sample_files())
        with pytest.raises(UsageError, match="fmoe_stage1_bf16_pertokenFp8_g1u1_32x128_3tg_pf3"):
            measure_speed(str(tree), cache_dir)
