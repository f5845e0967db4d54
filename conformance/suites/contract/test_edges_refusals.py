"""Every refusal of our package says which argument it is about, what came, and what would do.

These are tests of the package ``aiter_moe`` itself, not of any subject: SPEC leaves most of these words to
us, and somebody who reads them at three in the morning has nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from aiter_conformance.protocols import ENABLED, MoEConfigSpec, ParallelSpec, QuantSpec, Subject
from aiter_conformance.simulated_aiter import FUTURE, simulate

SUBJECT_ENV = {**ENABLED, "VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS": "1"}
INIT = {"n_routed_experts": 8, "n_shared_experts": 1, "top_k": 2, "tp_rank": 0, "tp_size": 1}
FP8 = QuantSpec("fp8", "fp8", per_act_token=True, per_out_ch=True)
MORI = MoEConfigSpec(parallel=ParallelSpec(dp=2, use_ep=True, all2all_backend="mori_low_latency"))


@dataclass(frozen=True)
class Refused:
    """A call that must be refused.

    Attributes:
        about: For the test's name.
        call: Makes the call.
        says: Words that the message must have, each as a word of its own.
        kind: The error.
        env: The environment of the call.
        arch: The architecture.
    """

    about: str
    call: Callable[[Any], Any]
    says: tuple[object, ...]
    kind: type[Exception] = ValueError
    env: Mapping[str, str] = field(default_factory=lambda: ENABLED)
    arch: str = "gfx950"


def moe(subject: Any, **changes: Any) -> Any:
    """Return a layer of 64 hidden columns and 32 rows of each half, changed as told."""
    return subject.moe_config(replace(MoEConfigSpec(hidden_dim=64, intermediate_size=32), **changes))


def bare(subject: Any, **changes: Any) -> Any:
    """Return our own config of a layer, built without the adapter."""
    api = subject.api
    sizes = {"num_experts": 8, "experts_per_token": 2, "hidden_dim": 64, "intermediate_size": 32}
    experts = {"num_local_experts": 8, "num_logical_experts": 8, "activation": api.MoEActivation.SILU}
    return api.FusedMoEConfig(**{**sizes, **experts, **changes})


def routed(topk: int = 2, rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Return router weights and ids."""
    return torch.ones(rows, topk), torch.zeros(rows, topk, dtype=torch.int32)


def dispatch(
    subject: Any, layer: Any = None, routing: tuple[torch.Tensor, torch.Tensor] | None = None, **options: Any
) -> Any:
    """Call the dispatcher."""
    api = subject.api
    weights, ids = routing or routed()
    layer = layer or moe(subject)
    tensors = torch.zeros(3, 64), torch.zeros(8, 64, 64), torch.zeros(8, 64, 32)
    return api.rocm_aiter_fused_experts(*tensors, weights, ids, layer, api.QuantMethod.NO, **options)


def apply(
    subject: Any, leaf: str, quant: Any, layer: Any = None, routing: Any = None, **options: Any
) -> None:
    """Apply a leaf."""
    api = subject.api
    names = ("output", "hidden_states", "w1", "w2", "topk_weights", "topk_ids", "activation")
    tensors = torch.zeros(3, 64), torch.zeros(3, 64), torch.zeros(8, 64, 64), torch.zeros(8, 64, 32)
    values = (*tensors, *(routing or routed(topk=1)), api.MoEActivation.SILU)
    nothing = dict.fromkeys(("expert_map", "a1q_scale", "a2_scale", "workspace13", "workspace2"))
    arguments = {
        **dict(zip(names, values, strict=True)),
        **nothing,
        "global_num_experts": 8,
        "expert_tokens_meta": None,
        "apply_router_weight_on_input": True,
        **options,
    }
    getattr(api, leaf)(layer or moe(subject), quant).apply(**arguments)


def channel(subject: Any, **tensors: torch.Tensor) -> Any:
    """Return the quantisation config of channel fp8."""
    return subject.quant_config(FP8, tensors)


