"""The layout formulas are right by hand-made cases, and the properties of weights and masks can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from aiter_conformance.checks import properties_mask as masks
from aiter_conformance.checks import properties_weights as checks
from aiter_conformance.checks.properties_checkpoint import Layer, checkpoint, expected_bytes, pad_halves
from aiter_conformance.checks.properties_faulty import Fault, Wrapper, answer, called_with
from aiter_conformance.checks.properties_layouts import (
    gate_up_rows,
    int4_offsets,
    int4_scale_offsets,
    scale_offsets,
    scatter,
    weight_offsets,
)
from aiter_conformance.checks.properties_mask import Placement
from aiter_conformance.protocols import Subject
from aiter_conformance.subjects import load_subject


@pytest.fixture(scope="module")
def impl() -> Subject:
    """The subject that faults are planted in."""
    return load_subject("impl")


class TestOffsets:
    """The formulas of `properties_layouts`."""

    def test_weight(self) -> None:
        """A tile has 16 rows of 16 bytes; tiles of one band of rows follow each other."""
        offsets = weight_offsets(32, 64)
        places = [(0, 0), (0, 1), (1, 0), (15, 15), (0, 16), (0, 63), (16, 0)]
        assert [int(offsets[place]) for place in places] == [0, 1, 16, 255, 256, 783, 1024]

    def test_gate_up(self) -> None:
        """Interleaved, 16 gates and 16 ups take turns; separated, every row stays."""
        order = gate_up_rows(64, interleaved=True)
        assert [int(order[row]) for row in (0, 15, 16, 31, 32, 47, 48, 63)] == [0, 15, 32, 47, 16, 31, 48, 63]
        assert gate_up_rows(64, interleaved=False).tolist() == list(range(64))

    def test_scale(self) -> None:
        """A dword has two 16-row halves by two 4-group halves, a tile of 32 rows by 8 groups 256 bytes."""
        offsets = scale_offsets(64, 16)
        places = [(0, 0), (16, 0), (0, 4), (16, 4), (1, 0), (0, 1), (0, 8), (32, 0)]
        assert [int(offsets[place]) for place in places] == [0, 1, 2, 3, 4, 64, 256, 512]

    def test_int4(self) -> None:
        """Of eight values, the first four are low nibbles, the last four the high ones of the same bytes."""
        byte, high = int4_offsets(16, 32)
        assert byte[0, :9].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
        assert high[0, :9].tolist() == [False] * 4 + [True] * 4 + [False]

    def test_int4_scale(self) -> None:
        """Two groups of a row are neighbours; the next pair of groups comes after all rows."""
        offsets = int4_scale_offsets(3, 4)
        assert offsets.tolist() == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]

    @pytest.mark.parametrize(
        "offsets",
        [
            weight_offsets(48, 96),
            weight_offsets(64, 32)[gate_up_rows(64, interleaved=True)],
            scale_offsets(96, 24),
            int4_scale_offsets(20, 6),
        ],
        ids=["weight", "interleaved", "scale", "int4 scale"],
    )
    def test_is_a_permutation(self, offsets: Any) -> None:
        """Every place is taken once: what is stored can be read back."""
        values = (np.arange(offsets.size) % 251).astype(np.uint8)
        assert np.array_equal(scatter(values, offsets)[offsets.reshape(-1)], values)

    def test_int4_places_are_all_taken(self) -> None:
        """Every nibble is taken once."""
        byte, high = int4_offsets(32, 64)
        assert np.array_equal(np.sort((byte * 2 + high).reshape(-1)), np.arange(32 * 64))

    def test_scatter_refuses_no_permutation(self) -> None:
        """Offsets with a place twice are an error of the formula."""
        with pytest.raises(ValueError, match="must be a permutation of the 2 places"):
            scatter(np.zeros(2, dtype=np.uint8), np.array([0, 0]))


class TestExpectedBytes:
    """`expected_bytes` and what it stands on."""

    def test_padding_is_per_half(self) -> None:
        """Rows are added after the gates and after the ups, columns at the end."""
        values = np.array([[[1], [2]]])
        assert pad_halves(values, 4, 2, halves=True).tolist() == [[[1, 0], [0, 0], [2, 0], [0, 0]]]
        assert pad_halves(values, 4, 1, halves=False).tolist() == [[[1], [2], [0], [0]]]

    def test_a_weight_by_hand(self) -> None:
        """Byte 16 of row 0 comes after the first 16 bytes of 16 rows."""
        layer = Layer("fp8-channel", "silu", 32, 32, experts=1)
        raw = checkpoint(layer)
        stored = expected_bytes(layer, raw)["w1"].data
        w1 = raw["w1"].view(torch.uint8)[0]
        assert stored[:16].tolist() == w1[0, :16].tolist()
        assert stored[16:32].tolist() == w1[1, :16].tolist()
        assert stored[256:272].tolist() == w1[0, 16:].tolist()

    def test_the_same_bits_are_worth_half_as_fnuz(self) -> None:
        """Why scales are doubled: all codes but the NaNs and -0 of e4m3fn have half the value as e4m3fnuz."""
        codes = np.arange(256, dtype=np.uint8)
        codes = codes[~np.isin(codes, (0x7F, 0x80, 0xFF))]
        as_fn = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        as_fnuz = codes.view(ml_dtypes.float8_e4m3fnuz).astype(np.float64)
        assert np.array_equal(as_fn, 2 * as_fnuz)
        assert np.isnan(np.uint8(0x80).view(ml_dtypes.float8_e4m3fnuz).astype(np.float64))


def in_memory(name: str, change: Callable[[torch.Tensor], Any]) -> Wrapper:
    """Change the bytes of a prepared tensor where they lie, so that everything else about it stays."""

    def spoil(weights: Any) -> Any:
        change(getattr(weights, name).view(torch.uint8).reshape(-1))
        return weights

    return answer(spoil)


def swap_tiles(stored: torch.Tensor) -> None:
    """Exchange two tiles of 16 rows by 16 bytes."""
    stored[:512] = stored[:512].reshape(2, -1).flip(0).reshape(-1)


def pad_with_nan(stored: torch.Tensor) -> None:
    """Fill the padding of w2's scales, and nothing else, with e8m0's NaN."""
    live = expected_bytes(W4A16, checkpoint(W4A16))["w2_scale"].live
    stored.masked_fill_(torch.from_numpy(~live), 0xFF)


def untagged(weights: Any) -> Any:
    """Lose the tag, as a clone does."""
    return replace(weights, w1=weights.w1.clone(), w2=weights.w2.clone())


def shuffled_twice(real: Any, _api: Any) -> Any:
    """Prepare what is prepared once more."""

    def prepare(scheme: Any, activation: Any, weights: Any, **kwargs: Any) -> Any:
        once = real(scheme, activation, weights, **kwargs)
        if weights is not once:
            return once
        return real(scheme, activation, untagged(weights), **kwargs)

    return prepare


def into_dropped(real: Any, _api: Any) -> Any:
    """Reload into new memory."""
    return lambda *args, into=None, **kwargs: (into, real(*args, **kwargs))[1]


def written_early(real: Any, _api: Any) -> Any:
    """Write the first tensor before the shapes are checked."""

    def prepare(*args: Any, into: Any = None, **kwargs: Any) -> Any:
        if into is not None:
            into.w1.view(torch.uint8).zero_()
        return real(*args, into=into, **kwargs)

    return prepare


def in_place(real: Any, _api: Any) -> Any:
    """Change the checkpoint's own tensor."""

    def prepare(scheme: Any, activation: Any, weights: Any, **kwargs: Any) -> Any:
        prepared = real(scheme, activation, weights, **kwargs)
        weights.w1.view(torch.uint8)[0, 0, 0] += 1
        return prepared

    return prepare


