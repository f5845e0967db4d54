"""What conformance/docs/numerics.md says of tests and faults is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"\b((?:suites|selftests)/[\w/]+\.py(?:::\w+)+)", TEXT)))
HERE = ROOT / "selftests" / "numerics"

# What has to be planted, each by one name or more of the tables of faults.
ASKED = {
    "pad doubled": {"pad-doubled", "pads-doubled-under-tp", "pads-w4a4-silu-doubled-twice"},
    "gate mode swapped": {"dispatch-override-ignored", "gate-and-up-read-interleaved", "a16w4-separated"},
    "scale block shifted": {"scale-shifted", "weight-scale-of-the-next-block", "scale-of-another-block"},
    "fnuz read as fn": {"fnuz-read-as-fn", "fnuz-is-fn"},
    "row masked": {"one-row-masked"},
    "router weight missing": {"router-weight-missing", "router-weight-ignored"},
    "router weight on the wrong side": {
        "router-weight-on-the-wrong-side",
        "dispatch-router-weight-output-only",
    },
    "GELU for SiLU": {"gelu-for-silu"},
    "limit ignored": {"limit-ignored", "dispatch-swiglu-limit-dropped"},
    "mask dropped": {"dispatch-mask-dropped", "tkw1-mask-dropped"},
    "mask inverted": {"inverted"},
    "shared expert twice": {"expert-twice"},
    "intermediate not quantised again": {"intermediate-not-requantised"},
    "zeros returned": {"zeros-returned"},
}


def functions(path: Path) -> set[str]:
    """Return the names of a file's tests, ``function`` or ``Class::function``."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
    return found


def table(file: str, name: str) -> set[str]:
    """Return the first text of each entry of a table of faults, a list or a dict at the top of a file."""
    for node in ast.parse((HERE / file).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Dict):
                return {str(ast.literal_eval(key)) for key in value.keys if key is not None}
            assert isinstance(value, ast.List)
            rows = [row for row in value.elts if isinstance(row, ast.Tuple)]
            return {str(ast.literal_eval(row.elts[0])) for row in rows}
    raise AssertionError(f"{file} must have a table {name}")


PLANTED = {
    "harness": table("test_planted_faults.py", "MUTANTS"),
    "reference": table("test_reference.py", "FAULTS"),
    "dispatcher": table("test_planted_dispatcher.py", "FAULTS"),
    "kernel": table("test_separation.py", "FAULTS"),
    "call": {"inverted", "expert-twice"},
}


@pytest.mark.parametrize("test", NAMED)
def test_named_tests_exist(test: str) -> None:
    """Each test that the page names is there."""
    path, _, name = test.partition("::")
    assert name in functions(ROOT / path)


def test_every_kind_is_named() -> None:
    """The page names tests of kinds and of planted faults: 19 and 4."""
    assert len(NAMED) == 23


def test_faults_are_many() -> None:
    """At least 40 are planted, in each part some."""
    counts = {part: len(names) for part, names in PLANTED.items()}
    assert sum(counts.values()) >= 100
    assert all(
        counts[part] >= least for part, least in (("harness", 40), ("reference", 15), ("dispatcher", 15))
    )


@pytest.mark.parametrize("asked", ASKED)
def test_every_fault_that_was_asked_for(asked: str) -> None:
    """Each fault of the list is planted under names of its own."""
    assert ASKED[asked] <= set().union(*PLANTED.values())


def test_faults_of_calls_are_where_they_are_said() -> None:
    """The two that are no table's are parameters of the tests of public reports."""
    cases = (ROOT / "suites" / "golden" / "test_cases.py").read_text(encoding="utf-8")
    assert all(f'"{name}"' in cases for name in PLANTED["call"])
