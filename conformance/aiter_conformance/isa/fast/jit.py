"""How the fast core's functions are compiled: cached, and without numba's reference counts.

No function here allocates, and the atomic counts on every array that is passed would cost more than most
instructions. Functions that the loop calls in one place are inlined: passing a dozen arrays costs as much
again.
"""

# numba infers the types of what it compiles.
# mypy: ignore-errors

from numba import njit

_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
compiled = njit(**_OPTIONS)
inlined = njit(**_OPTIONS, forceinline=True)