def tkw1(
    subject: Any, layer: Any = None, tensors: Mapping[str, torch.Tensor] | None = None, **o: Any
) -> None:
    """Apply the channel leaf with router weights on input."""
    apply(subject, "AiterFp8ChannelExperts", channel(subject, **(tensors or {})), layer, **o)


def entry(subject: Any, name: str = "fused_moe", **arguments: Any) -> Any:
    """Call a kernel entry."""
    weights, ids = routed()
    tensors = torch.zeros(3, 64), torch.zeros(8, 64, 64), torch.zeros(8, 64, 32)
    return getattr(subject.api, name)(*tensors, weights, ids, **arguments)


def init(subject: Any, **changes: Any) -> None:
    """Build the shared experts' buffers."""
    subject.api.init_aiter_topK_meta_data(**{**INIT, "max_num_tokens": 4, **changes})


def inject(subject: Any, topk: int = 2, shared: int = 1, gates: Any = None, routing: Any = None) -> Any:
    """Inject shared experts into buffers of 4 rows, two routed columns and one shared."""
    init(subject)
    return subject.api.inject_shared_expert_weights(*(routing or routed()), topk, shared, gates)


def grouped(subject: Any, rows: int = 3, **options: Any) -> Any:
    """Route 3 hidden states."""
    return subject.api.rocm_aiter_grouped_topk(torch.zeros(3, 64), torch.zeros(rows, 8), 2, True, **options)


def weights(subject: Any, **changes: Any) -> Any:
    """Return two bf16 experts of 64 hidden columns and 32 rows of each half."""
    tensors = {
        "w1": torch.ones(2, 64, 64, dtype=torch.bfloat16),
        "w2": torch.ones(2, 64, 32, dtype=torch.bfloat16),
    }
    return subject.api.ExpertWeights(**{**tensors, **changes})


def mxfp4(subject: Any, **changes: Any) -> Any:
    """Return the same experts in MXFP4."""
    shapes = {"w1": (2, 64, 32), "w2": (2, 64, 16), "w1_scale": (2, 64, 2), "w2_scale": (2, 64, 1)}
    tensors = {name: torch.zeros(shape, dtype=torch.uint8) for name, shape in shapes.items()}
    return weights(subject, **{**tensors, **changes})


def prepare(subject: Any, scheme: str, experts: Any, **options: Any) -> Any:
    """Prepare experts."""
    return subject.api.prepare_weights(scheme, subject.api.MoEActivation.SILU, experts, **options)


def reload(subject: Any, **changes: Any) -> None:
    """Prepare bf16 experts, and again into the same place with something changed."""
    prepared = prepare(subject, "bf16", weights(subject, w1_bias=torch.ones(2, 64)))
    prepare(subject, "bf16", weights(subject, **changes), into=prepared)


def half_prepared(subject: Any) -> None:
    """Prepare experts of which only w1 is prepared."""
    prepare(subject, "bf16", weights(subject, w1=prepare(subject, "bf16", weights(subject)).w1))


def shuffle(subject: Any, rows: int, columns: int) -> Any:
    """Shuffle a weight of the given size."""
    from aiter_moe.layouts import shuffle_weight

    return shuffle_weight(torch.zeros(rows, columns))


def write(output: torch.Tensor, result: torch.Tensor) -> Callable[[Any], Any]:
    """Return a call that writes a result."""
    return lambda s: s.api.write_result(output, result)


def pads(*numbers: int) -> Callable[[Any], Any]:
    """Return a call of ``aiter_moe_pads`` with hidden and intermediate pad and tp_size."""
    hidden, intermediate, tp_size = numbers
    return lambda s: s.api.aiter_moe_pads(hidden, intermediate, s.api.MoEActivation.SILU, False, tp_size)


def sizes(scheme: str, hidden: int, intermediate: int) -> Callable[[Any], Any]:
    """Return a call of ``padded_sizes``."""
    return lambda s: s.api.padded_sizes(scheme, s.api.MoEActivation.SILU, hidden, intermediate)


