"""Conformance harness and compatibility matrix for AITER's fused mixture-of-experts kernels."""

from importlib.metadata import version

__version__ = version("aiter-moe-conformance")
