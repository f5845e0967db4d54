"""What differs between the emulated architectures, in one table.

Sources: "AMD Instinct MI300 Instruction Set Architecture" and "AMD Instinct CDNA4 Instruction Set
Architecture" (number formats, LDS); LLVM's AMDGPU target for the granule of LDS allocation (128 dwords; 320
with 160 KiB of LDS).
"""

from __future__ import annotations

from dataclasses import dataclass

from aiter_conformance.errors import UsageError

MODE_FP32_DENORM = 0x30
"""MODE bits [5:4]: 0 flushes float32 denormals of sources and results to signed zero, 3 keeps them."""
MODE_FP16_OVFL = 1 << 23
"""MODE bit: conversions to fp8 and f16 saturate instead of giving NaN or infinity."""


@dataclass(frozen=True, slots=True)
class Arch:
    """One architecture that can be emulated.

    Attributes:
        name: Target name.
        fp8: ml_dtypes name of the e4m3 flavour of its matrix cores and conversions.
        fp8_max: Its largest finite value.
        lds_bytes: LDS of a compute unit.
        lds_granule: Bytes to which a work-group's LDS is rounded up.
    """

    name: str
    fp8: str
    fp8_max: float
    lds_bytes: int
    lds_granule: int

    def lds_allocation(self, declared: int) -> int:
        """Bytes of LDS that a work-group gets when its kernel declares ``declared`` bytes.

        Raises:
            UsageError: More than a compute unit has.
        """
        if declared > self.lds_bytes:
            raise UsageError(
                f"LDS of a work-group on {self.name} must be at most {self.lds_bytes} bytes (got {declared})"
            )
        return -(-declared // self.lds_granule) * self.lds_granule


ARCHES = {
    "gfx942": Arch("gfx942", "float8_e4m3fnuz", 240.0, 64 * 1024, 512),
    "gfx950": Arch("gfx950", "float8_e4m3fn", 448.0, 160 * 1024, 1280),
}
