"""The private place in which one release is traced: its copy, a fake ROCm installation, an environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiter_conformance
import aiter_moe
from aiter_conformance.release.artefact import Release
from aiter_conformance.trace.board import Board

# What dispatch reads of a release: its Python, its tables, and the generators and enumerations in csrc.
_TREES: Final = {
    "aiter": (".py", ".csv", ".json", ".txt"),
    "csrc": (".py", ".jinja"),
    "hsa": (".csv",),
}
_HEADERS: Final = "csrc/include/"

_ROCMINFO: Final = """\
*******
Agent 1
*******
  Name:                    CPU
  Device Type:             CPU
*******
Agent 2
*******
  Name:                    {arch}
  Device Type:             GPU
  Compute Unit:            {units}
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--{arch}:sramecc+:xnack-
"""


def needed(release: Release) -> Iterator[str]:
    """Yield the canonical paths of a release that its dispatch may read."""
    for path in release.files.paths:
        top = path.partition("/")[0]
        if path.endswith(_TREES.get(top, ())) or path.startswith(_HEADERS):
            yield path


def write_copy(release: Release, root: Path) -> None:
    """Write what dispatch may read below *root*, laid out as a source tree whatever the artefact's layout is.

    Raises:
        InfrastructureError: A file of the release cannot be read.
    """
    folders: set[Path] = set()
    for path, content in release.files.read_many(needed(release)):
        target = root / path
        if target.parent not in folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            folders.add(target.parent)
        target.write_bytes(content)


def write_rocm(folder: Path, board: Board) -> None:
    """Write a ROCm installation that knows one board: the programs that releases ask for arch and CUs."""
    programs = {
        "rocminfo": "cat <<'EOF'\n" + _ROCMINFO.format(arch=board.arch, units=board.compute_units) + "EOF",
        "rocm_agent_enumerator": f"echo gfx000\necho {board.arch}",
        "hipconfig": "echo 7.0.51831-0",
        "rocm-smi": "exit 1",
    }
    binaries = folder / "bin"
    binaries.mkdir(parents=True)
    for name, body in programs.items():
        program = binaries / name
        program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        program.chmod(0o755)


def environment(private: Path, rocm: Path, board: Board) -> dict[str, str]:
    """Return the whole environment of the process: nothing of the caller's reaches the release."""
    variables = {
        "PATH": f"{rocm}/bin:/usr/bin:/bin",
        "ROCM_HOME": str(rocm),
        "ROCM_PATH": str(rocm),
        "HOME": str(private),
        "TMPDIR": str(private / "tmp"),
        "AITER_JIT_DIR": str(private / "jit"),
        "VLLM_ROCM_USE_AITER": "1",
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(_package_roots()),
        "PYTHONSAFEPATH": "1",
    }
    if board.build_archs is not None:
        variables["GPU_ARCHS"] = board.build_archs
    return variables


def _package_roots() -> list[str]:
    """Return where the harness and the subject lie, for a process that starts from this one's packages."""
    files = (aiter_conformance.__file__, aiter_moe.__file__)
    return sorted({str(Path(file).resolve().parents[1]) for file in files})


def python() -> str:
    """Return the interpreter that the process runs in: this one."""
    return sys.executable
