"""Kernarg segments, their check against metadata, and the packing of inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aiter_conformance.errors import InfrastructureError, UsageError
from aiter_conformance.isa import toy
from aiter_conformance.isa.codeobject import Argument, CodeObject, Kernel
from aiter_conformance.isa.execute import Core
from aiter_conformance.isa.launch import Family, Launch, check_metadata, run
from aiter_conformance.isa.machine import Buffer
from aiter_conformance.isa.packing import Quantiser, mxfp4, shuffle, shuffle_scales, sort_tokens, unsorted
from aiter_conformance.isa.variant import read_variant

KERNEL = Kernel("k", 0, 512, 0, 0, 0xC0000, 0x384, 8, 0, 0, ())


def _code(*arguments: tuple[str, int]) -> CodeObject:
    kernel = replace(KERNEL, arguments=tuple(Argument(name, at, 8, "by_value") for name, at in arguments))
    return CodeObject("gfx942", bytes(64), (0, 64), {"k": kernel})


class TestFamily:
    """Family.slots."""

    @pytest.mark.parametrize(
        ("family", "name", "offset", "size"),
        [
            (Family.ONE_STAGE, "O", 0x00, 8),
            (Family.ONE_STAGE, "SEP", 0xB0, 8),
            (Family.ONE_STAGE, "dim", 0xC0, 4),
            (Family.ONE_STAGE, "topk", 0x190, 4),
            (Family.ONE_STAGE, "ps_deno", 0x1B0, 4),
            (Family.STAGE1, "SEP", 0x80, 8),
            (Family.STAGE1, "dim", 0x90, 4),
            (Family.STAGE1, "activation", 0x150, 4),
            (Family.STAGE1, "SW", 0x160, 8),
            (Family.STAGE1, "ps_deno", 0x180, 4),
        ],
    )
    def test_offsets(self, family: Family, name: str, offset: int, size: int) -> None:
        """Slots are where AITER's host code (``KernelArgs``) puts them."""
        assert family.slots[name] == (offset, size)


class TestCheckMetadata:
    """check_metadata."""

    def test_accepts(self) -> None:
        """The family's own names, the longer names of some objects, and padding."""
        check_metadata(_code(("O", 0), ("pad", 8), ("hdim", 0xD0)), Family.ONE_STAGE)
        check_metadata(_code(("R", 0), ("hidden_len", 0xD0), ("_s_total_tgs", 0x1A0)), Family.ONE_STAGE)

    @pytest.mark.parametrize(("name", "offset"), [("hdim", 0xC0), ("W3", 0x1C0)])
    def test_refuses(self, name: str, offset: int) -> None:
        """An argument at another place, or one that nobody knows, is an error."""
        with pytest.raises(InfrastructureError, match=f"argument {name} of k must be at"):
            check_metadata(_code((name, offset)), Family.ONE_STAGE)


class TestRun:
    """run."""

    LINES = (
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        "s_load_dword s10, s[0:1], 0x190",
        "v_mov_b32_e32 v1, 0",
        "v_mov_b32_e32 v2, s10",
        "v_mov_b32_e32 v3, s3",
        "global_store_dwordx2 v1, v[2:3], s[8:9]",
        "s_endpgm",
    )

    def _launch(self, **changes: Any) -> Launch:
        out = Buffer("out", np.zeros(2, np.uint32), writable=True)
        return replace(Launch(Family.ONE_STAGE, {"O": out}, {"topk": 8}, (1, 2, 1), 64), **changes)

    def test_arguments_arrive(self, core: Core, program: Callable[..., Any]) -> None:
        """Pointers and integers are in the segment that s[0:1] points to; outputs come back by slot."""
        result = run(_code(), program(self.LINES, "gfx942"), self._launch(), core=core)
        assert result.outputs["O"].tolist() == [8, 1]

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"integers": {"top_k": 1}}, r"must be slots of ONE_STAGE \(got \['top_k'\]\)"),
            ({"integers": {"topk": 1 << 32}}, r"topk must fit 4 bytes \(got 4294967296\)"),
        ],
    )
    def test_refuses(
        self, core: Core, program: Callable[..., Any], changes: dict[str, object], words: str
    ) -> None:
        """Names that are no slots and values that do not fit are errors."""
        with pytest.raises(UsageError, match=words):
            run(_code(), program(self.LINES, "gfx942"), self._launch(**changes), core=core)


