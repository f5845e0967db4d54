"""Configs, keys and the cascade beyond what the leaves meet: SPEC 2, 8 and 9.

These are tests of the package ``aiter_moe`` itself: constructors and helpers here have names that upstream
does not have, or fields that an adapter fills in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from aiter_conformance.protocols import MoEConfigSpec, QuantSpec, Subject
from aiter_conformance.quant_keys import QUANT_KEYS
from aiter_conformance.simulated_aiter import FUTURE, simulate

# Name of the shorthand, arguments besides scales and biases -> the derived method and what holds.
MADE = (
    ("fp8_w8a8_moe_quant_config", {}, "PER_TENSOR", {"use_fp8_w8a8"}),
    ("fp8_w8a8_moe_quant_config", {"block_shape": [128, 128]}, "BLOCK_128x128", {"use_fp8_w8a8"}),
    (
        "fp8_w8a8_moe_quant_config",
        {"per_act_token_quant": True, "per_out_ch_quant": True},
        "PER_TOKEN",
        {"use_fp8_w8a8", "per_act_token_quant", "per_out_ch_quant"},
    ),
    ("mxfp4_w4a16_moe_quant_config", {}, "BLOCK_1X32", {"use_mxfp4_w4a16"}),
    ("ocp_mx_moe_quant_config", {"quant_dtype": "mxfp4"}, "BLOCK_1X32", {"use_mxfp4_w4a4"}),
    ("biased_moe_quant_config", {}, "NO", set()),
    ("int4_w4a16_moe_quant_config", {}, "NO", {"use_int4_w4a16"}),
    ("int4_w4a16_moe_quant_config", {"block_shape": [1, 32]}, "NO", {"use_int4_w4a16"}),
)
FLAGS = (
    "use_fp8_w8a8",
    "use_mxfp4_w4a16",
    "use_mxfp4_w4a4",
    "use_int4_w4a16",
    "per_act_token_quant",
    "per_out_ch_quant",
)
TENSORS = ("w1_scale", "w2_scale", "a1_scale", "a2_scale", "w1_bias", "w2_bias")
TAKEN = {
    "fp8_w8a8_moe_quant_config": TENSORS,
    "ocp_mx_moe_quant_config": TENSORS,
    "mxfp4_w4a16_moe_quant_config": ("w1_scale", "w2_scale", "w1_bias", "w2_bias"),
    "biased_moe_quant_config": ("w1_bias", "w2_bias"),
    "int4_w4a16_moe_quant_config": ("w1_scale", "w2_scale"),
}


@pytest.fixture
def api(subject: Subject) -> Any:
    """Return the package ``aiter_moe``."""
    if subject.name != "impl":
        pytest.skip("about the package aiter_moe")
    return subject.api


@pytest.fixture
def layer(api: Any) -> Callable[..., Any]:
    """Return a function that builds a config of 8 experts with 64 hidden and 32 intermediate columns."""

    def build(**changes: Any) -> Any:
        sizes = {"num_experts": 8, "experts_per_token": 2, "hidden_dim": 64, "intermediate_size": 32}
        experts = {"num_local_experts": 8, "num_logical_experts": 8, "activation": api.MoEActivation.SILU}
        return api.FusedMoEConfig(**{**sizes, **experts, **changes})

    return build


class TestDType:
    """``DType``."""

    @pytest.mark.parametrize(
        ("arch", "flavour"), [("gfx942", torch.float8_e4m3fnuz), ("gfx950", torch.float8_e4m3fn)]
    )
    def test_fp8_is_the_platforms(self, api: Any, arch: str, flavour: torch.dtype) -> None:
        """FP8 is read as the flavour of the architecture at the time."""
        with api.use_arch(arch):
            assert api.DType.FP8.torch_dtype() is flavour

    def test_others_are_themselves(self, api: Any) -> None:
        """Every other type is the one of its name on every architecture."""
        names = ("bfloat16", "float16", "float32", "int8", "uint8", "float8_e8m0fnu", "float8_e4m3fn")
        for arch in ("gfx942", "gfx950"):
            with api.use_arch(arch):
                assert [api.DType(name).torch_dtype() for name in names] == [
                    getattr(torch, name) for name in names
                ]


class TestQuantKey:
    """``QuantKey``."""

    def test_text(self, api: Any) -> None:
        """A listed key prints as its name, the first of two for the one equal pair."""
        names = {name: str(getattr(api, name)) for name in QUANT_KEYS}
        assert {name: text for name, text in names.items() if name != text} == {
            "kInt4W4A8StaticChannelSym": "kInt8StaticChannelSym"
        }

    def test_text_of_others(self, api: Any) -> None:
        """A key that is not listed prints with all that it is made of."""
        scale = api.ScaleDesc(api.DType.FLOAT32, True, api.GroupShape(7, 9))
        text = str(api.QuantKey(api.DType.FP8, scale))
        assert [word for word in ("QuantKey", "fp8", "7", "9", "symmetric=True") if word not in text] == []

    def test_table(self, api: Any) -> None:
        """The table has all 38 and cannot be changed."""
        assert sorted(api.QUANT_KEYS) == sorted(QUANT_KEYS)
        with pytest.raises(TypeError):
            api.QUANT_KEYS["kNew"] = api.kMxfp4Static
        with pytest.raises(AttributeError):
            api.kMxfp4Static.symmetric = False
        with pytest.raises(AttributeError):
            api.kMxfp4Static.scale.static = False


class TestQuantConfigs:
    """The shorthands for ``FusedMoEQuantConfig.make``, each against the table of SPEC 9."""

    @pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
    @pytest.mark.parametrize(("name", "arguments", "method", "flags"), MADE)
    def test_shorthand(
        self, api: Any, arch: str, name: str, arguments: Any, method: str, flags: set[str]
    ) -> None:
        """It is of its scheme, holds each tensor in its own place, and the others are None."""
        tensors = {name: torch.full((1,), float(i)) for i, name in enumerate(TENSORS)}
        taken = {n: tensors[n] for n in TAKEN[name]}
        with api.use_arch(arch):
            config = getattr(api, name)(**arguments, **taken)
            assert {flag for flag in FLAGS if getattr(config, flag)} == flags
            assert api.derive_aiter_quant_method(config) is api.QuantMethod[method]
        assert [n for n in TENSORS if getattr(config, n) is not taken.get(n)] == []
        assert config.block_shape == arguments.get("block_shape")

    def test_tensors_are_optional(self, api: Any) -> None:
        """What a shorthand can do without is None when it is left out."""
        scales = (torch.ones(1), torch.ones(1))
        configs = (
            api.fp8_w8a8_moe_quant_config(*scales),
            api.mxfp4_w4a16_moe_quant_config(*scales),
            api.ocp_mx_moe_quant_config("mxfp4", *scales),
            api.int4_w4a16_moe_quant_config(*scales),
        )
        assert [(config.a1_scale, config.a2_scale, config.w1_bias, config.w2_bias) for config in configs] == [
            (None,) * 4
        ] * 4

    def test_zero_points_and_global_scales(self, api: Any) -> None:
        """Zero points and global scales stand beside the scales that they belong to."""
        names = ("g1_alphas", "g2_alphas", "a1_gscale", "a2_gscale", "w1_zp", "w2_zp")
        tensors = {name: torch.full((1,), float(i)) for i, name in enumerate(names)}
        config = api.FusedMoEQuantConfig.make("mxfp4", **tensors)
        held = {
            "g1_alphas": config._w1.alpha_or_gscale,
            "g2_alphas": config._w2.alpha_or_gscale,
            "a1_gscale": config._a1.alpha_or_gscale,
            "a2_gscale": config._a2.alpha_or_gscale,
            "w1_zp": config._w1.zp,
            "w2_zp": config._w2.zp,
        }
        assert [name for name in names if held[name] is not tensors[name]] == []
        int4 = api.int4_w4a16_moe_quant_config(
            torch.ones(1), torch.ones(1), tensors["w1_zp"], tensors["w2_zp"]
        )
        assert (int4._w1.zp is tensors["w1_zp"], int4._w2.zp is tensors["w2_zp"]) == (True, True)

    @pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz"])
    @pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
    @pytest.mark.parametrize("kind", ["torch's type", "its name"])
    def test_fp8_of_the_other_flavour(self, api: Any, name: str, arch: str, kind: str) -> None:
        """fp8 of the flavour that the platform does not read is not its fp8."""
        dtype = getattr(torch, name) if kind == "torch's type" else name
        platforms = {"gfx942": "float8_e4m3fnuz", "gfx950": "float8_e4m3fn"}
        config = api.FusedMoEQuantConfig.make(dtype)
        with api.use_arch(arch):
            assert config.use_fp8_w8a8 is (name == platforms[arch])

    def test_weights_of_another_type(self, api: Any) -> None:
        """MXFP4 weights with another microscaled activation are neither w4a16 nor w4a4."""
        config = api.ocp_mx_moe_quant_config("mxfp6_e3m2", torch.ones(1), torch.ones(1), "mxfp4")
        assert [flag for flag in FLAGS if getattr(config, flag)] == []


class TestParallelConfig:
    """``FusedMoEParallelConfig.make``: which rank a device is among those that share a layer."""

    def test_ranks(self, api: Any) -> None:
        """Every device of a deployment has a rank of its own; tensor parallel neighbours are adjacent."""
        dp, pcp, tp = 2, 3, 4
        places = list(itertools.product(range(dp), range(pcp), range(tp)))
        made = {
            ep: [
                api.FusedMoEParallelConfig.make(
                    dp_size=dp,
                    pcp_size=pcp,
                    tp_size=tp,
                    dp_rank=d,
                    pcp_rank=p,
                    tp_rank=t,
                    enable_expert_parallel=ep,
                )
                for d, p, t in places
            ]
            for ep in (False, True)
        }
        assert [(c.tp_rank, c.tp_size, c.ep_rank, c.ep_size) for c in made[False]] == [
            (rank, 24, 0, 1) for rank in range(24)
        ]
        assert [(c.tp_rank, c.tp_size, c.ep_rank, c.ep_size) for c in made[True]] == [
            (0, 1, rank, 24) for rank in range(24)
        ]

    def test_rank_outside_its_size(self, api: Any) -> None:
        """A rank that only fits when all sizes are multiplied is refused."""
        with pytest.raises(ValueError, match=r"tp_rank must be at least 0 and below tp_size 2 \(got 3\)"):
            api.FusedMoEParallelConfig.make(dp_size=2, tp_size=2, tp_rank=3)


class TestFusedMoEConfig:
    """``FusedMoEConfig``."""

    def test_defaults(self, layer: Callable[..., Any]) -> None:
        """What is not given follows from what is (SPEC 9)."""
        config = layer()
        assert (
            config.in_dtype,
            config.router_logits_dtype,
            config.hidden_dim_unpadded,
            config.intermediate_size_per_partition_unpadded,
            config.intermediate_pad,
            config.swiglu_limit,
            config.use_mori_epv1_kernels,
            config.use_mxfp4_w4a4_dsv4,
            config.tp_size,
            config.is_act_and_mul,
        ) == ("bfloat16", "bfloat16", 64, 32, None, None, False, False, 1, True)

    def test_given(self, api: Any, layer: Callable[..., Any]) -> None:
        """What is given stays, also where it is 0 or what it would have been."""
        config = layer(
            in_dtype="float16",
            router_logits_dtype="float32",
            hidden_dim_unpadded=60,
            intermediate_size_per_partition_unpadded=0,
            moe_parallel_config=api.FusedMoEParallelConfig(tp_size=2),
        )
        assert (
            config.in_dtype,
            config.router_logits_dtype,
            config.hidden_dim_unpadded,
            config.intermediate_size_per_partition,
            config.intermediate_size_per_partition_unpadded,
        ) == ("float16", "float32", 60, 16, 0)

    def test_layers_share_nothing(self, layer: Callable[..., Any]) -> None:
        """A default that is changed on one layer is not changed on the next."""
        first, second = layer(), layer()
        first.hidden_dim_unpadded = 3
        assert (second.hidden_dim_unpadded, first.moe_parallel_config == second.moe_parallel_config) == (
            64,
            True,
        )


class TestCascade:
    """``check_support``: the steps that only other experts classes have (SPEC 8)."""

    @staticmethod
    def refusal(subject: Subject, api: Any, config: Any, **hooks: Any) -> Any:
        """Return the refusal of a bf16 leaf with some of its hooks replaced."""
        static = {name: staticmethod(lambda *_, answer=answer: answer) for name, answer in hooks.items()}
        leaf = type("Leaf", (api.AiterUnquantizedExperts,), static)
        with subject.environment("gfx950", installed=simulate(FUTURE)):
            return leaf.check_support(config, None, None, api.FusedMoEActivationFormat.Standard)

    @pytest.mark.parametrize(
        ("field", "step", "says"),
        [
            ("has_hash_routing", "hash-routing", "hash routing"),
            ("require_decomposed_backend", "re-routing", "routing by others"),
        ],
    )
    def test_monolithic(
        self,
        subject: Subject,
        api: Any,
        layer: Callable[..., Any],
        field: str,
        step: str,
        says: str,
    ) -> None:
        """A class that routes by itself refuses layers that are routed otherwise; a modular one does not."""
        config = layer(**{field: True})
        refusal = self.refusal(subject, api, config, is_monolithic=True)
        assert (refusal.step, says in refusal.reason) == (step, True)
        assert self.refusal(subject, api, config, is_monolithic=False) is None
        assert self.refusal(subject, api, layer(), is_monolithic=True) is None

    @pytest.mark.parametrize(
        ("field", "value", "hook"),
        [
            ("is_lora_enabled", True, "supports_lora"),
            ("activation", "silu_no_mul", "_supports_no_act_and_mul"),
        ],
    )
    def test_class_that_supports_it(
        self,
        subject: Subject,
        api: Any,
        layer: Callable[..., Any],
        field: str,
        value: Any,
        hook: str,
    ) -> None:
        """A class that supports what the leaves do not is not refused for it."""
        given = api.MoEActivation(value) if field == "activation" else value
        hooks = {hook: True, "_supports_activation": True}
        assert self.refusal(subject, api, layer(**{field: given}), **hooks) is None

    def test_batch_invariance(self, subject: Subject, api: Any, layer: Callable[..., Any]) -> None:
        """A class with batch-invariant results is not refused for the wish."""
        leaf = type(
            "Leaf", (api.AiterUnquantizedExperts,), {"_supports_batch_invariance": staticmethod(lambda: True)}
        )
        env = {"VLLM_ROCM_USE_AITER": "1", "VLLM_BATCH_INVARIANT": "1"}
        with subject.environment("gfx950", env, installed=simulate(FUTURE)):
            answer = leaf.is_supported_config(
                leaf, layer(), None, None, api.FusedMoEActivationFormat.Standard
            )
        assert answer == (True, None)

    def test_without_a_gpu(
        self, api: Any, layer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a machine without a ROCm GPU that is what the reason says."""
        monkeypatch.setattr(torch.version, "hip", None)
        leaf = api.AiterUnquantizedExperts
        with api.use_bridge(api.AiterBridge(None)):
            refusal = leaf.check_support(layer(), None, None, api.FusedMoEActivationFormat.Standard)
        assert (
            refusal.step,
            "without a ROCm GPU" in refusal.reason,
            "because there is no ROCm GPU" in refusal.reason,
        ) == (
            "device",
            True,
            True,
        )

    def test_scheme_is_named(self, subject: Subject, api: Any, layer: Callable[..., Any]) -> None:
        """The reason names both keys, the class and the architecture."""
        with subject.environment("gfx942", installed=simulate(FUTURE)):
            refusal = api.AiterMxfp4Experts.check_support(
                layer(), api.kMxfp4Static, None, api.FusedMoEActivationFormat.Standard
            )
        assert refusal == api.Refusal(
            "scheme",
            "AiterMxfp4Experts does not support weights kMxfp4Static with activations unquantised on gfx942",
        )


