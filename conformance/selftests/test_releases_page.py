"""The page across releases: every release has a row, and every change of a fact is told once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiter_conformance import factfile
from aiter_conformance.axes import load_axes
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Level, ReleaseId
from aiter_conformance.factfile import FactFile
from aiter_conformance.matrix import CellState, KnownFinding, Matrix, Source
from aiter_conformance.publish import releases
from aiter_conformance.verdicts import Verdict

FACTS = {
    "0.1.9": {
        "fused_moe": "22 parameters",
        "ActivationType.Gelu": "1",
        "tuned rows for gfx950 with 256 CUs": "7",
    },
    "0.1.10": {"fused_moe": "24 parameters", "flydsl": "==0.2", "tuned rows for gfx950 with 256 CUs": "9"},
}


def made(version: str) -> FactFile:
    """Return the facts of a release."""
    return FactFile(ReleaseId(version, "sha256:" + "0" * 64, "git"), "2026-01-02", "0.1.0", FACTS[version])


def matrix(version: str, findings: tuple[KnownFinding, ...]) -> Matrix:
    """Return a matrix in which nothing is known of any cell."""
    cells = dict.fromkeys(load_axes().cells(), CellState(Verdict.UNKNOWN, {}, None, None, {}, ()))
    return Matrix(made(version).release, "impl@0.1.0", "0.1.0", cells, findings, {}, ())


class TestFactFile:
    """`factfile.write`, `load` and `compare`."""

    def test_round_trip(self, tmp_path: Path) -> None:
        """What was written is loaded."""
        for version in FACTS:
            factfile.write(made(version), tmp_path)
        assert sorted(factfile.load(tmp_path), key=lambda f: f.release.version) == [
            made("0.1.10"),
            made("0.1.9"),
        ]

    def test_facts_in_another_release_s_folder_are_refused(self, tmp_path: Path) -> None:
        """A moved file would speak of the wrong release."""
        path = factfile.write(made("0.1.9"), tmp_path)
        path.parent.rename(tmp_path / "0.1.8")
        with pytest.raises(InfrastructureError, match=r"the facts of 0\.1\.9 lie in 0\.1\.8/facts\.json"):
            factfile.load(tmp_path)

    def test_releases_are_ordered_by_version(self) -> None:
        """0.1.10 comes after 0.1.9, in whatever order they are given."""
        assert factfile.compare([made("0.1.10"), made("0.1.9")]).versions == ("0.1.9", "0.1.10")


class TestRender:
    """`releases.render`."""

    def test_rows_and_changes(self) -> None:
        """Each release has a row, each change of a fact is told, and tuned counts are no change."""
        known = KnownFinding("wrong-arch", "a", "b", "x (o/r#1)")
        new = KnownFinding("wrong-arch", "a", "b", None)
        facts = factfile.compare(made(version) for version in FACTS)
        text = releases.render([matrix("0.1.9", (known, new)), matrix("0.1.10", ())], facts)
        assert "| [0.1.9](0.1.9/README.md) | 192 / 192 / 192 | - | 2 | 1 |" in text
        assert "| fused_moe | 22 parameters | 24 parameters |" in text
        assert "| tuned rows for gfx950 with 256 CUs | 7 | 9 |" in text
        changes = text.split("### 0.1.10, against 0.1.9")[1]
        assert "| fused_moe | changed | 22 parameters | 24 parameters |" in changes
        assert "| flydsl | appeared | - | ==0.2 |" in changes
        assert "| ActivationType.Gelu | disappeared | 1 | - |" in changes
        assert "tuned rows" not in changes

    def test_levels_that_were_looked_at(self) -> None:
        """A release says which of its levels were looked at; those about the subject alone are left out."""
        looked = [
            Source(f"r/{level}.json", "sha256:" + "1" * 64, level, "gfx950", subject, "2026-01-02")
            for level, subject in (
                (Level.ISA, "impl@0.1.0"),
                (Level.TRACE, "impl@0.1.0"),
                (Level.DECLARED, "impl@0.1.0"),
                (Level.HARDWARE, "other@1"),
            )
        ]
        text = releases.render(
            [replace(matrix("0.1.9", ()), sources=tuple(looked)), matrix("0.1.10", ())],
            factfile.compare(made(version) for version in FACTS),
        )
        assert "| 192 / 192 / 192 | trace, isa | 0 | 0 |" in text
        assert "| [0.1.10](0.1.10/README.md) | 192 / 192 / 192 | - | 0 | 0 |" in text
