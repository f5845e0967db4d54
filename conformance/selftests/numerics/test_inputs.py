"""Inputs: the same bits everywhere, addressed one by one, and different wherever they could be confused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from aiter_conformance.axes import Cell
from aiter_conformance.case import Case, parse_case
from aiter_conformance.errors import UsageError
from aiter_conformance.numerics.bits import Stream, bell, integers, raw, steps
from aiter_conformance.numerics.inputs import Features, Problem
from aiter_conformance.numerics.weights import WEIGHT_BLOCKS

ProblemOf = Callable[..., Problem]

# Computed once and written down: any change of the generator or of a mapping shows here.
DIGESTS = {
    "gfx950/bf16/silu/out@E4-k2-K64-N64-M3-tp1-ep1-hp0-ip0-s0": (
        "7ac10809600cd4210b18864703d18d8e29a0ac0c137336c4e2e553cf64f8841d"
    ),
    "gfx942/fp8-block/silu/out@E4-k2-K128-N128-M3-tp1-ep1-hp0-ip0-s1": (
        "3d0f551b457db408dabad60992c91ed64345759262b725d81ef276e6e904b4ab"
    ),
    "gfx950/mxfp4-w4a16/swigluoai/out@E4-k2-K64-N128-M3-tp2-ep1-hp32-ip16-s2": (
        "8d800ac62628e0b2468b6f559d111fb7782b71764e9434cc38ec21f82a79a1db"
    ),
    "gfx942/int4-w4a16/situ/out@E4-k2-K64-N64-M3-tp1-ep2-hp0-ip0-s3": (
        "1cd2bb92c696c6c0d8494b0662569f7be0cf744f23bea64417ace0cf657e3f99"
    ),
}


def philox(counter: int, key: tuple[int, int]) -> list[int]:
    """Return one block of Philox 4x64 with ten rounds (Salmon et al., SC'11)."""
    mask = 2**64 - 1
    x, k = [counter, 0, 0, 0], list(key)
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
        x = [b >> 64 ^ x[1] ^ k[0], b & mask, a >> 64 ^ x[3] ^ k[1], a & mask]
        k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
    return x


class TestBits:
    """The generator."""

    def test_raw_is_philox(self) -> None:
        """The words of a stream are those of Philox 4x64-10, written out from its paper."""
        key = (Stream.W1 << 32 | 7, 5)
        expected = [*philox(1, key), *philox(2, key)]  # NumPy counts from 1
        assert raw(5, Stream.W1, 7, 8).tolist() == expected

    def test_addressed(self) -> None:
        """Seed, stream and expert each select other numbers; none depends on how many are drawn."""
        base = raw(1, Stream.W1, 2, 8)
        assert (raw(1, Stream.W1, 2, 4) == base[:4]).all()
        others = [raw(2, Stream.W1, 2, 8), raw(1, Stream.W2, 2, 8), raw(1, Stream.W1, 3, 8)]
        assert all((other != base).all() for other in others)

    def test_bell(self) -> None:
        """Bell-shaped numbers have mean 0, the stated deviation, and lie on a grid of 2^-15."""
        values = bell(0, Stream.W1, 0, (200, 500))
        assert abs(values.mean()) < 0.02
        assert abs(values.std() - 2 / np.sqrt(3)) < 0.01
        assert np.abs(values).max() < 4
        assert (values * 2**15 == np.rint(values * 2**15)).all()

    def test_integers(self) -> None:
        """Integers reach every value below the limit and none beyond."""
        assert sorted(set(integers(0, Stream.ROUTING, 0, (1000,), 5).tolist())) == [0, 1, 2, 3, 4]

    def test_steps(self) -> None:
        """No two neighbours are equal, down or across."""
        grid = steps(3, Stream.W1_SCALE, 1, (50, 60), 4)
        assert (grid[1:] != grid[:-1]).all()
        assert (grid[:, 1:] != grid[:, :-1]).all()
        assert set(grid.reshape(-1).tolist()) == {0, 1, 2, 3}

    def test_bad_input(self) -> None:
        """Addresses that do not fit and limits that cannot work are refused."""
        with pytest.raises(
            ValueError, match=r"seed must fit 64 bits and expert 32 \(got seed -1, expert 0\)"
        ):
            raw(-1, Stream.W1, 0, 1)
        with pytest.raises(ValueError, match=r"limit must be at least 3 \(got 2\)"):
            steps(0, Stream.W1, 0, (2, 2), 2)


class TestProblem:
    """`Problem`."""

    @pytest.mark.parametrize("text", DIGESTS)
    def test_digest(self, text: str) -> None:
        """A case's input is, bit for bit, what it has always been."""
        problem = Problem(parse_case(text), Features(biases=True, shared_experts=1))
        assert problem.digest() == DIGESTS[text]

    @pytest.mark.parametrize("scheme", list(WEIGHT_BLOCKS))
    def test_nothing_is_alike(self, scheme: str, problem_of: ProblemOf) -> None:
        """Gate and up, experts, rows and neighbouring scales all differ, by far more than rounding."""
        problem = problem_of(scheme, experts=4)
        first, second = problem.expert(0).w1, problem.expert(1).w1
        values = first.values()
        half = len(values) // 2

        def unlike(a: np.ndarray, b: np.ndarray) -> bool:
            return bool(np.linalg.norm(a - b) > 0.5 * np.linalg.norm(a))

        assert unlike(values, second.values())
        assert unlike(values[:half], values[half:])
        assert all(unlike(a, b) for a, b in itertools.pairwise(values))
        scales = first.scale_values()
        for axis in (0, 1):
            if scales.shape[axis] > 1:
                near = np.take(scales, range(scales.shape[axis] - 1), axis)
                far = np.take(scales, range(1, scales.shape[axis]), axis)
                assert (np.abs(near - far) > 0.1 * np.abs(near)).mean() > 0.8
        assert all(unlike(a, b) for a, b in itertools.pairwise(problem.hidden))
        weights = problem.topk_weights
        assert (np.abs(weights[:, 0] - weights[:, 1]) > 0.01).mean() > 0.9

    def test_peaks_are_prime(self, problem_of: ProblemOf) -> None:
        """The largest magnitude of each 128 columns, which scales are made of, has a prime significand."""
        problem = problem_of("fp8-block", tokens=64)
        blocks = np.abs(problem.hidden).reshape(64, 2, 128)
        mantissa, _ = np.frexp(blocks.max(axis=2))
        significands = (mantissa * 256).astype(int).reshape(-1).tolist()
        assert all(n % d for n in significands for d in range(2, 16))
        assert len(set(significands)) > 10

    def test_one_expert_alone(self, problem_of: ProblemOf) -> None:
        """An expert is the same whatever else the case has: tokens, other experts, expert parallelism."""
        alone = problem_of("fp8-channel", experts=8).expert(6)
        other = problem_of("fp8-channel", experts=16, tokens=3).expert(6)
        rank = Problem(Case(Cell("gfx950", "fp8-channel", "silu", "out"), experts=8, ep=2), rank=1).expert(6)
        assert (alone.w1.codes == other.w1.codes).all()
        assert (alone.w2.codes == rank.w2.codes).all()

    def test_pads_are_dead(self, problem_of: ProblemOf) -> None:
        """Dead columns of the hidden states, dead rows and columns of weights are zero, no others."""
        problem = problem_of(
            "mxfp4-w4a16", "swigluoai", features=Features(biases=True), hidden_pad=40, intermediate_pad=24
        )
        made = problem.expert(0)
        w1, w2 = made.w1.values(), made.w2.values()
        assert not problem.hidden[:, 216:].any()
        assert problem.hidden[:, :216].all(axis=0).any()
        for start in (0, 256):
            assert not w1[start + 232 : start + 256].any()
            assert w1[start : start + 232, :216].any(axis=1).all()
            assert made.b1 is not None
            assert not made.b1[start + 232 : start + 256].any()
        assert not w1[:, 216:].any()
        assert not w2[216:].any()
        assert not w2[:, 232:].any()

    def test_partitions_are_slices(self) -> None:
        """Each tensor-parallel rank holds its slice of gate, of up and of w2's columns."""
        case = Case(Cell("gfx950", "bf16", "silu", "out"), experts=2)
        whole = Problem(case).expert(0)
        for rank in (0, 1):
            part = Problem(replace(case, tp=2), rank=rank).expert(0)
            rows = slice(rank * 128, rank * 128 + 128)
            assert (part.w1.codes[:128] == whole.w1.codes[:256][rows]).all()
            assert (part.w1.codes[128:] == whole.w1.codes[256:][rows]).all()
            assert (part.w2.codes == whole.w2.codes[:, rows]).all()

    def test_expert_mask(self) -> None:
        """Eight experts, EP 2, rank 1, without and with a shared expert (CASES C4)."""
        case = Case(Cell("gfx950", "bf16", "silu", "out"), ep=2)
        plain = Problem(case, rank=1).expert_mask
        shared = Problem(case, Features(shared_experts=1), rank=1).expert_mask
        assert plain is not None
        assert shared is not None
        assert plain.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0]
        assert shared.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 0]
        assert plain.dtype == np.int32

    def test_no_mask_without_expert_parallelism(self, problem_of: ProblemOf) -> None:
        """Without expert parallelism there is no mask."""
        assert problem_of("bf16").expert_mask is None

    def test_routing(self, problem_of: ProblemOf) -> None:
        """Mixed routing leaves an expert idle, ``one`` fills one, ``every`` reaches all; ids are distinct."""
        mixed, one, every = (
            problem_of("bf16", features=Features(routing=r)).topk_ids for r in ("mixed", "one", "every")
        )
        assert sorted(set(mixed.reshape(-1).tolist())) == list(range(7))
        assert (one == 0).any(axis=1).all()
        assert len(set(one.reshape(-1).tolist())) > 4
        assert (np.bincount(every.reshape(-1)) == 16).all()
        for ids in (mixed, one, every):
            assert all(len(set(row)) == 2 for row in ids.tolist())

    def test_shared_experts(self, problem_of: ProblemOf) -> None:
        """Shared experts take the last columns of every token, with weight 1."""
        problem = problem_of("bf16", features=Features(shared_experts=2))
        assert (problem.topk_ids[:, 2:] == [8, 9]).all()
        assert (problem.topk_weights[:, 2:] == 1).all()
        assert problem.held_experts == (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)

    def test_no_tokens(self, problem_of: ProblemOf) -> None:
        """No tokens is an input like any other."""
        problem = problem_of("fp8-block", tokens=0)
        assert problem.hidden.shape == (0, 256)
        assert problem.topk_ids.shape == (0, 2)

    def test_bad_input(self, problem_of: ProblemOf) -> None:
        """A rank outside its group and an expert that the rank does not hold are refused."""
        with pytest.raises(UsageError, match=r"rank must be in 0 .. 0 \(got 1\)"):
            Problem(problem_of("bf16").case, rank=1)
        with pytest.raises(UsageError, match=r"expert must be one of \[0, 1\] \(got 2\)"):
            problem_of("bf16", experts=2).expert(2)
