"""Layouts: round trips, the formulas of the kernels element by element, and a release's own functions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiter_conformance.numerics import layout as lay
from aiter_conformance.numerics.layout import WeightLayout

LAYOUTS = [
    WeightLayout("bf16"),
    WeightLayout("fp8"),
    WeightLayout("fp4", scales="e8m0"),
    WeightLayout("fp4", gate_up_interleaved=True, scales="e8m0-a16w4"),
    WeightLayout("fp4", scales="e8m0-a16w4"),
    WeightLayout("int4", scales="int4"),
]
IDS = [f"{x.elements}-{x.scales}{'-gu' if x.gate_up_interleaved else ''}" for x in LAYOUTS]


def codes_of(layout: WeightLayout, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return random codes of a layout's elements."""
    rng = np.random.default_rng(seed)
    low, high, dtype = {
        "bf16": (0, 2**16, np.uint16),
        "fp8": (0, 256, np.uint8),
        "fp4": (0, 16, np.uint8),
        "int4": (-8, 8, np.int8),
    }[layout.elements]
    return rng.integers(low, high, shape).astype(dtype)


@pytest.mark.parametrize("layout", LAYOUTS, ids=IDS)
class TestPackWeights:
    """`pack_weights`, `pack_scales` and `unpack_scales`."""

    @given(
        experts=st.integers(1, 3), rows=st.integers(1, 3), columns=st.integers(1, 3), seed=st.integers(0, 99)
    )
    def test_no_weight_is_lost(
        self, layout: WeightLayout, experts: int, rows: int, columns: int, seed: int
    ) -> None:
        """Each expert's elements are there as often as before, for any whole number of tiles."""
        codes = codes_of(layout, (experts, 32 * rows, 64 * columns), seed)
        packed = lay.pack_weights(codes, layout)
        assert len(packed) == experts
        for expert, bytes_of_it in zip(codes, packed, strict=True):
            if layout.elements in ("fp4", "int4"):
                bytes_of_it, expert = np.stack([bytes_of_it & 15, bytes_of_it >> 4]), expert & 15
            assert (np.sort(bytes_of_it.ravel()) == np.sort(expert.ravel())).all()

    @given(
        experts=st.integers(1, 3), rows=st.integers(1, 9), groups=st.integers(1, 5), seed=st.integers(0, 99)
    )
    def test_scales_round_trip(
        self, layout: WeightLayout, experts: int, rows: int, groups: int, seed: int
    ) -> None:
        """Unpacking undoes packing, padding included."""
        shape = (experts, 32 * rows, 2 * groups)
        scales = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
        packed = lay.pack_scales(scales, layout, fill=255)
        assert (lay.unpack_scales(packed, layout, shape) == scales).all()

    def test_packing_moves_something(self, layout: WeightLayout) -> None:
        """A packed weight is not the plain one: the layout can be told from none."""
        codes = codes_of(layout, (1, 32, 64))
        plain = codes if layout.elements in ("bf16", "fp8") else None
        packed = lay.pack_weights(codes, layout)
        assert plain is None or (packed != plain).any()
        assert packed.nbytes * (2 if layout.elements in ("fp4", "int4") else 1) == codes.nbytes


