"""The matrix: the table of verdicts, and what is derived from evidence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aiter_conformance import matrixfile
from aiter_conformance.axes import Cell, load_axes, spec_dir
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.evidence import Evidence, Finding, Level, Loaded, ReleaseId
from aiter_conformance.ledgerfile import parse_ledger
from aiter_conformance.matrix import PeerState, build
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.verdicts import EXECUTED, Observations, Verdict, judge

PASS = Outcome(Kind.PASS)
REFUSED = Outcome(Kind.REFUSED, Reason.SCHEME, "no")
FAIL = Outcome(Kind.FAIL, Reason.NO_KERNEL, "none")
NOT_RUN = Outcome(Kind.NOT_RUN, Reason.BUILT_ON_FIRST_USE, "later")
CELL = Cell("gfx950", "bf16", "silu", "out")
RELEASE = ReleaseId("0.1.7", "sha256:" + "0" * 64, "wheel")

LEDGER = parse_ledger(
    """
[[entry]]
id = "no-kernel-there"
title = "No kernel was shipped"
upstream = "ROCm/aiter#1"
effect = "expected-fail"
reason = "no-kernel"
cells = ["gfx950/bf16/*"]
releases = [{ from = "0.1.5", before = "0.1.8" }]

[[entry]]
id = "odd-file"
title = "A file is odd"
upstream = "ROCm/aiter#2"
effect = "expected-fail"
reason = "wrong-arch"
paths = ["hsa/*"]
"""
)
ENTRY = LEDGER[0]

# (levels and their outcomes, verdict, why)
TABLE = [
    ({}, Verdict.UNKNOWN, "nothing was observed"),
    ({Level.DECLARED: PASS}, Verdict.DECLARED, "the leaf says yes"),
    ({Level.DECLARED: PASS, Level.INVENTORY: PASS}, Verdict.DECLARED, "a shipped kernel proves no number"),
    ({Level.DECLARED: PASS, Level.INVENTORY: NOT_RUN}, Verdict.DECLARED, "not run is no evidence against"),
    ({Level.DECLARED: PASS, Level.INVENTORY: FAIL}, Verdict.CONFLICT, "declared, and no kernel"),
    (
        {Level.DECLARED: PASS, Level.INVENTORY: REFUSED},
        Verdict.CONFLICT,
        "declared, and the call is not taken",
    ),
    ({Level.DECLARED: FAIL}, Verdict.CONFLICT, "the leaf says otherwise than the contract"),
    ({Level.DECLARED: REFUSED, Level.INVENTORY: PASS}, Verdict.UNSUPPORTED, "shipping is not working"),
    ({Level.DECLARED: REFUSED, Level.INVENTORY: FAIL}, Verdict.UNSUPPORTED, "refused is the first reason"),
    ({Level.DECLARED: REFUSED, Level.ISA: PASS}, Verdict.UNCLAIMED, "refused, but its kernel works"),
    ({Level.DECLARED: REFUSED, Level.HARDWARE: PASS}, Verdict.UNCLAIMED, "refused, but it works"),
    (
        {Level.DECLARED: PASS, Level.REFERENCE: PASS},
        Verdict.DECLARED,
        "a model alone says nothing of a release",
    ),
    (
        {Level.DECLARED: PASS, Level.REFERENCE: PASS, Level.TRACE: PASS},
        Verdict.MODELLED,
        "modelled and traced",
    ),
    ({Level.DECLARED: PASS, Level.TRACE: PASS}, Verdict.DECLARED, "a picked kernel proves no number"),
    ({Level.DECLARED: PASS, Level.ISA: PASS}, Verdict.EMULATED, "machine code was executed"),
    (
        {Level.DECLARED: PASS, Level.HARDWARE: PASS, Level.ISA: PASS},
        Verdict.VALIDATED,
        "hardware is strongest",
    ),
    ({Level.DECLARED: PASS, Level.HARDWARE: FAIL, Level.ISA: PASS}, Verdict.CONFLICT, "hardware says no"),
    (
        {Level.DECLARED: PASS, Level.HARDWARE: PASS, Level.TRACE: FAIL},
        Verdict.CONFLICT,
        "any level can say no",
    ),
]


class TestJudge:
    """`judge`."""

    @pytest.mark.parametrize(("levels", "verdict"), [row[:2] for row in TABLE], ids=[row[2] for row in TABLE])
    def test_table(self, levels: dict[Level, Outcome], verdict: Verdict) -> None:
        """Each row of the table of verdicts."""
        assert judge(Observations({level: [outcome] for level, outcome in levels.items()})) is verdict

    def test_only_good_verdicts_have_strength(self) -> None:
        """Validated is stronger than emulated, modelled and declared; the others are not good at all."""
        good = [Verdict.DECLARED, Verdict.MODELLED, Verdict.EMULATED, Verdict.VALIDATED]
        assert sorted(good, key=lambda verdict: verdict.strength) == good
        assert {v for v in Verdict if v.strength == 0} == set(Verdict) - set(good)

    @pytest.mark.parametrize(("level", "verdict"), list(EXECUTED.items()), ids=str)
    def test_a_level_that_executes_kernels_has_its_verdict(self, level: Level, verdict: Verdict) -> None:
        """It speaks for a declared cell, for one that is refused, and against one that fails."""
        assert judge(Observations({Level.DECLARED: [PASS], level: [PASS]})) is verdict
        assert judge(Observations({Level.DECLARED: [REFUSED], level: [PASS]})) is Verdict.UNCLAIMED
        assert judge(Observations({Level.DECLARED: [PASS], level: [FAIL]})) is Verdict.CONFLICT
        assert verdict.strength > Verdict.MODELLED.strength

    def test_every_verdict_is_in_the_table(self) -> None:
        """No verdict is without a row above."""
        assert {row[1] for row in TABLE} | {Verdict.KNOWN_BAD} == set(Verdict)

    def test_known_bad_comes_first(self) -> None:
        """A failure that the ledger explains is known bad, whatever else was seen."""
        seen = {Level.DECLARED: [PASS], Level.INVENTORY: [FAIL], Level.ISA: [PASS]}
        assert judge(Observations(seen, ENTRY)) is Verdict.KNOWN_BAD

    @pytest.mark.parametrize(
        ("launched", "modelled", "verdict"),
        [
            ({"ck": 3}, ["ck"], Verdict.MODELLED),
            ({"ck": 3, "asm-1stage": 1}, ["ck"], Verdict.DECLARED),
            ({"ck": 3}, [], Verdict.DECLARED),
        ],
        ids=["the modelled one", "another one too", "none is modelled"],
    )
    def test_what_is_launched_must_be_what_is_modelled(
        self, launched: dict[str, int], modelled: list[str], verdict: Verdict
    ) -> None:
        """Right numbers of one kernel family say nothing of another that the release picks."""
        seen = {
            Level.DECLARED: [PASS],
            Level.REFERENCE: [Outcome(Kind.PASS, details={"families": modelled})],
            Level.TRACE: [Outcome(Kind.PASS, details={"kernels": launched})],
        }
        assert judge(Observations(seen)) is verdict

    def test_a_level_holds_only_when_every_board_passed(self) -> None:
        """One board that was not run leaves the cell below the level."""
        seen = Observations({Level.DECLARED: [PASS], Level.HARDWARE: [PASS, NOT_RUN]})
        assert judge(seen) is Verdict.DECLARED


def record(level: Level, outcome: Outcome, **changes: object) -> Loaded:
    """Return a loaded record with one outcome."""
    about_release = level.about_release
    made = Evidence(
        level=level,
        board="gfx950",
        subject=None if about_release else "impl@0.1.0",
        release=RELEASE if about_release else None,
        observed="2026-01-02",
        harness="0.1.0",
        environment={},
        outcomes={CELL: outcome},
    )
    made = replace(made, **changes)  # type: ignore[arg-type]
    return Loaded(made, made.path.as_posix(), "sha256:" + "1" * 64)


class TestBuild:
    """`build`."""

    def test_joins_subject_and_release(self) -> None:
        """A cell rests on the records of the subject and of the release, and says what is against it."""
        records = [record(Level.DECLARED, PASS), record(Level.INVENTORY, FAIL)]
        state = build(records, "0.1.7", "impl@0.1.0").cells[CELL]
        assert (state.verdict, state.reason, state.message) == (Verdict.CONFLICT, "no-kernel", "none")
        assert state.levels == {Level.DECLARED: "pass", Level.INVENTORY: "fail"}
        assert state.evidence == (0, 1)

    def test_every_cell_is_there(self) -> None:
        """A cell that was never looked at is unknown, not absent."""
        cells = build([record(Level.INVENTORY, PASS)], "0.1.7", "impl@0.1.0").cells
        assert list(cells) == load_axes().cells()
        assert cells[Cell("gfx942", "bf16", "silu", "out")].verdict is Verdict.UNKNOWN

    def test_other_subjects_and_releases_do_not_decide(self) -> None:
        """Another release is left aside; another subject stands beside the verdict, which is not its own."""
        other_release = replace(RELEASE, version="0.1.8")
        records = [
            record(Level.DECLARED, FAIL, subject="vllm@0.33.0"),
            record(Level.DECLARED, REFUSED, subject="vllm@0.34.0"),
            record(Level.INVENTORY, FAIL, release=other_release),
            record(Level.INVENTORY, PASS),
        ]
        built = build(records, "0.1.7", "impl@0.1.0")
        state = built.cells[CELL]
        assert (state.verdict, state.levels) == (Verdict.UNKNOWN, {Level.INVENTORY: "pass"})
        assert state.peers == {"vllm@0.33.0": PeerState({Level.DECLARED: "fail"}, "none")}
        assert [source.subject for source in built.sources] == ["vllm@0.33.0", "vllm@0.34.0", None]
        assert state.evidence == (2,)

    def test_a_failure_that_the_ledger_explains_is_known(self) -> None:
        """The verdict is known-bad, but not in another release and not for another reason."""
        records = [record(Level.DECLARED, PASS), record(Level.INVENTORY, FAIL)]
        state = build(records, "0.1.7", "impl@0.1.0", LEDGER).cells[CELL]
        assert (state.verdict, "No kernel was shipped" in str(state.message)) == (Verdict.KNOWN_BAD, True)
        other = replace(FAIL, reason=Reason.KERNEL_BROKEN)
        records = [record(Level.DECLARED, PASS), record(Level.INVENTORY, other)]
        assert build(records, "0.1.7", "impl@0.1.0", LEDGER).cells[CELL].verdict is Verdict.CONFLICT
        newer = replace(RELEASE, version="0.1.8")
        records = [record(Level.DECLARED, PASS), record(Level.INVENTORY, FAIL, release=newer)]
        assert build(records, "0.1.8", "impl@0.1.0", LEDGER).cells[CELL].verdict is Verdict.CONFLICT

    def test_findings_say_whether_they_are_known(self) -> None:
        """A finding that an entry explains carries its id; another is new."""
        findings = (
            Finding("wrong-arch", "hsa/gfx950/a.csv:3", "x"),
            Finding("missing-object", "hsa/gfx950/a.csv:4", "y"),
        )
        records = [record(Level.INVENTORY, PASS, findings=findings)]
        built = build(records, "0.1.7", "impl@0.1.0", LEDGER)
        assert [finding.known for finding in built.findings] == ["odd-file (ROCm/aiter#2)", None]

    def test_says_why_a_stronger_level_was_not_run(self) -> None:
        """A cell with nothing against it tells what could not be shown, and the kernels that it has."""
        not_run = replace(NOT_RUN, details={"kernels": {"ck": 0}})
        state = build([record(Level.DECLARED, PASS), record(Level.INVENTORY, not_run)], "0.1.7", "impl@0.1.0")
        assert state.cells[CELL].message == "later"
        assert state.cells[CELL].kernels == {"ck": 0}

    def test_names_the_kernels_that_are_not_modelled(self) -> None:
        """Where numbers are right but for kernels that no model has, the cell says so and names them."""
        reference = Outcome(Kind.PASS, details={"families": ["ck"]})
        emulated = replace(NOT_RUN, message="1 of 2 inputs ran and are right.", details={"ran": 1, "of": 2})

        def message(launched: dict[str, int], *more: Loaded) -> str | None:
            traced = record(Level.TRACE, Outcome(Kind.PASS, details={"kernels": launched}))
            records = [record(Level.DECLARED, PASS), record(Level.REFERENCE, reference), traced, *more]
            return build(records, "0.1.7", "impl@0.1.0").cells[CELL].message

        assert message({"ck": 2}) is None
        said = (
            "The numbers are right with modelled kernels, but the release also picks kernels that are not "
            "modelled: asm-1stage, cktile."
        )
        assert message({"ck": 2, "cktile": 1, "asm-1stage": 3}) == said
        assert message({"ck": 2, "cktile": 1, "asm-1stage": 3}, record(Level.ISA, emulated)) == (
            f"{said} 1 of 2 inputs ran and are right."
        )

    def test_boards_of_one_arch_are_counted(self) -> None:
        """Where boards disagree the level is partial."""
        records = [
            record(Level.TRACE, PASS, board="gfx950:256"),
            record(Level.TRACE, NOT_RUN, board="gfx950:128"),
        ]
        assert build(records, "0.1.7", "impl@0.1.0").cells[CELL].levels == {Level.TRACE: "partial 1/2"}

    def test_inputs_that_ran_are_counted(self) -> None:
        """Where a level could execute some of its inputs, it says how many; that alone makes no verdict."""
        some = replace(NOT_RUN, details={"ran": 3, "of": 5})
        other = replace(PASS, details={"ran": 5, "of": 5})
        records = [record(Level.ISA, some, board="gfx950:256"), record(Level.ISA, other, board="gfx950:128")]
        state = build([record(Level.DECLARED, PASS), *records], "0.1.7", "impl@0.1.0").cells[CELL]
        assert state.levels[Level.ISA] == "ran 8/10"
        assert state.verdict is Verdict.DECLARED

    def test_what_is_known_of_single_inputs_is_kept(self) -> None:
        """Level reference passes but for inputs that the ledger explains: entries, and how many inputs."""
        entry = {"cases": 3, "case": "x", "reason": "numbers-differ", "size": 1.0}
        wrong = replace(PASS, details={"known": {"odd-pads": entry}})
        state = build([record(Level.INVENTORY, PASS), record(Level.REFERENCE, wrong)], "0.1.7", "impl@0.1.0")
        assert state.cells[CELL].known == {"odd-pads": 3}
        assert state.cells[CELL].levels[Level.REFERENCE] == "pass"

    def test_no_evidence_is_an_error(self) -> None:
        """A matrix of nothing is not built."""
        with pytest.raises(UsageError, match=r"evidence of release 0\.1\.9 must be there"):
            build([record(Level.INVENTORY, PASS)], "0.1.9", "impl@0.1.0")

    def test_two_artefacts_of_one_version_are_an_error(self) -> None:
        """Records of different content under one version do not make one matrix."""
        other = replace(RELEASE, identity="sha256:" + "2" * 64)
        records = [record(Level.INVENTORY, PASS), record(Level.TRACE, PASS, release=other)]
        with pytest.raises(InfrastructureError, match="must be about one artefact"):
            build(records, "0.1.7", "impl@0.1.0")


class TestJson:
    """`to_json` and `from_json`."""

    def test_round_trip(self) -> None:
        """A matrix survives being written and read."""
        records = [
            record(Level.DECLARED, PASS),
            record(Level.DECLARED, REFUSED, subject="vllm@0.33.0"),
            record(Level.INVENTORY, FAIL),
            record(Level.REFERENCE, replace(PASS, details={"known": {"odd-pads": {"cases": 2}}})),
            record(Level.ISA, replace(NOT_RUN, details={"ran": 3, "of": 5})),
        ]
        built = build(records, "0.1.7", "impl@0.1.0")
        assert built.cells[CELL].known == {"odd-pads": 2}
        assert built.cells[CELL].levels[Level.ISA] == "ran 3/5"
        assert matrixfile.from_json(matrixfile.to_json(built), "x") == built

    def test_schema_and_code_know_the_same_words(self) -> None:
        """The published schema lists exactly the verdicts and levels of the code."""
        schema = json.loads((spec_dir() / "schemas" / "matrix.json").read_text(encoding="utf-8"))
        cell = schema["properties"]["cells"]["items"]["properties"]
        assert cell["verdict"]["enum"] == [verdict.value for verdict in Verdict]
        assert cell["levels"]["propertyNames"]["enum"] == [level.value for level in Level]
