"""The shipped assembly kernels: which manifest a call reads, and which of its kernels C++ picks unnamed.

The rules are those of ``csrc/py_itfs_cu/asm_fmoe.cu`` and ``asm_moe_2stage.cu``: the manifest follows from
the operator, the dtypes and the activation; of the kernels whose tile divides the intermediate size the one
with the fewest rounds over the compute units is taken, then the one that leaves the fewest idle, then a
persistent one. Kernels that are equal in all of that are taken in an order that C++ does not define.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiter_conformance.release.inventory import Inventory, ManifestRow

# (operator, dtype of the activations that come in) -> stem of the manifest.
_ONE_STAGE: Final = {
    ("fmoe_g1u1", "fp8"): "pertokenFp8_g1u1_{activation}",
    ("fmoe_g1u1", "int8"): "pertokenInt8_g1u1_{activation}",
    ("fmoe_g1u1", "fp4"): "pertokenMXfp4_g1u1_{activation}",
    ("fmoe_g1u1", "bf16"): "pertokenMXfp4_g1u1_{activation}",
    ("fmoe_g1u1_tkw1", "fp8"): "pertokenFp8_g1u1_{activation}_tkw1",
    ("fmoe_fp8_blockscale_g1u1", "fp8"): "blockscaleFp8_g1u1_{activation}",
    ("fmoe_fp8_blockscale_g1u1", "bf16"): "blockscaleBf16_g1u1_{activation}",
}
# (dtype of the activations, quant type, router weight multiplies) -> stem of the manifest of stage 1.
_STAGE1: Final = {
    ("fp8", "per_Token", True): "pertokenFp8_doweight_g1u1",
    ("fp8", "per_Token", False): "pertokenFp8_g1u1",
    ("int8", "per_Token", False): "pertokenInt8_g1u1",
    ("fp8", "per_1x128", False): "pertokenFp8_blockscale_g1u1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AsmCall:
    """What decides which assembly kernel is launched.

    Attributes:
        operator: The operator.
        activation: ``silu``, ``gelu`` or another member of ``ActivationType``, in lower case.
        a: Dtype of the activations that come in.
        out: Dtype of the result.
        quant: Member of ``QuantType``, for stage 1.
        router_weight: Whether the router weight multiplies in stage 1.
        intermediate: Intermediate size.
        blocks: Blocks of sorted tokens.
        block_m: Rows of such a block.
    """

    operator: str
    activation: str
    a: str
    out: str
    quant: str
    router_weight: bool
    intermediate: int
    blocks: int
    block_m: int


class AsmKernels:
    """The assembly kernels of one release for one arch.

    Args:
        inventory: What the release ships.
        arch: The arch.
        compute_units: Compute units of the board.
    """

    def __init__(self, inventory: Inventory, arch: str, compute_units: int) -> None:
        self._arch = arch
        self._units = compute_units
        self._rows = {
            manifest.path: manifest.rows for manifest in inventory.manifests if manifest.arch == arch
        }
        self._by_name = {row.kernel: (path, row) for path, rows in self._rows.items() for row in rows}

    def manifest(self, call: AsmCall) -> str | None:
        """Return the path of the manifest that C++ reads for a call; None where it would refuse the call."""
        if call.operator == "moe_stage1_g1u1":
            stem = _STAGE1.get((call.a, call.quant, call.router_weight))
            return None if stem is None else f"hsa/{self._arch}/fmoe_2stages/fmoe_stage1_bf16_{stem}.csv"
        stem = _ONE_STAGE.get((call.operator, call.a))
        if stem is None:
            return None
        stem = stem.format(activation=call.activation)
        return f"hsa/{self._arch}/fmoe/{call.activation}/fmoe_{call.out}_{stem}.csv"

    def problem(self, call: AsmCall, name: str) -> str | None:
        """Say why C++ would not launch a kernel by this name for a call, or not soundly; None if it would."""
        path = self.manifest(call)
        if path is None:
            return f"{call.operator} has no kernels for {call.a} activations with {call.quant or 'this call'}"
        if name not in self._by_name:
            return f"the release ships no kernel {name} for {self._arch}"
        home, row = self._by_name[name]
        if home != path:
            return f"the kernel is in {home}, and the call looks in {path}"
        if not row.sound:
            return f"the code object of {name} is broken"
        columns = _number(row, "subGU_n", "tile_n")
        if columns and call.intermediate % columns:
            return f"its tile of {columns} columns does not divide the intermediate size {call.intermediate}"
        return None

    def candidates(self, call: AsmCall) -> tuple[str, ...]:
        """Return the kernels that C++ may pick for a call that names none, preferred ones first.

        C++ reads manifests alone: it picks a kernel whose code object is broken as any other, and then fails
        to load it. Of those that are equal a broken one comes first, since C++ may pick it.
        """
        rows = self._rows.get(self.manifest(call) or "", ())
        fitting = [row for row in rows if _fits(row, call)]
        fitting.sort(key=lambda row: (self._rank(row, call), row.sound, row.line))
        return tuple(row.kernel for row in fitting)

    def tile(self, name: str) -> tuple[int, int, int] | None:
        """Return the tile of a kernel, its depth being unknown."""
        if name not in self._by_name:
            return None
        row = self._by_name[name][1]
        return _number(row, "subGU_m", "tile_m"), _number(row, "subGU_n", "tile_n"), 0

    def _rank(self, row: ManifestRow, call: AsmCall) -> tuple[int, int, int]:
        groups = call.intermediate // _number(row, "subGU_n", "tile_n") * call.blocks
        rounds = -(-groups // self._units)
        return rounds, rounds * self._units - groups, -_number(row, "ps")


def _fits(row: ManifestRow, call: AsmCall) -> bool:
    columns, rows = _number(row, "subGU_n", "tile_n"), _number(row, "subGU_m", "tile_m")
    if not columns or call.intermediate % columns or rows != call.block_m:
        return False
    # One-stage kernels: the skipping variant, no smoothing, no routing of their own.
    return "subGU_n" not in row.tile or (
        _number(row, "vskip") == 1 and _number(row, "smf") == 0 and _number(row, "flat") == 0
    )


def _number(row: ManifestRow, *columns: str) -> int:
    """Return the value of the first of the columns that the manifest has; 0 if it has none."""
    return next((int(row.tile[column]) for column in columns if column in row.tile), 0)
