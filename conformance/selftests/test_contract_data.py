"""What the contract says as data: against the axes, public reports, and its two halves against each other."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

import pytest
import torch

from aiter_conformance.axes import Cell, load_axes
from aiter_conformance.contract import (
    ACCEPTED_ACTIVATIONS,
    CASCADE,
    LEAVES,
    NON_GATED_ACTIVATIONS,
    REFUSED_ACTIVATIONS,
    SCHEME_CONFIGS,
    NeedKind,
    accepts_pair,
    api_needs,
    declaration,
    leaf_of_scheme,
)
from aiter_conformance.errors import UsageError
from aiter_conformance.expected_bridge import (
    PARAMETERS,
    BridgeRefusal,
    expected_aiter_call,
)
from aiter_conformance.expected_call import (
    CallInput,
    ExpectedCall,
    ExpectedRefusal,
    expected_call,
    expected_pads,
)
from aiter_conformance.outcome import Kind, Outcome, Reason
from aiter_conformance.quant_keys import QUANT_KEYS
from aiter_conformance.simulated_aiter import FUTURE, VERSIONS, simulate

CELLS = load_axes().cells()
ACCEPTED = [cell for cell in CELLS if declaration(cell).kind is Kind.PASS]


def cell(text: str) -> Cell:
    """Return the cell of a name."""
    return load_axes().parse_cell(text)


class TestTables:
    """The tables against each other and against ``axes.toml``."""

    def test_quant_keys(self) -> None:
        """There are 38 keys, of which two have the same structure."""
        counts = Counter(QUANT_KEYS.values())
        twins = [name for name, facts in QUANT_KEYS.items() if counts[facts] == 2]
        assert len(QUANT_KEYS) == 38
        assert twins == ["kInt8StaticChannelSym", "kInt4W4A8StaticChannelSym"]

    def test_activations(self) -> None:
        """The matrix has every activation, accepted or not."""
        listed = {*ACCEPTED_ACTIVATIONS, *REFUSED_ACTIVATIONS, *NON_GATED_ACTIVATIONS}
        assert set(load_axes().activations) == listed

    def test_schemes(self) -> None:
        """Every scheme has a leaf and a quantisation config, and every accepted pair a scheme."""
        schemes = load_axes().schemes
        assert set(schemes) == set(SCHEME_CONFIGS)
        pairs = {(leaf.name, *pair) for leaf in LEAVES.values() for pair in leaf.pairs}
        named = {(leaf_of_scheme(n).name, s.weight_key, s.activation_key) for n, s in schemes.items()}
        assert named == pairs

    def test_cascade_reasons(self) -> None:
        """The cascade's steps come in the order of the outcome's reasons, each once."""
        assert list(CASCADE) == list(Reason)[: len(CASCADE)]


class TestAcceptsPair:
    """`accepts_pair`."""

    @pytest.mark.parametrize(
        ("arch", "accepted"),
        [("gfx942", False), ("gfx950", True), ("gfx1250", False), ("gfx90a", False), ("gfx1201", False)],
    )
    def test_mxfp4(self, arch: str, accepted: bool) -> None:
        """MXFP4 weights are for gfx950 only."""
        assert accepts_pair("AiterMxfp4Experts", "kMxfp4Static", None, arch) is accepted

    def test_int4(self) -> None:
        """Kimi-K3's int4 weights are for gfx942 only, with unquantised activations only."""
        archs = load_axes().archs
        taken = [a for a in archs if accepts_pair("AiterMxfp4Experts", "kInt4Static32", None, a)]
        assert taken == ["gfx942"]
        assert accepts_pair("AiterMxfp4Experts", "kInt4Static32", "kMxfp4Dynamic", "gfx942") is False


