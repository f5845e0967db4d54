"""Explaining a cell: the chain of evidence, in words, by the same rules as the matrix."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from aiter_conformance import cli, evidence, store
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.errors import UsageError
from aiter_conformance.evidence import Evidence, Level, Loaded, ReleaseId
from aiter_conformance.explain import explain, to_text
from aiter_conformance.ledgerfile import load_ledger, parse_ledger
from aiter_conformance.matrix import build
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.release.samples import sample_files, write_wheel
from aiter_conformance.runner import COLLECTED
from aiter_conformance.verdicts import Verdict

ROOT = Path(__file__).parents[2]
CELL = Cell("gfx942", "fp8-block", "silu", "out")
RELEASE = ReleaseId("0.1.19", "sha256:" + "0" * 64, "git")
PASS = Outcome(Kind.PASS)
TRACED = Outcome(
    Kind.FAIL,
    Reason.SPLIT_K_TOO_FINE,
    "One K tile is left.",
    {
        "kernels": {"ck": 2},
        "tuned": "1/2",
        "inputs": {
            "many": {"M=1": "1:ck in fp8, tuned", "M=16": "1:ck in fp8, default; wrong: split-k-too-fine"}
        },
    },
)
LEDGER = parse_ledger(
    """
[[entry]]
id = "one-tile"
title = "Split K leaves one tile"
upstream = "ROCm/aiter#3997"
effect = "expected-fail"
reason = "split-k-too-fine"
cells = ["gfx942/fp8-block/*"]
levels = ["trace"]
boards = ["gfx942:304"]
"""
)


def records(outcomes: dict[tuple[Level, str], Outcome], subject: str = "impl@0.1.0") -> list[Loaded]:
    """Return records of one cell, by level and board."""
    made: list[Loaded] = []
    for (level, board), outcome in outcomes.items():
        about_subject = not level.about_release or level is Level.TRACE
        one = Evidence(
            level=level,
            board=board,
            subject=subject if about_subject else None,
            release=RELEASE if level.about_release else None,
            observed="2026-01-02",
            harness="0.1.0",
            environment={},
            outcomes={CELL: outcome},
        )
        made.append(Loaded(one, one.path.as_posix(), f"sha256:{len(made):064x}"))
    return made


BROKEN = {
    (Level.TRACE, "gfx942:304"): TRACED,
    (Level.DECLARED, "gfx942"): PASS,
    (Level.TRACE, "gfx942:80"): PASS,
}


class TestExplain:
    """`explain`."""

    def test_the_chain(self) -> None:
        """Every level that looked, weakest first and in no order of records, and those that did not."""
        found = explain(CELL, records(BROKEN), "0.1.19", "impl@0.1.0", ())
        assert [(step.level, step.board) for step in found.steps] == [
            (Level.DECLARED, "gfx942"),
            (Level.TRACE, "gfx942:304"),
            (Level.TRACE, "gfx942:80"),
        ]
        assert found.never == tuple(x for x in Level if x not in (Level.DECLARED, Level.TRACE))
        assert found.steps[1].by == "impl@0.1.0, AITER 0.1.19, harness 0.1.0, 2026-01-02"

    def test_the_rule(self) -> None:
        """The verdict with the rule that applied and those before it that did not."""
        found = explain(CELL, records(BROKEN), "0.1.19", "impl@0.1.0", ())
        assert (found.verdict, found.known) == (Verdict.CONFLICT, None)
        assert found.applied == "the leaf does not refuse it, and a level is broken"
        assert [verdict for verdict, _ in found.passed_over] == [Verdict.KNOWN_BAD]

    def test_the_ledger(self) -> None:
        """An entry that explains the failure is named, and is why the first rule applies."""
        found = explain(CELL, records(BROKEN), "0.1.19", "impl@0.1.0", LEDGER)
        assert (found.verdict, found.passed_over) == (Verdict.KNOWN_BAD, ())
        assert found.known is LEDGER[0]

    def test_what_was_not_checked(self) -> None:
        """Kernels that are launched and not modelled are named; with none the cell is modelled."""
        seen = {
            (Level.DECLARED, "gfx942"): PASS,
            (Level.REFERENCE, "gfx942"): Outcome(Kind.PASS, details={"families": ["ck"]}),
            (Level.TRACE, "gfx942:80"): Outcome(Kind.PASS, details={"kernels": {"ck": 1}}),
        }
        found = explain(CELL, records(seen), "0.1.19", "impl@0.1.0", ())
        assert (found.verdict, found.unchecked) == (Verdict.MODELLED, None)
        seen[Level.TRACE, "gfx942:304"] = Outcome(Kind.PASS, details={"kernels": {"asm-stage1": 1}})
        found = explain(CELL, records(seen), "0.1.19", "impl@0.1.0", ())
        assert found.verdict is Verdict.DECLARED
        assert "kernels that are not modelled: asm-stage1." in " ".join(to_text(found).split())

    def test_another_subject_is_left_aside(self) -> None:
        """What another subject did is no link of the chain."""
        more = records({(Level.DECLARED, "gfx942"): Outcome(Kind.REFUSED, Reason.SCHEME, "no")}, "vllm@1")
        assert explain(CELL, records(BROKEN) + more, "0.1.19", "impl@0.1.0", ()) == explain(
            CELL, records(BROKEN), "0.1.19", "impl@0.1.0", ()
        )

    def test_no_evidence_is_an_error(self) -> None:
        """Nothing is explained by nothing."""
        with pytest.raises(UsageError, match=r"evidence of release 0\.1\.20 must be there"):
            explain(CELL, records(BROKEN), "0.1.20", "impl@0.1.0", ())

    def test_it_agrees_with_the_matrix(self) -> None:
        """For every cell of the newest published release the verdict is the matrix's, by its own evidence."""
        versions = [path.name for path in (ROOT / "matrices" / "published").iterdir() if path.is_dir()]
        version = max(versions, key=lambda name: (name.startswith("main"), name))
        loaded, ledger = evidence.load(ROOT / "reports"), load_ledger()
        built = build(loaded, version, "impl@0.1.0", ledger)
        cells = load_axes().cells()[::7]
        assert {cell: explain(cell, loaded, version, "impl@0.1.0", ledger).verdict for cell in cells} == {
            cell: built.cells[cell].verdict for cell in cells
        }


