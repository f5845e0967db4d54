"""Where vLLM 0.33.0 does not do what SPEC says: one entry for each difference that was observed.

An entry that no longer shows is an error of the suites and of the differential, so that a newer vLLM makes
this list shorter.
"""

from __future__ import annotations

from types import MappingProxyType

from aiter_conformance.protocols import Difference

DIFFERENCES = MappingProxyType[str, Difference]({})
