"""A toy package with tests of its own, and a function that plants faults in it through the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SUMS = '''"""Sums."""

from __future__ import annotations


def add(a: int, b: int) -> int:
    """Return the sum of a and b."""
    return a + b


def is_small(a: int) -> bool:
    """Say whether a is small."""
    return a < 10


def idle() -> str:
    """Do nothing, for nobody."""
    return 'idle'
'''
TESTS = '''"""Tests that import the toy inside, as suites have to."""


def test_add():
    """Sums are right."""
    from toy.sums import add

    assert add(2, 3) == 5


def test_is_small():
    """Far from the limit, it is known what is small."""
    from toy.sums import is_small

    assert (is_small(1), is_small(100)) == (True, False)
'''


@dataclass
class Toy:
    """The toy, its tests, and what is to be planted.

    Attributes:
        root: Folder of everything.
    """

    root: Path
    faults: list[dict[str, str]] = field(default_factory=list)
    survivors: str = ""

    def write(self, name: str, text: str) -> Path:
        """Write a file and return its path."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def plant(self, identity: str, anchor: str, replacement: str) -> None:
        """Add a fault of ``toy.sums``."""
        about = {"id": identity, "module": "toy.sums", "spec": "1", "breaks": f"{identity} breaks."}
        self.faults.append({**about, "anchor": anchor, "replacement": replacement})

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run the command on the toy."""
        # A JSON string is a TOML string.
        entries = ("\n".join(f"{k} = {json.dumps(v)}" for k, v in fault.items()) for fault in self.faults)
        planted = self.write("faults.toml", "".join(f"[[fault]]\n{entry}\n" for entry in entries))
        survivors = self.write("survivors.toml", self.survivors)
        files = (
            "--planted",
            str(planted),
            "--survivors",
            str(survivors),
            "--suites",
            str(self.root / "tests"),
        )
        return subprocess.run(
            [
                *(sys.executable, "-m", "aiter_conformance.faults", "--package", "toy", "--module", "sums"),
                *("--grace", "2", *files, *options),
            ],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root)},
            capture_output=True,
            text=True,
            check=False,
        )

    def outcome(self, *options: str) -> dict[str, Any]:
        """Run the command and return its JSON."""
        ended = self.run("--json", *options)
        assert ended.stdout, ended.stderr
        document: dict[str, Any] = json.loads(ended.stdout)
        assert (ended.returncode == 0) is document["good"]
        return document


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Return a toy whose tests pass."""
    made = Toy(tmp_path)
    made.write("toy/__init__.py", '"""A toy."""\n')
    made.write("toy/sums.py", SUMS)
    made.write("tests/test_toy.py", TESTS)
    return made
