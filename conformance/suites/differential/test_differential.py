"""Our leaves and vLLM's own, on the same inputs: the same call, the same refusal, or a listed difference.

SPEC header, 2 to 10. The hypothesis profile decides how many inputs: 20,000 uses of a leaf in nightly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from aiter_conformance import differential_strategies as inputs
from aiter_conformance.differential import Input, ListedDifference, stale, unlisted
from aiter_conformance.differential_parts import ALL_PAIRS, KeyEqualityUse, PairsUse

if TYPE_CHECKING:
    from aiter_conformance.protocols import Subject

# Uses of a leaf have by far the most to vary: they get four times the profile's examples.
MANY = 4 * settings().max_examples


def listed(vllm: Subject) -> list[ListedDifference]:
    """Return those of the differences that tell how to recognise them; other suites show the rest."""
    return [d for d in vllm.differences.values() if isinstance(d, ListedDifference)]


def check(use: Input, impl: Subject, vllm: Subject) -> None:
    """Fail with the input and what is unlike, unless a listed difference explains all of it."""
    problem = unlisted(use, impl, vllm, listed(vllm))
    assert problem is None, problem


class TestDeclared:
    """What leaves and keys say before any call."""

    @pytest.mark.parametrize("pairs", ALL_PAIRS, ids=lambda p: f"{p.leaf}-{p.arch}")
    def test_pairs(self, impl: Subject, vllm: Subject, pairs: PairsUse) -> None:
        """Every pair of the 38 keys and None is taken by both or by neither, through hook and cascade."""
        check(pairs, impl, vllm)

    @pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
    def test_key_equality(self, impl: Subject, vllm: Subject, arch: str) -> None:
        """The same keys are equal."""
        check(KeyEqualityUse(arch), impl, vllm)


class TestGenerated:
    """Generated inputs; one that no listed difference explains is made as small as possible and shown."""

    @settings(max_examples=MANY)
    @given(inputs.leaf_uses())
    def test_leaf(self, impl: Subject, vllm: Subject, use: Input) -> None:
        """A leaf declares, calls and writes the same."""
        check(use, impl, vllm)

    @given(inputs.pads_uses())
    def test_pads(self, impl: Subject, vllm: Subject, use: Input) -> None:
        """Pads are rounded and doubled the same."""
        check(use, impl, vllm)

    @given(inputs.settings_uses())
    def test_settings(self, impl: Subject, vllm: Subject, use: Input) -> None:
        """Variables mean the same."""
        check(use, impl, vllm)

    @given(inputs.config_uses())
    def test_config(self, impl: Subject, vllm: Subject, use: Input) -> None:
        """A deployment, a layer and its quantisation are read the same."""
        check(use, impl, vllm)

    @given(inputs.shared_experts_uses())
    def test_shared_experts(self, impl: Subject, vllm: Subject, use: Input) -> None:
        """The shared experts' buffers hold the same after every step."""
        check(use, impl, vllm)

    @given(inputs.routing_uses())
    def test_routing(self, impl: Subject, vllm: Subject, use: Input) -> None:
        """The grouped top-k asks AITER the same and answers the same."""
        check(use, impl, vllm)


class TestDifferences:
    """The list of differences itself."""

    def test_not_stale(self, impl: Subject, vllm: Subject) -> None:
        """Every listed difference shows on each of its witnesses."""
        assert stale(impl, vllm, listed(vllm)) == []

    def test_every_difference_has_a_witness(self, vllm: Subject) -> None:
        """Nothing is listed that was not observed."""
        assert [d.id for d in listed(vllm) if not d.witnesses] == []