class TestShuffle:
    """shuffle."""

    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
    def test_formula(self, dtype: type) -> None:
        """Element (n, k) goes to (n / 16) 16 K + (k / P) 16 P + (n % 16) P + k % P."""
        weight = np.arange(2 * 32 * 64).reshape(2, 32, 64).astype(dtype)
        part = 16 // np.dtype(dtype).itemsize
        packed = shuffle(weight).reshape(2, -1)
        for n, k in ((0, 0), (1, 0), (17, 33), (31, 63), (15, part)):
            at = n // 16 * 16 * 64 + k // part * 16 * part + n % 16 * part + k % part
            assert packed[1, at] == weight[1, n, k]

    def test_refuses(self) -> None:
        """Rows must fill tiles."""
        with pytest.raises(UsageError, match="N a multiple of 16"):
            shuffle(np.zeros((1, 8, 32), np.uint8))


class TestShuffleScales:
    """shuffle_scales."""

    def test_formula(self) -> None:
        """Tiles of 32 rows by 8 scales; four bytes are of two rows, 16 apart, and two scales, 4 apart."""
        scales = np.arange(64 * 16).reshape(64, 16).astype(np.uint8)
        packed = shuffle_scales(scales).reshape(-1)
        for m in range(64):
            for g in range(16):
                tile = m // 32 * 32 * 16 + g // 8 * 256
                at = tile + g % 4 * 64 + m % 16 * 4 + g % 8 // 4 * 2 + m % 32 // 16
                assert packed[at] == scales[m, g]

    def test_padding(self) -> None:
        """Rows are filled to 32 and scales to 8, with zeros."""
        packed = shuffle_scales(np.full((33, 12), 7, np.uint8))
        assert packed.shape == (64, 16)
        assert np.count_nonzero(packed == 7) == 33 * 12
        assert np.count_nonzero(packed) == 33 * 12


class TestMxfp4:
    """mxfp4."""

    def test_by_hand(self) -> None:
        """The scale is a power of two at or above a sixth of the largest; halves round to even codes."""
        x = np.zeros((1, 64))
        x[0, :6] = 6.0, -3.0, 0.25, 0.75, 2.5, 5.0  # scale 1: codes 7, 8 + 5, 0, 2, 4, 6
        x[0, 32:34] = 6.1, 1.0  # scale 2: 3.05 is nearest to 3, 0.5 is a code
        found = mxfp4(x)
        assert found.scales is not None
        assert found.scales.tolist() == [[127, 128]]
        assert found.codes[0, :3].tolist() == [7 | 13 << 4, 0 | 2 << 4, 4 | 6 << 4]
        assert found.codes[0, 16] == 5 | 1 << 4
        assert found.values[0, [0, 1, 2, 3, 4, 5, 32, 33]].tolist() == [6, -3, 0, 1, 2, 4, 6, 1]

    def test_edges(self) -> None:
        """Zeros stay zeros; six times a power of two has that scale, the next float32 twice that."""
        x = np.zeros((4, 32))
        x[1:, 3] = 3.0, 1.5, np.nextafter(np.float32(3), np.float32(4))
        found = mxfp4(x)
        assert found.scales is not None
        assert found.scales[:, 0].tolist() == [0, 126, 125, 127]
        assert found.values[:, 3].tolist() == [0, 3, 1.5, 3]


