"""What the reference kernels read and write: packed weights, scales and quantised activations, in torch.

Written apart from the harness's numpy layouts and quantisers on purpose: each is a check of the other.
Everything is float32 once it is read. No value is brought to the host and no shape depends on one.
"""

from __future__ import annotations

import math

import torch

FP8_MAXIMUM = {torch.float8_e4m3fn: 448.0, torch.float8_e4m3fnuz: 240.0}
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Middles between neighbouring e2m1 values; a tie goes to the even code, so up at the odd ones.
_E2M1_TIES_DOWN = (0.25, 1.25, 2.5, 5.0)
_E2M1_TIES_UP = (0.75, 1.75, 3.5)


# --------------------------------------------------------------------------- weights


def unshuffle(weight: torch.Tensor) -> torch.Tensor:
    """Undo the (16, 16) shuffle of [E, R, C] in storage units of one or two bytes."""
    experts, rows, columns = weight.shape
    pack = 16 // weight.element_size()
    tiles = weight.reshape(experts, rows // 16, columns // pack, 16, pack)
    return tiles.transpose(2, 3).reshape(experts, rows, columns)


def separate(rows: torch.Tensor) -> torch.Tensor:
    """Undo the interleaving of gate and up rows [E, 2N, C], sixteen by sixteen."""
    experts, double, columns = rows.shape
    return rows.reshape(experts, double // 32, 2, 16, columns).transpose(1, 2).reshape(rows.shape)


def e2m1_table(device: torch.device) -> torch.Tensor:
    """Return the values of the sixteen e2m1 codes, made on the device: a copy from the host would wait."""
    code = torch.arange(16, dtype=torch.int32, device=device)
    exponent, mantissa = code >> 1 & 3, code & 1
    normal = (exponent + 126 << 23 | mantissa << 22).view(torch.float32)
    magnitude = torch.where(exponent == 0, mantissa * 0.5, normal)
    return torch.where(code > 7, -magnitude, magnitude)


def e2m1_values(packed: torch.Tensor) -> torch.Tensor:
    """Return the values of packed e2m1 bytes; the last axis doubles, low nibble first."""
    nibbles = e2m1_table(packed.device)
    low, high = nibbles.repeat(16), nibbles.repeat_interleave(16)
    # Looked up byte by byte: a pair of float32 travels as one float64, whose value means nothing.
    pairs = torch.stack([low, high], dim=-1).view(torch.float64).flatten()
    return pairs[packed.int()].view(torch.float32)


def e8m0_values(codes: torch.Tensor) -> torch.Tensor:
    """Return 2^(code - 127), and NaN for 255."""
    powers = torch.exp2(codes.to(torch.float64) - 127).to(torch.float32)
    return torch.where(codes == 255, torch.nan, powers)


def e8m0_rows(packed: torch.Tensor, rows: int, groups: int) -> torch.Tensor:
    """Undo the shuffle of e8m0 scales and drop their padding: codes [rows, groups]."""
    packed = packed.view(torch.uint8).reshape(-1, packed.shape[-1])
    tiles = packed.reshape(packed.shape[0] // 32, packed.shape[1] // 8, 4, 16, 2, 2)
    return tiles.permute(0, 5, 3, 1, 4, 2).reshape(packed.shape)[:rows, :groups]


def read_fp4(weight: torch.Tensor, scale: torch.Tensor, *, shuffled: bool, interleaved: bool) -> torch.Tensor:
    """Return MXFP4 weights as float32 [E, R, C] from bytes [E, R, C / 2] and shuffled scales."""
    packed = weight.view(torch.uint8)
    experts, rows, half = packed.shape
    packed = unshuffle(packed) if shuffled else packed
    scales = e8m0_rows(scale, experts * rows, half * 2 // 32).reshape(experts, rows, -1)
    if interleaved:
        packed, scales = separate(packed), separate(scales)
    return e2m1_values(packed) * e8m0_values(scales).repeat_interleave(32, dim=-1)


def read_mxfp8(
    weight: torch.Tensor, scale: torch.Tensor, *, shuffled: bool, interleaved: bool
) -> torch.Tensor:
    """Return MXFP8 weights as float32 [E, R, C] from fp8 [E, R, C] and shuffled e8m0 scales."""
    values = read_plain(weight, shuffled=shuffled)
    experts, rows, columns = values.shape
    scales = e8m0_rows(scale, experts * rows, columns // 32).reshape(experts, rows, -1)
    if interleaved:
        values, scales = separate(values), separate(scales)
    return values * e8m0_values(scales).repeat_interleave(32, dim=-1)


def read_int4(weight: torch.Tensor, scale: torch.Tensor, *, interleaved: bool) -> torch.Tensor:
    """Return int4 weights as float32 [E, R, C]; products with a scale are rounded to bfloat16, as read.

    Bytes hold eight shuffled values in four: v0..v3 low, v4..v7 high. Scales are [E, G / 2, R, 2].
    """
    packed = weight.view(torch.uint8)
    experts, rows, half = packed.shape
    parts = packed.reshape(-1, 4)
    nibbles = torch.stack([parts & 15, parts >> 4], dim=1).reshape(experts, rows, half * 2)
    values = unshuffle(nibbles).to(torch.float32)
    values = values - 16 * (values >= 8)
    scales = scale.to(torch.float32).permute(0, 2, 1, 3).reshape(experts, rows, -1)
    if interleaved:
        values, scales = separate(values), separate(scales)
    return to_bf16(values * scales.repeat_interleave(32, dim=-1))


def read_plain(weight: torch.Tensor, *, shuffled: bool) -> torch.Tensor:
    """Return bf16 or fp8 weights as float32 [E, R, C], without scales."""
    if not shuffled:
        return weight.to(torch.float32)
    units = weight.view(torch.int16 if weight.element_size() > 1 else torch.uint8)
    return unshuffle(units).view(weight.dtype).to(torch.float32)


def spread_scale(scale: torch.Tensor, shape: torch.Size, kind: str) -> torch.Tensor:
    """Return fp8 weight scales, by tensor, channel or block of 128x128, over [E, R, C]."""
    experts, rows, columns = shape
    if kind == "tensor":
        return scale.reshape(experts, 1, 1)
    if kind == "channel":
        return scale.reshape(experts, rows, 1)
    blocks = scale.reshape(experts, rows // 128, columns // 128)
    return blocks.repeat_interleave(128, dim=1).repeat_interleave(128, dim=2)


# --------------------------------------------------------------------------- activations


def to_bf16(x: torch.Tensor) -> torch.Tensor:
    """Round float32 to bfloat16, kept in float32."""
    return x.to(torch.bfloat16).to(torch.float32)


def fp8_roundtrip(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Quantise x / scale to fp8, clamped, and return what it means; ``scale`` broadcasts."""
    largest = FP8_MAXIMUM[dtype]
    return (x / scale).clamp(-largest, largest).to(dtype).to(torch.float32) * scale


def fp8_scale(amax: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return amax / maximum, and 1 where amax is 0."""
    scale = amax / FP8_MAXIMUM[dtype]
    return torch.where(scale == 0, 1.0, scale)


def e2m1_round(x: torch.Tensor) -> torch.Tensor:
    """Round to the nearest e2m1 value, ties to the even code, clamped to 6."""
    size = x.abs()
    code = sum((size > tie).int() for tie in _E2M1_TIES_DOWN) + sum(
        (size >= tie).int() for tie in _E2M1_TIES_UP
    )
    return torch.copysign(e2m1_table(x.device)[torch.as_tensor(code)], x)


def mx_scale(amax: torch.Tensor, maximum: float) -> torch.Tensor:
    """Return the least power of two not below amax / maximum, at least 2^-127."""
    limit, limit_exponent = math.frexp(maximum)
    bits = amax.view(torch.int32)  # read by hand: torch.frexp is not on every ROCm
    power = (bits >> 23) - 126 - limit_exponent + ((bits & 0x7FFFFF) > int(limit * 2**24) - 2**23)
    power = torch.where(amax == 0, -127, power).clamp(min=-127)
    return torch.exp2(power.to(torch.float64)).to(torch.float32)


def in_blocks(x: torch.Tensor, width: int) -> torch.Tensor:
    """Return [..., C] as [..., C / width, width]."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // width, width)


def mxfp4_roundtrip(x: torch.Tensor) -> torch.Tensor:
    """Quantise [..., C] to MXFP4 in blocks of 32 and return what it means."""
    blocks = in_blocks(x, 32)
    scale = mx_scale(blocks.abs().amax(-1, keepdim=True), E2M1_VALUES[-1])
    return (e2m1_round(blocks / scale) * scale).flatten(-2)


def mxfp8_roundtrip(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Quantise [..., C] to MXFP8 in blocks of 32 and return what it means."""
    blocks = in_blocks(x, 32)
    scale = mx_scale(blocks.abs().amax(-1, keepdim=True), FP8_MAXIMUM[dtype])
    return fp8_roundtrip(blocks, scale, dtype).flatten(-2)