def activation(name: str) -> Callable[[Any], Any]:
    """Return a call of the dispatcher with an activation."""
    return lambda s: dispatch(s, activation=s.api.MoEActivation(name))


PADS = (
    Refused("hidden pad", pads(-1, 0, 1), ("hidden_pad", 0, -1)),
    Refused("intermediate pad", pads(0, -2, 1), ("intermediate_pad", 0, -2)),
    Refused("tp_size", pads(0, 0, 0), ("tp_size", 1, 0)),
    Refused("hidden size", sizes("bf16", 0, 64), ("hidden", 1, 0)),
    Refused("intermediate size", sizes("mxfp4-w4a4", 64, -3), ("intermediate", 1, -3)),
    Refused("scheme", sizes("fp9", 64, 64), ("scheme", "fp9", "bf16", "fp8-block", "int4-w4a16")),
)
DISPATCH = (
    Refused(
        "shapes of the routing",
        lambda s: dispatch(s, routing=(torch.ones(3, 2), torch.zeros(3, 1, dtype=torch.int32))),
        ("topk_weights", "topk_ids", (3, 2), (3, 1)),
    ),
    Refused(
        "two weights on input",
        lambda s: dispatch(s, apply_router_weight_on_input=True),
        ("topk_weights", "topk", 1, (3, 2)),
    ),
    Refused(
        "one-dimensional routing on input",
        lambda s: dispatch(
            s,
            routing=(torch.ones(3), torch.zeros(3, dtype=torch.int32)),
            apply_router_weight_on_input=True,
        ),
        ("topk_weights", "2-D", (3,)),
    ),
    Refused("activation of no leaf", activation("relu2"), ("Unsupported activation", "relu2")),
    Refused("SITU without its parameters", activation("situ"), ("beta and linear_beta", "SITU", None)),
)
UNPADDED = tuple(
    Refused(f"{name} unset", lambda s, name=name: dispatch(s, unset(s, name)), (name, None))
    for name in ("hidden_dim_unpadded", "intermediate_size_per_partition_unpadded")
)


def unset(subject: Any, name: str) -> Any:
    """Return a layer of which a size is unset after it was built, as upstream's loaders can."""
    layer = moe(subject)
    setattr(layer, name, None)
    return layer


