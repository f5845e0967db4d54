"""What the gate prints: the page of text, Markdown, a summary, JUnit, JSON and stubs for the ledger."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

import pytest

from aiter_conformance import documents
from aiter_conformance.axes import spec_dir
from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.evidence import Level
from aiter_conformance.gate import formats, page, page_causes, stubs
from aiter_conformance.gate.classes import ChangeClass
from aiter_conformance.gate.item import ItemKind
from aiter_conformance.gate.report import Report
from aiter_conformance.ledger import Entry
from aiter_conformance.ledgerfile import parse_ledger
from aiter_conformance.release.samples import code_object

Files = dict[str, bytes]
Gate = Callable[..., Report]
Complete = Callable[[str], tuple[Entry, ...]]
MOE, TUNED = "aiter/fused_moe.py", "aiter/configs/tuned_fmoe.csv"
ENUMS = "csrc/include/aiter_enum.h"
SILU = "hsa/gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_silu.csv"
SWAPPED = "hsa/gfx942/fmoe/silu/silu128.co"
SMALL = "_ZN5aiter48fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x128E"


@pytest.fixture(scope="module")
def changed(release_files: Files) -> Files:
    """A release without the guard, with a renamed parameter and a tuned row for another bucket."""
    moe = (
        release_files[MOE].replace(b" and k_batch >= 2", b"").replace(b"gate_mode=Gate", b"gate_layout=Gate")
    )
    tuned = release_files[TUNED].replace(b"gfx942,304,1024,", b"gfx942,304,2048,")
    return release_files | {MOE: moe, TUNED: tuned}


@pytest.fixture(scope="module")
def report(changed: Files, gate: Gate) -> Report:
    """That release against the good one."""
    return gate(changed)


@pytest.fixture(scope="module")
def same(release_files: Files, gate: Gate) -> Report:
    """A release against itself."""
    return gate(release_files)


@pytest.fixture(scope="module")
def swapped(release_files: Files, gate: Gate) -> Report:
    """A release that has other machine code under the name of one object, and one object more."""
    large = SMALL.replace("32x128", "32x512")
    files = release_files | {
        SWAPPED: code_object("gfx942", [SMALL, "gelu"]),
        "hsa/gfx942/fmoe/silu/silu512.co": code_object("gfx942", [large]),
    }
    files[SILU] += f"{large},silu512.co,0,1,0,1,1,32,512\n".encode()
    return gate(files)


class TestPage:
    """`page.render`."""

    def test_the_decision_comes_first(self, report: Report, same: Report) -> None:
        """The second line is the decision, with the exit code."""
        assert page.render(report).splitlines()[1] == (
            "FAIL (exit 1): 1 regression; 1 api-changed; lost: 1 tuned shape (speed)"
        )
        assert page.render(same).splitlines()[1] == (
            "PASS (exit 0) at levels declared, inventory, trace NOT RUN: all same"
        )

    def test_a_decision_on_every_level_says_no_more(self, same: Report) -> None:
        """With traces nothing is left out, neither in the decision nor in the command."""
        traced = replace(same, levels=("declared", "inventory", "trace"))
        assert page.decision(traced) == "PASS (exit 0): all same"
        assert traced.command == "aiter-conformance gate run old new"

    def test_a_verdict_says_by_which_levels(self, report: Report) -> None:
        """What the gate did not look at cannot be read into a cell's verdict."""
        text = " ".join(page.render(report).split())
        assert "declared (by declared, inventory" in text
        along = "--evidence reports takes along what is published of others"
        assert along in text
        assert along not in page.render(replace(report, levels=("declared", "reference", "inventory")))

    def test_a_cause_with_both_sides_and_what_follows(self, report: Report) -> None:
        """A renamed parameter: before, now, the cells it breaks, one of them in full, and a command."""
        text = page.render(report)
        start = text.index("api-changed    parameter:fused_moe: gate_mode")
        shown = " ".join(text[start : text.index("reproduce:", start) + 200].split())
        assert "before: default GateMode.SEPARATED.value (between swiglu_limit and the end)" in shown
        assert "now: renamed to fused_moe(gate_layout), default GateMode.SEPARATED.value" in shown
        assert "gfx950/mxfp4-w4a16/{silu,swigluoai,swigluoai_uninterleave}/out" in shown
        assert "the argument gate_mode of fused_moe" in shown
        command = "aiter-conformance gate run old new --level declared --level inventory"
        assert f"reproduce: {command} --only 'parameter:fused_moe'" in shown

    def test_a_tuned_row_with_where_it_was(self, report: Report) -> None:
        """A lost row names board, shape, bucket and the line that it had."""
        text = page.render(report)
        assert "lost           tuned rows for gfx942 304 CUs: 1 row of 1 shape" in text
        assert "per_Token fp8xfp8 Silu H4096 I512 E64 k8: M=1024" in text
        assert re.search(r"was aiter/configs/tuned_fmoe.csv:\d, now no row", text)

    def test_one_cause_in_full(self, report: Report) -> None:
        """Each command under ``reproduce`` shows its cause, and no other."""
        for cause in report.failing:
            alone = report.only(cause.id)
            text = page.render(alone, full=True)
            assert alone.causes != report.causes
            assert all(change.id in text for change in (*cause.changes, *cause.consequences))

    def test_a_cause_that_there_is_not(self, report: Report) -> None:
        """The message names some that there are."""
        with pytest.raises(UsageError, match=r"must be the id of a cause.*anchor:.*\(got 'anchor:none'\)"):
            report.only("anchor:none")

    def test_the_shapes_of_one_board(self, report: Report) -> None:
        """The board of lost rows names all its shapes, and not those of a board whose name goes on."""
        (lost,) = [cause for cause in report.failing if cause.kind is ItemKind.TUNED]
        other = replace(lost, group=lost.group.replace("304 CUs", "304 CUs where FlyDSL is not installed"))
        both = replace(report, causes=(lost, other))
        assert "--only 'tuned:gfx942 304 CUs'" in page.render(both)
        assert both.only("tuned:gfx942 304 CUs").causes == (lost,)
        assert both.only("tuned:gfx942 304 CUs where FlyDSL is not installed").causes == (other,)

    def test_it_is_short(self, release_files: Files, gate: Gate) -> None:
        """However much changes, the page has at most 150 lines and says that it left something out."""
        rows = release_files[TUNED].decode().splitlines()
        many = "\n".join(
            [rows[0], *(row.replace(",4096,", f",{4096 + n},") for n in range(99) for row in rows[1:])]
        )
        modules = "".join(f"def f{n}():\n    from aiter.gone{n} import x\n" for n in range(99))
        moe = (
            release_files[MOE]
            + modules.encode()
            + b"def g():\n"
            + b"".join(f"    f{n}()\n".encode() for n in range(99))
        )
        text = page.render(gate(release_files | {TUNED: many.encode(), MOE: moe}))
        assert len(text.splitlines()) <= page.LINES
        assert "--json has them" in text
        assert text.splitlines()[-1].startswith("One cause in full: aiter-conformance gate run old new")


