"""The level trace and the model catalogue."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aiter_conformance import cli, modelfile, runner
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.errors import UsageError
from aiter_conformance.evidence import ReleaseId
from aiter_conformance.levels.trace import each_bucket, observe, observe_tuned
from aiter_conformance.modelfile import Line, ModelFile
from aiter_conformance.models import Catalogue, Deployment, load_models, loaded_sizes, model_calls
from aiter_conformance.outcome import Kind, Reason
from aiter_conformance.publish import models as models_page
from aiter_conformance.release import open_release
from aiter_conformance.release.samples import write_tree
from aiter_conformance.release.tuned import read_tuned
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.findings import FAILING
from aiter_conformance.trace.model_report import lines, record, report_models
from aiter_conformance.trace.run import run_calls
from aiter_conformance.trace.samples import plant, sound_release
from aiter_conformance.trace.tuned_calls import tuned_calls

BOARD = Board("gfx950", 256)
CELLS = (
    Cell("gfx950", "bf16", "silu", "out"),
    Cell("gfx950", "bf16", "situ", "out"),
    Cell("gfx950", "bf16", "relu2", "out"),
    Cell("gfx950", "fp8-block", "silu", "out"),
    Cell("gfx942", "bf16", "silu", "out"),
)


class TestObserve:
    """Outcomes of cells."""

    def test_sound_and_broken_cells(self, tmp_path: Path) -> None:
        """A cell passes, is refused by the release or the leaf, or fails with the code of what is wrong."""
        files = plant(sound_release(), "aiter/fused_moe.py", "return 2 if token", "return 14 if token")
        with open_release(str(write_tree(tmp_path / "release", files))) as release:
            level = observe(release, BOARD, CELLS, tmp_path / "kept")
        outcomes = {cell: (outcome.kind, outcome.reason) for cell, outcome in level.outcomes.items()}
        assert outcomes == {
            CELLS[0]: (Kind.PASS, None),
            CELLS[1]: (Kind.REFUSED, Reason.API_MISSING_ACTIVATION),
            CELLS[2]: (Kind.SKIPPED, Reason.ACTIVATION),
            CELLS[3]: (Kind.FAIL, Reason.SPLIT_K_TOO_FINE),
        }
        details = level.outcomes[CELLS[0]].details
        assert details["kernels"] == {"ck": 20}
        line = "1:ck 32x64x128 + 2:ck 32x64x128 in bf16, default"
        assert details["inputs"]["shared-experts"] == {"M=1,64": line}
        assert dict(each_bucket(details["inputs"]["many-experts"]))["M=64"] == line
        assert [cause.code.value for cause in level.causes if cause.code in FAILING] == ["split-k-too-fine"]

    def test_a_release_that_cannot_be_imported(self, tmp_path: Path) -> None:
        """Every cell of the board is not run, with the reason: never a failure of a kernel."""
        files = plant(sound_release(), "aiter/__init__.py", "from .jit import core\n", "1 / 0\n")
        with open_release(str(write_tree(tmp_path / "release", files))) as release:
            level = observe(release, BOARD, CELLS, tmp_path / "kept")
        assert {outcome.kind for outcome in level.outcomes.values()} == {Kind.NOT_RUN}
        assert all("ZeroDivisionError" in str(outcome.message) for outcome in level.outcomes.values())

    def test_every_failing_code_is_a_reason(self) -> None:
        """A record may carry the code of every check that fails a call."""
        assert {code.value for code in FAILING} <= {reason.value for reason in Reason}


class TestObserveTuned:
    """Rows of the tuned tables."""

    def test_a_row_is_asked_for_by_its_own_call(self, tmp_path: Path) -> None:
        """The sound row is answered by itself; one that names a kernel that is not made is found."""
        table = "aiter/configs/tuned_fmoe.csv"
        files = plant(sound_release(), table, "256,64,1024,256,8,2", "256,128,1024,256,8,2")
        with open_release(str(write_tree(tmp_path / "release", files))) as release:
            rows = list(tuned_calls(read_tuned(release), BOARD))
            assert [(call.scheme, call.tokens, call.topk) for _, call in rows] == [("bf16", 128, 2)]
            run = run_calls(release, BOARD, [call for _, call in rows])
            assert [trace.dispatch for trace in run.traces] == ["tuned"]
            assert observe_tuned(release, BOARD, tmp_path / "kept") == ()
        broken = {**files, table: files[table].replace(b"gemm2_256x32", b"gemm2_256x16")}
        with open_release(str(write_tree(tmp_path / "broken", broken))) as release:
            causes = observe_tuned(release, BOARD, tmp_path / "kept")
        assert [cause.code.value for cause in causes] == ["tuned-kernel-not-made"]

    def test_command(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """``trace run --tuned``: how many rows, what is wrong, and the exit code that it deserves."""
        table = "aiter/configs/tuned_fmoe.csv"
        files = plant(sound_release(), table, "256,64,1024,256,8,2", "256,128,1024,256,8,2")
        write_tree(tmp_path / "sound", files)
        broken = {**files, table: files[table].replace(b"gemm2_256x32", b"gemm2_256x16")}
        write_tree(tmp_path / "broken", broken)

        # Real releases need packages that this one does not.
        monkeypatch.setattr(runner, "runnable", lambda levels: (tuple(levels), ()))

        def run(name: str, board: str, *more: str) -> tuple[object, str, str]:
            arguments = [str(tmp_path / name), "--board", board, "--tuned", "--root", str(tmp_path), *more]
            monkeypatch.setattr("sys.argv", ["aiter-conformance", "trace", "run", *arguments])
            with pytest.raises(SystemExit) as ended:
                cli.main()
            return (ended.value.code, *capsys.readouterr())

        code, out, _ = run("sound", str(BOARD))
        assert (code, ": 1 tuned rows traced" in out) == (0, True)
        code, out, _ = run("broken", str(BOARD), "--json")
        shown = json.loads(out)
        assert (code, shown["rows"]) == (1, 1)
        assert [cause["code"] for cause in shown["causes"]] == ["tuned-kernel-not-made"]
        code, _, error = run("sound", "gfx942:80")
        assert (code, "NOT RUN" in error and "no tuned row for gfx942:80" in error) == (3, True)
        code, _, error = run("sound", str(BOARD), "--model", "deepseek-v3")
        assert (code, "--tuned must not be given with --model" in error) == (2, True)


class TestCatalogue:
    """``models.toml``."""

    def test_size_and_sources(self) -> None:
        """There are at least 20 models, each with a source for its shape and for each scheme."""
        catalogue = load_models()
        assert len(catalogue.models) >= 20
        for model in catalogue.models.values():
            assert "@" in model.source
            assert all(model.schemes.values())
            assert set(model.schemes) <= set(load_axes().schemes)

    def test_what_is_not_known_is_said(self) -> None:
        """A model that was not read is refused with the reason, an unknown name with the known ones."""
        catalogue = load_models()
        assert not set(catalogue.unread) & set(catalogue.models)
        with pytest.raises(UsageError, match="the shape of minimax-m3 is not known"):
            catalogue.find("minimax-m3")
        with pytest.raises(UsageError, match="deepseek-v3"):
            catalogue.find("no-such-model")


class TestLoadedSizes:
    """Pads of loaders, by hand from the contract."""

    @pytest.mark.parametrize(
        ("scheme", "activation", "sizes", "expected"),
        [
            ("bf16", "silu", (2048, 96), (2048, 128)),
            ("bf16", "silu", (2048, 192), (2048, 192)),
            ("bf16", "silu", (2048, 193), (2048, 256)),
            ("mxfp4-w4a16", "swigluoai", (2880, 2880), (3072, 3072)),
            ("mxfp4-w4a16", "swigluoai", (2880, 360), (3072, 512)),
            ("mxfp4-w4a16", "situ", (3584, 384), (3584, 384)),
            ("mxfp4-w4a4", "silu", (2880, 360), (3072, 384)),
            ("fp8-block", "silu", (7168, 256), (7168, 256)),
        ],
    )
    def test_sizes(
        self, scheme: str, activation: str, sizes: tuple[int, int], expected: tuple[int, int]
    ) -> None:
        """Sizes are rounded up as the scheme's loader does."""
        assert loaded_sizes(scheme, activation, *sizes) == expected


