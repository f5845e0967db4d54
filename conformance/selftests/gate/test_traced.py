"""Releases whose dispatch was changed in one place, with traces: one root cause each, and nothing from noise.

One board and three models of the catalogue stand for all, so that a release takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from aiter_conformance.evidence import Level
from aiter_conformance.gate import models, page
from aiter_conformance.gate.classes import FAILING
from aiter_conformance.gate.report import Report, compare
from aiter_conformance.gate.side import Side, observe
from aiter_conformance.models import Catalogue, load_models
from aiter_conformance.release import open_release
from aiter_conformance.release.samples import write_tree
from aiter_conformance.subjects import load_subject
from aiter_conformance.trace import board as boards
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.samples import plant, sound_release

pytest.importorskip("torch", reason="NOT RUN: the tracer needs torch")

Observe = Callable[[Mapping[str, bytes]], Side]
MOE, TKW1 = "aiter/fused_moe.py", "aiter/fused_moe_bf16_asm.py"
LEVELS = (Level.DECLARED, Level.INVENTORY, Level.TRACE)
BOARD = "gfx950:256"
MODELS = ("deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b")


@pytest.fixture(scope="module")
def observe_files(tmp_path_factory: pytest.TempPathFactory) -> Observe:
    """Observe a release with traces on one board, and of three models."""
    folder = tmp_path_factory.mktemp("traced")
    subject = load_subject("impl")
    known = load_models()
    few = Catalogue({name: known.models[name] for name in MODELS}, known.unread)

    def observe_files(files: Mapping[str, bytes]) -> Side:
        tree = write_tree(folder / str(len(list(folder.iterdir()))), dict(files))
        with pytest.MonkeyPatch.context() as patched, open_release(str(tree)) as release:
            for module in (models, boards):
                patched.setattr(module, "all_boards", lambda: (Board("gfx950", 256),))
            patched.setattr(models, "load_models", lambda: few)
            return observe(release, subject, LEVELS, folder / "kept")

    return observe_files


@pytest.fixture(scope="module")
def sound(observe_files: Observe) -> Side:
    """The sound release."""
    return observe_files(sound_release())


def decide(old: Side, new: Side) -> Report:
    """Compare two releases on the board that was traced."""
    return compare(
        old, new, labels=("old", "new"), subject="impl@0.1.0", ledger=(), fail_on=FAILING, board=BOARD
    )


class TestPlanted:
    """One place changed."""

    def test_the_same_code(self, sound: Side, observe_files: Observe) -> None:
        """A release whose code has a remark more is all the same, traces included."""
        report = decide(
            sound, observe_files(plant(sound_release(), MOE, "    packed =", "    # a remark\n    packed ="))
        )
        assert (report.causes, report.exit_code, report.not_run) == ((), 0, ())
        assert report.levels == ("declared", "inventory", "trace")

    def test_a_kernel_swapped_for_one_token_bucket(self, sound: Side, observe_files: Observe) -> None:
        """For 64 tokens alone the kernel of another activation runs: one cause, of that bucket only."""
        swapped = plant(
            sound_release(),
            MOE,
            "moe.fmoe_g1u1(out, states, w1, w2, expert_ids, topk, name1, activation.value)",
            "moe.fmoe_g1u1(out, states, w1, w2, expert_ids, topk, name1,\n"
            "                      1 - activation.value if token == 64 else activation.value)",
        )
        report = decide(sound, observe_files(swapped))
        (cause,) = report.failing
        assert (cause.id, cause.change.value, report.exit_code) == (
            "dispatch:wrong-activation",
            "regressed",
            1,
        )
        assert [c.id for c in report.causes if c.change.direction < 0] == [cause.id]
        calls = [c for c in (*cause.changes, *cause.consequences) if c.item.kind.value in ("case", "model")]
        assert calls
        assert {change.item.key.rpartition(" ")[2] for change in calls} == {"M=64"}

    def test_another_sound_kernel_for_one_token_bucket(self, sound: Side, observe_files: Observe) -> None:
        """Where the other kernel is as good, it is named with its bucket, and nothing fails."""
        moved = plant(sound_release(), MOE, "and token > 16 and", "and token > 64 and")
        report = decide(sound, observe_files(moved))
        assert (report.exit_code, [c.id for c in report.causes if c.change.direction < 0]) == (0, [])
        moved_causes = [cause for cause in report.causes if cause.change.value == "kernel-changed"]
        inputs = [c for cause in moved_causes for c in cause.changes if c.item.kind.value == "case"]
        assert {change.item.key.rpartition(" ")[2] for change in inputs} == {"M=64"}
        assert "asm-1stage -> ck + ck" in page.render(report)

    def test_a_guard_deleted(self, sound: Side, observe_files: Observe) -> None:
        """Split K down to one tile: one cause, with the inputs and models that get it."""
        files = plant(sound_release(), MOE, "return 2 if token", "return 14 if token")
        report = decide(sound, observe_files(files))
        (cause,) = report.failing
        assert (cause.id, report.exit_code) == ("dispatch:split-k-too-fine", 1)
        changes = (*cause.changes, *cause.consequences)
        assert {change.item.kind.value for change in changes} >= {"case", "model"}
        assert {c.item.key.split()[0] for c in changes if c.item.kind.value == "model"} <= set(MODELS)
        cells = {c.item.key.split()[0] for c in changes if c.item.kind.value == "case"}
        assert "gfx950/fp8-block/silu/out" in cells
        assert {cell.split("/")[1] for cell in cells} == {"fp8-block"}

    def test_a_module_moved(self, sound: Side, observe_files: Observe) -> None:
        """A module that a leaf imports has moved: it is named with what it served, and no trace made up."""
        files = dict(sound_release())
        files["aiter/ops/fused_moe_bf16_asm.py"] = files.pop(TKW1)
        report = decide(sound, observe_files(files))
        assert report.exit_code == 3
        assert "No module named 'aiter.fused_moe_bf16_asm'" in report.not_run[0]
        cause = report.failing[0]
        assert (cause.id, cause.change.value) == ("module:aiter.fused_moe_bf16_asm", "lost")
        kinds = {change.item.kind.value for c in report.causes for change in (*c.changes, *c.consequences)}
        assert kinds.isdisjoint({"case", "model"})
        worse = {change.id for change in cause.consequences if change.change.direction < 0}
        assert {"function:asm_moe_tkw1", "cell:gfx950/fp8-channel/silu/in"} <= worse

    def test_a_release_that_cannot_be_imported(self, sound: Side, observe_files: Observe) -> None:
        """No trace, no decision: exit code 3, with the release's own words."""
        files = plant(sound_release(), MOE, "cfg_2stages = None\n\n", "raise OSError('no chip')\n\n")
        report = decide(sound, observe_files(files))
        assert report.exit_code == 3
        assert all("no chip" in sentence for sentence in report.not_run)


