"""What tests of any part share: the command, run in the process of the test."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from aiter_conformance import cli


class Ended(NamedTuple):
    """What a command did.

    Attributes:
        code: Its exit code.
        out: What it wrote to standard output.
        err: What it wrote to standard error.
    """

    code: int
    out: str
    err: str


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run ``aiter-conformance ARGUMENTS`` as its entry point does; arguments may be of any type."""

    def invoke(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["aiter-conformance", *map(str, arguments)])
        capsys.readouterr()  # what was written before is none of the command's
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return invoke


@pytest.fixture
def aiter_clone() -> str:
    """A clone of ROCm/aiter; a test that asks for it is skipped, visibly, where none is named."""
    clone = os.environ.get("AITER_GIT_DIR")
    if not clone:
        pytest.skip("NOT RUN: set AITER_GIT_DIR to a clone of ROCm/aiter with its tags")
    return clone
