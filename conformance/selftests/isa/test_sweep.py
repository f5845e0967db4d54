"""The sweep over a release: what is judged, kept, taken up again, and never called right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.isa import fast, judge, objects, sweep
from aiter_conformance.isa.judge import Judgement, Status
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.reference import core as reference_core
from aiter_conformance.publish.sweep import WRONG_AT_ODD
from aiter_conformance.release.samples import sample_files, sample_release, write_tree

ARCH = "gfx942"
FOLDER = f"hsa/{ARCH}/fmoe/silu"
GOOD = f"{FOLDER}/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x512.co"
HEADER = "knl_name,co_name,atm,vskip,smf,tg_num_perCU,ps,subGU_m,subGU_n\n"


def _manifest(paths: Sequence[str]) -> bytes:
    rows = [f"k{i},{path.rsplit('/', 1)[1]},0,1,0,1,0,32,256\n" for i, path in enumerate(paths)]
    return (HEADER + "".join(rows)).encode()


def _release_of(objects: dict[str, bytes], also: Sequence[str] = ()) -> dict[str, bytes]:
    """A release whose only manifest names these objects, and some that are not there."""
    files = {p: c for p, c in sample_files().items() if not p.startswith("hsa/")}
    return {**files, **objects, f"{FOLDER}/some.csv": _manifest([*objects, *also])}


@pytest.fixture(scope="module")
def good(request: pytest.FixtureRequest) -> bytes:
    """A shipped object that is right."""
    with zipfile.ZipFile(request.getfixturevalue("wheel")) as archive:
        return archive.read(f"aiter_meta/{GOOD}")


class TestNamedObjects:
    """named_objects."""

    def test_manifests_decide(self) -> None:
        """Every object that a manifest names, there or not; none that nothing names."""
        orphan, named, absent = (f"{FOLDER}/{name}.co" for name in "abc")
        files = _release_of({named: b""}, also=[absent]) | {orphan: b""}
        assert objects.named_objects(sample_release(files)) == [named, absent]

    def test_filters(self) -> None:
        """By arch and by a part of the path."""
        release = sample_release(sample_files())
        everything = objects.named_objects(release)
        assert {path.split("/")[1] for path in everything} == {"gfx942", "gfx950"}
        assert objects.named_objects(release, ["gfx950"]) == [p for p in everything if "gfx950" in p]
        assert objects.named_objects(release, family=everything[0]) == [everything[0]]

    def test_nothing_is_an_error(self) -> None:
        """A filter that leaves nothing is a mistake, not a clean sweep."""
        with pytest.raises(UsageError, match="must name an object with 'fnord'"):
            objects.named_objects(sample_release(sample_files()), family="fnord")


class TestFindObject:
    """find_object."""

    def test_by_path_end_and_part(self) -> None:
        """A whole path, its end without the suffix, or a part that is unique."""
        release = sample_release(_release_of({f"{FOLDER}/ab.co": b"", f"{FOLDER}/xab.co": b""}))
        for text in (f"{FOLDER}/ab.co", "silu/ab", "ab.co", "ab"):
            assert objects.find_object(release, text) == f"{FOLDER}/ab.co"
        assert objects.find_object(release, "xa") == f"{FOLDER}/xab.co"

    @pytest.mark.parametrize(("text", "words"), [("silu", "must be one object"), ("z", "none has it")])
    def test_refuses(self, text: str, words: str) -> None:
        """Several, or none."""
        release = sample_release(_release_of({f"{FOLDER}/ab.co": b"", f"{FOLDER}/cd.co": b""}))
        with pytest.raises(UsageError, match=words):
            objects.find_object(release, text)


class TestKept:
    """What of a sweep is kept, with the judging replaced."""

    PATHS = tuple(f"{FOLDER}/{name}.co" for name in "abcd")

    @pytest.fixture
    def judged(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Paths that were judged; each gets its own name as reason. The third one interrupts, once."""
        seen: list[str] = []

        def judge_all(work: Sequence[Any], _folder: Path, _workers: int) -> Iterator[str]:
            for path, _, file in work:
                if path == self.PATHS[2] and path not in seen:
                    seen.append(path)
                    raise KeyboardInterrupt
                seen.append(path)
                file.parent.mkdir(parents=True, exist_ok=True)
                record = {"status": "wrong", "reason": path, "share": 0.5, "observations": []}
                file.write_text(json.dumps(record))
                yield path

        monkeypatch.setattr(sweep, "_judge_all", judge_all)
        return seen

    def _sweep(self, files: dict[str, bytes], folder: Path) -> list[sweep.Result]:
        release = sample_release(files)
        return sweep.sweep(release, objects.named_objects(release), folder)

    def test_resumes(self, judged: list[str], tmp_path: Path) -> None:
        """After an interrupt, what was done is not done again, and all results come in order."""
        files = _release_of({path: path.encode() for path in self.PATHS})
        with pytest.raises(KeyboardInterrupt):
            self._sweep(files, tmp_path)
        first = list(judged)
        results = self._sweep(files, tmp_path)
        assert (first, judged[3:]) == ([*self.PATHS[:3]], [*self.PATHS[2:]])
        assert [result.judgement.reason for result in results] == [*self.PATHS]

    def test_damaged_result_is_made_again(self, judged: list[str], tmp_path: Path) -> None:
        """Half a file, or one of another form, is no result."""
        files = _release_of({self.PATHS[0]: b"x"})
        self._sweep(files, tmp_path)
        [kept] = (tmp_path / "sweep").iterdir()
        for damage in ('{"status": "ri', '{"status": "right"}', '{"status": "good"}'):
            kept.write_text(damage)
            assert self._sweep(files, tmp_path)[0].judgement.reason == self.PATHS[0]
        assert len(judged) == 4

    def test_other_content_name_or_source_is_another_result(
        self, judged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A result belongs to an object's bytes, its name and the emulator's sources."""
        self._sweep(_release_of({self.PATHS[0]: b"x"}), tmp_path)
        self._sweep(_release_of({self.PATHS[0]: b"y"}), tmp_path)
        self._sweep(_release_of({self.PATHS[1]: b"x"}), tmp_path)
        monkeypatch.setattr(sweep, "source_digest", lambda: "other")
        self._sweep(_release_of({self.PATHS[0]: b"x"}), tmp_path)
        assert judged == [self.PATHS[0], self.PATHS[0], self.PATHS[1], self.PATHS[0]]

    def test_absent_and_other_archs_are_not_judged(self, judged: list[str], tmp_path: Path) -> None:
        """An object that is not there is not executable; one for an arch without emulator not applicable."""
        elsewhere = FOLDER.replace(ARCH, "gfx1250")
        files = _release_of({}, also=[self.PATHS[0]])
        files[f"{elsewhere}/some.csv"] = _manifest([f"{elsewhere}/e.co"])
        files[f"{elsewhere}/e.co"] = b""
        found = {result.path: result.judgement.status for result in self._sweep(files, tmp_path)}
        assert found == {
            f"{elsewhere}/e.co": Status.NOT_APPLICABLE,
            self.PATHS[0]: Status.NOT_EXECUTABLE,
        }
        assert judged == []


class TestLoadObjects:
    """load_objects."""

    @pytest.mark.usefixtures("disassembler")
    def test_bad_objects_stay_alone(self, good: bytes) -> None:
        """Rubbish, half an object and an unknown word are not executable; a good object among them is."""
        end = good.index(bytes.fromhex("000081bf"))  # s_endpgm
        unknown = good[:end] + b"\xff\xff\xff\xff" + good[end + 4 :]
        contents = [("a", b"rubbish"), ("b", good[: len(good) // 2]), ("c", unknown), ("d", good)]
        found = {path: code for path, code, _ in objects.load_objects(contents)}
        reasons = {path: c.reason for path, c in found.items() if isinstance(c, Judgement)}
        assert sorted(reasons) == ["a", "b", "c"]
        assert all(c.status is Status.NOT_EXECUTABLE for c in found.values() if isinstance(c, Judgement))
        assert "cannot decode the word 0xffffffff" in str(reasons["c"])


class TestJudgeShipped:
    """judge, on a shipped object."""

    @pytest.mark.usefixtures("disassembler")
    def test_right_and_planted_fault(
        self, good: bytes, fast_core: fast.FastCore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The object is right; with an exponential that returns its operand it is wrong; so is it as int8."""
        [(_, code, program)] = objects.load_objects([("x", good)])
        assert not isinstance(code, Judgement)
        assert program is not None
        assert judge.judge(code, program, GOOD, fast_core).status is Status.RIGHT
        mislabelled = judge.judge(code, program, GOOD.replace("Fp8", "Int8"), fast_core)
        assert mislabelled.status is Status.WRONG
        monkeypatch.setitem(
            reference_core.SEMANTICS,
            Op.V_EXP_F32,
            lambda wave, ins: wave.write_result(ins, wave.source(ins, 0)),
        )
        broken = judge.judge(code, program, GOOD, fast_core.without({Op.V_EXP_F32}))
        assert broken.status is Status.WRONG


class TestKilled:
    """A real sweep in worker processes that is killed."""

    @pytest.fixture
    def begun(
        self, request: pytest.FixtureRequest, good: bytes, tmp_path: Path, cache_dir: Path
    ) -> tuple[list[str], subprocess.Popen[bytes], Path]:
        """A sweep of three objects after its first result: command, process, and where results are kept."""
        for needed in ("disassembler", "fast_core"):
            request.getfixturevalue(needed)
        names = [GOOD.replace("fmoe_bf16", f"fmoe_bf16_copy{i}") for i in range(3)]
        objects = {name: good + bytes(i) for i, name in enumerate(names)}
        tree = write_tree(tmp_path / "tree", _release_of(objects))
        (tmp_path / "build" / "isa").mkdir(parents=True)
        (tmp_path / "build" / "isa" / "numba").symlink_to(cache_dir / "numba")
        kept = tmp_path / "build" / "isa" / "sweep"
        command = [sys.executable, "-m", "aiter_conformance", "isa", "sweep", str(tree)]
        command += ["--root", str(tmp_path), "--workers", "1", "--json"]
        # Tests may run where interrupts are ignored, as in a shell's background, and programs inherit that.
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        deadline = time.monotonic() + 120
        while not list(kept.glob("*.json")):
            assert time.monotonic() < deadline, "the first result must come within 120 s"
            time.sleep(0.02)
        return command, process, kept

    def test_goes_on(self, begun: tuple[list[str], subprocess.Popen[bytes], Path]) -> None:
        """Killed after its first result, it goes on, and does not judge that object again."""
        command, process, kept = begun
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        before = {file: file.stat().st_mtime_ns for file in kept.glob("*.json")}
        assert 1 <= len(before) < 3
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
        found = json.loads(done.stdout)
        assert found["counts"] == {"right": 3}
        assert {file: file.stat().st_mtime_ns for file in before} == before

    def test_interrupted_twice(self, begun: tuple[list[str], subprocess.Popen[bytes], Path]) -> None:
        """Interrupted, and again while it waits for its workers, it ends all the same."""
        _, process, _ = begun
        for _ in range(3):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.05)
        try:
            assert process.wait(60) != 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class TestCommand:
    """The command's exit codes."""

    @pytest.fixture
    def run(
        self, invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> Callable[..., Any]:
        """Run ``isa sweep`` on a release with the given judgement for all; gives code, output and errors."""

        def run(judgement: Judgement, *options: str) -> Any:
            def judged(_release: Any, paths: Sequence[str], *_: Any, **__: Any) -> list[sweep.Result]:
                return [sweep.Result(path, path.split("/")[1], "0", judgement) for path in paths]

            monkeypatch.setattr(sweep, "sweep", judged)
            return invoke("isa", "sweep", write_tree(tmp_path, sample_files()), *options)

        return run

    @pytest.mark.parametrize(
        ("judgement", "code"),
        [
            (Judgement(Status.RIGHT, None, 1.0), 0),
            (Judgement(Status.WRONG, "few: relative error 1", 0.5), 1),
            (Judgement(Status.NOT_EXECUTABLE, "launch must be modelled", None), 3),
            (Judgement(Status.NOT_APPLICABLE, "gfx1250 is not emulated", None), 3),
        ],
        ids=lambda value: value.status.value if isinstance(value, Judgement) else str(value),
    )
    def test_exit_codes(self, run: Callable[..., Any], judgement: Judgement, code: int) -> None:
        """0 right, 1 wrong, 3 where nothing was executed: that is never good."""
        found, out, err = run(judgement)
        assert found == code
        assert judgement.status.value in out
        assert ("NOT RUN" in err) is (code == 3)

    def test_wrong_at_odd_is_told_apart(self, run: Callable[..., Any]) -> None:
        """Objects that are wrong at an odd multiple of 256 alone have a column and a list of their own."""
        code, out, _ = run(Judgement(Status.WRONG, "odd (tokens=3): relative error 1", 1.0))
        assert (code, out.splitlines()[2].split(maxsplit=1)) == (1, ["objects", WRONG_AT_ODD])
        assert f"\n{WRONG_AT_ODD}:\n  hsa/gfx942/" in out
        assert "\nwrong:\n" not in out
        _, out, _ = run(Judgement(Status.WRONG, "few (tokens=3): relative error 1", 1.0))
        assert "\nwrong:\n  hsa/gfx942/" in out
        assert WRONG_AT_ODD not in out

    def test_lists_little_executed(self, run: Callable[..., Any]) -> None:
        """Objects of which less than 70 % ran are listed, right or wrong."""
        _, out, _ = run(Judgement(Status.RIGHT, None, 0.69))
        assert "objects of which less than 70% ran:\n  69% of hsa/gfx942/" in out
        _, out, _ = run(Judgement(Status.RIGHT, None, 0.7))
        assert "\n0 objects" not in out
        assert "less than 70%" not in out

    def test_json(self, run: Callable[..., Any]) -> None:
        """The limit and the arch are kept to, and every object has its result."""
        options = ("--json", "--limit", "1", "--arch", "gfx950")
        _, out, _ = run(Judgement(Status.WRONG, "why", 0.5), *options)
        document = json.loads(out)
        assert document["counts"] == {"wrong": 1}
        [only] = document["objects"]
        assert (only["arch"], only["status"], only["reason"]) == ("gfx950", "wrong", "why")


class TestWorkers:
    """_judge_chunk."""

    def test_needs_its_core(self) -> None:
        """A worker that was not started properly says so."""
        with pytest.raises(InfrastructureError, match="must have loaded the core"):
            sweep._judge_chunk([])
