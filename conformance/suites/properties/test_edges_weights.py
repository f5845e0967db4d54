"""SPEC 12: what preparing does to biases, static scales and tensors that go through as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aiter_conformance.protocols import Subject

NEEDS = ("prepare_weights",)
E, HIDDEN, INTERMEDIATE = 2, 96, 64


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return numbers from 1 up: none of them is 0, as padding is."""
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape).to(dtype)


def mxfp4(subject: Subject, **tensors: torch.Tensor) -> Any:
    """Return two experts in MXFP4."""
    shapes = {
        "w1": (E, 2 * INTERMEDIATE, HIDDEN // 2),
        "w2": (E, HIDDEN, INTERMEDIATE // 2),
        "w1_scale": (E, 2 * INTERMEDIATE, HIDDEN // 32),
        "w2_scale": (E, HIDDEN, INTERMEDIATE // 32),
    }
    given = {name: torch.zeros(shape, dtype=torch.uint8) for name, shape in shapes.items()}
    return subject.api.ExpertWeights(**given, **tensors)


def fp8(subject: Subject, dtype: torch.dtype, **tensors: torch.Tensor) -> Any:
    """Return two experts in fp8, as stored in the checkpoint."""
    w1, w2 = (torch.ones(E, rows, 64).to(dtype) for rows in (64, 64))
    w2 = w2[:, :, :32].contiguous()
    return subject.api.ExpertWeights(w1=w1, w2=w2, **tensors)


class TestPrepareWeights:
    """``prepare_weights``."""

    NEEDS = NEEDS

    @pytest.mark.parametrize(
        ("scheme", "activation", "hidden", "intermediate"),
        [
            ("mxfp4-w4a16", "swigluoai", 256, 256),
            ("mxfp4-w4a16", "situ", 128, 128),
            ("mxfp4-w4a4", "silu", 256, 128),
        ],
    )
    def test_biases_grow_with_their_rows(
        self, subject: Subject, scheme: str, activation: str, hidden: int, intermediate: int
    ) -> None:
        """Gate and up each keep their biases at the front of their half; what is new is 0."""
        b1, b2 = ramp(E, 2 * INTERMEDIATE), ramp(E, HIDDEN, dtype=torch.bfloat16)
        with subject.environment("gfx950"):
            api = subject.api
            prepared = api.prepare_weights(
                scheme, api.MoEActivation(activation), mxfp4(subject, w1_bias=b1, w2_bias=b2)
            )
        gates = torch.zeros(E, intermediate - INTERMEDIATE)
        wanted = torch.cat((b1[:, :INTERMEDIATE], gates, b1[:, INTERMEDIATE:], gates), dim=1)
        assert torch.equal(prepared.w1_bias, wanted)
        padded = torch.zeros(E, hidden, dtype=torch.bfloat16)
        padded[:, :HIDDEN] = b2
        assert (torch.equal(prepared.w2_bias, padded), prepared.w2_bias.dtype) == (True, torch.bfloat16)

    @pytest.mark.parametrize("given", ["w1_bias", "w2_bias"])
    def test_one_bias_alone(self, subject: Subject, given: str) -> None:
        """Each bias is prepared on its own, and the other stays None."""
        bias = ramp(E, 2 * INTERMEDIATE if given == "w1_bias" else HIDDEN)
        with subject.environment("gfx950"):
            api = subject.api
            prepared = api.prepare_weights(
                "mxfp4-w4a4", api.MoEActivation.SILU, mxfp4(subject, **{given: bias})
            )
        biases = {name: getattr(prepared, name) for name in ("w1_bias", "w2_bias")}
        assert {name for name, value in biases.items() if value is not None} == {given}
        assert float(biases[given].sum()) == float(bias.sum())

    @pytest.mark.parametrize(
        ("arch", "stored", "factor"),
        [
            ("gfx942", torch.float8_e4m3fn, 2.0),
            ("gfx942", torch.float8_e4m3fnuz, 1.0),
            ("gfx950", torch.float8_e4m3fn, 1.0),
        ],
    )
    def test_scales_of_fp8(self, subject: Subject, arch: str, stored: torch.dtype, factor: float) -> None:
        """Weights that are re-read as e4m3fnuz have all four scales doubled; all others have none."""
        names = ("w1_scale", "w2_scale", "a1_scale", "a2_scale")
        scales = {name: torch.full((E,), float(i)) for i, name in enumerate(names, 3)}
        with subject.environment(arch):
            api = subject.api
            prepared = api.prepare_weights(
                "fp8-tensor-static", api.MoEActivation.SILU, fp8(subject, stored, **scales)
            )
        assert {name: getattr(prepared, name).tolist() for name in names} == {
            name: [factor * i] * E for i, name in enumerate(names, 3)
        }

    def test_dynamic_scales_stay_none(self, subject: Subject) -> None:
        """Activation scales that a checkpoint does not have are not made up."""
        scales = {name: torch.ones(E) for name in ("w1_scale", "w2_scale")}
        with subject.environment("gfx942"):
            api = subject.api
            prepared = api.prepare_weights(
                "fp8-channel", api.MoEActivation.SILU, fp8(subject, torch.float8_e4m3fn, **scales)
            )
        assert (prepared.a1_scale, prepared.a2_scale) == (None, None)

    def test_float16(self, subject: Subject) -> None:
        """Unquantised weights may be fp16, and stay so."""
        with subject.environment("gfx950"):
            api = subject.api
            tensors = {
                "w1": ramp(E, 128, 64, dtype=torch.float16),
                "w2": ramp(E, 64, 64, dtype=torch.float16),
            }
            prepared = api.prepare_weights("bf16", api.MoEActivation.SILU, api.ExpertWeights(**tensors))
        assert (prepared.w1.dtype, prepared.w2.dtype) == (torch.float16, torch.float16)

    @pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
    def test_shares_nothing(self, subject: Subject, arch: str) -> None:
        """What goes through as it is comes in memory of its own: a reload leaves the checkpoint alone."""
        names = ("w1_scale", "w2_scale", "a1_scale", "a2_scale")

        def checkpoint(value: float) -> Any:
            scales = {name: torch.full((E,), value) for name in names}
            return fp8(subject, stored, **scales)

        with subject.environment(arch):
            api = subject.api
            stored = torch.float8_e4m3fnuz if arch == "gfx942" else torch.float8_e4m3fn
            first, second = checkpoint(1.0), checkpoint(2.0)
            silu = api.MoEActivation.SILU
            prepared = api.prepare_weights("fp8-tensor-static", silu, first)
            api.prepare_weights("fp8-tensor-static", silu, second, into=prepared)
        assert {n: (getattr(first, n).tolist(), getattr(prepared, n).tolist()) for n in names} == {
            n: ([1.0] * E, [2.0] * E) for n in names
        }

    def test_packed_type(self, subject: Subject) -> None:
        """MXFP4 weights may come as bytes or as torch's packed type, with the same result."""
        with subject.environment("gfx950"):
            api = subject.api
            stored = mxfp4(subject)
            stored.w1.copy_(ramp(*stored.w1.shape).to(torch.int64) % 251)
            views = {n: getattr(stored, n).view(torch.float4_e2m1fn_x2) for n in ("w1", "w2")}
            packed = api.ExpertWeights(**views, w1_scale=stored.w1_scale, w2_scale=stored.w2_scale)
            results = [
                api.prepare_weights("mxfp4-w4a4", api.MoEActivation.SILU, weights)
                for weights in (stored, packed)
            ]
        assert torch.equal(*(result.w1.view(torch.uint8) for result in results))


class TestPackGateUp:
    """``pack_gate_up``."""

    NEEDS = ("pack_gate_up",)

    @pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 5, 3)])
    def test_gates_come_first(self, subject: Subject, shape: tuple[int, ...]) -> None:
        """Of rows that alternate the even ones are gates and come first, for any tensor of rows."""
        rows = ramp(E, *shape)
        with subject.environment("gfx950"):
            packed = subject.api.pack_gate_up(rows)
        assert torch.equal(packed, rows[:, [0, 2, 4, 1, 3, 5]])