class TestInterface:
    """What callers of the interface are told, on the page and in the summary."""

    @pytest.mark.parametrize("form", [page.render, formats.to_summary])
    def test_values_that_are_exchanged(
        self, release_files: Files, gate: Gate, form: Callable[[Report], str]
    ) -> None:
        """Each member is named with both of its values."""
        edited = release_files[ENUMS].replace(b"Silu = 0, Gelu,", b"Silu = 1, Gelu = 0,")
        text = " ".join(form(gate(release_files | {ENUMS: edited})).split())
        assert "member:ActivationType" in text
        assert re.search(r"Gelu: 1( at \S+)? -> 0\b", text)
        assert re.search(r"Silu: 0( at \S+)? -> 1\b", text)

    @pytest.mark.parametrize("form", [page.render, formats.to_summary])
    def test_a_parameter_that_is_renamed(
        self, release_files: Files, gate: Gate, form: Callable[[Report], str]
    ) -> None:
        """Old name and new name stand there, and not the default alone, which is the same."""
        edited = release_files[MOE].replace(b"hidden_pad=0", b"hid_pad=0", 1)
        text = " ".join(form(gate(release_files | {MOE: edited})).split())
        assert "hidden_pad, default 0 -> renamed to hid_pad" in text or "hidden_pad -> hid_pad" in text
        assert "default 0 -> default 0" not in text


