"""``gate run``: exit codes, what it keeps, and what it says of bad input."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiter_conformance.cli.gate import default_levels
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Level
from aiter_conformance.gate.pair import observe_pair
from aiter_conformance.release.samples import write_tree, write_wheel

Files = dict[str, bytes]
MOE = "aiter/fused_moe.py"
QUICK = (Level.DECLARED, Level.INVENTORY)


# What `invoke` of the folder above gives has code, out and err.
Run = Callable[..., Any]


@pytest.fixture
def run(invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``gate run`` with some arguments in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    # The release here is for readers: its code does not run, with or without what the tracer needs.
    monkeypatch.setattr("aiter_conformance.cli.gate.default_levels", lambda: [*QUICK])
    return partial(invoke, "gate", "run")


@pytest.fixture
def good(tmp_path: Path, release_files: Files) -> Path:
    """The good release as a wheel."""
    return write_wheel(tmp_path, release_files, "0.1.18")


@pytest.fixture
def unguarded(tmp_path: Path, release_files: Files) -> Path:
    """A release without the split-k guard, as a tree."""
    files = release_files | {MOE: release_files[MOE].replace(b" and k_batch >= 2", b"")}
    return write_tree(tmp_path / "unguarded", files)


class TestExitCodes:
    """0 good, 1 something fails, 2 wrong usage, 3 nothing could be tested."""

    def test_the_same_and_another(self, run: Run, good: Path, unguarded: Path) -> None:
        """A release against itself passes; one without its guard fails, and is named; back again is a fix."""
        same = run(good, good)
        assert (same.code, same.out.splitlines()[1]) == (
            0,
            "PASS (exit 0) at levels declared, inventory, trace NOT RUN: all same",
        )
        there, back = run(good, unguarded), run(unguarded, good)
        assert (there.code, back.code) == (1, 0)
        assert "regressed      anchor:block-fp8-split-k-guard" in there.out
        assert "fixed          anchor:block-fp8-split-k-guard" in back.out

    def test_reproduce(self, run: Run, good: Path, unguarded: Path) -> None:
        """The command under ``reproduce``, with the releases' own places, ends as the whole did."""
        words = ["--only", "anchor:block-fp8-split-k-guard"]
        alone = run(good, unguarded, *words)
        assert (alone.code, alone.out.count("regressed  ")) == (1, 1)
        assert f"unguarded --level declared --level inventory --only '{words[1]}'" in run(good, unguarded).out

    def test_what_is_printed_can_be_pasted(self, run: Run, good: Path, unguarded: Path) -> None:
        """The words after ``reproduce`` lead to the releases from here, whatever their folders are called."""
        place = unguarded.rename(unguarded.parent / "a bump")
        whole = run(good, place)
        (said,) = [line for line in whole.out.splitlines() if "reproduce: " in line]
        assert whole.out.splitlines()[-1].startswith(
            f"One cause in full: aiter-conformance gate run {good} '"
        )
        words = shlex.split(said.partition("reproduce: ")[2])
        assert (words[:3], words[4]) == (["aiter-conformance", "gate", "run"], str(place))
        again = run(*words[3:])
        assert (again.code, "regressed      anchor:block-fp8-split-k-guard" in again.out) == (1, True)

    def test_the_headline_names_a_tree(self, run: Run, good: Path, unguarded: Path) -> None:
        """A tree has a version that says little, so that its place stands beside it."""
        for form in ((), ("--summary",)):
            headline = run(good, unguarded, *form).out.splitlines()[0]
            assert f" ({unguarded})" in headline
            assert str(good) not in headline

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["{good}", "nowhere"], "a release must be `installed`, a wheel file"),
            (["{good}"], "Missing argument 'NEW'"),
            (["{good}", "{good}", "--board", "gfx90a"], "--board must be an arch"),
            (["{good}", "{good}", "--model", "gpt-0"], "a model must be one of"),
            (["{good}", "{good}", "--fail-on", "worse"], "--fail-on must be some of regressed"),
            (["{good}", "{good}", "--fail-on", "same"], "--fail-on must be some of regressed"),
            (["{good}", "{good}", "--level", "hearsay"], "'hearsay' is not one of"),
            (["{good}", "{good}", "--level", "declared"], "--level must name one that looks at a release"),
            (["{good}", "{good}", "--only", "anchor:x"], "--only must be the id of a cause"),
            (["{good}", "{good}", "--evidence", "nowhere"], "does not exist"),
        ],
    )
    def test_wrong_usage(self, run: Run, good: Path, arguments: list[str], said: str) -> None:
        """Code 2, and one sentence that says what was expected."""
        result = run(*(text.format(good=good) for text in arguments))
        assert (result.code, result.out) == (2, "")
        assert said in result.err

    def test_a_damaged_release(self, run: Run, good: Path, tmp_path: Path) -> None:
        """Code 3: nothing is said about a release that cannot be read."""
        damaged = tmp_path / "amd_aiter-0.1.19-py3-none-any.whl"
        damaged.write_bytes(good.read_bytes()[:-300])
        result = run(good, damaged)
        assert (result.code, result.out) == (3, "")
        assert "error: " in result.err

    def test_damaged_evidence(self, run: Run, good: Path, tmp_path: Path) -> None:
        """Code 3: evidence that is brought along and cannot be read is no evidence."""
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "record.json").write_text("{", encoding="utf-8")
        result = run(good, good, "--evidence", tmp_path / "more")
        assert (result.code, result.out) == (3, "")
        assert "record.json must be JSON" in result.err


