"""Whether tuned rows can be right: their keys, their boards, and the kernels that they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aiter_conformance.axes import load_axes
from aiter_conformance.release.anchor_finders import lookup_knows_arch
from aiter_conformance.release.api import read_api
from aiter_conformance.release.artefact import Release
from aiter_conformance.release.findings import Finding, FindingCode
from aiter_conformance.release.inventory import Inventory
from aiter_conformance.release.kernel_names import KernelClaim, read_kernel_name
from aiter_conformance.release.pysource import Sources
from aiter_conformance.release.tuned_rows import TRUE, TunedKey, TunedRow, short_dtype


class TunedChecks:
    """What the rows of one release are held against."""

    def __init__(self, release: Release, inventory: Inventory, sources: Sources) -> None:
        known = read_api(release, sources).archs or ()
        self._archs = {arch.name: arch for arch in load_axes().archs.values()}
        self._boards: dict[int, list[str]] = {}
        for arch in self._archs.values():
            for cu_num in arch.cu_counts if arch.name in known else ():
                self._boards.setdefault(cu_num, []).append(arch.name)
        self._lookup_knows_arch = lookup_knows_arch(sources)
        self._asm = {arch: set[str]() for arch in self._archs}
        for manifest in inventory.manifests:
            self._asm.setdefault(manifest.arch, set()).update(
                row.kernel for row in manifest.rows if row.sound
            )
        self._first: dict[tuple[TunedKey, bool], tuple[str, int]] = {}

    def of_table(self, path: str, rows: Sequence[TunedRow]) -> list[Finding]:
        """Find the CU counts of a table that the release's lookup takes for more than one arch."""
        if self._lookup_knows_arch:
            return []
        shared = sorted({row.key.cu_num for row in rows if len(self._boards.get(row.key.cu_num, ())) > 1})
        return [
            Finding(
                path,
                0,
                FindingCode.TUNED_AMBIGUOUS_ARCH,
                f"rows must be of one arch (those for {cu_num} CUs apply to "
                f"{' and '.join(self._boards[cu_num])}: the lookup does not ask for the arch)",
            )
            for cu_num in shared
        ]

    def of_row(self, row: TunedRow) -> list[Finding]:
        """Return everything that is wrong with *row*."""
        return [Finding(row.path, row.line, code, message) for code, message in self._faults(row)]

    def _faults(self, row: TunedRow) -> Iterator[tuple[FindingCode, str]]:
        key = row.key
        place = self._first.setdefault((key, row.fallback), (row.path, row.line))
        if place != (row.path, row.line):
            yield (
                FindingCode.TUNED_DUPLICATE_KEY,
                f"a key must have one row (it has {place[0]}:{place[1]} already)",
            )
        arch = self._archs.get(key.gfx)
        if arch is None:
            yield (
                FindingCode.TUNED_UNKNOWN_BOARD,
                f"the board must be known (got {key.cu_num} CUs, {key.gfx or 'no arch'})",
            )
            return
        for column, dtype in (("q_dtype_a", key.q_dtype_a), ("q_dtype_w", key.q_dtype_w)):
            if short_dtype(dtype) == "fp8" and dtype != f"float8_{arch.fp8}":
                message = (
                    f"fp8 on {arch.name} must be float8_{arch.fp8} ({column} is {dtype}: no call has this "
                    "key)"
                )
                yield FindingCode.TUNED_WRONG_FP8, message
        one_stage = row.settings.get("run_1stage") in TRUE
        for stage, kernel in enumerate(row.kernels, start=1):
            if kernel:
                yield from self._kernel_faults(row, kernel, 0 if one_stage and stage == 1 else stage)

    def _kernel_faults(self, row: TunedRow, kernel: str, stage: int) -> Iterator[tuple[FindingCode, str]]:
        claim = read_kernel_name(kernel)
        if claim is None:
            yield FindingCode.TUNED_KERNEL_UNKNOWN, f"a kernel must be of a known family (got {kernel})"
            return
        if claim.family.startswith("asm") and kernel not in self._asm[row.key.gfx]:
            message = f"an asm kernel must be in a manifest of {row.key.gfx} with a sound row (got {kernel})"
            yield FindingCode.TUNED_KERNEL_MISSING, message
        differences = list(_differences(row.key, claim, stage))
        if differences:
            yield (
                FindingCode.TUNED_KERNEL_DIFFERS,
                f"{kernel} must do what its row asks for ({'; '.join(differences)})",
            )


def _differences(key: TunedKey, claim: KernelClaim, stage: int) -> Iterator[str]:
    """Yield where a kernel's claim contradicts the key; *stage* is 1, 2, or 0 for the whole."""
    if claim.stage is not None and claim.stage != stage:
        yield f"it is for {_stage(claim.stage)}, not {_stage(stage)}"
    if claim.activation is not None and claim.activation != key.act_type:
        yield f"it does {claim.activation}, not {key.act_type}"
    if claim.quant and key.q_type not in claim.quant:
        yield f"it quantises {' or '.join(claim.quant)}, not {key.q_type}"
    a, w = short_dtype(key.q_dtype_a), short_dtype(key.q_dtype_w)
    if claim.w is not None and claim.w != w:
        yield f"its weights are {claim.w}, not {w}"
    # The input of stage 2 is what stage 1 wrote, in whatever dtype the two agreed on.
    if claim.a is not None and claim.a != a and stage != 2:
        yield f"its activations are {claim.a}, not {a}"
    if claim.multiplies_router_weight is not None:
        wanted = key.doweight_stage1 if stage == 1 else not key.doweight_stage1
        if claim.multiplies_router_weight != wanted:
            does = "multiplies" if claim.multiplies_router_weight else "does not multiply"
            yield f"it {does} by the router weight in stage {stage}"


def _stage(stage: int) -> str:
    return f"stage {stage}" if stage else "both stages"
