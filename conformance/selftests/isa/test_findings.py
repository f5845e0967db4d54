"""The scripts of reports/findings/isa show what they say, on the release that PyPI has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "reports" / "findings" / "isa"
SHOWS = {
    "columns_not_written": "768 to 1023 are; relative error 0.86",
    "float16_objects": "relative error 0.67",
    "gelu_by_tanh": "blockscaleFp8_g1u1_vs_gelu_1tg_32x256.co: relative error 0.0037 to erf, 0.0017 to tanh",
    "gfx950_scales_to_240": "right with 240",
    "hidden_size_writes_outside": "this is byte 768 of it",
    "int8_atm_opt_short_k": "hidden size 512: relative error 0.99",
    "int8_tkw1_is_fp8": "v_mfma_f32_16x16x32_fp8_fp8; relative error NaN",
    "odd_hidden_size": "columns from 256 holds 0, ..., from 704 holds 448",
}
NEWER = {  # PyPI's release has none of these objects
    "gelu_block_does_not_end": "must end within its budget",
    "mxfp4_flat_sizes": "intermediate=256: relative error 0.0075; wrong columns: 4079, 4095\n"
    "observed: 16x128, hidden=4096, intermediate=512: relative error 0.0055; wrong columns: 4095\n",
    "pf2_reads_past_w2": "reads up to 32768 bytes past",
    "unsorted_clears_by_dispatch_id": "flat_vs_silu_1x128.co: its own number: relative error 1.4e+13",
}


def _run(name: str, release: Path | str, cache_dir: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), str(release)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache_dir / "numba")},
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_every_script_is_tested() -> None:
    """Each script of the folder is below, and in the page."""
    scripts = {path.stem for path in FOLDER.glob("*.py")}
    assert scripts == SHOWS.keys() | NEWER.keys()
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(scripts) if f"({name}.py)" not in page] == []


@pytest.mark.usefixtures("disassembler", "fast_core")
class TestScripts:
    """The scripts, each in a process of its own."""

    @pytest.mark.parametrize("name", sorted(SHOWS))
    def test_shows(self, name: str, wheel: Path, cache_dir: Path) -> None:
        """The finding shows: exit code 1, what is expected, and the number that the page has."""
        code, out = _run(name, wheel, cache_dir)
        assert code == 1
        assert out.startswith("expected: ")
        assert SHOWS[name] in out

    @pytest.mark.parametrize("name", sorted(NEWER))
    def test_object_is_absent(self, name: str, wheel: Path, cache_dir: Path) -> None:
        """Without the object nothing shows: exit code 0, and it says so."""
        code, out = _run(name, wheel, cache_dir)
        assert (code, "observed: nothing" in out) == (0, True)

    @pytest.mark.parametrize("name", sorted(NEWER))
    def test_shows_in_a_newer_release(self, name: str, aiter_clone: str, cache_dir: Path) -> None:
        """In v0.1.20.post1, which has the objects, the finding shows."""
        code, out = _run(name, f"git:{aiter_clone}@v0.1.20.post1", cache_dir)
        assert code == 1
        assert out.startswith("expected: ")
        assert NEWER[name] in out
