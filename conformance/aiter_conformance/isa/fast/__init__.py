"""The fast core: the same instructions as the reference, as one compiled loop over the instruction table.

Needs numba. Compiled code is cached on disk under a folder named by the hash of the sources that go into it,
since numba itself does not see a change in a module that a cached function depends on.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.isa.arch import ARCHES, MODE_FP16_OVFL, MODE_FP32_DENORM
from aiter_conformance.isa.machine import FaultKind, Workgroup
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.reference import step

COMPILED_IN = ("assembly.py", "decode.py", "machine.py", "opcodes.py", "operands.py")
"""Modules outside this package whose constants become part of the compiled code."""
_DONE, _FALLBACK = 0, 1


@cache
def _version() -> str:
    folder = Path(__file__).parent
    files = [*sorted(folder.glob("*.py")), *(folder.parent / name for name in COMPILED_IN)]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class FastCore:
    """The compiled interpreter, an `execute.Core`.

    Attributes:
        entry: The compiled loop.
        leave_out: Opcodes that the reference executes instead, one at a time.
    """

    entry: Callable[..., int]
    leave_out: frozenset[Op] = frozenset()

    def __call__(self, group: Workgroup, *, quantum: int, budget: int) -> None:
        """Run a started work-group to its end, its waves in round robin.

        Raises:
            KernelFaultError: The kernel did something that it must not, or did not end.
        """
        memory, arch = group.memory, ARCHES[group.program.arch]
        over_reads = (
            memory.over_reads if len(memory.over_reads) else np.zeros((len(group.counts), 3), np.int64)
        )
        options = np.array(
            [
                group.mode & MODE_FP32_DENORM == 0,
                bool(group.mode & MODE_FP16_OVFL),
                arch.fp8.endswith("fnuz"),
                quantum,
                budget,
            ],
            np.int64,
        )
        left_out = np.zeros(len(Op), np.uint8)
        left_out[list(self.leave_out)] = 1
        place = np.zeros(5, np.int64)  # wave, instructions of its turn, and of a fault: kind, lane, address
        work = np.zeros((3, 128 * 16), np.float64)
        while True:
            outcome = self.entry(
                group.program.table,
                group.vector,
                group.scalar,
                group.status,
                group.counts,
                group.lds,
                memory.raw,
                memory.base,
                memory.bounds,
                over_reads,
                work,
                options,
                left_out,
                place,
            )
            wave = int(place[0])
            if outcome == _DONE:
                return
            if outcome != _FALLBACK:
                raise group.fault(wave, FaultKind(outcome), int(place[3]), int(place[4]))
            step(group, wave)
            place[1] += 1

    def without(self, ops: Collection[Op]) -> FastCore:
        """The same core with some opcodes left to the reference."""
        return FastCore(self.entry, frozenset(ops))


def _users_cache() -> Path:
    """Where programs keep what can be made again (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "aiter-conformance"


def load(cache_dir: Path | None = None) -> FastCore:
    """The fast core.

    Args:
        cache_dir: Folder for compiled code; None is ``NUMBA_CACHE_DIR``, or the user's cache. The first call
            in a process decides.

    Raises:
        InfrastructureError: numba is not installed.
    """
    try:
        numba: Any = importlib.import_module("numba")
    except ImportError as error:
        raise InfrastructureError(
            "the fast core needs numba (not installed); "
            "install it with: pip install 'aiter-moe-conformance[isa]'"
        ) from error
    before = numba.config.CACHE_DIR
    parent = cache_dir / "numba" if cache_dir else Path(before or _users_cache())
    # numba fixes the folder of a function's cache when it is decorated, that is on the import below.
    numba.config.CACHE_DIR = str(parent / _version())
    try:
        loop = importlib.import_module("aiter_conformance.isa.fast.loop")
    finally:
        numba.config.CACHE_DIR = before
    return FastCore(loop.run_group)