class TestNewCode:
    """Objects with new machine code, which the gate does not judge."""

    def test_the_page_says_that_it_is_not_judged(self, swapped: Report) -> None:
        """It passes, and below the decision stand how many, which, and what judges them."""
        lines = page.render(swapped).splitlines()
        assert (swapped.exit_code, lines[1].startswith("PASS (exit 0)")) == (0, True)
        assert " ".join(lines[2:4]) == (
            f"2 objects with new machine code were not judged by the gate: {SWAPPED}, "
            "hsa/gfx942/fmoe/silu/silu512.co. What judges them:"
        )
        assert lines[4] == "  aiter-conformance isa sweep new --against old"

    def test_a_cause_names_its_objects(self, swapped: Report) -> None:
        """A manifest whose kernels are compiled anew names the objects, and counts them."""
        text = page.render(swapped)
        start = text.index(f"kernel-changed kernel:{SILU}")
        assert "new machine code, 1 object: silu128.co" in text[start:]

    def test_the_summary_says_so(self, swapped: Report) -> None:
        """In hosted CI it stands between the decision and what fails."""
        _, said, *_ = formats.to_summary(swapped).split("\n\n")
        assert said.startswith("2 objects with new machine code were not judged by the gate: ")
        assert said.endswith("`aiter-conformance isa sweep new --against old`.")

    def test_json_lists_them(self, swapped: Report) -> None:
        """Each with how its hash began and begins; one that is new has none before."""
        told = json.loads(swapped.to_json())["new_code"]
        assert told["judge"] == "aiter-conformance isa sweep new --against old"
        assert [(one["path"], one["before"] is None) for one in told["objects"]] == [
            (SWAPPED, False),
            ("hsa/gfx942/fmoe/silu/silu512.co", True),
        ]

    def test_one_board(self, swapped: Report) -> None:
        """Where one board is looked at, its arch alone is judged."""
        assert replace(swapped, board="gfx942:304").judge_command.endswith(" --against old --arch gfx942")

    def test_the_same_code(self, report: Report) -> None:
        """Where no bytes of an object changed, nothing is said."""
        assert (report.new_code, "not judged" in page.render(report)) == ((), False)
        assert json.loads(report.to_json())["new_code"] == {"judge": None, "objects": []}


class TestCompressCells:
    """`page_causes.compress_cells`."""

    def test_axes_are_joined(self) -> None:
        """Cells alike but for one axis are one text; others stay apart."""
        cells = [
            "gfx942/bf16/silu/out",
            "gfx942/bf16/gelu/out",
            "gfx950/bf16/silu/out",
            "gfx950/bf16/gelu/out",
        ]
        assert page_causes.compress_cells(cells) == ["{gfx942,gfx950}/bf16/{silu,gelu}/out"]
        assert page_causes.compress_cells([*cells[:1], "gfx950/fp8-block/gelu/in"]) == [
            "gfx942/bf16/silu/out",
            "gfx950/fp8-block/gelu/in",
        ]

    def test_nothing_is_lost(self, report: Report) -> None:
        """Taken apart again, the texts are the cells."""
        cells = sorted(c.item.key for cause in report.causes for c in cause.consequences if "/" in c.item.key)
        found = []
        for text in page_causes.compress_cells(cells):
            parts = [part.strip("{}").split(",") for part in text.split("/")]
            found += [
                f"{a}/{s}/{c}/{r}" for a in parts[0] for s in parts[1] for c in parts[2] for r in parts[3]
            ]
        assert sorted(found) == cells


