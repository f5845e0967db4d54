"""Shared set-up of the emulator's tests: both cores, tiny programs, and what a test needs from outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.isa import disasm, fast, reference
from aiter_conformance.isa.assembly import parse
from aiter_conformance.isa.decode import Program, lower
from aiter_conformance.isa.execute import Core
from aiter_conformance.isa.machine import LANES, SCC, Buffer, Memory, Workgroup

ROOT = Path(__file__).parents[3]
WHEEL = "amd_aiter-0.1.7.post2.dev18-py3-none-any.whl"
FLUSHING = 0xC0
"""MODE of every shipped kernel: float32 denormals flushed, those of float16 kept."""


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    """Folder for decoded programs and compiled code, kept between runs."""
    return ROOT / "build" / "isa"


@pytest.fixture(scope="session")
def fast_core(cache_dir: Path) -> fast.FastCore:
    """The fast core; a test that asks for it is skipped, visibly, without numba."""
    try:
        return fast.load(cache_dir)
    except InfrastructureError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["reference", "fast"])
def core(request: pytest.FixtureRequest) -> Core:
    """Each core in turn."""
    if request.param == "reference":
        return reference.run
    found: fast.FastCore = request.getfixturevalue("fast_core")
    return found


@pytest.fixture(scope="session")
def disassembler() -> Path:
    """LLVM's library; a test that asks for it is skipped, visibly, without rocm-llvm-python."""
    try:
        return disasm.library()
    except InfrastructureError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The release on PyPI; a test that asks for it is skipped, visibly, where it was not downloaded."""
    path = Path(os.environ.get("AITER_CONFORMANCE_WHEEL", ROOT / "build" / "downloads" / WHEEL))
    if not path.is_file():
        pytest.skip(f"NOT RUN: needs {WHEEL} in build/downloads, or its path in AITER_CONFORMANCE_WHEEL")
    return path


def make_program(texts: Sequence[str], arch: str) -> Program:
    """A program of assembly lines, four bytes each."""
    rows = np.stack([lower(parse(text, arch)) for text in texts])
    return Program(arch, 4 * np.arange(len(texts), dtype=np.int64), tuple(texts), rows)


@pytest.fixture
def program() -> Callable[[Sequence[str], str], Program]:
    """`make_program`."""
    return make_program


Run = Callable[..., Workgroup]


@pytest.fixture
def run(core: Core) -> Run:
    """Run lines of assembly on a work-group of one wave, and give the work-group back.

    Keywords: ``arch``, ``vector`` and ``scalar`` (register number to values), ``active`` (exec), ``scc``,
    ``mode``, ``lds`` (bytes), ``buffers`` (allocations; the address of the first is in s[90:91]) and
    ``slack``.
    """

    def run_lines(
        *texts: str,
        arch: str = "gfx942",
        vector: Mapping[int, Any] = {},
        scalar: Mapping[int, int] = {},
        active: int = (1 << LANES) - 1,
        scc: int = 0,
        mode: int = FLUSHING,
        lds: int = 0,
        buffers: Sequence[Buffer] = (),
        slack: int = 0,
    ) -> Workgroup:
        program = make_program([*texts, "s_endpgm"], arch)
        memory = Memory(buffers or [Buffer("nothing", np.zeros(4, np.uint8))], slack=slack)
        memory.watch(len(program.texts))
        group = Workgroup.create(program, memory, waves=1, lds_bytes=lds, mode=mode)
        group.start(0, (0, 0, 0), LANES, [])
        group.vector[0, 0] = 0
        base = memory.base + int(memory.bounds[0, 0])
        words = {90: base & 0xFFFFFFFF, 91: base >> 32, 126: active & 0xFFFFFFFF, 127: active >> 32, **scalar}
        for register, word in words.items():
            group.scalar[0, register] = word & 0xFFFFFFFF
        for register, values in vector.items():
            array = np.broadcast_to(np.asarray(values), LANES)
            bits = array.astype(np.float32).view(np.uint32) if array.dtype.kind == "f" else array
            group.vector[0, register] = bits.astype(np.int64) & 0xFFFFFFFF
        group.status[0, SCC] = scc
        core(group, quantum=8, budget=1000)
        return group

    return run_lines
