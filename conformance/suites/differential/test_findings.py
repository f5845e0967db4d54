"""The findings' page says what its scripts show, all of it and nothing more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiter_conformance.subjects.vllm import find_wheel

if TYPE_CHECKING:
    from aiter_conformance.protocols import Subject

FOLDER = Path(__file__).parents[3] / "reports" / "findings" / "vllm"
SHARED = "vllm_on_cpu"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != SHARED)


class TestFindings:
    """``reports/findings/vllm``."""

    def test_page_lists_every_script(self) -> None:
        """Each script has its line, and each line its script."""
        page = (FOLDER / "README.md").read_text(encoding="utf-8")
        assert sorted(re.findall(r"^\| \[(\w+)\]\(\1\.py\)", page, flags=re.MULTILINE)) == SCRIPTS

    def test_page_names_every_difference(self, vllm: Subject) -> None:
        """The last column names the differences that the subject lists, all of them and no others."""
        page = (FOLDER / "README.md").read_text(encoding="utf-8")
        last_columns = re.findall(r"\|([^|]*)\|$", page, flags=re.MULTILINE)
        assert {name for column in last_columns for name in re.findall("`([^`]+)`", column)} == set(
            vllm.differences
        )

    @pytest.mark.usefixtures("vllm")
    @pytest.mark.parametrize("script", SCRIPTS)
    def test_still_shows(self, script: str) -> None:
        """The script says that the finding shows, with nothing but the wheel to go by."""
        command = [sys.executable, f"{script}.py", str(find_wheel().resolve())]
        run = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False)
        said = [line.partition(":")[0] for line in run.stdout.splitlines()]
        assert (run.returncode, said, run.stderr) == (1, ["expected", "observed", "the finding shows"], "")
