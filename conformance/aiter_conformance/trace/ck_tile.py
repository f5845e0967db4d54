"""The CK-Tile kernels of a release: what the C++ that picks them takes, read from its text.

`moe_dispatch` compares the number of the activation with those that it has kernels for, and runs off its end
with any other: no kernel, and no error either. The operators refuse weights that are not MXFP4. Stage 1 of
these kernels never multiplies by a router weight, whatever it is handed, and stage 2 always does
(``IsInputGemm`` in CK's ``moe_flatmm_kernel.hpp``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiter_conformance.release.artefact import Release

_DISPATCH: Final = "csrc/ck_tile_gemm_moe_2stages/moe_cktile2stages.cu"
_COMPARED: Final = re.compile(r"\bactivation == (\d+)")
_WEIGHTS: Final = "fp4"


@dataclass(frozen=True, slots=True)
class CkTileKernels:
    """What the CK-Tile kernels of one release can do.

    Attributes:
        activations: Members of ``ActivationType`` that they can apply, in lower case; None where the release
            has one set of kernels, whatever the activation.
    """

    activations: frozenset[str] | None

    def problem(self, activation: str | None, weights: str | None) -> str | None:
        """Say why C++ has no kernel for a call without a kernel's name; None if it has one.

        Args:
            activation: Member of ``ActivationType``, in lower case; None where the call hands on none.
            weights: Dtype of the weights, as a launch names it.
        """
        if weights != _WEIGHTS:
            return f"the operators of CK-Tile take {_WEIGHTS} weights (got {weights})"
        if activation is None or self.activations is None or activation in self.activations:
            return None
        known = " and ".join(sorted(self.activations))
        return f"CK-Tile has kernels for {known}, and runs off the end of its dispatch for {activation}"


def read_ck_tile(release: Release, activations: Mapping[int, str]) -> CkTileKernels:
    """Return what the CK-Tile kernels of a release can do.

    Args:
        release: The release.
        activations: Name of the member of its ``ActivationType`` by value.

    Raises:
        InfrastructureError: A file of the release cannot be read.
    """
    if _DISPATCH not in release.files.paths:
        return CkTileKernels(None)
    text = release.files.read(_DISPATCH).decode("utf-8", "replace")
    compared = frozenset(activations.get(int(number), number).lower() for number in _COMPARED.findall(text))
    return CkTileKernels(compared or None)