class TestModels:
    """`models.model_items`."""

    def test_they_are_what_the_models_get(self, sound: Side) -> None:
        """Each call of each deployment of the three models is there, and runs."""
        items = [item for item in sound.items if item.kind.value == "model"]
        assert {item.key.split()[0] for item in items} == set(MODELS)
        assert "deepseek-v3 fp8-block gfx950:256 TP 8 M=64" in {item.key for item in items}

    def test_a_model_alone(self, sound: Side, observe_files: Observe) -> None:
        """With --model, what cannot matter to it is left out, and what breaks it still fails."""
        worse = observe_files(plant(sound_release(), MOE, "return 2 if token", "return 14 if token"))
        codes = {
            name: compare(
                sound, worse, labels=("a", "b"), subject="impl@0.1.0", ledger=(), fail_on=FAILING,
                board=BOARD, model=name,
            ).exit_code
            for name in MODELS
        }  # fmt: skip
        assert codes == {"deepseek-v3": 1, "qwen3-235b-a22b": 1, "gpt-oss-120b": 0}

    def test_what_was_kept_serves_both(self, sound: Side, observe_files: Observe) -> None:
        """Observed again, nothing is traced: the calls of cells and of models come from one kept run."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("aiter_conformance.trace.cached.run_calls", None)
            patched.setattr("aiter_conformance.gate.side.find_kept", lambda *_: None)
            again = observe_files(sound_release())
        assert decide(sound, again).causes == ()