BF16 = Layer("bf16", "silu", 64, 40)
W4A16 = Layer("mxfp4-w4a16", "silu", 96, 90, experts=3)
W4A4 = Layer("mxfp4-w4a4", "silu", 96, 90)
FNUZ = Layer("fp8-tensor-static", "silu", 64, 32, "gfx942")
INT4 = Layer("int4-w4a16", "situ", 96, 90, "gfx942")
SITU = Layer("mxfp4-w4a16", "situ", 96, 90, situ="a8w4")
EP = Placement((0, 0, 1, 1), 2, shared=1)


def prepared(what: str, layer: Layer, wrapper: Wrapper) -> Fault:
    """A fault in what is prepared."""
    return Fault(what, lambda s: checks.check_prepared(s, layer), {"prepare_weights": wrapper})


FAULTS = (
    # sizes
    Fault(
        "sizes are rounded down",
        lambda s: checks.check_sizes(s, "mxfp4-w4a16", "silu", 200, 200),
        {"padded_sizes": answer(lambda sizes: (sizes[0] - 128, sizes[1]))},
    ),
    Fault(
        "small bf16 layers get the large granule",
        lambda s: checks.check_sizes(s, "bf16", "silu", 64, 150),
        {"padded_sizes": answer(lambda sizes: (sizes[0], -(-sizes[1] // 128) * 128))},
    ),
    Fault(
        "GELU is padded like SILU",
        lambda s: checks.check_sizes(s, "mxfp4-w4a16", "gelu", 200, 100),
        {"padded_sizes": answer(lambda sizes: (sizes[0], 128))},
    ),
    # what is prepared
    prepared("two tiles are exchanged", BF16, in_memory("w1", swap_tiles)),
    prepared("the last pad row is not zero", BF16, in_memory("w1", lambda stored: stored[-1].fill_(7))),
    prepared("the pad between gate and up is not zero", BF16, in_memory("w1", lambda s: s[6143].fill_(7))),
    prepared("w2's pad columns are not zero", BF16, in_memory("w2", lambda stored: stored[2047].fill_(7))),
    prepared("the tag is lost", BF16, answer(untagged)),
    prepared("the checkpoint is changed in place", BF16, in_place),
    prepared("gate and up stay separated", W4A16, called_with(lambda a: [W4A4.scheme, *a[1:]])),
    prepared("gate and up are interleaved", W4A4, called_with(lambda a: [W4A16.scheme, *a[1:]])),
    prepared("SITU stays separated for a8w4", SITU, called_with(lambda a: [W4A4.scheme, *a[1:]])),
    prepared("one scale is another", W4A4, in_memory("w1_scale", lambda stored: stored[5].bitwise_xor_(1))),
    prepared("scales are padded with NaN", W4A16, in_memory("w2_scale", pad_with_nan)),
    prepared(
        "w1's bias is padded at the end", W4A16, answer(lambda w: replace(w, w1_bias=w.w1_bias.roll(1)))
    ),
    prepared("the bias is dropped", W4A16, answer(lambda w: replace(w, w2_bias=None))),
    prepared("-0 stays NaN", FNUZ, in_memory("w1", lambda s: s.masked_fill_(s == 0, 0x80))),
    prepared("weight scales are not doubled", FNUZ, answer(lambda w: replace(w, w1_scale=w.w1_scale / 2))),
    prepared("input scales are not doubled", FNUZ, answer(lambda w: replace(w, a2_scale=w.a2_scale / 2))),
    prepared("nibbles are exchanged", INT4, in_memory("w1", lambda s: s.copy_((s >> 4) | (s << 4)))),
    prepared(
        "int4 scales stay in order of groups", INT4, in_memory("w1_scale", lambda s: s.copy_(s.flip(0)))
    ),
    # twice, and again
    Fault(
        "prepared weights are shuffled again",
        lambda s: checks.check_prepared_again(s, Layer("bf16", "silu", 64, 64)),
        {"prepare_weights": shuffled_twice},
    ),
    Fault(
        "prepared weights are copied",
        lambda s: checks.check_prepared_again(s, FNUZ),
        {"prepare_weights": answer(untagged)},
    ),
    Fault(
        "a reload goes elsewhere",
        lambda s: checks.check_reload(s, W4A4),
        {"prepare_weights": into_dropped},
    ),
    Fault(
        "a reload leaves the old weights",
        lambda s: checks.check_reload(s, W4A4),
        {
            "prepare_weights": lambda real, _api: (
                lambda *a, into=None, **k: real(*a, **k) if into is None else into
            )
        },
    ),
    Fault(
        "a reload that does not fit has written",
        lambda s: checks.check_reload_refused(s, BF16),
        {"prepare_weights": written_early},
    ),
    # mask
    Fault(
        "the map is taken for the mask",
        lambda s: masks.check_mask(s, EP),
        {"make_expert_mask": lambda _real, _api: lambda expert_map, _shared: expert_map},
    ),
    Fault(
        "every expert is 1",
        lambda s: masks.check_mask(s, EP),
        {"make_expert_mask": answer(torch.ones_like)},
    ),
    Fault(
        "the sentinel is 1",
        lambda s: masks.check_mask(s, EP),
        {"make_expert_mask": answer(lambda mask: mask.index_fill(0, torch.tensor([-1 + len(mask)]), 1))},
    ),
    Fault(
        "the shared expert is left out",
        lambda s: masks.check_mask(s, EP),
        {"make_expert_mask": called_with(lambda a: [a[0], 0])},
    ),
    Fault(
        "the mask is int64",
        lambda s: masks.check_mask(s, EP),
        {"make_expert_mask": answer(torch.Tensor.long)},
    ),
    Fault(
        "there is a mask without expert parallelism",
        lambda s: masks.check_no_mask(s, 1),
        {"make_expert_mask": answer(lambda _: torch.ones(1, dtype=torch.int32))},
    ),
    Fault(
        "a mask is taken for a map",
        lambda s: masks.check_mask_refuses(s, (1, 1, 0, 0), 0),
        {"make_expert_mask": lambda _real, _api: lambda expert_map, _shared: (expert_map >= 0).int()},
    ),
)


class TestPlantedFaults:
    """Each check against a subject with one fault."""

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
    def test_is_caught(self, impl: Subject, fault: Fault) -> None:
        """The check is silent about the sound subject, and speaks about the faulty one."""
        sound, faulty = fault.problems(impl)
        assert sound == []
        assert faulty != []