class TestFormulas:
    """The permutations, element by element, from the offsets that ran in the kernels (ISA-FACTS 2.4, 3.4)."""

    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
    def test_shuffle_16x16(self, dtype: type) -> None:
        """offset(n, k) = (n/16) 16K + (k/P) 16P + (n%16) P + k%P, with P = 16 / element size."""
        rows, columns = 48, 64
        pack = 16 // np.dtype(dtype).itemsize
        weights = np.arange(rows * columns).reshape(rows, columns).astype(dtype)
        flat = lay.shuffle_16x16(weights).reshape(-1)
        for n in range(rows):
            for k in range(columns):
                offset = n // 16 * 16 * columns + k // pack * 16 * pack + n % 16 * pack + k % pack
                assert flat[offset] == weights[n, k]

    def test_shuffle_e8m0(self) -> None:
        """The byte is (m/32) 32G + (g/8) 256 + (g%4) 64 + (m%16) 4 + ((g%8)/4) 2 + (m%32)/16."""
        rows, groups = 256, 16
        scales = np.random.default_rng(0).integers(0, 256, (rows, groups)).astype(np.uint8)
        flat = lay.shuffle_e8m0(scales).reshape(-1)
        for m in range(rows):
            for g in range(groups):
                offset = m // 32 * 32 * groups + g // 8 * 256 + g % 4 * 64 + m % 16 * 4 + g % 8 // 4 * 2
                assert flat[offset + m % 32 // 16] == scales[m, g]

    def test_pack_int4(self) -> None:
        """With j the byte offset of the int8 weight: byte (j/8) 4 + j%4, high nibble where j%8 >= 4."""
        rows, columns = 32, 64
        values = codes_of(WeightLayout("int4"), (1, rows, columns))
        packed = lay.pack_int4(values).reshape(-1)
        for n in range(rows):
            for k in range(columns):
                j = n // 16 * 16 * columns + k // 16 * 256 + n % 16 * 16 + k % 16
                nibble = packed[j // 8 * 4 + j % 4] >> (4 if j % 8 >= 4 else 0) & 15
                assert nibble == values[0, n, k] & 15

    def test_int4_scales(self) -> None:
        """Scale (n, g) lies at (g/2) 2N + 2n + g%2."""
        scales = np.arange(12 * 4).reshape(1, 12, 4)
        flat = lay.shuffle_int4_scales(scales).reshape(-1)
        assert all(flat[g // 2 * 24 + 2 * n + g % 2] == scales[0, n, g] for n in range(12) for g in range(4))

    def test_interleave(self) -> None:
        """Gate and up rows alternate sixteen by sixteen."""
        rows = np.arange(64).reshape(1, 64, 1)
        expected = [*range(16), *range(32, 48), *range(16, 32), *range(48, 64)]
        assert lay.interleave_gate_up(rows).reshape(-1).tolist() == expected

    def test_bad_shapes(self) -> None:
        """What no layout can express is refused with the rule."""
        with pytest.raises(ValueError, match="rows must be a multiple of 16 and columns of 32"):
            lay.shuffle_16x16(np.zeros((8, 32), np.uint8))
        with pytest.raises(ValueError, match="gate and up rows must each be a multiple of 16"):
            lay.interleave_gate_up(np.zeros((1, 48, 2)))
        with pytest.raises(ValueError, match="rows must be a multiple of 32"):
            lay.shuffle_e8m0_a16w4(np.zeros((1, 48, 8), np.uint8))
        with pytest.raises(ValueError, match="groups of 32 must come in pairs"):
            lay.shuffle_int4_scales(np.zeros((1, 4, 3)))
        with pytest.raises(ValueError, match=r"scheme must be one with a known layout \(got 'mxfp5'\)"):
            lay.weight_layouts("mxfp5", "silu")


class TestWeightLayouts:
    """`weight_layouts`."""

    @pytest.mark.parametrize(
        ("scheme", "activation", "a8w4", "first", "second"),
        [
            ("bf16", "silu", False, WeightLayout("bf16"), WeightLayout("bf16")),
            ("fp8-block", "silu", False, WeightLayout("fp8"), WeightLayout("fp8")),
            ("mxfp4-w4a4", "silu", False, LAYOUTS[2], LAYOUTS[2]),
            ("mxfp4-w4a16", "swigluoai", False, LAYOUTS[3], LAYOUTS[4]),
            ("mxfp4-w4a16", "situ", False, LAYOUTS[4], LAYOUTS[2]),
            ("mxfp4-w4a16", "situ", True, LAYOUTS[3], LAYOUTS[2]),
            ("int4-w4a16", "situ", False, LAYOUTS[5], LAYOUTS[5]),
        ],
    )
    def test_table(
        self, scheme: str, activation: str, a8w4: bool, first: WeightLayout, second: WeightLayout
    ) -> None:
        """Each leaf's weights lie as SPEC 12 says."""
        assert lay.weight_layouts(scheme, activation, situ_interleaved=a8w4) == (first, second)


# Run in a process of its own: AITER's module wants its package around it, of which a stub is enough.
RELEASE_SCRIPT = """
import json, sys, types
import numpy as np, torch
source = sys.stdin.read()
for name in ("aiter", "aiter.jit", "aiter.jit.utils", "aiter.jit.utils.chip_info"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["aiter.jit.utils.chip_info"].get_gfx = lambda: "gfx950"
module = types.ModuleType("shuffle")
exec(compile(source, "shuffle.py", "exec"), module.__dict__)
rng = np.random.default_rng(0)
w8 = torch.from_numpy(rng.integers(0, 256, (2, 64, 64)).astype(np.uint8))
w16 = torch.from_numpy(rng.integers(0, 2**15, (2, 64, 64)).astype(np.int16))
w4 = torch.from_numpy(rng.integers(-8, 8, (2, 64, 64)).astype(np.int8))
scale = torch.from_numpy(rng.integers(0, 256, (2, 128, 8)).astype(np.uint8))
flat = scale.reshape(-1, 8)
bf16 = torch.from_numpy(rng.integers(0, 2**15, (2, 64, 4)).astype(np.int16)).view(torch.bfloat16)
out = {"w8": module.shuffle_weight(w8), "w16": module.shuffle_weight(w16)}
if hasattr(module, "shuffle_weight_a16w4"):
    out["gate_up"] = module.shuffle_weight_a16w4(w8, 16, True)
    out["no_gate_up"] = module.shuffle_weight_a16w4(w8, 16, False)
if hasattr(module, "shuffle_scale_a16w4"):
    out["scale_gate_up"] = module.shuffle_scale_a16w4(flat, 2, True)
    out["scale_no_gate_up"] = module.shuffle_scale_a16w4(flat, 2, False)
if hasattr(module, "shuffle_scale"):
    out["e8m0"] = module.shuffle_scale(flat)
if hasattr(module, "pack_int8_to_packed_int4"):
    out["int4"] = module.pack_int8_to_packed_int4(module.shuffle_weight(w4))
if hasattr(module, "shuffle_scale_for_int4"):
    out["int4_scale"] = module.shuffle_scale_for_int4(bf16.permute(0, 2, 1).contiguous()).view(torch.int16)
given = {"w8": w8, "w16": w16, "w4": w4, "scale": scale, "bf16": bf16.view(torch.int16)}
flat_out = {k: v.reshape(-1).tolist() for k, v in out.items()}
print(json.dumps([{k: v.tolist() for k, v in given.items()}, flat_out]))
"""


class TestAgainstRelease:
    """A release's own shuffles give the same bytes."""

    def test_same_bytes(self, release_file: Callable[[str], bytes]) -> None:
        """Every shuffle that the release has gives the bytes of ours."""
        pytest.importorskip("torch")
        run = subprocess.run(
            [sys.executable, "-c", RELEASE_SCRIPT],
            input=release_file("aiter/ops/shuffle.py").decode(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        given, theirs = json.loads(run.stdout.splitlines()[-1])
        w8, scale = np.array(given["w8"], np.uint8), np.array(given["scale"], np.uint8)
        w16, bf16 = np.array(given["w16"], np.int16), np.array(given["bf16"], np.int16)
        ours: dict[str, Callable[[], np.ndarray]] = {
            "w8": lambda: lay.shuffle_16x16(w8),
            "w16": lambda: lay.shuffle_16x16(w16),
            "gate_up": lambda: lay.shuffle_16x16(lay.interleave_gate_up(w8)),
            "no_gate_up": lambda: lay.shuffle_16x16(w8),
            "scale_gate_up": lambda: lay.shuffle_e8m0_a16w4(lay.interleave_gate_up(scale)),
            "scale_no_gate_up": lambda: lay.shuffle_e8m0_a16w4(scale),
            "e8m0": lambda: lay.shuffle_e8m0(scale.reshape(-1, scale.shape[-1])),
            "int4": lambda: lay.pack_int4(np.array(given["w4"], np.int8)).view(np.int8),
            "int4_scale": lambda: lay.shuffle_int4_scales(bf16),
        }
        assert {"w8", "w16"} <= set(theirs)
        assert {name: ours[name]().reshape(-1).tolist() for name in theirs} == theirs
