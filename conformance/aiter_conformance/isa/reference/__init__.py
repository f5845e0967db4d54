"""The reference core: every instruction in readable form, one wave at a time, on numpy arrays of 64 lanes.

It runs from the parsed text; the fast core runs from the table. Each checks the other, and the fast core
falls back to this one for an instruction that it lacks. What the manuals leave open is decided here, in one
place:

* Transcendental and reciprocal results are correctly rounded (hardware is within 1 ulp).
* A NaN that arithmetic produces is the canonical quiet NaN.
* A denormal result is flushed after rounding, where MODE asks for it; matrix instructions and atomics never
  flush.
* A matrix instruction sums exact products in float64 in the order of k, adds C last and rounds once to
  float32.
"""

from aiter_conformance.isa.reference.core import run, step

__all__ = ["run", "step"]
