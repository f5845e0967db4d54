"""``python -m aiter_conformance.faults``: what is caught, what is not, and what says nothing at all."""

from __future__ import annotations

from typing import Any

import pytest

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.faults.planted import Fault, load_faults, plant
from aiter_conformance.faults.variant import source_of

ADD = "return a + b"


# Fault of the toy -> anchor, replacement and what becomes of it.
PLANTED = {
    "minus": (ADD, "return a - b", "caught"),
    # Nothing is asked of the toy near its limit.
    "limit": ("return a < 10", "return a <= 10", "survived"),
    # What no test runs no test catches, however broken it is.
    "idle": ("return 'idle'", "raise ValueError", "survived"),
    # What breaks the import is caught by whichever test imports first.
    "import": ("import annotations\n", "import annotations\n\nraise ValueError\n", "caught"),
    # A hang, at work or asleep, and a crash are noticed, and are told from a test that fails.
    "busy": (ADD, "while True:\n        pass", "timeout"),
    "asleep": (ADD, "import time\n    time.sleep(10_000)", "timeout"),
    "crash": (ADD, "import os\n    os.abort()", "crash"),
}
# What says nothing about the tests: no memory, no disk, a process killed or gone, and what is no Python.
UNTRIED = {
    "memory": "raise MemoryError",
    "disk": "raise OSError(28, 'No space left on device')",
    "killed": "import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)",
    "gone": "import os\n    os._exit(0)",
    "gone with a code": "import os\n    os._exit(7)",
    "no Python": "return a +",
}


class TestPlanted:
    """Faults planted by hand."""

    def test_verdicts(self, toy: Any) -> None:
        """Each fault has its verdict, and those that are caught the test and its error."""
        for identity, (anchor, replacement, _) in PLANTED.items():
            toy.plant(identity, anchor, replacement)
        document = toy.outcome("--no-mutants")
        assert {f["id"]: f["verdict"] for f in document["planted"]} == {i: p[2] for i, p in PLANTED.items()}
        assert (document["good"], document["planted"][0]["by"]) == (
            False,
            "tests/test_toy.py::test_add (AssertionError)",
        )

    def test_all_caught(self, toy: Any) -> None:
        """The command ends with 0 when all are noticed, and has written nothing into the package."""
        before = {path: path.read_text() for path in (toy.root / "toy").glob("*.py")}
        toy.plant("minus", ADD, "return a - b")
        toy.plant("crash", ADD, PLANTED["crash"][1])
        ended = toy.run("--no-mutants")
        assert (ended.returncode, "2 of 2 faults planted by hand" in ended.stdout) == (0, True)
        assert {path: path.read_text() for path in (toy.root / "toy").glob("*.py")} == before
        # A fault's bytecode in the cache would outlive it.
        assert toy.outcome("--no-mutants")["good"]

    def test_what_caught_the_last_goes_first(self, toy: Any) -> None:
        """The next fault of the module is tried on it before tests that cost less."""
        imports = "from toy.sums import add, is_small"
        costly = "sum(range(10**6))\n    assert (add(2, 2), is_small(10)) == (4, False)"
        toy.write("tests/test_costly.py", f"def test_costly():\n    {imports}\n    {costly}\n")
        toy.plant("minus", ADD, "return a - b")
        toy.plant("limit", *PLANTED["limit"][:2])
        toy.plant("times", ADD, "return a * b + 1")
        document = toy.outcome("--no-mutants", "--workers", "1")
        assert [f["by"].partition(" ")[0] for f in document["planted"]] == [
            "tests/test_toy.py::test_add",
            "tests/test_costly.py::test_costly",
            "tests/test_costly.py::test_costly",
        ]

    def test_survivor(self, toy: Any) -> None:
        """The table has what a survivor breaks, and the command ends with 1."""
        toy.plant("limit", *PLANTED["limit"][:2])
        ended = toy.run("--no-mutants")
        assert (ended.returncode, "limit breaks." in ended.stdout, "survived" in ended.stdout) == (
            1,
            True,
            True,
        )
        assert "0 of 1 faults planted by hand" in ended.stdout

    def test_infrastructure_is_not_caught(self, toy: Any) -> None:
        """Where the machine or the harness fails nothing is caught: exit 3, and no result."""
        for identity, body in UNTRIED.items():
            toy.plant(identity, ADD, body)
        toy.plant("minus", ADD, "return a - b")
        ended = toy.run("--no-mutants")
        assert (ended.returncode, ended.stdout) == (3, "")
        assert "6 of 7 faults could not be tried, which shows nothing" in ended.stderr