class TestDispatcher:
    """``rocm_aiter_fused_experts`` without a quantisation config."""

    def test_no_quant_config(self, subject: Subject, api: Any) -> None:
        """It is the unquantised one: no scale goes on."""
        with subject.environment("gfx950", installed=simulate(FUTURE)), subject.recording() as calls:
            api.rocm_aiter_fused_experts(
                torch.zeros(3, 64),
                torch.zeros(8, 64, 64),
                torch.zeros(8, 64, 32),
                torch.ones(3, 2),
                torch.zeros(3, 2, dtype=torch.int32),
                subject.moe_config(MoEConfigSpec(hidden_dim=64, intermediate_size=32)),
                api.QuantMethod.NO,
            )
        scales = ("w1_scale", "w2_scale", "a1_scale", "a2_scale")
        assert [[call.arguments[name] for name in scales] for call in calls] == [[None] * 4]

    def test_options(self, subject: Subject, api: Any) -> None:
        """Each optional argument arrives under its own name."""
        names = ("num_local_tokens", "bias1", "bias2")
        shared = ("shared_w1", "shared_w2", "shared_w1_scale", "shared_w2_scale")
        given = {name: torch.full((1,), float(i)) for i, name in enumerate((*names, *shared))}
        plain = {
            "output_dtype": torch.float16,
            "moe_sorting_dispatch_policy": 2,
            "shared_expert_id": 5,
            "q_dtype_a": torch.int8,
        }
        with subject.environment("gfx950", installed=simulate(FUTURE)), subject.recording() as calls:
            api.rocm_aiter_fused_experts(
                torch.zeros(3, 64),
                torch.zeros(8, 64, 64),
                torch.zeros(8, 64, 32),
                torch.ones(3, 2),
                torch.zeros(3, 2, dtype=torch.int32),
                subject.moe_config(MoEConfigSpec(hidden_dim=64, intermediate_size=32)),
                api.QuantMethod.NO,
                quant_config=subject.quant_config(QuantSpec(), {}),
                **given,
                **plain,
            )
        arguments = calls[0].arguments
        assert [name for name in given if arguments[name] is not given[name]] == []
        assert {name: arguments[name] for name in plain} == plain
