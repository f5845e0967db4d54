"""The ledger: what an entry explains, and everything that it must not explain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Evidence, Finding, from_json
from aiter_conformance.ledger import (
    Effect,
    Entry,
    Fault,
    FaultKind,
    Observation,
    Window,
    explains,
    judge,
    not_looked_at,
    without_line,
)
from aiter_conformance.ledgerfile import load_ledger, parse_ledger
from aiter_conformance.levels.trace import each_bucket
from aiter_conformance.outcome import Kind

CELL_ENTRY = """
[[entry]]
id = "wrong-pad"
title = "A pad is doubled twice"
upstream = "ROCm/aiter#1"
effect = "expected-fail"
reason = "call-differs"
cells = ["gfx950/mxfp4-*/swigluoai/*"]
releases = [{ from = "0.1.14", before = "0.1.18" }, { from = "0.1.19.post1" }]
bound = 0.5
until = "0.1.21"
"""
FINDING_ENTRY = """
[[entry]]
id = "gone-module"
title = "A module is gone"
upstream = "unreported"
page = "reports/findings/gone.py"
effect = "expected-fail"
reason = "import-unresolved"
paths = ["aiter/ops/*.py"]
about = "kernels.gone"
"""
FAILED = Observation(
    "0.1.14", cell="gfx950/mxfp4-w4a16/swigluoai/out", kind=Kind.FAIL, reason="call-differs", size=0.25
)
FOUND = Observation(
    "0.1.14", path="aiter/ops/x.py", reason="import-unresolved", message="no aiter.kernels.gone there"
)


def traces(folder: Path) -> list[Evidence]:
    """Return the records of level trace on gfx950 in a folder of reports."""
    files = sorted(folder.rglob("trace-gfx950-256-*.json"))
    return [from_json(file.read_text(encoding="utf-8"), file.name) for file in files]


def explained(trace: Evidence, finding: Finding) -> Entry | None:
    """Return the entry of the project's ledger that explains a finding of a record."""
    assert trace.release is not None
    seen = Observation(trace.release.version, path=finding.path, reason=finding.code, message=finding.message)
    return explains(load_ledger(), seen)


class TestProjectLedger:
    """The project's own ledger."""

    def test_it_can_be_read_and_its_pages_are_there(self, request: pytest.FixtureRequest) -> None:
        """Every entry obeys the rules, and a finding that nobody reported has its page in the repository."""
        entries = load_ledger()
        assert entries
        pages = [request.config.rootpath / entry.page for entry in entries if entry.page]
        assert [page.name for page in pages if not page.is_file()] == []

    def test_findings_of_a_trace_that_cells_explain_are_known(self, request: pytest.FixtureRequest) -> None:
        """w4a16 that reads fp8, and CK asked for what it has not, are known; w4a16 that reads fp4 is new."""
        found = {
            finding.message: None if entry is None else entry.id
            for trace in traces(request.config.rootpath / "reports" / "0.1.20.post1")
            for finding in trace.findings
            if finding.code == "activations-quantised" or "heuristic dispatch" in finding.message
            for entry in [explained(trace, finding)]
        }
        quantised = {message: entry for message, entry in found.items() if "of mxfp4-w4a16 reads" in message}
        assert {entry for message, entry in quantised.items() if "reads fp8" in message} == {
            "w4a16-reads-fp8-from-256-tokens"
        }
        assert {entry for message, entry in quantised.items() if "reads fp4" in message} == {None}
        dispatched = {message: entry for message, entry in found.items() if message not in quantised}
        assert len(dispatched) == 3
        assert set(dispatched.values()) == {"w4a16-left-to-ck"}

    def test_what_a_finding_is_known_for_is_where_cells_show_it(self, request: pytest.FixtureRequest) -> None:
        """Findings name no cells: where one is known, the cells of its record are as its entry says."""
        known: dict[str, int] = {}
        for trace in traces(request.config.rootpath / "reports"):
            entries = {entry.id for f in trace.findings if (entry := explained(trace, f)) is not None}
            buckets = [
                (cell, int(tokens.removeprefix("M=")), line)
                for cell, outcome in trace.outcomes.items()
                if cell.scheme == "mxfp4-w4a16" and cell.activation != "situ"
                for shared in outcome.details.get("inputs", {}).values()
                for tokens, line in each_bucket(shared)
            ]
            if "w4a16-reads-fp8-from-256-tokens" in entries:
                known["fp8"] = known.get("fp8", 0) + 1
                assert [b for b in buckets if " in fp8," in b[2] and b[1] < 256] == []
            if "w4a16-left-to-ck" in entries:
                known["ck"] = known.get("ck", 0) + 1
                silu = [b for b in buckets if str(b[0]) == "gfx950/mxfp4-w4a16/silu/out"]
                assert [
                    b for b in silu if "no-kernel" in b[2] and (" in bf16," not in b[2] or b[1] >= 256)
                ] == []
        assert known == {"fp8": 10, "ck": 7}


