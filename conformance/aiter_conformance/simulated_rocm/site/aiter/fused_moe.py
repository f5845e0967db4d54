"""The entry of most kernels."""

from aiter_conformance.simulated_rocm.package import fused_moe

__all__ = ["fused_moe"]