LEAVES = (
    Refused(
        "block fp8 on input",
        lambda s: apply(s, "AiterFp8BlockExperts", channel(s)),
        ("apply_router_weight_on_input", "AiterFp8BlockExperts", True),
    ),
    *(
        Refused(
            f"{name} of channel fp8",
            lambda s, name=name: apply(
                s,
                "AiterFp8ChannelExperts",
                channel(s, **{name: torch.ones(1)}),
                apply_router_weight_on_input=False,
            ),
            (name, "AiterFp8ChannelExperts", None),
        )
        for name in ("w1_bias", "w2_bias")
    ),
    *(
        Refused(
            f"leaf with {name}",
            lambda s, name=name: s.api.AiterUnquantizedExperts(moe(s), None, **{name: 7}),
            (name, None, "AiterUnquantizedExperts", 7),
        )
        for name in ("max_num_tokens", "num_dispatchers")
    ),
    Refused(
        "metadata on input",
        lambda s: tkw1(s, expert_tokens_meta=s.api.ExpertTokensMetadata(None)),
        ("expert_tokens_meta", None, "ExpertTokensMetadata"),
    ),
    Refused("two weights of tkw1", lambda s: tkw1(s, routing=routed()), ("topk_weights", "topk", 1, (3, 2))),
    Refused(
        "metadata before the weights of tkw1",
        lambda s: tkw1(s, routing=routed(), expert_tokens_meta=s.api.ExpertTokensMetadata(None)),
        ("expert_tokens_meta",),
    ),
    Refused(
        "weights before the activation of tkw1",
        lambda s: tkw1(s, routing=routed(), activation=s.api.MoEActivation.RELU2),
        ("topk_weights",),
    ),
    Refused(
        "activation before the pads of tkw1",
        lambda s: tkw1(s, moe(s, intermediate_pad=64), activation=s.api.MoEActivation.RELU2),
        ("Unsupported activation", "relu2"),
    ),
    Refused(
        "activation of tkw1",
        lambda s: tkw1(s, activation=s.api.MoEActivation.SITU),
        ("activation", "situ", "AiterFp8ChannelExperts", "asm_moe_tkw1"),
    ),
    Refused(
        "hidden pad of tkw1",
        lambda s: tkw1(s, moe(s, hidden_dim=256, hidden_dim_unpadded=64), hidden_states=torch.zeros(3, 256)),
        ("hidden_pad", 128),
    ),
    Refused(
        "intermediate pad of tkw1",
        lambda s: tkw1(s, moe(s, intermediate_pad=64)),
        ("intermediate_pad", 128),
    ),
    Refused("limit of tkw1", lambda s: tkw1(s, moe(s, swiglu_limit=7.0)), ("swiglu_limit", "7.0")),
    Refused(
        "output of tkw1",
        lambda s: tkw1(s, output=torch.zeros(3, 64, dtype=torch.float16)),
        ("output", "dtype", "torch.float16"),
    ),
    Refused("scales of tkw1", lambda s: tkw1(s, a1q_scale=torch.ones(3)), ("a1q_scale", "tensor")),
    *(
        Refused(
            f"{name} of tkw1",
            lambda s, name=name: tkw1(s, tensors={name: torch.ones(1)}),
            (name, "tensor"),
        )
        for name in ("w1_bias", "w2_bias")
    ),
)
SHARED = ("shared_w1", "shared_w2", "shared_w1_scale", "shared_w2_scale")
BRIDGE = (
    Refused(
        "number of an activation",
        lambda s: entry(s, activation_method=77),
        ("activation_method", FUTURE, "-1, 0, 1, 2, 3", 77),
    ),
    Refused(
        "number of an activation of tkw1",
        lambda s: entry(s, "asm_moe_tkw1", activation_method=77),
        ("activation_method", FUTURE, "-1, 0, 1, 2, 3", 77),
    ),
    Refused(
        "number of a method",
        lambda s: entry(s, quant_method=9),
        ("quant_method", FUTURE, "0, 1, 2, 3, 4, 5", 9),
    ),
    Refused("no beta", lambda s: entry(s, activation_method=3, linear_beta=1.0), ("beta", "SITU", None)),
    Refused("no linear_beta", lambda s: entry(s, activation_method=3, beta=1.0), ("linear_beta", "SITU")),
    Refused("neither beta", lambda s: entry(s, activation_method=3), ("beta and linear_beta",)),
    *(
        Refused(
            f"{name} alone",
            lambda s, name=name: entry(s, **{name: torch.ones(1)}, shared_expert_id=4),
            (f"got {name} and", "shared_expert_id 4", *SHARED),
        )
        for name in SHARED
    ),
    Refused(
        "two shared tensors",
        lambda s: entry(s, shared_w1=torch.ones(1), shared_w2=torch.ones(1), shared_expert_id=4),
        ("got shared_w1, shared_w2 and", "shared_expert_id 4"),
    ),
    Refused(
        "shared id alone", lambda s: entry(s, shared_expert_id=4), ("got none of them", "shared_expert_id 4")
    ),
    Refused(
        "policy",
        lambda s: s.settings(),
        ("VLLM_ROCM_AITER_MOE_DISPATCH_POLICY", 0, 1, 2, "'3'"),
        env={**ENABLED, "VLLM_ROCM_AITER_MOE_DISPATCH_POLICY": "3"},
    ),
    Refused(
        "SITU variant",
        lambda s: s.settings(),
        ("VLLM_ROCM_USE_AITER_MOE_SITUV2", "auto, 1, a4w4, a8w4, 0, a16w4", "'a2w4'"),
        env={**ENABLED, "VLLM_ROCM_USE_AITER_MOE_SITUV2": "a2w4"},
    ),
    Refused("arch", lambda s: use_arch(s, "mi300x"), ("arch", "gfx942", "'mi300x'")),
    Refused("arch with more after it", lambda s: use_arch(s, "gfx942:xnack-"), ("arch", "'gfx942:xnack-'")),
)


