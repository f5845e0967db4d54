"""The simulated AITER; everything is in `aiter_conformance.simulated_rocm.package`."""

from aiter_conformance.simulated_rocm.package import ActivationType, QuantType, dtypes, logger

__all__ = ["ActivationType", "QuantType", "dtypes", "logger"]
