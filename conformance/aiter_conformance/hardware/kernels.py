"""Which kernels ran: names from the profiler or AITER's log, and whether they are those of the trace."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from aiter_conformance.trace.record import Trace

Source = Literal["profiler", "log", "none"]

# How the kernels that compute a product are called, by the family that a trace names: the symbols of AITER's
# objects (hsa/), of composable_kernel (kernel_moe_gemm, kernel_moe_mxgemm) and ck_tile (MoeFlatmmKernel), the
# names that AITER's FlyDSL modules give (aiter/ops/flydsl/kernels), and those of its tuned tables and log.
_FAMILIES: Final = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("asm-stage1", r"fmoe_stage1"),
        ("asm-1stage", r"fmoe_(?!stage1)\w*g1u[01]|\bfmoe(?:_int8)?_g1u0"),
        ("opus", r"opus_moe(?!\w*reduce)"),
        ("ck-tile", r"MoeFlatmmKernel|cktile"),
        ("ck", r"kernel_moe_(?:mx)?gemm|moe_ck2stages_gemm"),
        ("flydsl", r"mfma_moe[12]_|flydsl_moe|gemm[12]_a\d+w\d+\w*_port"),
        ("grouped", r"grouped_(?:moe|gemm)"),
    )
)
# The name within a C++ symbol, mangled or not: _ZN5aiter48fmoe_...E, aiter::fmoe_...
_MANGLED: Final = re.compile(r"aiter(\d+)(fmoe_\w+)")
_PLAIN: Final = re.compile(r"fmoe_\w+")
_LONGEST: Final = 120  # of AITER's own names, all are shorter
_AROUND: Final = 30
_LOGGED: Final = re.compile(r"kernelName[12]='([^']+)'")


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen to run.

    Attributes:
        names: Names of kernels, without repetition, in order.
        source: Who said so.
    """

    names: tuple[str, ...] = ()
    source: Source = "none"

    @property
    def products(self) -> tuple[str, ...]:
        """Names of the kernels that compute products, long ones cut: a C++ template can fill a page."""
        found = ((name, _search(name)) for name in self.names)
        return tuple(_cut(name, match) for name, match in found if match is not None)

    @property
    def families(self) -> frozenset[str]:
        """Families of the kernels that compute products; the others between them do not count."""
        return frozenset(family for name in self.names if (family := family_of(name)) is not None)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a trace says will run.

    Attributes:
        families: Families of the products' kernels.
        assembly: Names of assembly kernels, where the trace knows them.
    """

    families: frozenset[str]
    assembly: frozenset[str] = frozenset()


def family_of(name: str) -> str | None:
    """Return the kernel family of a name, as traces call it; None for what computes no product."""
    return next((family for family, pattern in _FAMILIES if pattern.search(name)), None)


def _search(name: str) -> re.Match[str] | None:
    return next((match for _, pattern in _FAMILIES if (match := pattern.search(name)) is not None), None)


def _cut(name: str, match: re.Match[str]) -> str:
    """Return a name with the part that tells its family, and little around it where it is long."""
    if len(name) <= _LONGEST:
        return name
    return f"...{name[max(0, match.start() - _AROUND) : match.end() + _AROUND]}..."


def assembly_name(name: str) -> str | None:
    """Return the name of an assembly kernel within its symbol, or None."""
    if (mangled := _MANGLED.search(name)) is not None:
        return mangled.group(2)[: int(mangled.group(1))]
    plain = _PLAIN.search(name)
    return None if plain is None else plain.group()


def expected_of(trace: Trace) -> Expected | None:
    """Return what a trace launches, or None where it launched nothing."""
    products = trace.products
    if not products:
        return None
    names = {assembly_name(launch.kernel) for launch in products if launch.family.startswith("asm")}
    return Expected(frozenset(launch.family for launch in products), frozenset(n for n in names if n))


def difference(seen: Seen, expected: Expected) -> str | None:
    """Return how what ran differs from the trace, as a sentence, or None."""
    if seen.families != expected.families:
        return (
            f"the trace launches {_list(expected.families)}, but {_list(seen.families)} ran "
            f"({', '.join(seen.names)[:300]}; from the {seen.source})"
        )
    ran = {name for each in seen.names if (name := assembly_name(each)) is not None}
    if expected.assembly and ran != expected.assembly:
        return f"the trace launches {_list(expected.assembly)}, but {_list(ran)} ran (from the {seen.source})"
    return None


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing that is known"


# --------------------------------------------------------------------------- watching


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def aiter_log() -> Iterator[list[str]]:
    """Yield the list that AITER's log lines go to inside the ``with`` block, whatever level it is set to."""
    logger, handler = logging.getLogger("aiter"), _Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def watch(call: Callable[[], Any], *, profile: bool) -> tuple[Any, Seen]:
    """Make a call and return its result with the kernels that ran.

    Args:
        call: The call; it must have finished on the device when it returns.
        profile: Whether there is a device that torch.profiler can watch.
    """
    with aiter_log() as lines:
        if profile:
            import torch

            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
                result = call()
            names = device_kernels(profiler.events() or ())
        else:
            result, names = call(), ()
    if names:
        return result, Seen(names, "profiler")
    logged = logged_kernels(lines)
    return result, Seen(logged, "log" if logged else "none")


def device_kernels(events: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of what ran on the device, of torch.profiler's events."""
    ran = (event.name for event in events if str(event.device_type).rpartition(".")[2] in ("CUDA", "HIP"))
    return tuple(dict.fromkeys(ran))


def logged_kernels(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the names of AITER's line "using ... kernelName1=..., kernelName2=..." (fused_moe.py)."""
    found = (name for line in lines if "[fused_moe] using" in line for name in _LOGGED.findall(line))
    return tuple(dict.fromkeys(found))