class TestUnsorted:
    """unsorted."""

    def test_is_the_routers(self) -> None:
        """Ids and weights as the router gives them, ids as int32."""
        weights = np.array([[0.5, 0.25]], np.float32)
        found = unsorted(np.array([[3, 1]]), weights)
        assert (found.ids.dtype, found.ids.tolist()) == (np.int32, [[3, 1]])
        assert found.weights is weights


class TestSortTokens:
    """sort_tokens."""

    def test_by_hand(self) -> None:
        """Two tokens, three experts of which the second has none, tiles of two."""
        ids = np.array([[2, 0], [2, 0]])
        weights = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
        found = sort_tokens(ids[:, :2], weights, 3, 4)
        sorted_ids, sorted_weights, blocks = found.ids, found.weights, found.blocks
        padding = 2 << 24 | 2
        assert sorted_ids.tolist() == [1 << 24, 1 << 24 | 1, padding, padding, 0, 1, padding, padding]
        assert sorted_weights.tolist() == [*weights[:, 1].tolist(), 0, 0, *weights[:, 0].tolist(), 0, 0]
        assert blocks.tolist() == [0, 2]


class TestQuantiser:
    """Quantiser."""

    def test_rows(self) -> None:
        """The largest of a row goes to the largest code; int8 rounds to even or truncates."""
        x = np.array([[127.0, -63.5, 2.5, 0.9]])
        assert Quantiser(np.dtype(np.int8), 127.0).rows(x).codes.tolist() == [[127, -64, 2, 1]]
        assert Quantiser(np.dtype(np.int8), 127.0, truncates=True).rows(x).codes.tolist() == [
            [127, -63, 2, 0]
        ]

    def test_blocks(self) -> None:
        """A weight has one scale a block, and values are codes times scale."""
        w = np.ones((1, 256, 128))
        w[0, 200, 5] = -254.0
        found = Quantiser(np.dtype(np.int8), 127.0).blocks(w)
        assert found.scales is not None
        assert found.scales.tolist() == [[[np.float32(1 / 127)], [2.0]]]
        assert found.values[0, 200, 5] == -254.0


class TestVariant:
    """read_variant."""

    def test_reads_names(self) -> None:
        """Tile, scheme, activation and order come from the name."""
        found = read_variant("gfx942", "x/fmoe_bf16_pertokenFp8_g1u1_vs_tkw1_silu_1tg_ps_32x128.co")
        assert (found.tile_m, found.tile_n, found.scheme, found.gelu) == (32, 128, "fp8", False)
        assert (found.weight_in, found.persistent, found.gated, found.family) == (
            True,
            True,
            True,
            Family.ONE_STAGE,
        )
        stage1 = read_variant("gfx950", "fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_32x128_3tg_pf2.co")
        assert (stage1.family, stage1.scheme, stage1.requant_max) == (Family.STAGE1, "fp8-block", 448.0)
        assert (
            read_variant("gfx950", "fmoe_bf16_noquantBf16_g1u0_atm_inlv_silu_1tg_32x512.co").requant_max
            is None
        )

    def test_quantises(self) -> None:
        """A kernel that quantises its activations itself smooths them and the intermediate."""
        found = read_variant("gfx942", "fmoe_bf16_pertokenInt8_g1u0_vs_smf_silu_1tg_32x512.co")
        assert (found.quantises, found.smooth, found.per_slot) == ("smoothed", True, False)
        other = read_variant("gfx950", "fmoe_bf16_blockscaleBf16_g1u1_vs_1tg_silu_16x128.co")
        assert (other.quantises, other.smooth, other.scheme) == ("blocks", False, "fp8-block")
        with pytest.raises(UsageError, match=r"hidden must be a multiple of 256 \(got 384"):
            toy.problem(found, toy.Shape(hidden=384, intermediate=512))

    def test_routing(self) -> None:
        """Kernels that find their tokens themselves: with a work-group for each token, or persistent."""
        flat = read_variant("gfx950", "fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x128.co")
        assert (flat.routing, flat.scheme, flat.quantises, flat.persistent) == (
            "flat",
            "mxfp4",
            "blocks",
            False,
        )
        emsort = read_variant("gfx942", "fmoe_bf16_a16_blockscaleFp8_g1u1_vs_silu_1tg_emsort_16x128_pf3.co")
        assert (emsort.routing, emsort.scheme, emsort.persistent) == ("emsort", "fp8-block", True)
        plain = read_variant("gfx950", "fmoe_bf16_pertokenMXfp4_g1u1_vs_silu_1tg_ps_32x512.co")
        assert (plain.routing, plain.quantises, plain.requant_max) == ("sorted", None, None)

    @pytest.mark.parametrize(
        "name",
        [
            *("fmoe_b16.co", "fmoe_int4fp8_g1u1_subGU_512_gelu.co", "flash_attention_32x32.co"),
            "fmoe_stage1_bf16_pertokenMXfp4_g1u1_32x128.co",
        ],
    )
    def test_refuses(self, name: str) -> None:
        """A kernel whose launch is not modelled is an error with its name."""
        with pytest.raises(UsageError, match=f"{name} must be modelled"):
            read_variant("gfx950", name)


