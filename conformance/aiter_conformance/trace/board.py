"""Boards: an arch with a number of compute units. A release's dispatch depends on both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiter_conformance.axes import load_axes
from aiter_conformance.errors import UsageError


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a release's Python code asks the GPU, besides its arch and its number of compute units.

    Attributes:
        lds: Bytes of local memory that one work-group may use.
        wave: Lanes of a wave.
        capability: What torch reports as compute capability.
    """

    lds: int
    wave: int
    capability: tuple[int, int]


# AMD's ISA documents give the LDS size and the wave; torch on ROCm derives the capability from the name.
HARDWARE: Final[dict[str, Hardware]] = {
    "gfx942": Hardware(64 << 10, 64, (9, 4)),
    "gfx950": Hardware(160 << 10, 64, (9, 5)),
    "gfx1250": Hardware(320 << 10, 32, (12, 5)),
}

# PCI device numbers by board, from the pci.ids database; a release tells MI308X from MI300X by them.
_PCI_DEVICES: Final = {("gfx942", 304): 0x74A1, ("gfx942", 80): 0x74A2, ("gfx950", 256): 0x75A0}


@dataclass(frozen=True, slots=True, order=True)
class Board:
    """One board, as a release sees it.

    Attributes:
        arch: Name of the arch, e.g. ``gfx942``.
        compute_units: How many compute units it has.
        build_archs: ``GPU_ARCHS`` of the process, or None where that is unset. It lists what kernels are
            built for; the board that runs them is another matter, and a release must not mix them up.
    """

    arch: str
    compute_units: int
    build_archs: str | None = None

    def __str__(self) -> str:
        return f"{self.arch}:{self.compute_units}"

    @property
    def hardware(self) -> Hardware:
        """What else the release asks the GPU."""
        return HARDWARE[self.arch]

    @property
    def pci_device(self) -> int:
        """The board's PCI device number; 0 where it is not known."""
        return _PCI_DEVICES.get((self.arch, self.compute_units), 0)

    @property
    def fp8(self) -> str:
        """The fp8 flavour of the arch, as torch names it."""
        return {"e4m3fnuz": "float8_e4m3fnuz", "e4m3fn": "float8_e4m3fn"}[load_axes().archs[self.arch].fp8]


def all_boards() -> tuple[Board, ...]:
    """Return every board of the axes, in their order."""
    return tuple(Board(arch.name, units) for arch in load_axes().archs.values() for units in arch.cu_counts)


def parse_board(text: str) -> Board:
    """Return the board that ``arch`` or ``arch:CUs`` names; an arch alone stands for its first board.

    Raises:
        UsageError: There is no such board.
    """
    arch, _, units = text.partition(":")
    for board in all_boards():
        if board.arch == arch and units in ("", str(board.compute_units)):
            return board
    known = ", ".join(str(board) for board in all_boards())
    msg = f"a board must be one of {known}, or an arch alone (got {text!r})"
    raise UsageError(msg)