class TestPreconditions:
    """What has to hold before a fault says anything."""

    @pytest.mark.parametrize(("anchor", "times"), [("return a * b", 0), ("return", 3), (ADD, 1)])
    def test_anchor(self, toy: Any, monkeypatch: pytest.MonkeyPatch, anchor: str, times: int) -> None:
        """An anchor that is gone, ambiguous or replaced by itself is an error and not a success."""
        monkeypatch.syspath_prepend(str(toy.root))
        fault = Fault("stale", "toy.sums", "1", "It breaks.", anchor, anchor if times == 1 else "return 0")
        with pytest.raises(
            InfrastructureError, match=rf"anchor of fault stale .* once .* \(got it {times} times\)"
        ):
            plant(fault)

    def test_anchor_through_the_command(self, toy: Any) -> None:
        """The command ends with 3 for it, whatever else is planted."""
        toy.plant("minus", ADD, "return a - b")
        toy.plant("stale", "return a * b", "return 0")
        ended = toy.run("--no-mutants")
        assert (ended.returncode, ended.stdout, "fault stale" in ended.stderr) == (3, "", True)

    def test_failing_suite(self, toy: Any) -> None:
        """Tests that fail without a fault would catch everything."""
        toy.write("tests/test_red.py", "def test_red():\n    assert False\n")
        toy.plant("minus", ADD, "return a - b")
        ended = toy.run("--no-mutants")
        assert ended.returncode == 3
        assert "the suites must pass without a fault" in ended.stderr
        assert "test_red" in ended.stderr

    def test_early_import(self, toy: Any) -> None:
        """A suite that imports the package while it is collected would test the sound one."""
        toy.write("tests/test_early.py", "import toy.sums\n\n\ndef test_nothing():\n    pass\n")
        toy.plant("minus", ADD, "return a - b")
        ended = toy.run("--no-mutants")
        assert ended.returncode == 3
        assert "toy must not be imported before a fault is in place (got toy, toy.sums)" in ended.stderr

    def test_no_tests(self, toy: Any) -> None:
        """Without tests nothing can be said."""
        toy.write("tests/test_toy.py", "")
        toy.plant("minus", ADD, "return a - b")
        ended = toy.run("--no-mutants")
        assert (ended.returncode, "tests must be collected" in ended.stderr) == (3, True)

    def test_unknown_option(self, toy: Any) -> None:
        """A wrong command is exit 2."""
        assert toy.run("--nonsense").returncode == 2

    def test_unknown_module(self, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """A module that is not there is an error of whoever wrote the fault, and so is a package."""
        monkeypatch.syspath_prepend(str(toy.root))
        with pytest.raises(UsageError, match=r"toy\.products must be a module of toy"):
            source_of("toy.products")
        with pytest.raises(UsageError, match="nowhere must be an installed package"):
            source_of("nowhere.products")

    @pytest.mark.parametrize(
        ("second", "says"),
        [
            ("id = 'a'", "an id of its own"),
            ("id = 'b'\nauthor = 'nobody'", "must have id, module, spec, breaks"),
        ],
    )
    def test_data(self, toy: Any, second: str, says: str) -> None:
        """Faults have unique ids and exactly the fields that are listed."""
        rest = "".join(f"{name} = ''\n" for name in ("module", "spec", "breaks", "anchor", "replacement"))
        path = toy.write("faults.toml", f"[[fault]]\nid = 'a'\n{rest}[[fault]]\n{second}\n{rest}")
        with pytest.raises(InfrastructureError, match=says):
            load_faults(path)

    def test_no_faults(self, toy: Any) -> None:
        """A file without faults would make everything caught."""
        with pytest.raises(InfrastructureError, match=r"must hold faults, .* \(got 0\)"):
            load_faults(toy.write("faults.toml", ""))


class TestFaultsOfTheProject:
    """``matrices/spec/faults.toml``."""

    def test_each_can_be_planted(self) -> None:
        """Every anchor is there once, every variant is Python, and there are at least 60."""
        variants = [plant(fault) for fault in load_faults()]
        for variant in variants:
            compile(variant.source, variant.id, "exec")
        assert len(variants) >= 60

    def test_every_module_has_some(self) -> None:
        """No module of the package goes without."""
        package = source_of("aiter_moe").parent
        modules = {f"aiter_moe.{path.stem}" for path in package.glob("*.py")} - {"aiter_moe.__init__"}
        assert modules - {fault.module for fault in load_faults()} == set()