class TestMxfp4Problem:
    """toy.problem, for kernels that take mxfp4."""

    SHAPE = toy.Shape(tokens=3, experts=5, topk=2, hidden=512, intermediate=512)

    def test_strides_count_packed_bytes(self) -> None:
        """Two codes a byte: rows of K / 2 and I / 2 bytes, scales of a 32nd, those of tokens sorted."""
        kind = read_variant("gfx950", "fmoe_bf16_pertokenMXfp4_g1u1_vs_silu_1tg_32x512.co")
        made = toy.problem(kind, self.SHAPE).launch
        wanted = {"dim": 512, "hdim": 512, "Xs": 256, "GUs": 256, "Ds": 256, "eGUs": 1024 * 256}
        wanted |= {"eDs": 512 * 256, "eGUQs": 1024 * 16, "eDQs": 512 * 16, "Os": 1024}
        assert {name: made.integers[name] for name in wanted} == wanted
        rows = len(made.buffers["STP"].data)
        assert rows % 32 == 0
        assert made.buffers["XQ"].data.shape == (rows, 16)

    def test_flat(self) -> None:
        """A work-group for each slice, expert of a token, and token; the output is not cleared beforehand."""
        kind = read_variant("gfx950", "fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x128.co")
        made = toy.problem(kind, self.SHAPE)
        assert made.launch.grid == (4, 2, 3)
        assert made.launch.buffers["STP"].data.shape == (3, 2)
        assert "XQ" not in made.launch.buffers
        out = made.launch.buffers["O"].data
        assert out.nbytes == 2 * 3 * 512 + 8
        assert out.astype(np.float32).all()
        assert made.decode(out).shape == (3, 512)

    def test_sorted_scales(self) -> None:
        """Each sorted row has the scales of its token, and padding has 0."""
        ids = np.array([[1, 0], [0, 2], [0, 2]])  # tokens 0, 1, 2 go to expert 0, tokens 1 and 2 to 2
        found = sort_tokens(ids, np.ones((3, 2), np.float32), 3, 32)
        scales = np.arange(1, 49, dtype=np.uint8).reshape(3, 16)
        made = toy._sorted_scales(scales, found)
        assert made.shape == (96, 16)
        at = [g // 8 * 256 + g % 4 * 64 + g % 8 // 4 * 2 for g in range(16)]  # of row 0; a row on is 4 on
        for row, token in {0: 0, 1: 1, 2: 2, 32: 0, 64: 1, 65: 2}.items():
            words = made.reshape(-1)[row // 32 * 512 :]
            assert words[[4 * (row % 32) + i for i in at]].tolist() == scales[token].tolist()
        assert np.count_nonzero(made) == 6 * 16