class TestParseLedger:
    """`parse_ledger`."""

    def test_an_entry(self) -> None:
        """Every key of an entry is read; what is left out has its neutral value."""
        cells, findings = parse_ledger(CELL_ENTRY + FINDING_ENTRY)
        assert (cells.id, cells.upstream, cells.page) == ("wrong-pad", "ROCm/aiter#1", None)
        assert (cells.effect, cells.reason, cells.bound) == (Effect.EXPECTED_FAIL, "call-differs", 0.5)
        assert cells.releases == (Window("0.1.14", "0.1.18"), Window("0.1.19.post1", None))
        assert (cells.cells, cells.cases, cells.paths) == (("gfx950/mxfp4-*/swigluoai/*",), (), ())
        assert cells.until == "0.1.21"
        assert (findings.page, findings.paths) == ("reports/findings/gone.py", ("aiter/ops/*.py",))
        assert (findings.about, findings.bound, findings.until) == ("kernels.gone", None, None)

    def test_an_empty_ledger(self) -> None:
        """Nothing known is a good ledger."""
        assert parse_ledger("# nothing\n") == ()

    @pytest.mark.parametrize(
        ("find", "put", "said"),
        [
            ('id = "wrong-pad"', 'id = "Wrong Pad"', "small letters"),
            ('id = "wrong-pad"', "", "id must be a text"),
            ('title = "A pad is doubled twice"', 'title = ""', "title must be a text"),
            ("ROCm/aiter#1", "issue 1", "owner/repo#number"),
            ("ROCm/aiter#1", "unreported", "must have a page"),
            ("expected-fail", "ignore", "effect must be one of"),
            ("call-differs", "wrong-arch", "one that a cell can fail with"),
            ('cells = ["gfx950/mxfp4-*/swigluoai/*"]', "", "about cells, about paths"),
            ('cells = ["', 'paths = ["x"]\ncells = ["', "code of a finding"),
            ('cells = ["', 'boards = ["gfx950:256"]\npaths = ["', "restrict cells, and it has none"),
            ('cells = ["gfx950/mxfp4-*/swigluoai/*"]', "cells = [1]", "cells must be a list of texts"),
            ('from = "0.1.14"', 'from = "0.1.18"', "must not be empty"),
            ('from = "0.1.14"', 'from = "soon"', "PEP 440"),
            ('from = "0.1.14", ', "", "must be a list of"),
            ("bound = 0.5", "bound = -1", "positive number"),
            ("bound = 0.5", "bound = nan", "positive number"),
            ("bound = 0.5", "bound = true", "positive number"),
            ("bound = 0.5", "limit = 0.5", "keys must be known"),
            ('until = "0.1.21"', 'until = "later"', "PEP 440"),
            ("[[entry]]", "[entry]", "list of"),
            ("[[entry]]", "more = 1\n[[entry]]", "nothing else"),
            ("[[entry]]", "[[entry", "must be TOML"),
        ],
    )
    def test_a_broken_entry(self, find: str, put: str, said: str) -> None:
        """A broken rule is an error that says which; nothing is taken on trust."""
        assert CELL_ENTRY.count(find) == 1
        with pytest.raises(InfrastructureError, match=said):
            parse_ledger(CELL_ENTRY.replace(find, put))

    def test_an_id_twice(self) -> None:
        """Two entries of one name are an error."""
        with pytest.raises(InfrastructureError, match="'wrong-pad' twice"):
            parse_ledger(CELL_ENTRY + CELL_ENTRY)


