"""Which shipped kernel executes a call: what a trace launches, opened and decoded, or why it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from aiter_conformance.errors import HarnessError, InfrastructureError
from aiter_conformance.isa import codeobject, decode, disasm, fast
from aiter_conformance.isa.codeobject import CodeObject
from aiter_conformance.isa.launch import Family
from aiter_conformance.isa.variant import Variant, read_variant
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.inventory import Inventory, ManifestRow
from aiter_conformance.trace.board import Board
from aiter_conformance.trace.record import Launch, Role

# Operators that quantise activations as the provider does: one scale a token, or one for each 128 columns.
_QUANTISERS: Final = ("dynamic_per_token_scaled_quant",)


class NotExecutableError(HarnessError):
    """A launch of a call cannot be executed.

    Attributes:
        why: Why, the same for every such kernel.
        kernel: Its name; empty where it is about no kernel.
    """

    exit_code = 3

    def __init__(self, why: str, kernel: str = "") -> None:
        super().__init__(f"{why} ({kernel})" if kernel else why)
        self.why, self.kernel = why, kernel


@dataclass(frozen=True, slots=True)
class Kernel:
    """A shipped kernel, ready to run.

    Attributes:
        name: Its symbol.
        row: The row of the manifest that offers it.
        code: The code object that holds it.
        program: That decoded.
        kind: What its name says that it computes.
    """

    name: str
    row: ManifestRow
    code: CodeObject
    program: decode.Program
    kind: Variant

    @property
    def groups_per_unit(self) -> int:
        """Work-groups that a persistent kernel gets for each compute unit; 0 for another one."""
        return int(self.row.tile["tg_num_perCU"]) if self.row.tile.get("ps") == "1" else 0


class Emulator:
    """The shipped kernels of one release on one board, each opened once.

    Args:
        release: An open release.
        board: The board.
        inventory: What the release ships.
        folder: Where compiled and decoded code is kept, e.g. ``build/isa``.

    Raises:
        InfrastructureError: numba or the disassembler is absent.
    """

    def __init__(self, release: Release, board: Board, inventory: Inventory, folder: Path) -> None:
        self.board = board
        disasm.library()  # said here, where nothing was tried yet
        self.core = fast.load(folder)
        self._release = release
        self._folder = folder
        self._kernels: dict[str, Kernel] = {}
        self._rows = {
            row.kernel: row
            for manifest in inventory.manifests
            if manifest.arch == board.arch
            for row in manifest.rows
        }

    def kernel(self, name: str) -> Kernel:
        """Open a kernel by its symbol.

        Raises:
            NotExecutableError: No manifest names it, or its launch or an instruction is not modelled.
        """
        if name not in self._kernels:
            if name not in self._rows:
                raise NotExecutableError("no manifest of the release names the kernel", name)
            row = self._rows[name]
            try:
                code = codeobject.load(self._release.files.read(row.object_path))
                kind = read_variant(self.board.arch, PurePosixPath(row.object_path).name)
                [program] = decode.decode([code], self._folder)
            except InfrastructureError:
                raise
            except HarnessError as error:
                raise NotExecutableError(str(error), name) from error
            if code.only_kernel().name != name:
                raise NotExecutableError("the object that the manifest names does not hold the kernel", name)
            self._kernels[name] = Kernel(name, row, code, program, kind)
        return self._kernels[name]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is executed of a call.

    Attributes:
        kernel: The kernel that does the layer.
        emulated: Operators around it that are computed from their contract.
        block_m: Rows of a block of sorted tokens.
    """

    kernel: Kernel
    emulated: tuple[str, ...]
    block_m: int


def make_plan(launches: Sequence[Launch], emulator: Emulator) -> Plan:
    """Find out whether everything that a call launches can be executed, or computed from its contract.

    Args:
        launches: What the release's dispatch launches for the call, in order.
        emulator: Its kernels.

    Raises:
        NotExecutableError: Something cannot be; the message has its name.
    """
    products = [one for one in launches if one.role in (Role.ONE_STAGE, Role.STAGE1, Role.STAGE2)]
    for one in products:
        if one.family not in ("asm-1stage", "asm-stage1"):
            raise NotExecutableError(f"{one.family} kernels are built on first use", one.kernel)
    helpers = [one for one in launches if one not in products]
    for one in helpers:
        if one.role is not Role.SORT and one.operator not in _QUANTISERS:
            raise NotExecutableError("an operator that is not modelled", one.operator)
    if len(products) != 1 or launches[0].role is not Role.SORT or launches[-1] is not products[0]:
        raise NotExecutableError(
            "a call must sort first and launch one kernel last", ", ".join(one.operator for one in launches)
        )
    [main] = products
    kernel = emulator.kernel(main.kernel)
    kind = kernel.kind
    if kind.family is not Family.ONE_STAGE or kind.scheme not in ("fp8", "fp8-block") or kind.smooth:
        raise NotExecutableError(
            "only one-stage fp8 kernels without smoothing get a call's tensors", main.kernel
        )
    if kind.routing != "sorted":
        raise NotExecutableError("kernels that take tokens unsorted do not get a call's tensors", main.kernel)
    quantised = [one for one in helpers if one.role is Role.QUANTISE]
    if len(quantised) != (0 if kind.quantises else 1):
        raise NotExecutableError(f"{len(quantised)} quantisations before the kernel", main.kernel)
    return Plan(kernel, tuple(one.operator for one in helpers), main.block_m or kind.tile_m)
