"""Evidence: what is written is what is read, and nothing else is taken for evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aiter_conformance import evidence
from aiter_conformance.axes import Cell, spec_dir
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Evidence, Finding, Level, ReleaseId
from aiter_conformance.outcome import Kind, Outcome, Reason

GOOD = Cell("gfx950", "bf16", "silu", "out")
BAD = Cell("gfx950", "bf16", "situ", "in")
RECORD = Evidence(
    level=Level.INVENTORY,
    board="gfx950",
    subject=None,
    release=ReleaseId("0.1.7", "sha256:" + "0" * 64, "wheel"),
    observed="2026-01-02",
    harness="0.1.0",
    environment={"python": "3.11.7"},
    outcomes={
        GOOD: Outcome(Kind.PASS, details={"kernels": {"asm": 3}}),
        BAD: Outcome(Kind.FAIL, Reason.NO_KERNEL, "There is none."),
    },
    findings=(Finding("wrong-arch", "hsa/gfx950/a.csv:3", "It is for gfx942."),),
)


class TestJson:
    """`to_json` and `from_json`."""

    def test_round_trip(self) -> None:
        """A record survives being written and read."""
        assert evidence.from_json(evidence.to_json(RECORD), "x") == RECORD

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ('"outcome": "fail"', '"outcome": "maybe"'),
            ('"reason": "no-kernel"', '"reason": "because"'),
            (', "message": "There is none."', ""),
            ('"outcome": "pass"', '"outcome": "pass", "reason": "no-kernel", "message": "x"'),
            ('"level": "inventory"', '"level": "guess"'),
            ('"board": "gfx950"', '"board": "../x"'),
            ('"version": "0.1.7"', '"version": "../x"'),
            ('"harness"', '"extra": 1, "harness"'),
            ("evidence/2", "evidence/3"),
        ],
    )
    def test_what_the_schema_does_not_know_is_refused(self, old: str, new: str) -> None:
        """An outcome, reason, level, name or key outside the closed lists is no evidence."""
        text = evidence.to_json(RECORD)
        assert old in text
        with pytest.raises(InfrastructureError, match="x must obey the schema"):
            evidence.from_json(text.replace(old, new), "x")

    def test_an_older_version_is_read(self) -> None:
        """A record as the first version of the schema had it is read, and written as this version has it."""
        text = (Path(__file__).parent / "samples" / "evidence-1.json").read_text(encoding="utf-8")
        assert evidence.from_json(text, "x") == RECORD
        assert '"schema": "aiter-conformance/evidence/2"' in evidence.to_json(evidence.from_json(text, "x"))

    def test_an_older_version_obeys_the_schema_too(self) -> None:
        """What the schema refuses is refused in every version, and an unknown version as well."""
        text = (Path(__file__).parent / "samples" / "evidence-1.json").read_text(encoding="utf-8")
        for old, new in (('"outcome": "pass"', '"outcome": "maybe"'), ("evidence/1", "evidence/0")):
            with pytest.raises(InfrastructureError, match="x must obey the schema"):
                evidence.from_json(text.replace(old, new), "x")

    def test_a_cell_recorded_twice_is_refused(self) -> None:
        """Two outcomes of one cell are a contradiction, not evidence."""
        text = evidence.to_json(RECORD).replace(str(BAD), str(GOOD))
        with pytest.raises(InfrastructureError, match="recorded twice"):
            evidence.from_json(text, "x")

    def test_schema_and_code_know_the_same_words(self) -> None:
        """The published schema lists exactly the levels, outcomes and reasons of the code."""
        schema = json.loads((spec_dir() / "schemas" / "evidence.json").read_text(encoding="utf-8"))
        cell = schema["$defs"]["cell"]["properties"]
        assert schema["properties"]["level"]["enum"] == [level.value for level in Level]
        assert cell["outcome"]["enum"] == [kind.value for kind in Kind]
        assert cell["reason"]["enum"] == [reason.value for reason in Reason]


class TestWriteAndLoad:
    """`write` and `load`."""

    def test_round_trip_through_files(self, tmp_path: Path) -> None:
        """What was written is loaded, with its path and digest."""
        other = replace(RECORD, level=Level.DECLARED, release=None, subject="impl@0.1.0", findings=())
        paths = [evidence.write(record, tmp_path) for record in (RECORD, other)]
        assert [p.relative_to(tmp_path).as_posix() for p in paths] == [
            "0.1.7/inventory-gfx950.json",
            "subject-impl@0.1.0/declared-gfx950.json",
        ]
        loaded = evidence.load(tmp_path)
        assert [item.evidence for item in loaded] == [RECORD, other]
        assert [item.path for item in loaded] == [p.relative_to(tmp_path).as_posix() for p in paths]

    def test_a_record_that_is_not_plain_json_is_not_written(self, tmp_path: Path) -> None:
        """A tuple would come back as a list: nothing is written."""
        record = replace(RECORD, outcomes={GOOD: Outcome(Kind.PASS, details={"kernels": (1, 2)})})
        with pytest.raises(InfrastructureError, match="survive being written"):
            evidence.write(record, tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_record_in_the_place_of_another_is_refused(self, tmp_path: Path) -> None:
        """A copied or renamed record would count twice."""
        path = evidence.write(RECORD, tmp_path)
        path.with_name("inventory-gfx942.json").write_bytes(path.read_bytes())
        with pytest.raises(InfrastructureError, match=r"lies in 0\.1\.7/inventory-gfx942\.json"):
            evidence.load(tmp_path)

    def test_a_truncated_record_is_refused(self, tmp_path: Path) -> None:
        """Half a record is an error that names the file, never an empty result."""
        path = evidence.write(RECORD, tmp_path)
        path.write_text(path.read_text(encoding="utf-8")[:200], encoding="utf-8")
        with pytest.raises(InfrastructureError, match=r"0\.1\.7/inventory-gfx950\.json must be JSON"):
            evidence.load(tmp_path)


class TestOutcome:
    """`Outcome`."""

    @pytest.mark.parametrize(
        "arguments",
        [
            (Kind.PASS, Reason.NO_KERNEL, "x"),
            (Kind.FAIL,),
            (Kind.FAIL, Reason.NO_KERNEL),
            (Kind.PASS, None, "x"),
        ],
    )
    def test_reason_and_message_come_with_every_kind_but_pass(self, arguments: tuple[object, ...]) -> None:
        """An outcome that does not say why, or a pass that does, cannot be made."""
        with pytest.raises(ValueError, match="reason and message must be given"):
            Outcome(*arguments)  # type: ignore[arg-type]
