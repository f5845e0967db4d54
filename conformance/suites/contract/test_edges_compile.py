"""Leaves under ``torch.compile``: one graph, the same call, and a result that is copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from aiter_conformance.protocols import ENABLED, KernelCall, MoEConfigSpec, QuantSpec, Subject
from aiter_conformance.simulated_aiter import FUTURE, simulate

SITU = {"activation": "situ", "activation_situ_beta": 1.5, "activation_situ_linear_beta": 2.5}
W4A16 = QuantSpec(weights="mxfp4")
CHANNEL = QuantSpec(weights="fp8", activations="fp8", per_act_token=True, per_out_ch=True)


def doubled(call: KernelCall) -> torch.Tensor:
    """Return twice the hidden states, of the type that is asked for."""
    hidden: torch.Tensor = call.arguments["hidden_states"]
    return (2 * hidden).to(call.arguments.get("output_dtype") or hidden.dtype)


def comparable(call: KernelCall) -> dict[str, object]:
    """Return the arguments of a call, tensors as their type and values."""
    return {
        name: (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value
        for name, value in call.arguments.items()
    }


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Start and end without compiled code: it is kept for a whole process."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class TestApply:
    """``apply``."""

    @pytest.mark.parametrize(
        ("leaf", "layer", "quant", "on_input"),
        [
            ("AiterUnquantizedExperts", {"activation": "silu"}, QuantSpec(), False),
            ("AiterUnquantizedExperts", {"activation": "swigluoai"}, QuantSpec(), True),
            ("AiterMxfp4Experts", SITU, W4A16, False),
            ("AiterMxfp4Experts", {"activation": "silu", "use_mxfp4_w4a4_dsv4": True}, W4A16, False),
            ("AiterFp8ChannelExperts", {"activation": "gelu"}, CHANNEL, True),
        ],
        ids=["plain", "on-input", "situ", "dsv4", "tkw1"],
    )
    def test_one_graph(
        self, subject: Subject, leaf: str, layer: dict[str, Any], quant: QuantSpec, on_input: bool
    ) -> None:
        """Compiled whole it makes the same call, and the result gets into the caller's own memory."""
        if subject.name != "impl":
            pytest.skip("that apply compiles whole is ours")
        env = {
            **ENABLED,
            "VLLM_ROCM_USE_AITER_MOE_SITUV2": "a8w4",
            "VLLM_ROCM_AITER_MOE_DISPATCH_POLICY": "2",
        }
        one = torch.ones(1)
        with (
            subject.environment("gfx950", env, installed=simulate(FUTURE)),
            subject.recording(doubled) as made,
        ):
            api = subject.api
            config = subject.moe_config(MoEConfigSpec(hidden_dim=8, intermediate_size=32, **layer))
            tensors = {} if quant == QuantSpec() else {"w1_scale": one, "w2_scale": 2 * one}
            experts = getattr(api, leaf)(config, subject.quant_config(quant, tensors))
            hidden = torch.arange(24.0).reshape(3, 8)
            routing = torch.tensor([[0.5], [0.25], [1.0]]), torch.tensor([[1], [-1], [0]])
            rest = (config.activation, 8, None, None, None, torch.zeros(0), torch.zeros(0), None, on_input)
            arguments = (hidden, torch.ones(8, 64, 8), torch.ones(8, 8, 32), *routing, *rest)
            experts.apply(torch.zeros(3, 8), *arguments)
            output = torch.zeros(3, 8)
            view = output.view(-1)
            torch.compile(experts.apply, fullgraph=True, backend="eager")(output, *arguments)
        assert [comparable(call) for call in made[1:]] == [comparable(made[0])]
        assert [call.entry for call in made] == [made[0].entry] * 2
        assert view.tolist() == (2 * hidden).flatten().tolist()


class TestOperators:
    """The two operators by themselves."""

    @pytest.mark.parametrize("entry", ["fused_moe", "asm_moe_tkw1"])
    def test_one_graph(self, subject: Subject, entry: Any) -> None:
        """A function around the operator compiles whole, and the operator is called in it."""
        tensors = torch.ones(3, 8), torch.ones(8, 64, 8), torch.ones(8, 8, 32)
        routing = torch.ones(3, 1), torch.zeros(3, 1, dtype=torch.int32)
        with subject.environment("gfx950", installed=simulate(FUTURE)), subject.recording(doubled) as made:
            operator = subject.entry(entry).wrapper

            def step(*arguments: torch.Tensor) -> torch.Tensor:
                return operator(*arguments) + 1

            result = torch.compile(step, fullgraph=True, backend="eager")(*tensors, *routing)
        assert [call.entry for call in made] == [entry]
        assert result.tolist() == [[3.0] * 8] * 3
