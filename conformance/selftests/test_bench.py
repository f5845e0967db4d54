"""The bench measures in processes of its own, and says what it did not measure and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from aiter_conformance import bench
from aiter_conformance.bench import FIGURES, Figure, Given, Measured, measure, with_memory
from aiter_conformance.bench_figures import slow_selftests

GIVEN = Given("/nowhere.whl", None, "/nowhere")


def figure(**changes: object) -> Figure:
    """Return a figure of two units at most."""
    return Figure(**({"name": "f", "target": 2.0, "unit": "s", "measure": lambda _: 0.0} | changes))  # type: ignore[arg-type]


class TestMeasured:
    """`Measured`."""

    @pytest.mark.parametrize(
        ("values", "more", "holds"),
        [
            ((1.0, 2.0, 9.0), False, True),
            ((1.0, 2.1, 2.2), False, False),
            ((1.0, 2.0, 9.0), True, True),
            ((1.9, 1.8), True, False),
            ((), False, None),
        ],
    )
    def test_holds(self, values: tuple[float, ...], more: bool, holds: bool | None) -> None:
        """The median decides, on the side that the promise is on; nothing measured is neither."""
        assert Measured(figure(more=more), values, 0.0).holds is holds


class TestMeasure:
    """`measure`."""

    def test_missing_package(self) -> None:
        """A figure whose packages are not there is not run, and says which."""
        seen = measure(figure(needs=("json", "no_such_package", "nor.this")), GIVEN)
        assert (seen.values, seen.reason) == ((), "it needs no_such_package, nor.this")

    def test_not_run(self) -> None:
        """So one that needs what was not given."""
        cold = next(f for f in FIGURES if f.name.endswith("cold"))
        seen = measure(cold, GIVEN)
        assert (seen.values, seen.reason) == (
            (),
            "it needs two releases: give a clone of ROCm/aiter with --git",
        )

    def test_failure(self) -> None:
        """A measurement that fails says how it ended."""
        seen = measure(next(f for f in FIGURES if f.name.startswith("inventory")), GIVEN)
        assert seen.values == ()
        assert seen.reason.startswith("it ended with 1: ")


class TestSlowSelftests:
    """`slow_selftests`."""

    def test_read(self) -> None:
        """They are those of the session, and each is a folder of tests."""
        root = Path(__file__).parents[2]
        folders = slow_selftests(root)
        assert "numerics" in folders
        assert all((root / "conformance" / "selftests" / folder).is_dir() for folder in folders)


class TestWithMemory:
    """`with_memory`."""

    def test_largest(self) -> None:
        """The last row is the most that any measurement used."""
        rows = with_memory([Measured(figure(), (1.0,), 0.5), Measured(figure(), (1.0,), 2.5)])
        assert (rows[-1].median, rows[-1].holds) == (2.5, False)

    def test_nothing(self) -> None:
        """Where nothing was measured, memory was not either."""
        rows = with_memory([Measured(figure(), (), 0.0, "no")])
        assert (rows[-1].median, rows[-1].reason) == (None, "nothing was measured")


class TestMain:
    """The command."""

    def test_every_promise_has_a_row(self) -> None:
        """Ten figures, memory apart, each with a target."""
        assert len({f.name for f in FIGURES}) == len(FIGURES) == 10
        assert all(f.target > 0 for f in FIGURES)

    @pytest.mark.parametrize("as_json", [False, True])
    def test_output(self, as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A row says target, median and whether it holds, or NOT RUN and why."""
        (tmp_path / "a.whl").touch()
        monkeypatch.setattr(bench, "FIGURES", (figure(name="slow"), figure(name="odd", more=True)))
        seen = {"slow": Measured(figure(name="slow"), (3.0, 1.0, 2.5), 0.25)}
        missing = Measured(figure(name="odd", more=True), (), 0.0, "it needs luck")
        monkeypatch.setattr(bench, "measure", lambda one, _given: seen.get(one.name, missing))
        run = CliRunner().invoke(bench.main, [str(tmp_path / "a.whl"), *(["--json"] if as_json else [])])
        assert run.exit_code == 0
        if as_json:
            document = json.loads(run.output)
            assert [one["holds"] for one in document] == [False, None, True]
            assert document[1]["not_run"] == "it needs luck"
            assert document[0]["median"] == 2.5
        else:
            assert "slow" in run.output
            lines = [line.split() for line in run.output.splitlines()[2:]]
            assert lines[0][:8] == ["slow", "<=", "2", "s", "NO", "2.5", "s", "1"]
            assert lines[1] == ["odd", ">=", "2", "s", "NOT", "RUN", "it", "needs", "luck"]
