"""The tracer keeps a release apart, changes none of its files, and says what went wrong with it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.release import Release, open_release
from aiter_conformance.release.artefact import identity_of
from aiter_conformance.release.samples import write_tree, write_wheel
from aiter_conformance.trace.board import Board, all_boards, parse_board
from aiter_conformance.trace.cached import cached_run
from aiter_conformance.trace.call import Call, call_from_json
from aiter_conformance.trace.record import Status, trace_from_json
from aiter_conformance.trace.run import run_calls
from aiter_conformance.trace.samples import plant, sound_release
from aiter_conformance.trace.tracer import Limits, Tracer

BOARD = Board("gfx950", 256)
MOE = "aiter/fused_moe.py"
SIZES = {"experts": 8, "local_experts": 8, "topk": 2, "hidden": 1024, "intermediate": 256}
BF16 = Call(tokens=64, **SIZES)  # type: ignore[arg-type]
CHANNEL = Call(scheme="fp8-channel", tokens=64, **SIZES)  # type: ignore[arg-type]


def opened(folder: Path, files: Mapping[str, bytes]) -> Release:
    """Write a release as a tree and open it."""
    return open_release(str(write_tree(folder / "release", files)))


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Release]:
    """A release that ends its process when 3 tokens are asked for."""
    files = plant(
        sound_release(),
        MOE,
        "token = bucket(M)\n",
        "token = bucket(M) if M != 3 else __import__('os').abort()\n",
    )
    with opened(tmp_path, files) as release:
        yield release


class TestTracer:
    """One process a release and board."""

    def test_a_wheel_and_its_tree_trace_alike(self, tmp_path: Path, cache: Path) -> None:
        """The layout of an artefact plays no part in what is traced."""
        files = sound_release()
        with open_release(str(write_wheel(tmp_path, files))) as wheel, opened(tmp_path, files) as tree:
            runs = [run_calls(each, BOARD, (BF16, CHANNEL), cache=cache) for each in (wheel, tree)]
        assert runs[0].traces == runs[1].traces

    def test_the_release_is_not_changed(self, tmp_path: Path, cache: Path) -> None:
        """A release that writes into its own tables changes a private copy only."""
        files = plant(
            sound_release(),
            "aiter/jit/core.py",
            '        return os.path.join(ROOT, "aiter/configs',
            '        open(os.path.join(ROOT, "aiter/configs/tuned_fmoe.csv"), "a").write("\\n")\n'
            '        return os.path.join(ROOT, "aiter/configs',
        )
        with opened(tmp_path, files) as release:
            before = release.identity
            run_calls(release, BOARD, (BF16,), cache=cache)
            assert identity_of(release.files) == before

    def test_shared_temporary_names_are_private(self, tmp_path: Path, cache: Path) -> None:
        """What a release writes below the machine's temporary folder never gets there."""
        name = f"/tmp/aiter-trace-test-{os.getpid()}"  # noqa: S108 -- the place that must stay free
        files = plant(
            sound_release(),
            MOE,
            "cfg_2stages = None\n\n",
            f'cfg_2stages = None\nopen("{name}", "w").close()\n\n',
        )
        with opened(tmp_path, files) as release:
            run = run_calls(release, BOARD, (BF16,), cache=cache)
        assert [trace.status for trace in run.traces] == [Status.LAUNCHED]
        assert not Path(name).exists()

    def test_the_environment_is_scrubbed(
        self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No variable of the caller's reaches the release; a board's list of builds does."""
        monkeypatch.setenv("AITER_KSPLIT", "7")
        monkeypatch.setenv("GPU_ARCHS", "gfx90a")
        files = plant(
            sound_release(),
            MOE,
            "    token = bucket(M)\n",
            "    import os\n    if M == 64:\n"
            "        raise OSError(sorted(n for n in os.environ if n.startswith(('AITER_', 'GPU_'))))\n"
            "    token = bucket(M)\n",
        )
        with opened(tmp_path, files) as release:
            seen = [
                run_calls(release, board, (BF16,), cache=cache).traces[0].raised
                for board in (BOARD, Board("gfx950", 256, "gfx942"))
            ]
        expected = "['AITER_JIT_DIR', {}'AITER_SITUV2_A4W4'{}]"
        assert [str(each and each.message) for each in seen] == [
            expected.format("", ""),
            expected.format("", ", 'GPU_ARCHS'"),
        ]

    def test_an_import_that_raises_is_said_with_its_words(self, tmp_path: Path) -> None:
        """A release that cannot be imported is no result; the message has its last words and no path."""
        files = plant(
            sound_release(), MOE, "cfg_2stages = None\n\n", "raise RuntimeError('no such chip')\n\n"
        )
        with (
            opened(tmp_path, files) as release,
            pytest.raises(InfrastructureError, match="RuntimeError: no such chip") as caught,
            Tracer(release, BOARD),
        ):
            pass
        assert str(tmp_path) not in str(caught.value)

    def test_an_import_that_hangs_is_ended(self, tmp_path: Path) -> None:
        """A release whose import never ends is no result either."""
        files = plant(sound_release(), MOE, "cfg_2stages = None\n\n", "import time\ntime.sleep(600)\n\n")
        with (
            opened(tmp_path, files) as release,
            pytest.raises(InfrastructureError, match="said nothing for 12 s"),
            Tracer(release, BOARD, limits=Limits(start=12.0)),
        ):
            pass

    def test_memory_is_limited(self, tmp_path: Path, cache: Path) -> None:
        """A release that takes more memory than it may gets an error of its own process."""
        files = plant(sound_release(), MOE, "token = bucket(M)\n", "token = len(bytearray(8 << 30))\n")
        with opened(tmp_path, files) as release:
            run = run_calls(release, BOARD, (BF16,), cache=cache, limits=Limits(memory=3 << 30))
        assert [trace.raised and trace.raised.type for trace in run.traces] == ["MemoryError"]

    def test_a_crash_costs_one_call(self, planted: Release, cache: Path) -> None:
        """The call that ends the process says so; those after it are made by a new one."""
        calls = [Call(tokens=number, **SIZES) for number in (1, 3, 64)]  # type: ignore[arg-type]
        run = run_calls(planted, BOARD, calls, cache=cache)
        assert [trace.status for trace in run.traces] == [Status.LAUNCHED, Status.DIED, Status.LAUNCHED]
        assert "signal 6" in str(run.traces[1].died)

    def test_exceptions_are_placed_in_the_release(self, tmp_path: Path, cache: Path) -> None:
        """What the release raises comes with type, message, and file and line relative to it."""
        files = plant(sound_release(), MOE, "token = bucket(M)\n", "token = {}['no such key']\n")
        line = files[MOE].decode().split("{}['no such key']")[0].count("\n") + 1
        with opened(tmp_path, files) as release:
            (trace,) = run_calls(release, BOARD, (BF16,), cache=cache).traces
        assert trace.raised is not None
        assert (trace.raised.type, trace.raised.place) == ("KeyError", f"{MOE}:{line}")

    @pytest.mark.parametrize(
        ("asked", "status"),
        [
            ("flydsl==0.1.0", Status.LAUNCHED),
            ("flydsl>=0.1.4.post1.dev,<0.1.5", Status.LAUNCHED),
            ("einops", Status.RAISED),
        ],
    )
    def test_flydsl_is_there_where_the_release_asks_for_it(
        self, tmp_path: Path, cache: Path, asked: str, status: Status
    ) -> None:
        """A pin of one version and a range are both served; who asks for none cannot import it."""
        old, new = "token = bucket(M)\n", "token = bucket(M) if __import__('flydsl') else None\n"
        files = {**plant(sound_release(), MOE, old, new), "requirements.txt": f"{asked}\n".encode()}
        with opened(tmp_path, files) as release:
            (trace,) = run_calls(release, BOARD, (BF16,), cache=cache).traces
        assert trace.status == status

    def test_a_result_of_another_shape_is_no_refusal(self, tmp_path: Path, cache: Path) -> None:
        """What the subject raises about the release's result, after the launches, counts as an exception."""
        files = plant(
            sound_release(), MOE, "    split = max(", "    out = out.new_empty((M, topk))\n    split = max("
        )
        with opened(tmp_path, files) as release:
            (trace,) = run_calls(release, BOARD, (BF16,), cache=cache).traces
        assert trace.status is Status.RAISED
        assert "shape of output" in str(trace.raised)


class TestSharedExperts:
    """Shared experts, fused behind the routed ones."""

    @pytest.mark.parametrize(
        ("local", "mask", "asked", "mask_size"),
        [(8, False, {"expert": 9, "topk": 3}, None), (4, True, {"expert": 5, "topk": 4}, 10)],
        ids=["one rank", "behind a mask"],
    )
    def test_they_are_experts_and_choices(
        self,
        tmp_path: Path,
        cache: Path,
        local: int,
        mask: bool,
        asked: dict[str, int],
        mask_size: int | None,
    ) -> None:
        """A rank holds one expert more, a token has one choice more, and with a mask the sentinel's too."""
        files = plant(
            sound_release(),
            MOE,
            "token = bucket(M)\n",
            "token = bucket(M)\n    import logging\n"
            "    size = None if expert_mask is None else expert_mask.numel()\n"
            "    logging.getLogger('aiter').warning(str(size))\n",
        )
        call = Call(tokens=64, mask=mask, shared=1, **{**SIZES, "local_experts": local})  # type: ignore[arg-type]
        with opened(tmp_path, files) as release:
            (trace,) = run_calls(release, BOARD, (call,), cache=cache).traces
        assert trace.status is Status.LAUNCHED, trace.raised
        assert trace.asked is not None
        assert {name: trace.asked[name] for name in asked} == asked
        assert trace.warnings == (str(mask_size),)

    def test_tensors_of_their_own(self, tmp_path: Path, cache: Path) -> None:
        """A release whose call has no place for them is said to refuse, naming what it lacks."""
        call = Call(entry="fused_moe", scheme="mxfp4-w4a4", shared=1, shared_apart=True, **SIZES)  # type: ignore[arg-type]
        with opened(tmp_path, sound_release()) as release:
            (trace,) = run_calls(release, BOARD, (call,), cache=cache).traces
        assert trace.status is Status.REFUSED
        assert "takes no shared_expert_id and no shared_w1" in str(trace.raised)


class TestCachedRun:
    """Runs are kept by content."""

    def test_a_kept_run_is_the_same_and_takes_no_process(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A second time nothing is started, and the traces are equal."""
        with opened(tmp_path, sound_release()) as release:
            first = cached_run(release, BOARD, (BF16, CHANNEL), tmp_path / "kept")
            monkeypatch.setattr(Tracer, "__enter__", None)
            assert cached_run(release, BOARD, (BF16, CHANNEL), tmp_path / "kept") == first

    def test_another_board_release_or_call_is_another_run(self, tmp_path: Path) -> None:
        """Whatever changes the result changes the key; a damaged file is made again."""
        kept = tmp_path / "kept"
        with opened(tmp_path, sound_release()) as release:
            cached_run(release, BOARD, (BF16,), kept)
            cached_run(release, BOARD, (CHANNEL,), kept)
            cached_run(release, Board("gfx942", 304), (BF16,), kept)
            files = sorted((kept / "runs").iterdir())
            assert len(files) == 3
            for file in files:
                file.write_text("{")
            (trace,) = cached_run(release, BOARD, (BF16,), kept).traces
        assert trace.status is Status.LAUNCHED


class TestRecords:
    """Traces and calls as plain JSON."""

    def test_round_trip(self, tmp_path: Path, cache: Path) -> None:
        """A trace survives being written and read, refusals and exceptions included."""
        situ = Call(activation="situ", tokens=64, **SIZES)  # type: ignore[arg-type]
        with opened(tmp_path, sound_release()) as release:
            traces = run_calls(release, BOARD, (BF16, CHANNEL, situ), cache=cache).traces
        assert [trace.status for trace in traces] == [Status.LAUNCHED, Status.LAUNCHED, Status.REFUSED]
        assert tuple(trace_from_json(json.loads(json.dumps(trace.to_json()))) for trace in traces) == traces
        assert call_from_json(json.loads(json.dumps(BF16.to_json()))) == BF16

    def test_the_same_twice(self, tmp_path: Path, cache: Path) -> None:
        """Two runs give equal traces."""
        with opened(tmp_path, sound_release()) as release:
            runs = [run_calls(release, BOARD, (BF16, CHANNEL), cache=cache) for _ in range(2)]
        assert runs[0].traces == runs[1].traces


class TestParseBoard:
    """Boards by name."""

    def test_names(self) -> None:
        """Every board is found by its own name, and an arch alone is its first board."""
        assert [parse_board(str(board)) for board in all_boards()] == list(all_boards())
        assert parse_board("gfx942") == Board("gfx942", 304)

    @pytest.mark.parametrize("text", ["gfx90a", "gfx942:1", "", "gfx950:"])
    def test_bad_names(self, text: str) -> None:
        """A board that is none is an error that lists the boards; a bare colon counts as no number."""
        if text == "gfx950:":
            assert parse_board(text) == BOARD
            return
        with pytest.raises(UsageError, match="gfx942:80"):
            parse_board(text)


class TestCall:
    """What a call may say."""

    def test_leaf_works_out_its_own(self) -> None:
        """Through the leaf, gate mode and pads cannot be set from outside."""
        with pytest.raises(UsageError, match="must be left alone"):
            Call(gate_mode="interleave")

    def test_shared_experts_apart(self) -> None:
        """Tensors of its own are for one shared expert in a direct call."""
        assert Call(entry="fused_moe", shared=1, shared_apart=True).held == 9
        for wrong in ({"shared": 1}, {"entry": "fused_moe"}, {"entry": "fused_moe", "shared": 2}):
            with pytest.raises(UsageError, match="must be said of one shared expert in a direct call"):
                Call(shared_apart=True, **wrong)  # type: ignore[arg-type]

    def test_schemes(self) -> None:
        """A scheme that no leaf serves can be asked for directly only."""
        assert Call(entry="fused_moe", scheme="mxfp8").scheme == "mxfp8"
        with pytest.raises(UsageError, match="scheme must be one of"):
            Call(scheme="mxfp8")
