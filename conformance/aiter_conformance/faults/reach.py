"""Which tests reach which lines of the package under test, and what they cost: measured without a fault."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import coverage

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.faults.collected import Failure, Suites
from aiter_conformance.faults.pool import run_forked
from aiter_conformance.faults.variant import Variant, source_of

IMPORT: Final = "import"
"""Stands for every test: each of them imports the package."""
_LIMIT: Final = 900.0


@dataclass
class Reach:
    """What tests cost and reach.

    Attributes:
        seconds: Processor time of each test.
        lines: Module to line to the tests that execute it, `IMPORT` among them.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(dict))

    def merge(self, other: Reach) -> None:
        """Take over what another part of the tests costs and reaches."""
        self.seconds |= other.seconds
        for module, lines in other.lines.items():
            for line, tests in lines.items():
                self.lines[module].setdefault(line, set()).update(tests)

    def tests_of(self, variant: Variant) -> list[str]:
        """Return the tests that can tell the variant from the original, in the order in which to run them.

        Cases of one test mostly pass or fail together: so the cheapest case of each comes first, then the
        next of each. What is executed by the import is everybody's: all tests.
        """
        functions = _function_lines(source_of(variant.module).read_text(encoding="utf-8"))
        changed = range(variant.first_line, variant.last_line + 1)
        reached = self.lines.get(variant.module, {})
        if all(line in functions for line in changed):
            spans = [functions[line] for line in changed]
            tests = {test for span in spans for line in span for test in reached.get(line, ())}
        else:
            tests = {IMPORT}
        if IMPORT in tests:
            tests = set(self.seconds)
        rounds: Counter[str] = Counter()
        order = []
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            function = test.partition("[")[0]
            rounds[function] += 1
            order.append((rounds[function], self.seconds[test], test))
        return [test for _, _, test in sorted(order)]


def _function_lines(source: str) -> dict[int, range]:
    """Return, for each line inside a function, the lines of the statement that it belongs to.

    Of a compound statement that is its head; of a function nested in another, or its decorators, defaults
    and annotations, the lines of the outer statement.
    """
    spans: dict[int, range] = {}

    def enter(body: Sequence[ast.stmt]) -> None:
        for statement in body:
            inner = [
                block for name in ("body", "orelse", "finalbody") for block in getattr(statement, name, [])
            ]
            inner += [s for handler in getattr(statement, "handlers", []) for s in handler.body]
            end = (statement.end_lineno or statement.lineno) + 1
            head_end = min((s.lineno for s in inner), default=end)
            span = range(statement.lineno, max(head_end, statement.lineno + 1))
            spans.update(dict.fromkeys(span, span))
            enter(inner)

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            enter(node.body)
    return spans


def measure(suites: Suites, package: str, workers: int) -> Reach:
    """Run every test once, without a fault, and return what each costs and reaches.

    Raises:
        InfrastructureError: A test fails without a fault, or could not be run.
    """
    tests = list(suites.items)
    parts = [tests[i::workers] for i in range(workers)]
    reach = Reach()
    for _, ended in run_forked(
        lambda part: _measure(suites, package, part), parts, workers=workers, limit=lambda _: _LIMIT
    ):
        if not isinstance(ended.value, Reach):
            msg = (
                f"the suites must pass without a fault (got {ended.value or ended.error}); repair that first"
            )
            raise InfrastructureError(msg)
        reach.merge(ended.value)
    return reach


def _measure(suites: Suites, package: str, tests: Sequence[str]) -> Reach | Failure:
    """Run tests in this process, a forked one, under coverage."""
    folder = source_of(package).parent
    measured = coverage.Coverage(data_file=None, config_file=False, include=[str(folder / "*")])
    reach = Reach()

    def ran(test: str, seconds: float) -> None:
        measured.switch_context(test)
        reach.seconds[test] = seconds

    measured.start()
    measured.switch_context(IMPORT)
    for found in pkgutil.walk_packages([str(folder)], f"{package}."):
        # All of it first: the import of a module is not the doing of the test that comes first.
        importlib.import_module(found.name)
    failure = suites.run(tests, ran)
    measured.stop()
    if failure is not None:
        return failure
    data = measured.get_data()
    names = {getattr(module, "__file__", None): name for name, module in sys.modules.items()}
    for file in data.measured_files():
        for line, contexts in data.contexts_by_lineno(file).items():
            reach.lines[names[file]][line] = set(contexts) & {IMPORT, *tests}
    return reach