class TestDefaultLevels:
    """`default_levels`."""

    @pytest.fixture
    def without_pandas(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An installation that has all but one package."""
        found = {"pandas": None}
        monkeypatch.setattr(
            "aiter_conformance.runner.importlib.util.find_spec", lambda name: found.get(name, object())
        )

    @pytest.mark.usefixtures("without_pandas")
    def test_what_cannot_run_is_no_decision(self) -> None:
        """Without what the tracer needs there is no decision, and what to install is said."""
        said = (
            r"^trace: NOT RUN, it needs pandas; in a checkout: python -m pip install '\.\[trace\]'\. "
            r"Nothing was compared; --level declared --level inventory decides without it"
        )
        with pytest.raises(InfrastructureError, match=said):
            default_levels()

    @pytest.mark.usefixtures("without_pandas")
    def test_exit_codes_without_the_tracer(
        self, run: Run, good: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Code 3 by default, even where nothing speaks against a bump; with --level a pass that says so."""
        monkeypatch.setattr("aiter_conformance.cli.gate.default_levels", default_levels)
        asked = run(good, good)
        assert (asked.code, asked.out, "trace: NOT RUN" in asked.err) == (3, "", True)
        less = run(good, good, "--level", "declared", "--level", "inventory")
        assert (less.code, "trace NOT RUN" in less.out.splitlines()[1]) == (0, True)

    def test_trace_is_among_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where everything is installed, releases are traced."""
        monkeypatch.setattr("aiter_conformance.runner.importlib.util.find_spec", lambda _name: object())
        assert default_levels() == [*QUICK, Level.TRACE]


class TestKept:
    """Observations are kept under build/gate, by content."""

    def test_a_second_run_reads_what_was_kept(
        self, run: Run, good: Path, unguarded: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It prints the same without observing, and a changed release is observed again."""
        first = run(good, unguarded)
        kept = sorted(Path("build/gate").glob("*.json"))

        def refuse(*_: object) -> None:
            raise AssertionError

        with monkeypatch.context() as patched:
            patched.setattr("aiter_conformance.gate.side.read_contents", refuse)
            again = run(good, unguarded)
        assert (first.out, len(kept)) == (again.out, 2)
        (unguarded / MOE).write_text("def fused_moe(): pass\n", encoding="utf-8")
        assert run(good, unguarded).out != first.out

    def test_what_the_identity_leaves_out_counts_too(self, run: Run, unguarded: Path) -> None:
        """The FlyDSL pin lies in a packaging file, and is seen to change all the same."""
        (unguarded / "requirements.txt").write_text("flydsl==0.2.4\n", encoding="utf-8")
        old = run(unguarded, unguarded)
        assert old.code == 0
        (unguarded / "requirements.txt").write_text("flydsl==0.3.0\n", encoding="utf-8")
        run(unguarded, unguarded)
        assert len(list(Path("build/gate").glob("*.json"))) == 2

    def test_damaged_files_are_made_again(self, run: Run, good: Path, unguarded: Path) -> None:
        """Whatever stands in the place of an observation, the answer is the same."""
        first = run(good, unguarded)
        for kept, content in zip(sorted(Path("build/gate").glob("*.json")), ("{", "[]"), strict=True):
            kept.write_text(content, encoding="utf-8")
        assert run(good, unguarded) == first

    def test_a_folder_shows_only_where_it_was_given(
        self, run: Run, good: Path, unguarded: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was given is printed word for word, and what was given without its folder has none."""
        monkeypatch.chdir(good.parent)
        for form in ("--json", "--markdown", "--summary", "--junit", "--propose-ledger"):
            result = run(good.name, unguarded.name, form)
            assert (result.code, str(good.parent) in result.out) == (1, False)
        assert json.loads(run(good, unguarded, "--json").out)["old"]["label"] == good.name


class TestObservePair:
    """`observe_pair`."""

    def test_side_by_side(self, good: Path, unguarded: Path, tmp_path: Path) -> None:
        """Two processes see what one sees."""
        levels = [Level.DECLARED, Level.INVENTORY]
        texts = (str(good), str(unguarded))
        alone = observe_pair(texts, "impl", levels, tmp_path / "one")
        together = observe_pair(texts, "impl", levels, tmp_path / "two", side_by_side=True)
        assert together == alone

    def test_an_error_of_a_process(self, good: Path, tmp_path: Path, release_files: Files) -> None:
        """What is wrong with a release is said as if it had been read here."""
        release = write_wheel(tmp_path, release_files, "0.1.19")
        content = bytearray(release.read_bytes())
        content[60:90] = bytes(30)
        release.write_bytes(bytes(content))
        with pytest.raises(InfrastructureError):
            observe_pair(
                (str(good), str(release)), "impl", [Level.INVENTORY], tmp_path / "b", side_by_side=True
            )
