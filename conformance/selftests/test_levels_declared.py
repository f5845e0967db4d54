"""Level declared: what a subject says is held against the contract, in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from aiter_conformance import contract
from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.levels import declared
from aiter_conformance.outcome import Kind, Reason
from aiter_conformance.subjects import load_subject


@dataclass
class Stub:
    """A subject whose every leaf gives the same answer."""

    answer: tuple[bool, str | None]
    name: str = "stub"

    @property
    def api(self) -> Any:
        """Leaves and keys by any name."""
        leaf = SimpleNamespace(is_supported_config=lambda *_arguments: self.answer)
        names = dict.fromkeys(contract.LEAVES, leaf)
        keys = {k: k for s in load_axes().schemes.values() for k in (s.weight_key, s.activation_key) if k}
        return SimpleNamespace(**names, **keys, FusedMoEActivationFormat=SimpleNamespace(Standard=0))

    @contextmanager
    def environment(self, *_arguments: object) -> Iterator[None]:
        """Change nothing."""
        yield

    def moe_config(self, spec: object) -> object:
        """Hand the description on."""
        return spec


ACCEPTED = Cell("gfx950", "bf16", "silu", "out")
REFUSED = Cell("gfx942", "mxfp4-w4a16", "silu", "out")
ONLY_APPLY_REFUSES = Cell("gfx950", "fp8-block", "silu", "in")


class TestObserve:
    """`observe`."""

    @pytest.mark.parametrize(
        ("cell", "answer", "kind", "reason"),
        [
            (ACCEPTED, (True, None), Kind.PASS, None),
            (ACCEPTED, (False, "no"), Kind.FAIL, Reason.DECLARATION_DIFFERS),
            (REFUSED, (False, "no"), Kind.REFUSED, Reason.SCHEME),
            (REFUSED, (True, None), Kind.FAIL, Reason.DECLARATION_DIFFERS),
            (ONLY_APPLY_REFUSES, (True, None), Kind.REFUSED, Reason.ROUTER_WEIGHT_ON_INPUT),
            (ONLY_APPLY_REFUSES, (False, "no"), Kind.FAIL, Reason.DECLARATION_DIFFERS),
        ],
    )
    def test_both_directions(
        self, cell: Cell, answer: tuple[bool, str | None], kind: Kind, reason: Reason | None
    ) -> None:
        """A leaf that accepts too much or too little fails; one that says what the contract says does not."""
        outcome = declared.observe(Stub(answer), [cell])[cell]  # type: ignore[arg-type]
        assert (outcome.kind, outcome.reason) == (kind, reason)

    def test_the_subjects_own_sentence_is_kept(self) -> None:
        """A refusal says what the leaf said."""
        outcome = declared.observe(Stub((False, "because of x")), [REFUSED])[REFUSED]  # type: ignore[arg-type]
        assert outcome.message == "because of x"

    def test_impl_declares_what_the_contract_says(self) -> None:
        """Every cell of the matrix, for the implementation of this project."""
        cells = load_axes().cells()
        outcomes = declared.observe(load_subject("impl"), cells)
        assert {cell: outcome.kind for cell, outcome in outcomes.items()} == {
            cell: contract.declaration(cell).kind for cell in cells
        }
