"""The repository keeps its budgets and its promises about what is committed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP_LEVEL = {
    *("impl", "conformance", "matrices", "reports", ".ci"),
    *(
        "pyproject.toml",
        "noxfile.py",
        "constraints.txt",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        ".gitignore",
    ),
}
FILE_BYTES = 200_000
RELEASE_BYTES = 1_000_000
TOTAL_BYTES = 15_000_000


@pytest.fixture(scope="module")
def tracked() -> dict[str, int]:
    """Size in bytes of every file that git tracks, by path."""
    if not (ROOT / ".git").exists():
        pytest.skip("NOT RUN: this is no git checkout, so there is no list of tracked files")
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], check=True, capture_output=True, text=True
    ).stdout.split("\0")
    return {path: (ROOT / path).stat().st_size for path in listed if path and (ROOT / path).is_file()}


def over_budget(sizes: dict[str, int]) -> list[str]:
    """Return what breaks a budget: one file, the files of one release, or all of them."""
    releases: dict[str, int] = {}
    for path, size in sizes.items():
        match = re.match(r"(?:matrices/published|reports)/([^/]+)/", path)
        if match:
            releases[match[1]] = releases.get(match[1], 0) + size
    found = [f"{path}: {size} bytes" for path, size in sizes.items() if size > FILE_BYTES]
    found += [f"release {name}: {size} bytes" for name, size in releases.items() if size > RELEASE_BYTES]
    if sum(sizes.values()) > TOTAL_BYTES:
        found.append(f"all files: {sum(sizes.values())} bytes")
    return found


class TestBudgets:
    """The budgets of what is committed: 200 KB a file, 1 MB a release, 15 MB in all."""

    def test_tracked_files_keep_them(self, tracked: dict[str, int]) -> None:
        """No tracked file, release or the whole is over its budget."""
        assert over_budget(tracked) == []

    @pytest.mark.parametrize(
        ("sizes", "found"),
        [
            ({"a": FILE_BYTES + 1}, 1),
            ({f"reports/1.0/{i}": FILE_BYTES for i in range(6)}, 1),
            (
                {f"reports/1.0/{i}": FILE_BYTES for i in range(3)}
                | {f"matrices/published/1.0/{i}": FILE_BYTES for i in range(3)},
                1,
            ),
            ({f"x/{i}": FILE_BYTES for i in range(76)}, 1),
            ({"a": FILE_BYTES}, 0),
        ],
        ids=["a file", "a release's reports", "a release's reports and matrix", "all", "just within"],
    )
    def test_a_broken_budget_is_seen(self, sizes: dict[str, int], found: int) -> None:
        """Each of the three budgets is checked."""
        assert len(over_budget(sizes)) == found


class TestLayout:
    """What lies at the top of the repository."""

    def test_top_level(self, tracked: dict[str, int]) -> None:
        """Nothing else has moved in."""
        assert {path.split("/")[0] for path in tracked} <= TOP_LEVEL

    def test_nothing_built_is_committed(self, tracked: dict[str, int]) -> None:
        """No wheel, code object, byte code or archive is tracked."""
        built = {".whl", ".co", ".so", ".pyc", ".zip", ".gz", ".tar", ".hsaco"}
        assert [path for path in tracked if Path(path).suffix in built] == []
