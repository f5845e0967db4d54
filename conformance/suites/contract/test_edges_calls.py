"""Corners of a call that the sweeps do not turn into: SITU's switches, results inside a larger storage.

And the type of a correction bias, which AITER's kernel reads as if it were the logits'.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from aiter_conformance.protocols import ENABLED, KernelCall, MoEConfigSpec, QuantSpec, Subject
from aiter_conformance.simulated_aiter import FUTURE, simulate

SITU = {"activation_method": 3, "beta": 1.0, "linear_beta": 1.0}
SWITCHES = ("AITER_SITUV2_A8W4", "AITER_SITUV2_A4W4")


def call(subject: Subject, **arguments: Any) -> None:
    """Call AITER's ``fused_moe`` through its operator."""
    tensors = (torch.zeros(2, 2) for _ in range(4))
    subject.entry("fused_moe").wrapper(*tensors, torch.zeros(2, 2, dtype=torch.int32), **arguments)


class TestSituSwitches:
    """AITER's own two variables (SPEC 7)."""

    @pytest.mark.parametrize(
        ("wanted", "told"),
        [("a4w4", (None, "1")), ("a8w4", ("1", None)), ("a16w4", (None, None)), ("auto", (None, "1"))],
    )
    def test_what_was_there_goes(
        self, subject: Subject, wanted: str, told: tuple[str | None, str | None]
    ) -> None:
        """The first call sets the switch that is meant and takes away the other, whatever was there."""
        env = {**ENABLED, "VLLM_ROCM_USE_AITER_MOE_SITUV2": wanted, **dict.fromkeys(SWITCHES, "1")}
        if subject.name != "impl":
            pytest.skip("upstream tells AITER when its module is imported")
        with subject.environment("gfx950", env, installed=simulate(FUTURE)):
            call(subject)
            assert tuple(os.environ.get(name) for name in SWITCHES) == told

    @pytest.mark.parametrize(
        ("wanted", "switches", "is_refused"),
        [
            # AITER asks for a8w4 first: with both set it is a8w4 that runs.
            ("a4w4", ("1", "1"), True),
            ("a8w4", ("1", "1"), False),
            ("a16w4", ("0", ""), False),
            ("a16w4", ("1", "0"), True),
            ("a8w4", ("true", None), True),
            ("a4w4", (None, None), True),
        ],
    )
    def test_later_disagreement(
        self, subject: Subject, wanted: str, switches: tuple[str | None, str | None], is_refused: bool
    ) -> None:
        """What AITER would make of the switches by then is compared: only an exact 1 counts for it."""
        env = {**ENABLED, "VLLM_ROCM_USE_AITER_MOE_SITUV2": wanted}
        if subject.name != "impl":
            pytest.skip("upstream does not compare")
        refused = []
        simulated = simulate(FUTURE)
        with subject.environment("gfx950", env, installed=simulated):
            call(subject)
            for name, value in zip(SWITCHES, switches, strict=True):
                os.environ.pop(name, None)
                os.environ.update({} if value is None else {name: value})
            # Only SITU's kernel reads them.
            call(subject)
            try:
                call(subject, **SITU)
            except RuntimeError as error:
                refused.append([name for name in (*SWITCHES, wanted) if name not in str(error)])
        assert (refused, len(simulated.calls)) == (([[]], 2) if is_refused else ([], 3))


class TestResult:
    """SPEC 6."""

    def test_inside_a_larger_storage(self, subject: Subject) -> None:
        """A contiguous result that does not start its storage is taken over where it starts."""
        results: list[torch.Tensor] = []

        def answer(_: KernelCall) -> torch.Tensor:
            results.append(torch.arange(64.0).reshape(8, 8)[2:5])
            return results[-1]

        with subject.environment("gfx950", installed=simulate(FUTURE)), subject.recording(answer):
            api = subject.api
            leaf = api.AiterUnquantizedExperts(
                subject.moe_config(MoEConfigSpec(hidden_dim=8, intermediate_size=32)),
                subject.quant_config(QuantSpec(), {}),
            )
            output = torch.zeros(3, 8)
            tensors = output, torch.zeros(3, 8), torch.zeros(8, 64, 8), torch.zeros(8, 8, 32)
            routing = torch.ones(3, 2), torch.zeros(3, 2, dtype=torch.int32)
            nothing = (None, None, None, torch.zeros(0), torch.zeros(0), None)
            leaf.apply(*tensors, *routing, api.MoEActivation.SILU, 8, *nothing, False)
        assert output.tolist() == torch.arange(16.0, 40.0).reshape(3, 8).tolist()


class TestGroupedTopk:
    """SPEC 10."""

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
    def test_bias_has_the_type_of_the_logits(self, subject: Subject, dtype: torch.dtype) -> None:
        """A float32 bias beside logits of another type is cast before the kernel reads it as that."""
        got: list[torch.Tensor] = []

        def biased_grouped_topk(logits: torch.Tensor, bias: torch.Tensor, *_: Any) -> None:
            got.extend((logits, bias))

        if subject.name != "impl":
            pytest.skip("reaches AITER by another way than this stand-in")
        api = subject.api
        library = api.Aiter.simulated(FUTURE, biased_grouped_topk=biased_grouped_topk)
        bias = torch.tensor([0.5, -0.25, 1.0, 2.0])
        with api.use_bridge(api.AiterBridge(library)):
            api.rocm_aiter_grouped_topk(
                torch.zeros(3, 8),
                torch.zeros(3, 4, dtype=dtype),
                2,
                True,
                e_score_correction_bias=bias,
            )
        assert [(t.dtype, tuple(t.shape)) for t in got] == [(dtype, (3, 4)), (dtype, (4,))]
        assert got[1].tolist() == bias.tolist()
