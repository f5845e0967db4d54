"""The entry of kernels that weight before the activation."""

from aiter_conformance.simulated_rocm.package import asm_moe_tkw1

__all__ = ["asm_moe_tkw1"]
