"""What changed between two releases: which objects are compared, and what is worse."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiter_conformance.isa import sweep
from aiter_conformance.isa.judge import Judgement, Status
from aiter_conformance.isa.sweep import Result
from aiter_conformance.isa_changes import ABSENT, Change, compare, counts, differing
from aiter_conformance.publish.sweep import WRONG_AT_ODD
from aiter_conformance.release.samples import sample_files, sample_release, write_tree

FOLDER = "hsa/gfx942/fmoe/silu"
HEADER = "knl_name,co_name,atm,vskip,smf,tg_num_perCU,ps,subGU_m,subGU_n\n"
REASONS = {
    "right": None,
    "wrong": "few (tokens=3): relative error 1",
    WRONG_AT_ODD: "odd (tokens=3): relative error 1",
    "not executable": "launch must be modelled",
}
KINDS = (*REASONS, ABSENT)


def result(name: str, kind: str) -> Result:
    """What a sweep found of an object of this kind."""
    path = f"{FOLDER}/{name}.co"
    if kind == ABSENT:
        absent = Judgement(Status.NOT_EXECUTABLE, "the object is not in the release", None)
        return Result(path, "gfx942", None, absent)
    status = Status.WRONG if kind == WRONG_AT_ODD else Status(kind)
    return Result(path, "gfx942", "0", Judgement(status, REASONS[kind], 1.0))


def release_of(objects: dict[str, bytes], *also: str) -> dict[str, bytes]:
    """Files of a release whose manifest names these objects, and some that are not there."""
    files = {path: content for path, content in sample_files().items() if not path.startswith("hsa/")}
    names = sorted({*objects, *also})
    rows = [f"k{i},{name}.co,0,1,0,1,0,32,256\n" for i, name in enumerate(names)]
    files |= {f"{FOLDER}/{name}.co": content for name, content in objects.items()}
    return files | {f"{FOLDER}/some.csv": (HEADER + "".join(rows)).encode()}


class TestDiffering:
    """differing."""

    def test_bytes_decide(self) -> None:
        """Other bytes and an object that one release lacks; not the same bytes, nor one that neither has."""
        new = sample_release(release_of({"same": b"1", "other": b"2", "new": b"3"}))
        old = sample_release(release_of({"same": b"1", "other": b"1", "gone": b"4"}))
        paths = [f"{FOLDER}/{name}.co" for name in ("same", "gone", "new", "nowhere", "other")]
        assert differing(new, old, paths) == [paths[1], paths[2], paths[4]]
        assert differing(new, new, paths) == []


class TestCompare:
    """compare."""

    def test_results_and_reasons(self) -> None:
        """Both results by object; one that the older does not have, or whose bytes are gone, is absent."""
        before = [result("a", WRONG_AT_ODD), result("b", "right"), result("d", ABSENT)]
        after = [result("a", "right"), result("b", ABSENT), result("c", "right"), result("d", "right")]
        found = {
            change.object[-1]: (change.before, change.after, change.why) for change in compare(before, after)
        }
        assert found == {
            "a": (WRONG_AT_ODD, "right", f"before: {REASONS[WRONG_AT_ODD]}"),
            "b": ("right", ABSENT, "the object is not in the release"),
            "c": (ABSENT, "right", ""),
            "d": (ABSENT, "right", ""),
        }

    @pytest.mark.parametrize("before", KINDS)
    def test_worse(self, before: str) -> None:
        """Worse is what was right, or wrong at odd multiples alone, and is less now; a new one if wrong."""
        worse = {after for after in KINDS if Change("x", before, after, "", "").worse}
        assert (
            worse
            == {
                "right": {WRONG_AT_ODD, "wrong", "not executable", ABSENT},
                WRONG_AT_ODD: {"wrong", "not executable", ABSENT},
                "wrong": set(),
                "not executable": set(),
                ABSENT: {"wrong"},
            }[before]
        )

    def test_worse_is_first(self) -> None:
        """What is worse comes first, then by path."""
        before = [result(name, "right") for name in "abc"]
        after = [result("b", "right"), result("a", "right"), result("c", "wrong")]
        assert [change.object[-1] for change in compare(before, after)] == ["c", "a", "b"]


class TestCounts:
    """counts."""

    def test_by_hand(self) -> None:
        """Each pair of results with its number of objects, right first."""
        changes = [
            Change("x", *pair, "", "") for pair in [(ABSENT, "right"), ("right", "wrong"), (ABSENT, "right")]
        ]
        assert counts(changes) == [("right", "wrong", 1), (ABSENT, "right", 2)]


class TestCommand:
    """``isa sweep --against``, with the judging replaced: an object's bytes say what comes out for it."""

    @pytest.fixture
    def run(
        self, invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> Callable[..., Any]:
        """Run it on two releases, given as result by object; gives code, output and errors."""
        monkeypatch.setenv("COLUMNS", "200")

        def judged(release: Any, paths: list[str], *_: Any, **__: Any) -> list[Result]:
            kinds = [release.files.read(p).decode() if p in release.files.paths else ABSENT for p in paths]
            return [result(Path(p).stem, kind.strip()) for p, kind in zip(paths, kinds, strict=True)]

        monkeypatch.setattr(sweep, "sweep", judged)

        def run(old: dict[str, str], new: dict[str, str], *options: str) -> Any:
            trees = []
            for name, kinds in (("old", old), ("new", new)):
                objects = {one: kind.encode() for one, kind in kinds.items() if kind != ABSENT}
                trees.append(write_tree(tmp_path / name, release_of(objects, *kinds)))
            return invoke("isa", "sweep", trees[1], "--against", trees[0], *options)

        return run

    @pytest.mark.parametrize(
        ("old", "new", "code"),
        [
            ({"a": "right"}, {"a": "right "}, 0),
            ({"a": "right"}, {"a": "wrong"}, 1),
            ({"a": "right"}, {"a": WRONG_AT_ODD}, 1),
            ({"a": "right"}, {"a": ABSENT}, 1),
            ({"a": "right"}, {"a": "not executable"}, 1),
            ({"a": WRONG_AT_ODD}, {"a": "wrong"}, 1),
            ({"a": WRONG_AT_ODD}, {"a": "right"}, 0),
            ({"a": "wrong"}, {"a": "wrong "}, 0),
            ({}, {"a": "wrong"}, 1),
            ({}, {"a": WRONG_AT_ODD}, 0),
            ({}, {"a": "not executable"}, 3),
            ({"a": "not executable"}, {"a": "not executable "}, 3),
        ],
    )
    def test_exit_codes(
        self, run: Callable[..., Any], old: dict[str, str], new: dict[str, str], code: int
    ) -> None:
        """1 where something is worse or a new object is wrong, 3 where nothing was executed, 0 otherwise."""
        found, out, err = run(old, new)
        assert (found, "NOT RUN" in err) == (code, code == 3)
        assert ("(WORSE)" in out) is (code == 1)

    def test_table(self, run: Callable[..., Any]) -> None:
        """Objects with other bytes, each with both results and the reason, then their numbers; no others."""
        _, out, _ = run(
            {"same": "wrong", "mended": "wrong", "spoilt": "right"},
            {"same": "wrong", "mended": "right", "spoilt": WRONG_AT_ODD},
        )
        cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in out.splitlines()]
        assert "same" not in out
        mended, spoilt = (
            next(line for line in cells if line[:1] == [f"gfx942/fmoe/silu/{name}"])
            for name in ("mended", "spoilt")
        )
        assert mended[1:3] == ["wrong", "right"]
        assert mended[3].startswith("before: few (tokens=3)")
        assert spoilt[1:3] == ["right", f"{WRONG_AT_ODD} (WORSE)"]
        assert cells.index(spoilt) < cells.index(mended)
        assert ["objects with other machine code: 2, worse: 1"] in cells
        assert cells[-2:] == [["right", WRONG_AT_ODD, "1"], ["wrong", "right", "1"]]

    def test_none_differs(self, run: Callable[..., Any]) -> None:
        """Without other bytes nothing is judged, however wrong it is: code 0, and it says so."""
        code, out, err = run({"a": "wrong"}, {"a": "wrong"})
        assert (code, out.splitlines()[-1], err) == (0, "no object has other machine code", "")

    def test_json(self, run: Callable[..., Any]) -> None:
        """The document has every change, with both reasons, and the numbers; the limit is of what differs."""
        code, out, _ = run({"a": "right", "b": "right"}, {"a": "right", "b": "wrong", "c": "right"}, "--json")
        found = json.loads(out)
        assert (code, found["worse"], [Path(one["path"]).stem for one in found["objects"]]) == (
            1,
            1,
            ["b", "c"],
        )
        assert found["counts"] == [
            {"before": "right", "after": "wrong", "objects": 1},
            {"before": ABSENT, "after": "right", "objects": 1},
        ]
        assert found["objects"][0] == {
            "path": f"{FOLDER}/b.co",
            "before": "right",
            "after": "wrong",
            "reason_before": "",
            "reason": REASONS["wrong"],
            "worse": True,
        }
        _, out, _ = run({"a": "right"}, {"a": "right", "b": "wrong", "c": "right"}, "--json", "--limit", "1")
        assert [Path(one["path"]).stem for one in json.loads(out)["objects"]] == ["b"]

    def test_is_not_published(self, run: Callable[..., Any]) -> None:
        """What is published is all objects of a release."""
        code, _, err = run({"a": "right"}, {"a": "wrong"}, "--publish")
        assert (code, "must be given without" in err) == (2, True)