class TestText:
    """`to_text`."""

    def test_in_words(self) -> None:
        """Question, answer, what was seen and by what, the entry, and a command for each observation."""
        text = " ".join(to_text(explain(CELL, records(BROKEN), "0.1.19", "impl@0.1.0", LEDGER)).split())
        for part in (
            "gfx942/fp8-block/silu/out with AITER 0.1.19, subject impl@0.1.0: known-bad",
            "Rule: a level is broken as an entry of the ledger says.",
            "Known: one-tile: Split K leaves one tile (ROCm/aiter#3997).",
            "trace on gfx942:304: fail (split-k-too-fine)",
            "said: One K tile is left.",
            "seen: kernels ck; tuned 1/2; many M=16: 1:ck in fp8, default; wrong: split-k-too-fine",
            "trace on gfx942:80: yes",
            "reports/0.1.19/trace-gfx942-304-impl@0.1.0.json",
            "Never tried: contract, reference, inventory, compile, isa, hardware.",
            "aiter-conformance trace run git:DIR@v0.1.19 --board gfx942:304",
        ):
            assert part in text

    @pytest.mark.parametrize("level", [level for level in Level if level is not Level.COMPILE])
    def test_every_level_can_be_seen_again(self, level: Level) -> None:
        """Whichever level looked, there is a command of this harness that looks again."""
        seen = {(Level.DECLARED, "gfx942"): PASS, (Level.INVENTORY, "gfx942"): PASS, (level, "gfx942"): PASS}
        found = explain(CELL, records(seen), "0.1.19", "impl@0.1.0", ())
        assert len(found.commands) == len(seen)
        for command in found.commands:
            noun, verb = command.split()[1:3]
            assert verb in cli.cli.commands[noun].commands  # type: ignore[attr-defined]

    def test_no_command_observes_a_level_that_does_not_run(self) -> None:
        """Level compile cannot be asked for yet, so that nothing offers it."""
        seen = {
            (Level.DECLARED, "gfx942"): PASS,
            (Level.COMPILE, "gfx942"): PASS,
            (Level.ISA, "gfx942"): PASS,
        }
        commands = explain(CELL, records(seen), "0.1.19", "impl@0.1.0", ()).commands
        asked = [command.split("--level ")[1].split()[0] for command in commands if "--level " in command]
        assert asked == ["declared", "isa"]
        assert {*asked} <= {level.value for level in COLLECTED}


class TestCommand:
    """``matrix explain``."""

    @pytest.fixture
    def run(
        self, invoke: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[..., tuple[int, str, str]]:
        """Build a matrix in the folder of the test, and run ``matrix`` there."""
        monkeypatch.chdir(tmp_path)
        run = partial(invoke, "matrix")
        levels: Iterable[str] = ("--level", "declared", "--level", "inventory")
        assert run("build", write_wheel(tmp_path, sample_files()), *levels)[0] == 0
        return run

    def test_it_explains_what_show_shows(self, run: Callable[..., tuple[int, str, str]]) -> None:
        """Verdict, rule and the two levels that were built; --json has the same."""
        cell = "gfx950/bf16/situ/out"
        code, out, _ = run("explain", cell)
        assert (code, out.splitlines()[0]) == (0, f"{cell} with AITER 0.1.99, subject impl@0.1.0: conflict")
        data = json.loads(run("explain", cell, "0.1.99", "--json")[1])
        assert [line.strip() for line in out.splitlines() if "From: " in line] == [
            "From: build/matrices/published/0.1.99."
        ]
        paths = [line.rpartition("; ")[2] for line in out.splitlines() if line.startswith("  by ")]
        assert len(paths) == 2
        assert all(path.startswith("build/reports/") and Path(path).is_file() for path in paths)
        loaded, _ = store.find_matrix(Path(), None)
        assert data["verdict"] == loaded.cells[load_axes().parse_cell(cell)].verdict.value
        assert [step["level"] for step in data["levels"]] == ["declared", "inventory"]

    def test_a_build_goes_before_what_is_published(self, run: Callable[..., tuple[int, str, str]]) -> None:
        """That another matrix is published is said, by explain and by show."""
        published = Path("matrices/published/0.1.99")
        shutil.copytree(f"build/{published}", published)
        said = "build/matrices/published/0.1.99, built here; it goes before matrices/published/0.1.99"
        assert said in " ".join(run("explain", "gfx950/bf16/situ/out")[1].split())
        assert said in run("show", "--verdict", "unsupported")[1]

    @pytest.mark.parametrize("arguments", [("gfx950/bf16/situ",), ("gfx950/bf16/situ/out", "0.9")])
    def test_wrong_usage(self, run: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...]) -> None:
        """No such cell or release: code 2, and what there is."""
        code, out, err = run("explain", *arguments)
        assert (code, out, "must be" in err) == (2, "", True)