class TestJson:
    """`Report.to_json`."""

    def test_it_obeys_its_schema(self, report: Report, same: Report) -> None:
        """The document is what the schema asks for, and says what the page says."""
        for one in (report, same):
            data = documents.parse(one.to_json(), schema="gate", source="the report")
            assert data["exit_code"] == one.exit_code
            assert [cause["id"] for cause in data["causes"]] == [cause.id for cause in one.causes]

    def test_schema_and_code_know_the_same_words(self) -> None:
        """The schema lists exactly the kinds, classes and levels of the code."""
        schema = json.loads((spec_dir() / "schemas" / "gate.json").read_text(encoding="utf-8"))
        counts = schema["properties"]["counts"]
        kinds, classes = ([str(one) for one in enum] for enum in (ItemKind, ChangeClass))
        assert counts["propertyNames"]["enum"] == kinds
        assert schema["$defs"]["change"]["properties"]["id"]["pattern"] == f"^({'|'.join(kinds)}):"
        assert sorted(schema["$defs"]["change"]["properties"]["class"]["enum"]) == sorted(classes)
        assert sorted(counts["additionalProperties"]["propertyNames"]["enum"]) == sorted(classes)
        assert schema["properties"]["levels"]["items"]["enum"] == [str(level) for level in Level]

    def test_the_schema_refuses_another(self, report: Report) -> None:
        """A class that there is not, and a missing side, are refused."""
        data = json.loads(report.to_json())
        for path, value in (("class", "worse"), ("changes", [])):
            broken = json.loads(report.to_json())
            broken["causes"][0][path] = value
            with pytest.raises(InfrastructureError, match="must obey the schema 'gate'"):
                documents.parse(json.dumps(broken), schema="gate", source="the report")
        documents.parse(json.dumps(data), schema="gate", source="the report")


class TestMarkdown:
    """`formats.to_markdown` and `formats.to_summary`."""

    def test_pull_request(self, report: Report) -> None:
        """The decision, a row for each failing cause, and the page of text folded."""
        text = formats.to_markdown(report)
        decision = "FAIL (exit 1): 1 regression; 1 api-changed; lost: 1 tuned shape (speed)"
        assert text.startswith(f"## AITER 0.1.18 (old) -> 0.1.18.post1 (new): {decision}\n")
        for cause in report.failing:
            assert f"| {cause.change.value} | `{cause.id}` |" in text
        assert f"```text\n{page.render(report)}```" in text

    def test_the_summary_begins_with_what_lies_deepest(self, report: Report) -> None:
        """A renamed parameter stands above the anchors and rows that may be otherwise because of it."""
        rows = re.findall(r"^\| \S+ \| `(\w+):", formats.to_summary(report), flags=re.MULTILINE)
        assert rows == ["parameter", "anchor", "tuned"]

    def test_summary(self, report: Report, same: Report) -> None:
        """Short: the decision and what fails, or that nothing does."""
        assert formats.to_summary(report).count("| regressed |") == 1
        assert "Nothing fails." in formats.to_summary(same)
        assert len(formats.to_summary(report)) < len(formats.to_markdown(report))


class TestJunit:
    """`formats.to_junit`."""

    def test_counts_and_failures(self, report: Report) -> None:
        """One case for each cause and one for the observations; what fails is a failure with its command."""
        suite = ET.fromstring(formats.to_junit(report))[0]  # noqa: S314 -- our own text
        failures = suite.findall("testcase/failure")
        assert (suite.get("tests"), suite.get("failures")) == (str(len(report.causes) + 1), "3")
        assert len(failures) == 3
        assert all(
            "reproduce: aiter-conformance gate run old new --level" in (f.text or "") for f in failures
        )

    def test_nothing_changed(self, same: Report) -> None:
        """Still one case, which passed: an empty suite would look as if nothing had been tried."""
        suite = ET.fromstring(formats.to_junit(same))[0]  # noqa: S314 -- our own text
        assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")


class TestProposeLedger:
    """`stubs.propose_ledger`."""

    def test_a_stub_must_be_completed(self, report: Report, completed: Complete) -> None:
        """As it is printed the ledger refuses it; completed, each explains what it is about."""
        text = stubs.propose_ledger(report)
        with pytest.raises(InfrastructureError, match="must be a text"):
            parse_ledger(text)
        assert [(stub.reason, stub.paths, stub.about) for stub in completed(text)] == [
            ("anchor-changed", (MOE,), "block-fp8-split-k-guard"),
            ("api-changed", (MOE,), "parameter:fused_moe"),
            ("lost", (TUNED,), "tuned:gfx942 304 CUs, per_Token fp8xfp8 Silu H4096 I512 E64 k8"),
        ]

    def test_it_explains_once_completed(
        self, report: Report, gate: Gate, changed: Files, completed: Complete
    ) -> None:
        """With the completed stubs as the ledger, the same change does not fail any more."""
        ledger = completed(stubs.propose_ledger(report))
        assert gate(changed, ledger=ledger).exit_code == 0
        for entry in ledger:
            left = [one for one in ledger if one is not entry]
            assert len(gate(changed, ledger=left).failing) == 1