class TestModelCalls:
    """Calls of a model."""

    def test_gpt_oss(self) -> None:
        """gpt-oss divided by 2: pads of the whole and of the partition, biases, all experts on each rank."""
        model = load_models().find("gpt-oss-120b")
        calls = {where: call for where, call in model_calls(model, "mxfp4-w4a16", tokens=(64,)) if call.bias}
        call = calls[Deployment(tp=2)]
        assert (call.hidden, call.hidden_pad) == (3072, 192)
        assert (call.intermediate, call.intermediate_pad) == (1536, 96)
        assert (call.local_experts, call.mask) == (128, False)
        divided = calls[Deployment(ep=8)]
        assert (divided.local_experts, divided.mask, divided.tp, divided.intermediate) == (16, True, 1, 3072)


class TestReportModels:
    """A model's report on a release."""

    def test_what_runs_and_what_is_wrong(self, tmp_path: Path) -> None:
        """A model that runs says so; one the leaf refuses is listed with the reason; a fault is named."""
        models = [load_models().find(name) for name in ("mixtral-8x7b", "qwen3-235b-a22b", "gemma-4-26b-a4b")]
        files = plant(sound_release(), "aiter/fused_moe.py", "return 2 if token", "return 16 if token")
        with open_release(str(write_tree(tmp_path / "release", files))) as release:
            report = report_models(release, BOARD, models, folder=tmp_path / "kept")
        assert report.is_good("mixtral-8x7b")
        assert all(row.runs for row in report.of("qwen3-235b-a22b", "bf16"))
        assert not all(row.runs for row in report.of("qwen3-235b-a22b", "fp8-block"))
        assert "gelu_tanh" in report.refused["gemma-4-26b-a4b", "bf16"]
        found = lines(report)
        assert any(x.scheme == "fp8-block" and "split-k-too-fine (M 1)" in x.wrong for x in found)
        assert any(x.model == "gemma-4-26b-a4b" and x.runs == "refused" for x in found)
        made = record(report, ReleaseId("0.1.99", "sha256:" + "0" * 64, "tree"))
        assert set(made.good) == {"mixtral-8x7b", "qwen3-235b-a22b"}  # the latter in bf16
        assert modelfile.write(made, tmp_path).name == f"models-{str(BOARD).replace(':', '-')}.json"
        assert modelfile.load(tmp_path) == [made]
        text = models_page.render([made])
        assert "# Public models with AITER 0.1.99" in text
        assert "split-k-too-fine (M 1)" in text
        assert "minimax-m3" in text

    def test_quantised_activations_are_no_plain_yes(self) -> None:
        """Where kernels read what the scheme does not ask for, the page says so; SiTU asks for fp4."""

        def line(model: str, runs: str, kernels: str, wrong: str = "", scheme: str = "mxfp4-w4a16") -> Line:
            return Line(model, scheme, "TP 1", runs, "0/4", kernels, wrong)

        said = "activations-quantised (fp8, not bf16)"
        shown = {
            line("gpt-oss-120b", "yes", "ck-tile (bf16); ck-tile (fp8)"): f"yes, but | 0/4 | * | {said} |",
            line("gpt-oss-20b", "yes", "ck-tile (bf16)"): "yes | 0/4 | * | |",
            line("deepseek-v4-pro", "3/4", "ck (bf16); opus (fp8)", "x (M 64)"): (
                f"3/4 | 0/4 | * | x (M 64); {said} |"
            ),
            line("kimi-k3", "yes", "flydsl (fp4)"): "yes | 0/4 | * | |",
            line("glm-5", "yes", "asm-1stage (bf16); ck (fp8)", scheme="fp8-block"): "yes | 0/4 | * | |",
        }
        release = ReleaseId("0.1.99", "sha256:" + "0" * 64, "tree")
        text = models_page.render([ModelFile(release, str(BOARD), "2026-01-02", "0.1.0", (), tuple(shown))])
        for each, expected in shown.items():
            assert f"TP 1 | {expected.replace('*', each.kernels)}" in text

    def test_the_headline_of_a_model_that_does_not_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """One deployment of each scheme is enough for code 1, and the headline says no more than that."""
        monkeypatch.setattr(runner, "runnable", lambda levels: (tuple(levels), ()))
        files = plant(sound_release(), "aiter/fused_moe.py", "return 2 if token", "return 16 if token")
        tree = str(write_tree(tmp_path / "release", files))
        model = load_models().find("qwen3-235b-a22b")
        heads = {}
        for scheme, schemes in (("fp8-block", ("fp8-block",)), ("bf16", ("bf16", "fp8-block"))):
            chosen = replace(model, schemes={name: model.schemes[name] for name in schemes})
            monkeypatch.setattr(Catalogue, "find", lambda _self, _name, chosen=chosen: chosen)
            arguments = [tree, "--board", str(BOARD), "--model", model.name, "--root", str(tmp_path)]
            monkeypatch.setattr("sys.argv", ["aiter-conformance", "trace", "run", *arguments])
            with pytest.raises(SystemExit) as ended:
                cli.main()
            out, err = capsys.readouterr()
            heads[scheme] = (ended.value.code, out.splitlines()[0].split(": ")[1], err.splitlines()[-1:])
        assert heads["fp8-block"][:2] == (1, "no scheme runs in every deployment")
        assert heads["fp8-block"][2] == [
            "findings: something is wrong in what was looked at, as the output says"
        ]
        assert heads["bf16"] == (0, "runs in every deployment of a scheme", [])