class TestDeclaration:
    """`declaration`."""

    @pytest.mark.parametrize(
        ("text", "reason", "when"),
        [
            ("gfx950/bf16/silu_no_mul/out", Reason.ACT_AND_MUL, "configuration"),
            ("gfx1250/mxfp4-w4a16/gelu_tanh/out", Reason.ACTIVATION, "configuration"),
            ("gfx1250/mxfp4-w4a16/silu/out", Reason.SCHEME, "configuration"),
            ("gfx950/int4-w4a16/silu/out", Reason.SCHEME, "configuration"),
            ("gfx942/fp8-block/silu/in", Reason.ROUTER_WEIGHT_ON_INPUT, "call"),
            ("gfx942/fp8-channel/situ/in", Reason.ROUTER_WEIGHT_ON_INPUT, "call"),
            ("gfx942/fp8-channel/swigluoai_uninterleave/in", Reason.ROUTER_WEIGHT_ON_INPUT, "call"),
        ],
    )
    def test_refused(self, text: str, reason: Reason, when: str) -> None:
        """The first reason of the cascade is given, and whether the configuration or the call is refused."""
        outcome = declaration(cell(text))
        assert (outcome.kind, outcome.reason, outcome.details["when"]) == (Kind.REFUSED, reason, when)

    @pytest.mark.parametrize(
        "text",
        ["gfx950/mxfp4-w4a16/swigluoai/out", "gfx942/fp8-channel/swigluoai/in", "gfx942/int4-w4a16/situ/in"],
    )
    def test_accepted(self, text: str) -> None:
        """An accepted cell names its leaf."""
        leaf = leaf_of_scheme(cell(text).scheme).name
        assert declaration(cell(text)) == Outcome(Kind.PASS, details={"leaf": leaf})

    def test_unserved_arch(self) -> None:
        """An arch outside the matrix is refused as a device."""
        assert declaration(Cell("gfx90a", "bf16", "silu", "out")).reason is Reason.DEVICE

    @pytest.mark.parametrize("arch", load_axes().archs)
    def test_agrees_with_the_call(self, arch: str) -> None:
        """A cell is refused at the call exactly when the expected call is a refusal."""
        for one in CELLS:
            outcome = declaration(one)
            if one.arch != arch or outcome.details.get("when") == "configuration":
                continue
            refused = isinstance(expected_call(plain(one)), ExpectedRefusal)
            assert (str(one), outcome.kind is Kind.REFUSED) == (str(one), refused)


def plain(one: Cell) -> CallInput:
    """Return the plain call of a cell."""
    betas: dict[str, Any] = {"beta": 4.0, "linear_beta": 25.0} if one.activation == "situ" else {}
    topk = 1 if one.router == "in" else 2
    return CallInput(scheme=one.scheme, activation=one.activation, router=one.router, topk=topk, **betas)


class TestApiNeeds:
    """`api_needs`."""

    @pytest.mark.parametrize("one", ACCEPTED, ids=str)
    def test_agrees_with_the_call(self, one: Cell) -> None:
        """A cell needs exactly the keywords that its plain call sends, worked out on another way."""
        call = expected_call(plain(one))
        assert isinstance(call, ExpectedCall)
        sent = expected_aiter_call(call.entry, call.arguments, FUTURE)
        assert not isinstance(sent, BridgeRefusal)
        # The tensors that have no default are in every release; a16 is False, which is AITER's default.
        always = {"hidden_states", "w1", "w2", "topk_weight", "topk_ids", "a16"}
        needs = {need.name for need in api_needs(one) if need.kind is NeedKind.ARGUMENT}
        assert needs == set(sent) - always

    def test_gate_mode(self) -> None:
        """The gate mode's value is part of the need (C3)."""
        needs = api_needs(cell("gfx950/mxfp4-w4a16/swigluoai/out"))
        gate = [(need.value, need.module) for need in needs if need.name == "gate_mode"]
        assert gate == [("interleave", "aiter.fused_moe")]

    def test_tkw1(self) -> None:
        """Channel scales with the router weight on the input need the other function."""
        needs = api_needs(cell("gfx950/fp8-channel/silu/in"))
        functions = [(n.module, n.name, n.reason) for n in needs if n.kind is NeedKind.FUNCTION]
        assert functions == [("aiter.fused_moe_bf16_asm", "asm_moe_tkw1", Reason.API_MISSING_FUNCTION)]

    def test_situ(self) -> None:
        """SITU needs its member and both betas."""
        needs = {n.name: n.reason for n in api_needs(cell("gfx950/bf16/situ/out"))}
        assert needs["Situv2"] is Reason.API_MISSING_ACTIVATION
        assert needs["beta"] is needs["linear_beta"] is Reason.API_MISSING_ARGUMENT

    def test_refused(self) -> None:
        """A refused cell makes no call, so it needs nothing."""
        assert api_needs(cell("gfx950/bf16/gelu_tanh/out")) == ()


