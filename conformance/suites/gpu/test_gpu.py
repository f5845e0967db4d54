"""AITER's kernels on this machine's GPUs: every input of the tier is right."""

from __future__ import annotations

import pytest

from aiter_conformance.hardware.attempts import BAD
from aiter_conformance.hardware.items import Item
from aiter_conformance.hardware.part import Part
from aiter_conformance.outcome import Kind


@pytest.mark.gpu
def test_input(part: Part, item: Item, together: list[Item]) -> None:
    """Leaf and bridge give the right numbers, by the kernels of the trace, and change nothing else."""
    outcome = part.outcome(item, together)
    if outcome.kind in BAD:
        said = f"{outcome.kind.value}: {outcome.message} ({outcome.reason})"
        pytest.fail(f"{said}\nagain: aiter-conformance gpu case {item}", pytrace=False)
    if outcome.kind is not Kind.PASS:
        pytest.skip(f"{outcome.kind.value}: {outcome.message} ({outcome.reason})")
