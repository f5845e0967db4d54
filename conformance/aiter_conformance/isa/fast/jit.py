"""How the fast core's functions are compiled: cached, and without numba's reference counts.

No function here allocates, and the atomic counts on every array that is passed would cost more than most
instructions. Functions that the loop calls in one place are inlined: passing a dozen arrays costs as much
again.
"""

# numba infers the types of what it compiles.
# mypy: ignore-errors

from numba import njit

compiled = njit(cache=True, nogil=True, _nrt=False)
inlined = njit(cache=True, nogil=True, _nrt=False, forceinline=True)