class TestJudge:
    """`judge` and `explains`."""

    def test_an_entry_for_a_level_leaves_the_others_alone(self) -> None:
        """A pass at another level is no unexpected pass, and another level's failure is not explained."""
        (entry,) = parse_ledger(CELL_ENTRY.replace("bound = 0.5", 'levels = ["reference"]\nbound = 0.5'))
        assert explains([entry], replace(FAILED, level="reference")) is entry
        assert explains([entry], replace(FAILED, level="trace")) is None
        passed = replace(FAILED, kind=Kind.PASS, reason=None, level="inventory")
        assert judge([entry], [passed], full=False) == []

    def test_an_unknown_level_is_refused(self) -> None:
        """A misspelt level would never match."""
        with pytest.raises(InfrastructureError, match="levels must be known"):
            parse_ledger(CELL_ENTRY.replace("bound = 0.5", 'levels = ["refrence"]\nbound = 0.5'))

    @pytest.mark.parametrize(
        "seen", [FAILED, FOUND, replace(FAILED, release="main-20260801-00000000", size=0.5)]
    )
    def test_what_an_entry_explains(self, seen: Observation) -> None:
        """A failure just as the entry says, or a finding of its code in its files, is explained."""
        entries = parse_ledger((CELL_ENTRY + FINDING_ENTRY).replace('until = "0.1.21"', ""))
        assert judge(entries, [seen], full=False) == []
        assert explains(entries, seen) is not None

    @pytest.mark.parametrize(
        ("seen", "kind"),
        [
            (replace(FAILED, kind=Kind.PASS, reason=None, size=None), FaultKind.UNEXPECTED_PASS),
            (replace(FAILED, reason="no-kernel"), FaultKind.OTHER_REASON),
            (replace(FAILED, size=0.75), FaultKind.BEYOND_BOUND),
            (replace(FAILED, size=float("nan")), FaultKind.BEYOND_BOUND),
            (replace(FAILED, size=None), FaultKind.BEYOND_BOUND),
            (replace(FAILED, release="0.1.21"), FaultKind.EXPIRED),
            (replace(FAILED, release="main-20260822-00000000"), FaultKind.EXPIRED),
        ],
    )
    def test_what_an_entry_must_not_hide(self, seen: Observation, kind: FaultKind) -> None:
        """A success, another reason, a larger failure and one after its release are faults."""
        entries = parse_ledger(CELL_ENTRY)
        assert [(fault.entry, fault.kind) for fault in judge(entries, [seen], full=False)] == [
            ("wrong-pad", kind)
        ]
        assert explains(entries, seen) is None

    @pytest.mark.parametrize(
        "seen",
        [
            replace(FAILED, release="0.1.18"),
            replace(FAILED, release="0.1.19"),
            replace(FAILED, release="0.1.13"),
            replace(FAILED, cell="gfx942/mxfp4-w4a16/swigluoai/out"),
            replace(FOUND, path="aiter/fused_moe.py"),
            replace(FOUND, message="no aiter.kernels.other there"),
            replace(FOUND, reason="source-unreadable"),
        ],
    )
    def test_what_an_entry_is_not_about(self, seen: Observation) -> None:
        """Other releases, cells, files and findings are none of its business."""
        entries = parse_ledger(CELL_ENTRY + FINDING_ENTRY)
        assert judge(entries, [seen], full=False) == []
        assert explains(entries, seen) is None

    def test_cases(self) -> None:
        """An entry can be about some cases of its cells, and is then not about the cell as a whole."""
        (entry,) = parse_ledger(CELL_ENTRY + 'cases = ["*-M1-*"]\n')
        assert FAILED.cell is not None
        assert entry.matches(replace(FAILED, case=f"{FAILED.cell}@E8-k2-K256-N256-M1-tp1-ep1-hp0-ip0-s0"))
        assert not entry.matches(
            replace(FAILED, case=f"{FAILED.cell}@E8-k2-K256-N256-M64-tp1-ep1-hp0-ip0-s0")
        )
        assert not entry.matches(FAILED)

    def test_one_input_beside_its_cell(self) -> None:
        """What one input does apart from its cell is for entries that name cases alone."""
        seen = replace(FAILED, case=f"{FAILED.cell}@M1", reason="numbers-differ")
        whole = parse_ledger(CELL_ENTRY)
        assert [fault.kind for fault in judge(whole, [seen], full=False)] == [FaultKind.OTHER_REASON]
        assert judge(whole, [replace(seen, alone=True)], full=False) == []
        (named,) = parse_ledger(CELL_ENTRY + 'cases = ["*@M1"]\n')
        assert named.matches(replace(seen, alone=True))

    def test_a_quarantined_case_must_not_run(self) -> None:
        """In quarantine any outcome but skipped and not run is a fault."""
        entries = parse_ledger(CELL_ENTRY.replace("expected-fail", "quarantine"))
        assert judge(entries, [replace(FAILED, kind=Kind.SKIPPED)], full=True) == []
        (fault,) = judge(entries, [FAILED], full=True)
        assert fault.kind is FaultKind.LAUNCHED

    @pytest.mark.parametrize("kind", [Kind.NOT_RUN, Kind.SKIPPED])
    def test_what_did_not_run_says_nothing(self, kind: Kind) -> None:
        """A case that did not run is neither a success nor a failure."""
        assert judge(parse_ledger(CELL_ENTRY), [replace(FAILED, kind=kind)], full=False) == []

    def test_an_entry_without_a_match(self) -> None:
        """With everything looked at, an entry without a match is a fault; with a part, it is not."""
        entries = parse_ledger(CELL_ENTRY + FINDING_ENTRY)
        assert judge(entries, [FAILED], full=False) == []
        message = "an entry must explain something that was observed (nothing matches it)"
        assert judge(entries, [FAILED], full=True) == [Fault("gone-module", FaultKind.UNMATCHED, message)]

    def test_an_entry_about_releases_that_nobody_looked_at(self) -> None:
        """It is no fault, but is named; one observation of such a release makes it one."""
        entries = parse_ledger(CELL_ENTRY)
        elsewhere = replace(FAILED, release="0.1.13")
        assert judge(entries, [elsewhere], full=True) == []
        assert not_looked_at(entries, [elsewhere]) == list(entries)
        looked_at = replace(elsewhere, release="0.1.14", cell="gfx942/bf16/silu/out")
        assert [fault.kind for fault in judge(entries, [elsewhere, looked_at], full=True)] == [
            FaultKind.UNMATCHED
        ]
        assert not_looked_at(entries, [elsewhere, looked_at]) == []

    def test_an_entry_about_a_level_that_nobody_ran(self) -> None:
        """Looking at other levels of its releases is not looking at it."""
        entries = parse_ledger(CELL_ENTRY.replace("bound = 0.5", 'levels = ["trace"]'))
        seen = replace(FAILED, cell="gfx942/bf16/silu/out", level="inventory")
        assert not_looked_at(entries, [seen]) == list(entries)
        assert not_looked_at(entries, [replace(seen, level="trace")]) == []

    def test_an_entry_about_some_boards(self) -> None:
        """A pass on another board of the arch is no unexpected pass, and its failure is not explained."""
        (entry,) = parse_ledger(CELL_ENTRY + 'boards = ["gfx950:256"]\n')
        passed = replace(FAILED, kind=Kind.PASS, reason=None, size=None)
        assert judge([entry], [replace(passed, board="gfx950:128")], full=False) == []
        assert explains([entry], replace(FAILED, board="gfx950:128")) is None
        assert explains([entry], replace(FAILED, board="gfx950:256")) is entry
        (fault,) = judge([entry], [replace(passed, board="gfx950:256")], full=False)
        assert fault.kind is FaultKind.UNEXPECTED_PASS

    def test_a_failure_that_speaks_of_something_else(self) -> None:
        """An entry that names a cause does not explain another failure of the same reason."""
        (entry,) = parse_ledger(CELL_ENTRY + 'about = "n_pad_zeros"\n')
        assert explains([entry], replace(FAILED, message="n_pad_zeros is 768")) is entry
        (fault,) = judge([entry], [replace(FAILED, message="k_pad_zeros is 384")], full=False)
        assert fault.kind is FaultKind.OTHER_REASON

    def test_an_entry_about_cells_and_findings(self) -> None:
        """One entry explains a trace's finding on a board and the cells that fail by it."""
        (entry,) = parse_ledger(
            CELL_ENTRY.replace("call-differs", "no-kernel").replace("bound = 0.5", "")
            + 'paths = ["gfx950:*"]\nabout = "situv2"\n'
        )
        message = "no kernel for situv2"
        assert explains([entry], replace(FAILED, reason="no-kernel", size=None, message=message)) is entry
        found = Observation("0.1.14", path="gfx950:256", reason="no-kernel", message=message)
        assert explains([entry], found) is entry

    @pytest.mark.parametrize("kind", FaultKind)
    def test_every_fault_comes_with_advice(self, kind: FaultKind) -> None:
        """Whoever reads a fault is told what to do, in one sentence."""
        assert kind.advice.endswith(".")


class TestWithoutLine:
    """`without_line`."""

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("aiter/fused_moe.py:12", "aiter/fused_moe.py"),
            ("setup.py:3", "setup.py"),
            ("aiter/fused_moe.py", "aiter/fused_moe.py"),
            ("gfx942:304", "gfx942:304"),
            ("stale-shared-gates", "stale-shared-gates"),
        ],
    )
    def test_a_line_is_no_part_of_it(self, path: str, expected: str) -> None:
        """The line of a file is dropped; the CUs of a board are no line."""
        assert without_line(path) == expected