def use_arch(subject: Any, name: str) -> None:
    """Choose an architecture."""
    with subject.api.use_arch(name):
        pass


RESULT = (
    Refused("shape of a result", write(torch.zeros(3, 4), torch.zeros(1, 4)), ("result", (3, 4), (1, 4))),
)
SHARED_EXPERTS = (
    Refused("no routed expert", lambda s: init(s, n_routed_experts=0), ("n_routed_experts", 1, 0)),
    Refused("negative shared experts", lambda s: init(s, n_shared_experts=-1), ("n_shared_experts", 0, -1)),
    Refused("no expert a token", lambda s: init(s, top_k=0), ("top_k", 1, 0)),
    Refused("no row", lambda s: init(s, max_num_tokens=0), ("max_num_tokens", 1, 0)),
    Refused("rank below 0", lambda s: init(s, tp_rank=-1), ("tp_rank", "tp_size", 1, -1)),
    Refused("rank too high", lambda s: init(s, tp_rank=2, tp_size=2), ("tp_rank", "tp_size 2", "got 2")),
    Refused(
        "shapes of the injected",
        lambda s: inject(s, routing=(torch.ones(3, 2), torch.zeros(3, 3, dtype=torch.int32))),
        ("topk_weights", "topk_ids", (3, 2), (3, 3)),
    ),
    Refused(
        "one-dimensional injected",
        lambda s: inject(s, routing=(torch.ones(3), torch.zeros(3, dtype=torch.int32))),
        ("topk_weights", "2-D", (3,)),
    ),
    Refused(
        "numbers of another buffer",
        lambda s: inject(s, topk=1),
        ("topk", "num_fused_shared_experts", "2 routed", "1 shared", "0 sentinel", "got 1 and 1"),
    ),
    Refused(
        "width of neither", lambda s: inject(s, routing=routed(topk=4)), ("topk_weights", "topk 2", 3, 4)
    ),
    Refused(
        "gates of too few rows",
        lambda s: inject(s, gates=torch.ones(2, 1)),
        ("shared_expert_weights", "3 rows", "1 columns", (2, 1)),
    ),
    Refused(
        "gates of too many columns",
        lambda s: inject(s, gates=torch.ones(3, 2)),
        ("shared_expert_weights", "3 rows", "1 columns", (3, 2)),
    ),
    Refused("flat gates", lambda s: inject(s, gates=torch.ones(3)), ("shared_expert_weights", (3,))),
    Refused(
        "too many tokens",
        lambda s: inject(s, routing=routed(rows=5)),
        ("got 5 tokens", "4 rows", "reset_aiter_topK_meta_data", "init_aiter_topK_meta_data", "at least 5"),
    ),
    Refused(
        "no buffers",
        lambda s: s.api.inject_shared_expert_weights(*routed(), 2, 1),
        ("init_aiter_topK_meta_data", "top_k=2", "n_shared_experts=1", "max_num_tokens of at least 3"),
        RuntimeError,
    ),
    Refused(
        "other arguments",
        lambda s: (init(s), init(s, top_k=3)),
        ("top_k=3", "top_k=2", "reset_aiter_topK_meta_data()"),
        RuntimeError,
    ),
    Refused(
        "scoring function",
        lambda s: grouped(s, scoring_func="relu"),
        ("scoring_func", "softmax", "sigmoid", "'relu'"),
    ),
    Refused("rows of logits", lambda s: grouped(s, rows=2), ("gating_output", "3 hidden states", "got 2")),
)
CONFIG = (
    *(
        Refused(
            f"{name} of 0",
            lambda s, name=name: s.api.FusedMoEParallelConfig(**{name: 0}),
            (name, 1, 0),
        )
        for name in ("tp_size", "pcp_size", "dp_size", "ep_size", "sp_size")
    ),
    *(
        Refused(
            f"{name}_rank {rank}",
            lambda s, name=name, rank=rank: s.api.FusedMoEParallelConfig(
                **{f"{name}_size": 2, f"{name}_rank": rank}
            ),
            (f"{name}_rank", f"{name}_size 2", rank),
        )
        for name in ("tp", "pcp", "dp", "ep")
        for rank in (-1, 2)
    ),
    Refused(
        "size that does not divide",
        lambda s: moe(s, intermediate_size=33, parallel=ParallelSpec(tp=2)),
        ("intermediate_size", "tp_size 2", 33),
    ),
    Refused(
        "MoRI without AITER's MoE",
        lambda s: s.moe_config(MORI),
        ("MoRI", "VLLM_ROCM_USE_AITER_MOE is not 1"),
        env={**ENABLED, "VLLM_ROCM_USE_AITER_MOE": "0"},
    ),
    Refused(
        "MoRI with fusion",
        lambda s: s.moe_config(MORI),
        ("MoRI", "VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS=0"),
        env=SUBJECT_ENV,
    ),
    *(
        Refused(
            f"blocks with {flag}",
            lambda s, flag=flag: s.api.FusedMoEQuantConfig.make(block_shape=[128, 128], **{flag: True}),
            ("block_shape", "per_act_token_quant", "per_out_ch_quant", "[128, 128]", True),
        )
        for flag in ("per_act_token_quant", "per_out_ch_quant")
    ),
    Refused(
        "one number of a block",
        lambda s: s.api.FusedMoEQuantConfig.make(block_shape=[128]),
        ("block_shape", "[128]"),
    ),
    Refused("type without torch's", lambda s: s.api.DType.UINT4B8.torch_dtype(), ("dtype", "'uint4b8'")),
    Refused(
        "name that torch has no type of", lambda s: s.api.DType.FLOAT6_E3M2.torch_dtype(), ("float6_e3m2",)
    ),
    Refused(
        "name of an activation",
        lambda s: s.api.MoEActivation.from_str("swish"),
        ("activation", "silu, gelu, gelu_tanh", "'swish'"),
    ),
)
WEIGHTS = (
    Refused("half prepared", half_prepared, ("w1", "w2", "is_shuffled True and False")),
    Refused(
        "no scales",
        lambda s: prepare(s, "mxfp4-w4a4", mxfp4(s, w1_scale=None)),
        ("w1_scale", "w2_scale", None),
    ),
    Refused(
        "no second scales",
        lambda s: prepare(s, "mxfp4-w4a4", mxfp4(s, w2_scale=None)),
        ("w1_scale", "w2_scale", None),
    ),
    Refused(
        "type of w1",
        lambda s: prepare(s, "bf16", weights(s, w1=torch.ones(2, 64, 64))),
        ("w1", "w2", "torch.bfloat16", "torch.float16", "bf16", "torch.float32", (2, 64, 64)),
    ),
    Refused(
        "type of w2",
        lambda s: prepare(s, "bf16", weights(s, w2=torch.ones(2, 64, 32, dtype=torch.float16))),
        ("w2", "torch.float16 (2, 64, 32)"),
    ),
    Refused(
        "flat w1",
        lambda s: prepare(s, "bf16", weights(s, w1=torch.ones(64, 64, dtype=torch.bfloat16))),
        ("w1", "3-D", (64, 64)),
    ),
    Refused(
        "type of int4",
        lambda s: prepare(s, "int4-w4a16", weights(s)),
        ("w1", "torch.int8", "int4-w4a16", "torch.bfloat16"),
    ),
    Refused(
        "type of fp8",
        lambda s: prepare(s, "fp8-channel", weights(s)),
        ("torch.float8_e4m3fn", "torch.float8_e4m3fnuz", "fp8-channel"),
        arch="gfx942",
    ),
    Refused(
        "type of MXFP4",
        lambda s: prepare(s, "mxfp4-w4a16", weights(s)),
        ("torch.uint8", "torch.float4_e2m1fn_x2", "mxfp4-w4a16"),
    ),
    Refused(
        "odd rows of w1",
        lambda s: prepare(s, "bf16", weights(s, w1=torch.ones(2, 65, 64, dtype=torch.bfloat16))),
        ("w1", (2, 64, 64), (2, 65, 64)),
    ),
    Refused(
        "shape of w2",
        lambda s: prepare(s, "bf16", weights(s, w2=torch.ones(2, 64, 16, dtype=torch.bfloat16))),
        ("w2", (2, 64, 32), (2, 64, 16)),
    ),
    *(
        Refused(
            f"shape of {name}",
            lambda s, name=name: prepare(
                s, "mxfp4-w4a4", mxfp4(s, **{name: torch.zeros(2, 64, 3, dtype=torch.uint8)})
            ),
            (name, shape, (2, 64, 3)),
        )
        for name, shape in (("w1_scale", (2, 64, 2)), ("w2_scale", (2, 64, 1)))
    ),
    *(
        Refused(
            f"shape of {name}",
            lambda s, name=name: prepare(s, "bf16", weights(s, **{name: torch.zeros(2, 63)})),
            (name, (2, 64), (2, 63)),
        )
        for name in ("w1_bias", "w2_bias")
    ),
    Refused("bias left out in a reload", reload, ("w1_bias", "torch.float32 (2, 128)", None)),
    Refused(
        "bias added in a reload",
        lambda s: reload(s, w1_bias=torch.ones(2, 64), w2_bias=torch.ones(2, 64)),
        ("w2_bias", None, "torch.float32 (2, 64)"),
    ),
    Refused(
        "other type in a reload",
        lambda s: reload(s, w1_bias=torch.ones(2, 64, dtype=torch.float16)),
        ("w1_bias", "torch.float32 (2, 128)", "torch.float16 (2, 128)"),
    ),
    Refused(
        "map of two axes",
        lambda s: s.api.make_expert_mask(torch.tensor([[0, 1]])),
        ("expert_map", "1-D", "tensor"),
    ),
    Refused(
        "negative shared experts of a mask",
        lambda s: s.api.make_expert_mask(None, -1),
        ("num_fused_shared_experts", 0, -1),
    ),
    Refused(
        "flavour that is there already",
        lambda s: s.api.normalize_e4m3fn_to_e4m3fnuz(torch.ones(2).to(torch.float8_e4m3fnuz), torch.ones(1)),
        ("weight", "torch.float8_e4m3fn", "torch.float8_e4m3fnuz"),
    ),
    Refused("rows of a tile", lambda s: shuffle(s, 24, 64), (16, "rows", 32, "columns", "got 24 and 64")),
    Refused("columns of a tile", lambda s: shuffle(s, 32, 40), ("rows", "columns", "got 32 and 40")),
)
REFUSED = (
    *PADS,
    *DISPATCH,
    *UNPADDED,
    *LEAVES,
    *BRIDGE,
    *RESULT,
    *SHARED_EXPERTS,
    *CONFIG,
    *WEIGHTS,
)


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused.about)
def test_says_what_is_wrong(subject: Subject, refused: Refused) -> None:
    """The error is of the kind that SPEC asks for, and names argument, expectation and what came."""
    if subject.name != "impl":
        pytest.skip("about the words of the package aiter_moe")
    with (
        subject.environment(refused.arch, refused.env, installed=simulate(FUTURE)),
        pytest.raises(refused.kind) as caught,
    ):
        refused.call(subject)
    assert type(caught.value) is refused.kind
    message = str(caught.value)
    unsaid = [
        word for word in refused.says if not re.search(rf"(?<!\w){re.escape(str(word))}(?!\w)", message)
    ]
    assert (message, unsaid) == (message, [])


def test_ids_are_unique() -> None:
    """No case hides another."""
    assert len({refused.about for refused in REFUSED}) == len(REFUSED)