class TestExpectedPads:
    """`expected_pads` against numbers that others computed."""

    @pytest.mark.parametrize(("tp", "raw", "told"), [(1, 192, 384), (2, 96, 64), (4, 48, 0), (8, 152, 128)])
    def test_gpt_oss(self, tp: int, raw: int, told: int) -> None:
        """C2 (vllm-project/vllm#44679, #46201): gpt-oss padded from 2880, for each tensor-parallel size."""
        assert expected_pads(192, raw, "swigluoai", False, tp) == (128, told)

    @pytest.mark.parametrize(
        ("activation", "w4a4", "told"), [("silu", True, 192), ("gelu", True, 384), ("situ", True, 200)]
    )
    def test_w4a4(self, activation: str, w4a4: bool, told: int) -> None:
        """Only w4a4 with SILU is doubled inside AITER, and SITU is handed through as it is."""
        assert expected_pads(0, 200, activation, w4a4, 1)[1] == told


class TestSimulate:
    """`simulate`."""

    @pytest.mark.parametrize(
        ("version", "count"), [("0.1.7", 21), ("0.1.14", 24), ("0.1.19", 26), ("0.1.20", 31)]
    )
    def test_parameter_count(self, version: str, count: int) -> None:
        """A simulated fused_moe has as many parameters as the real one."""
        function = simulate(version).modules["aiter.fused_moe"].fused_moe
        assert len(inspect.signature(function).parameters) == count

    def test_gate_mode_follows_betas(self) -> None:
        """The betas came before gate_mode, so that a positional call of v0.1.14 means another thing later."""
        function = simulate("0.1.19").modules["aiter.fused_moe"].fused_moe
        assert list(inspect.signature(function).parameters)[-3:] == ["beta", "linear_beta", "gate_mode"]

    @pytest.mark.parametrize("version", VERSIONS)
    def test_unknown_keyword(self, version: str) -> None:
        """A keyword that the release does not have is its TypeError, and no call is recorded."""
        simulated = simulate(version)
        tensors = [
            torch.zeros(2, 4),
            torch.zeros(1, 4, 4),
            torch.zeros(1, 4, 2),
            torch.ones(2, 1),
            torch.zeros(2, 1),
        ]
        with pytest.raises(TypeError, match="no_such_thing"):
            simulated.modules["aiter.fused_moe"].fused_moe(*tensors, no_such_thing=1)
        assert simulated.calls == []

    def test_call(self) -> None:
        """A call is recorded as it was made, and answered like AITER does."""
        simulated = simulate("0.1.20")
        hidden, w2 = torch.zeros(2, 4), torch.zeros(1, 4, 2)
        rest = {
            "w1": torch.zeros(1, 4, 4),
            "w2": w2,
            "topk_weight": torch.ones(2, 1),
            "topk_ids": torch.zeros(2, 1),
        }
        result = simulated.modules["aiter.fused_moe"].fused_moe(hidden, **rest, dtype=torch.float16)
        assert (result.shape, result.dtype) == ((2, 4), torch.float16)
        call = simulated.calls[0]
        assert (call.function, call.positional) == ("fused_moe", ("hidden_states",))
        assert set(call.arguments) == {"hidden_states", "w1", "w2", "topk_weight", "topk_ids", "dtype"}

    def test_unknown_version(self) -> None:
        """Only releases whose interface was read can be simulated."""
        with pytest.raises(UsageError, match=r"must be one of 0\.1\.7, .*\(got '0\.1\.8'\)"):
            simulate("0.1.8")

    def test_bridge_parameters(self) -> None:
        """Every name that the bridge uses for AITER is a parameter of the newest simulated release."""
        modules = simulate(FUTURE).modules
        for entry, module in (("fused_moe", "aiter.fused_moe"), ("asm_moe_tkw1", "aiter.fused_moe_bf16_asm")):
            takes = set(inspect.signature(getattr(modules[module], entry)).parameters)
            assert set(PARAMETERS[entry].values()) - takes == set()  # type: ignore[index]
