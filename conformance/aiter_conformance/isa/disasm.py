"""Disassembly through the LLVM of the PyPI package ``rocm-llvm-python``, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aiter_conformance.errors import InfrastructureError

_CHILD = Path(__file__).with_name("_llvm.py")
_LIBRARY = "librocmllvm.so"


class Line(NamedTuple):
    """One disassembled instruction.

    Attributes:
        address: Where it starts.
        size: Its length in bytes.
        text: Its assembly text, "" for a word that is no instruction of the architecture.
    """

    address: int
    size: int
    text: str


class Job(NamedTuple):
    """Code to disassemble.

    Attributes:
        arch: LLVM's name of the processor, e.g. ``gfx942``.
        address: Address of the first byte.
        code: The bytes.
    """

    arch: str
    address: int
    code: bytes


def library() -> Path:
    """Path of LLVM's shared library.

    Raises:
        InfrastructureError: The package is not installed.
    """
    try:
        spec = importlib.util.find_spec("rocm.llvm")
    except ModuleNotFoundError:
        spec = None
    for folder in spec.submodule_search_locations or () if spec else ():
        if (Path(folder) / _LIBRARY).is_file():
            return Path(folder) / _LIBRARY
    raise InfrastructureError(
        f"disassembly needs {_LIBRARY} of the package rocm-llvm-python (not installed); "
        "install it with: pip install 'aiter-moe-conformance[isa]'"
    )


def disassemble(jobs: Sequence[Job], *, timeout: float = 120.0) -> list[list[Line]]:
    """Disassemble several pieces of code in one child process.

    Args:
        jobs: What to disassemble.
        timeout: Seconds the child may take.

    Returns:
        The lines of each job, in order; they cover every byte of it.

    Raises:
        InfrastructureError: The package is absent, or the child failed, died or took too long.
    """
    header = json.dumps([(job.arch, job.address, len(job.code)) for job in jobs]).encode() + b"\n"
    command = [sys.executable, "-I", str(_CHILD), str(library())]
    try:
        done = subprocess.run(
            command,
            input=header + b"".join(job.code for job in jobs),
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"disassembly must end within {timeout:g} s (got no answer)") from error
    answers = done.stdout.splitlines()
    if done.returncode != 0 or len(answers) != len(jobs):
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise InfrastructureError(
            f"disassembler must answer {len(jobs)} jobs "
            f"(got {len(answers)}, exit status {done.returncode}: {reason[0]})"
        )
    return [[Line(*line) for line in json.loads(answer)] for answer in answers]
