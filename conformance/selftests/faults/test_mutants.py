"""Mutants: what is generated, and that survivors are listed, with a reason, and no longer than needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mutmut", reason="the mutation-testing library is installed for `nox -s faults` only")

from aiter_conformance.faults.mutants import mutants

SURVIVES = "toy.sums:is_small: return a < 10 -> return a <= 10"
ALSO = "toy.sums:is_small: return a < 10 -> return a < 11"
IDLE = tuple(f"toy.sums:idle: return 'idle' -> return '{text}'" for text in ("XXidleXX", "IDLE"))


def group(reason: str, *ids: str) -> str:
    """Return a group of survivors as TOML."""
    return f"[[group]]\nreason = {reason!r}\nmutants = {list(ids)!r}\n"


class TestCommand:
    """Mutants through the command."""

    def test_survivors_have_to_be_listed(self, toy: Any) -> None:
        """Those that survive are named; not listed, they make the outcome bad."""
        document = toy.outcome("--no-planted")
        assert (document["good"], document["unlisted"], document["stale"]) == (
            False,
            [SURVIVES, ALSO, *IDLE],
            [],
        )
        assert {m["id"]: m["verdict"] for m in document["mutants"]} == {
            "toy.sums:add: return a + b -> return a - b": "caught",
            SURVIVES: "survived",
            **dict.fromkeys((ALSO, *IDLE), "survived"),
        }

    def test_listed(self, toy: Any) -> None:
        """Listed, they come with their reason; but one in five is far below what must be caught."""
        toy.survivors = group("nobody asks", SURVIVES, ALSO, *IDLE)
        document = toy.outcome("--no-planted")
        assert (document["unlisted"], document["stale"]) == ([], [])
        reasons = {m["id"]: m.get("reason") for m in document["mutants"]}
        assert (reasons[SURVIVES], reasons[ALSO]) == ("nobody asks", "nobody asks")
        assert (document["killed"], document["good"]) == (0.2, False)

    def test_all_caught(self, toy: Any) -> None:
        """With a test at the limit, and one of what was idle, nothing survives."""
        tests = "import toy.sums as s\n\n    assert (s.is_small(10), s.idle()) == (False, 'idle')\n"
        toy.write("tests/test_limit.py", f"def test_limit():\n    {tests}")
        document = toy.outcome("--no-planted")
        assert (document["killed"], document["good"]) == (1.0, True)

    def test_stale(self, toy: Any) -> None:
        """A listed mutant that is caught, or that there no longer is, is reported; other modules' are not."""
        caught = "toy.sums:add: return a + b -> return a - b"
        gone = "toy.sums:add: return a * b -> return a / b"
        elsewhere = "toy.products:times: return a * b -> return a / b"
        toy.survivors = group("nobody asks", SURVIVES, ALSO, *IDLE) + group("once", caught, gone, elsewhere)
        ended = toy.run("--no-planted")
        lines = ended.stdout.splitlines()
        words = "listed as a survivor, but caught or no longer generated: "
        found = [line.removeprefix(words) for line in lines if line.startswith(words)]
        assert (ended.returncode, found) == (1, [caught, gone])

    @pytest.mark.parametrize("listed", [group("", SURVIVES), group("one", SURVIVES) + group("two", SURVIVES)])
    def test_one_reason_each(self, toy: Any, listed: str) -> None:
        """Each listed mutant has exactly one reason."""
        toy.survivors = listed
        ended = toy.run("--no-planted")
        assert (ended.returncode, "must give each mutant one reason" in ended.stderr) == (3, True)


class TestMutants:
    """``mutants``."""

    @pytest.fixture
    def ids(self, toy: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Return a function from the source of a module to the ids of its mutants, module and place aside."""
        monkeypatch.syspath_prepend(str(toy.root))

        def of(source: str) -> list[str]:
            toy.write("toy/sums.py", source)
            found = mutants("toy.sums")
            for mutant in found:
                compile(mutant.source, "toy", "exec")
            assert len({mutant.id for mutant in found}) == len(found)
            return [mutant.id.removeprefix("toy.sums:") for mutant in found]

        return of

    def test_arguments(self, ids: Any) -> None:
        """Each argument of a call is dropped and made None: the faults of a dispatcher."""
        assert ids("f(a, b=c)\n") == [
            "<module>: f(a, b=c) -> f(None, b=c)",
            "<module>: f(a, b=c) -> f(a, b=None)",
            "<module>: f(a, b=c) -> f(b=c)",
            "<module>: f(a, b=c) -> f(a, )",
        ]

    def test_places(self, ids: Any) -> None:
        """Modules, classes, methods and nested functions are mutated, and the id says which."""
        source = "class A:\n    x = a\n    def f(self):\n        def g():\n            return not a\n"
        assert [one.partition(": ")[0] for one in ids(source)] == ["A", "A.f.g"]

    @pytest.mark.parametrize(
        "source",
        [
            '"""A docstring."""\n',
            'def f(x: "Literal[1]" = a) -> list[1]:\n    """Do."""\n    return x\n',
            "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from a import b\n",
            'raise ValueError\n"must be good"\n',
        ],
    )
    def test_what_nothing_could_tell(self, ids: Any, source: str) -> None:
        """Docstrings, annotations, imports for type checkers and prose are left alone."""
        assert ids(source) == []

    def test_names_and_prose(self, ids: Any) -> None:
        """A name that a message has to say is mutated, the prose around it is not."""
        assert [one for one in ids('f("hidden_pad", "must be good")\n') if "XX" in one or "PAD" in one] == [
            '<module>: f("hidden_pad", "must be good") -> f("XXhidden_padXX", "must be good")',
            '<module>: f("hidden_pad", "must be good") -> f("HIDDEN_PAD", "must be good")',
        ]

    def test_twins(self, ids: Any) -> None:
        """Two equal lines in one function have mutants of their own."""
        assert ids("def f():\n    a = b\n    a = b\n") == ["f: a = b -> a = None", "f: a = b -> a = None (2)"]

    def test_lines(self, toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """A mutant knows the lines that it changes, which decide who can catch it."""
        monkeypatch.syspath_prepend(str(toy.root))
        lines = Path(toy.root / "toy/sums.py").read_text().splitlines()
        found = {m.id: lines[m.first_line - 1 : m.last_line] for m in mutants("toy.sums")}
        assert found[SURVIVES] == ["    return a < 10"]
