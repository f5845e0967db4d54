"""Tables and page: everything that the matrix says is shown, in words, and in as few rows as possible."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.evidence import Level, ReleaseId
from aiter_conformance.matrix import CellState, KnownFinding, Matrix, PeerState, Source
from aiter_conformance.publish import page
from aiter_conformance.publish.sweep import Line, read, to_csv
from aiter_conformance.publish.tables import count_verdicts, level_words, never_run, rows
from aiter_conformance.verdicts import Verdict

AXES = load_axes()
UNKNOWN = CellState(Verdict.UNKNOWN, {}, None, None, {}, ())
DECLARED = CellState(Verdict.DECLARED, {Level.DECLARED: "pass"}, None, None, {"asm": 3, "ck": 0}, (0,))
LACKING = CellState(
    Verdict.CONFLICT,
    {Level.DECLARED: "pass", Level.INVENTORY: "fail"},
    "no-kernel",
    "None | at all",
    {},
    (0, 1),
)


def refused(activation: str) -> CellState:
    """Return a refusal whose sentence names the activation."""
    message = f"X does not support the activation {activation}"
    return CellState(Verdict.UNSUPPORTED, {Level.DECLARED: "refused"}, "activation", message, {}, (0,))


@pytest.fixture
def matrix() -> Matrix:
    """A matrix in which gfx950/bf16 has four kinds of cell, and everything else is unknown."""
    cells = dict.fromkeys(AXES.cells(), UNKNOWN)
    for activation in AXES.activations:
        for router in ("out", "in"):
            cells[Cell("gfx950", "bf16", activation, router)] = refused(activation)
    for activation in ("silu", "gelu"):
        cells[Cell("gfx950", "bf16", activation, "out")] = DECLARED
        cells[Cell("gfx950", "bf16", activation, "in")] = LACKING
    sources = (
        Source(
            "s/declared-gfx950.json",
            "sha256:" + "1" * 64,
            Level.DECLARED,
            "gfx950",
            "impl@0.1.0",
            "2026-01-02",
        ),
        Source(
            "r/inventory-gfx950.json", "sha256:" + "2" * 64, Level.INVENTORY, "gfx950", None, "2026-01-03"
        ),
    )
    findings = (KnownFinding("wrong-arch", "hsa/gfx950/a.csv:3", "It is for gfx942.", None),)
    release = ReleaseId("0.1.7", "sha256:" + "0" * 64, "wheel")
    return Matrix(release, "impl@0.1.0", "0.1.0", cells, findings, {}, sources)


class TestRows:
    """`rows`."""

    def test_what_is_alike_shares_a_row(self, matrix: Matrix) -> None:
        """Activations and places of the router weight of which the same is said are one row."""
        cells = [cell for cell in matrix.cells if (cell.arch, cell.scheme) == ("gfx950", "bf16")]
        found = [(row.activations, row.routers, row.state.verdict) for row in rows(matrix, AXES, cells)]
        others = tuple(a for a in AXES.activations if a not in ("silu", "gelu"))
        assert found == [
            (("silu", "gelu"), ("out",), Verdict.DECLARED),
            (("silu", "gelu"), ("in",), Verdict.CONFLICT),
            (others, ("out", "in"), Verdict.UNSUPPORTED),
        ]

    def test_only_the_cells_that_were_asked_for(self, matrix: Matrix) -> None:
        """A cell that was not asked for is in no row."""
        (row,) = rows(matrix, AXES, [Cell("gfx950", "bf16", "gelu", "in")])
        assert (row.activations, row.routers, row.state) == (("gelu",), ("in",), LACKING)

    def test_every_cell_is_in_exactly_one_row(self, matrix: Matrix) -> None:
        """No cell is lost or shown twice."""
        shown = [
            Cell(row.arch, row.scheme, activation, router)
            for row in rows(matrix, AXES, matrix.cells)
            for activation in row.activations
            for router in row.routers
        ]
        assert sorted(shown) == sorted(matrix.cells)

    def test_a_shared_row_does_not_name_one_activation(self, matrix: Matrix) -> None:
        """The sentence of a row is true of all its activations."""
        row = rows(matrix, AXES, [Cell("gfx950", "bf16", "relu2", "out")])[0]
        assert row.state.message == "X does not support this activation"

    def test_a_name_within_a_path_is_no_word(self, matrix: Matrix) -> None:
        """Paths, ids and names of kernels are shown as they are: of the first activation, with its name."""
        said = "gfx950/bf16/{0}/out@E5-k2: {0} is wrong, see fmoe/{0}/fmoe_bf16_{0}.csv and 1-{0}, not {0}."
        cells = {
            Cell("gfx950", "bf16", activation, "out"): replace(LACKING, message=said.format(activation))
            for activation in ("silu", "gelu")
        }
        changed = replace(matrix, cells=matrix.cells | cells)
        (row,) = rows(changed, AXES, cells)
        assert row.activations == ("silu", "gelu")
        assert row.state.message == (
            "gfx950/bf16/silu/out@E5-k2: this activation is wrong, see fmoe/silu/fmoe_bf16_silu.csv "
            "and 1-silu, not this activation (shown for silu)."
        )
        (alone,) = rows(changed, AXES, list(cells)[1:])
        assert (alone.activations, "shown for" in str(alone.state.message)) == (("gelu",), False)
        assert "fmoe/gelu/fmoe_bf16_gelu.csv" in str(alone.state.message)


class TestWords:
    """`level_words`, `count_verdicts` and `never_run`."""

    def test_levels_in_words(self) -> None:
        """Each level that was run is named with how it ended; none is its own word."""
        assert level_words(LACKING) == "declared yes, inventory no"
        assert level_words(UNKNOWN) == "never tried"
        odd = replace(LACKING, levels={Level.INVENTORY: "not_run", Level.HARDWARE: "partial 1/3"})
        assert level_words(odd) == "inventory not shown, hardware partial 1/3"

    def test_counts(self, matrix: Matrix) -> None:
        """Every cell of an arch is counted once."""
        counts = count_verdicts(matrix, "gfx950")
        assert counts[Verdict.DECLARED] == counts[Verdict.CONFLICT] == 2
        assert sum(counts.values()) == 8 * 12 * 2

    def test_levels_that_were_never_run(self, matrix: Matrix) -> None:
        """What has no record is named."""
        assert Level.HARDWARE in never_run(matrix)
        assert Level.INVENTORY not in never_run(matrix)


class TestPage:
    """`page.render`."""

    def test_says_how_strong_the_evidence_is(self, matrix: Matrix) -> None:
        """Levels that were looked at and that never were are named, and the best verdict put in its place."""
        text = page.render(matrix, AXES)
        tried, untried = text.split("Never tried for this release:")
        assert "**inventory**" in tried
        assert "**hardware**" in untried.split("## At a glance")[0]
        assert "For no cell of this release were the numbers of all its kernels checked." in text

    def test_does_not_belittle_checked_numbers(self, matrix: Matrix) -> None:
        """Where hardware validated a cell the page does not say that nothing was checked."""
        cell = Cell("gfx950", "bf16", "silu", "out")
        cells = matrix.cells | {cell: replace(DECLARED, verdict=Verdict.VALIDATED)}
        assert "For no cell of this release" not in page.render(replace(matrix, cells=cells), AXES)

    def test_every_row_and_its_evidence_is_there(self, matrix: Matrix) -> None:
        """Reason, kernels and evidence of a row stand in one line, with bars that do not break the table."""
        text = page.render(matrix, AXES)
        assert (
            "| bf16 | silu, gelu | input | conflict | declared yes, inventory no | None \\| at all." in text
        )
        assert "asm (3 objects), ck (built on first use)" in text
        assert "[E1](#e1) [E2](#e2)" in text
        assert "../../../reports/r/inventory-gfx950.json" in text

    def test_glance_shows_both_places_of_the_router_weight(self, matrix: Matrix) -> None:
        """Where the two verdicts differ both are shown, the output's first."""
        assert "declared / conflict" in page.render(matrix, AXES)

    def test_another_subject_has_a_section_of_its_own(self, matrix: Matrix) -> None:
        """What a second subject does is shown apart, archs of which the same is said in one row."""
        peer = PeerState({Level.DECLARED: "pass", Level.CONTRACT: "fail"}, "Known: situ-odd.")
        asked = [Cell(arch, "bf16", "situ", "out") for arch in ("gfx942", "gfx950")]
        cells = matrix.cells | {c: replace(matrix.cells[c], peers={"vllm@1": peer}) for c in asked}
        differences = {"vllm@1": {"situ-odd": "SiTU is odd."}}
        text = page.render(replace(matrix, cells=cells, differences=differences), AXES)
        section = text.split("\n## vllm@1, held against the same contract")[1].split("\n## ")[0]
        row = "| gfx942, gfx950 | bf16 | situ | output | declared yes, contract no | Known: situ-odd. |"
        assert row in section
        assert "| situ-odd | SiTU is odd. |" in section
        assert "[vllm@1](#vllm1-held-against-the-same-contract)" in text

    def test_what_is_known_of_single_inputs_is_shown(self, matrix: Matrix) -> None:
        """Entries of the ledger with their numbers of inputs stand beside the verdict, unless refused."""
        known = {"odd-pads": 3, "odd-limit": 1}
        assert page.why(replace(DECLARED, known=known)).startswith(
            "Known of single inputs: odd-pads (3), odd-limit (1). Kernels:"
        )
        assert "odd-pads" not in page.why(replace(refused("relu2"), known=known))
        shown = replace(matrix, cells=matrix.cells | {Cell("gfx950", "bf16", "silu", "out"): DECLARED})
        assert "odd-pads" not in page.render(shown, AXES)
        cells = shown.cells | {Cell("gfx950", "bf16", "silu", "out"): replace(DECLARED, known=known)}
        assert "odd-pads (3)" in page.render(replace(shown, cells=cells), AXES)

    def test_findings_are_listed(self, matrix: Matrix) -> None:
        """A finding in the release is on its page; a release without says so."""
        assert "| wrong-arch | hsa/gfx950/a.csv:3 | It is for gfx942. | new |" in page.render(matrix, AXES)
        assert "None: sources" in page.render(replace(matrix, findings=()), AXES)

    def test_what_is_wrong_in_the_same_words_is_one_row(self, matrix: Matrix) -> None:
        """A finding on two boards is one row that names both."""
        findings = tuple(
            KnownFinding("no-kernel", board, "none", None) for board in ("gfx942:80", "gfx942:304")
        )
        text = page.render(replace(matrix, findings=findings), AXES)
        assert "| no-kernel | gfx942:80, gfx942:304 | none | new |" in text

    def test_tables_are_well_formed(self, matrix: Matrix) -> None:
        """Every line of a table has as many cells as its header."""
        for block in re.findall(r"(?:^\|.*\n?)+", page.render(matrix, AXES), flags=re.MULTILINE):
            counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(counts) == 1, block

    def test_objects_that_compute_wrong_are_counted(self, matrix: Matrix) -> None:
        """A swept release says of each arch how many objects are wrong; one that was not is silent."""
        swept = [
            Line(f"{arch}/fmoe/x_{number}", status, "", "", "", "", reason)
            for arch, statuses in {
                "gfx942": [("wrong", "few ()"), ("right", ""), ("wrong", "few ()"), ("not executable", "")],
                "gfx950": [("right", ""), ("wrong", "odd ()")],
            }.items()
            for number, (status, reason) in enumerate(statuses)
        ]
        text = page.render(matrix, AXES, swept)
        assert (
            "In the emulator, at small shapes, 2 of 4 objects of gfx942 computed wrong, and 1 could not be "
            "executed; 0 of 2 objects of gfx950 computed wrong, 1 more at a hidden size that is an odd "
            "multiple of 256. See"
        ) in text
        assert "(../../../reports/isa/0.1.7.csv)" in text
        assert "computed wrong" not in page.render(matrix, AXES)


class TestRead:
    """`sweep.read`."""

    def test_a_release_without_a_sweep_has_no_table(self, tmp_path: Path) -> None:
        """The table is that of the very version, or None."""
        (tmp_path / "0.1.7.csv").write_text(to_csv([]) + "gfx942/fmoe/x,wrong,,,,,odd\n", encoding="utf-8")
        assert read(tmp_path, "0.1.7") == [Line("gfx942/fmoe/x", "wrong", "", "", "", "", "odd")]
        assert read(tmp_path, "0.1.8") is None