@pytest.mark.usefixtures("disassembler", "fast_core")
class TestShipped:
    """``isa sweep --against``, with shipped objects that are executed."""

    NAME = "fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_{}32x512"

    def test_exchanged(
        self, invoke: Callable[..., Any], wheel: Path, cache_dir: Path, tmp_path: Path
    ) -> None:
        """Two objects exchanged: the persistent one is now wrong, the other mended; a third is no change."""
        right, odd = self.NAME.format("ps_"), self.NAME.format("")
        with zipfile.ZipFile(wheel) as archive:
            content = {n: archive.read(f"aiter_meta/{FOLDER}/{n}.co") for n in (right, odd)}
        old = write_tree(tmp_path / "old", release_of({**content, "same": content[odd]}))
        new = release_of({right: content[odd], odd: content[right], "same": content[odd]})
        (tmp_path / "build" / "isa").mkdir(parents=True)
        (tmp_path / "build" / "isa" / "numba").symlink_to(cache_dir / "numba")
        options = ("--against", old, "--root", tmp_path, "--workers", "1", "--json")
        code, out, _ = invoke("isa", "sweep", write_tree(tmp_path / "new", new), *options)
        found = {Path(one["path"]).stem: one for one in json.loads(out)["objects"]}
        assert {name: (one["before"], one["after"]) for name, one in found.items()} == {
            right: ("right", "wrong"),
            odd: (WRONG_AT_ODD, "right"),
        }
        assert code == 1
