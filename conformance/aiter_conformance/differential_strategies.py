"""Inputs of the differential, as hypothesis strategies: mostly what occurs, with few oddities at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from aiter_conformance.contract import LEAVES, SCHEME_CONFIGS
from aiter_conformance.differential_leaf import OWN_CONFIGS, LeafUse
from aiter_conformance.differential_parts import (
    ConfigUse,
    InitStep,
    InjectStep,
    PadsUse,
    RoutingUse,
    SettingsUse,
    SharedExpertsUse,
)
from aiter_conformance.protocols import MoEConfigSpec, ParallelSpec, QuantSpec
from aiter_conformance.quant_keys import QUANT_KEYS
from aiter_conformance.simulated_aiter import VERSIONS

ARCHS = ("gfx90a", "gfx940", "gfx942", "gfx950", "gfx1250", "gfx1201")
TAKEN = ("silu", "gelu", "situ", "swigluoai", "swigluoai_uninterleave")
NOT_TAKEN = ("gelu_tanh", "relu2", "swiglustep", "silu_no_mul", "relu2_no_mul")
TENSORS = ("w1_scale", "w2_scale", "a1_scale", "a2_scale", "w1_bias", "w2_bias")
BACKENDS = (
    *("allgather_reducescatter", "deepep_high_throughput", "mori_high_throughput", "mori_low_latency"),
    *("flashinfer_all2allv", "flashinfer_nvlink_two_sided", "flashinfer_nvlink_one_sided", "nixl_ep"),
)


def mostly(usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw from the rare strategy one time in eight, so that several rare things seldom come together."""
    return st.integers(0, 7).flatmap(lambda i: rare if i == 7 else usual)


def environments() -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    """Return variables: AITER on, mostly, and some of the others."""
    more = st.fixed_dictionaries(
        {
            "VLLM_ROCM_USE_AITER": mostly(st.sampled_from(("1", "true", "True")), st.just("0")),
            "VLLM_ROCM_USE_AITER_MOE": mostly(
                st.sampled_from(("1", "true")), st.sampled_from(("0", "FALSE"))
            ),
            "VLLM_BATCH_INVARIANT": mostly(st.just("0"), st.just("1")),
        },
        optional={
            "VLLM_ROCM_USE_AITER_MOE_SITUV2": st.sampled_from(
                ("auto", "a4w4", "a8w4", "A8W4", "a16w4", "0", "1")
            ),
            "VLLM_ROCM_AITER_MOE_DISPATCH_POLICY": st.sampled_from(("0", "1", "2")),
            "VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS": st.sampled_from(("0", "1")),
        },
    )
    return more.map(lambda env: tuple(sorted(env.items())))


def parallel() -> st.SearchStrategy[ParallelSpec]:
    """Return deployments; ranks are within their sizes."""

    def ranked(
        tp: int, pcp: int, dp: int, sp: int, use_ep: bool, backend: str
    ) -> st.SearchStrategy[ParallelSpec]:
        ranks = st.tuples(*(st.integers(0, size - 1) for size in (tp, pcp, dp)))
        return ranks.map(lambda r: ParallelSpec(tp, pcp, dp, sp, r[0], r[1], r[2], use_ep, backend))

    sizes = st.sampled_from((1, 1, 2, 4))
    few = st.sampled_from((1, 1, 1, 2))
    return st.builds(ranked, sizes, few, few, few, st.booleans(), st.sampled_from(BACKENDS)).flatmap(
        lambda made: made
    )


@st.composite
def configs(draw: st.DrawFn) -> MoEConfigSpec:
    """Return layers, padded and not."""
    where = draw(parallel())
    ranks = 1 if where.use_ep else where.tp * where.pcp * where.dp
    per_rank = draw(st.sampled_from((128, 256, 384)))
    hidden = draw(st.sampled_from((256, 384)))
    pads = st.sampled_from((0, 0, 1, 63, 64, 96, 127))
    odd = draw(mostly(st.just(0), st.just(1)))
    return MoEConfigSpec(
        hidden_dim=hidden,
        intermediate_size=per_rank * ranks + odd,
        activation=draw(mostly(st.sampled_from(TAKEN), st.sampled_from(NOT_TAKEN))),
        parallel=where,
        hidden_dim_unpadded=draw(st.none() | pads.map(lambda p: hidden - p)),
        intermediate_size_per_partition_unpadded=draw(st.none() | pads.map(lambda p: per_rank - p)),
        intermediate_pad=draw(mostly(st.none(), st.sampled_from((0, 64, 100)))),
        swiglu_limit=draw(mostly(st.none(), st.sampled_from((0.0, 7.0, 7)))),
        activation_situ_beta=draw(mostly(st.just(1.5), st.none())),
        activation_situ_linear_beta=draw(mostly(st.just(0.5), st.none())),
        use_mxfp4_w4a4_dsv4=draw(mostly(st.just(False), st.just(True))),
        is_lora_enabled=draw(mostly(st.just(False), st.just(True))),
    )


def quants() -> st.SearchStrategy[QuantSpec]:
    """Return any quantisation, sensible or not."""
    return st.builds(
        QuantSpec,
        activations=st.sampled_from((None, "fp8", "mxfp4")),
        weights=st.sampled_from((None, "fp8", "mxfp4", "int4")),
        per_act_token=st.booleans(),
        per_out_ch=st.booleans(),
        block_shape=mostly(st.none(), st.just((128, 128))),
    )


_KEYS = st.sampled_from((None, *QUANT_KEYS))
_FLAG = st.just(True)
# What is unusual about a use of a leaf: the field, and its unusual values.
_ODD_USE: dict[str, st.SearchStrategy[Any]] = {
    "arch": st.sampled_from(ARCHS),
    "env": environments(),
    "aiter": st.sampled_from((None, *VERSIONS)),
    "keys": st.tuples(_KEYS, _KEYS),
    "batched": _FLAG,
    "quant": quants(),
    "tensors": st.frozensets(st.sampled_from(TENSORS)),
    "topk": st.integers(1, 3),
    "packed": _FLAG,
    "output_dtype": st.sampled_from(("float16", "float32")),
    "output": st.sampled_from(("view", "strided")),
    "result": st.sampled_from(("row", "dtype")),
    "negative_id": _FLAG,
    "metadata": st.sampled_from(("none", "one", "vector")),
    "a1q": _FLAG,
}
_ODD_CONFIG: dict[str, st.SearchStrategy[Any]] = {
    "activation": st.sampled_from(NOT_TAKEN),
    "intermediate_pad": st.sampled_from((0, 64, 100)),
    "swiglu_limit": st.sampled_from((0.0, 7.0, 7)),
    "activation_situ_beta": st.none(),
    "activation_situ_linear_beta": st.none(),
    "use_mxfp4_w4a4_dsv4": _FLAG,
    "is_lora_enabled": _FLAG,
}
# Simplest first: both round to something, one to nothing, and in between.
_HIDDEN_PADS = st.sampled_from((0, 128, 1, 127, 200))
_PADS = st.sampled_from((0, 64, 1, 96, 127))
_DEPLOYED = st.sampled_from(
    (
        ParallelSpec(),
        ParallelSpec(tp=2, tp_rank=1),
        ParallelSpec(dp=2),
        ParallelSpec(tp=4, use_ep=True),
        ParallelSpec(dp=2, use_ep=True, all2all_backend="mori_high_throughput"),
    )
)


@st.composite
def leaf_uses(draw: st.DrawFn) -> LeafUse:
    """Return uses of a leaf: as its loader makes them, but for at most five oddities."""
    name = draw(st.sampled_from(tuple(LEAVES)))
    leaf = LEAVES[name]
    # Not unique=True, with which an element is hard to take out again when the input is made small.
    odd = set(draw(st.lists(st.sampled_from((*_ODD_USE, *_ODD_CONFIG, "parallel")), max_size=5)))
    where = draw(parallel() if "parallel" in odd else _DEPLOYED)
    ranks = 1 if where.use_ep else where.tp * where.pcp * where.dp
    hidden_pad, pad, odd_size = draw(_HIDDEN_PADS), draw(_PADS), draw(mostly(st.just(0), st.just(1)))
    layer: dict[str, Any] = {
        "hidden_dim": 256,
        "intermediate_size": 128 * ranks + odd_size,
        "activation": draw(st.sampled_from(TAKEN)),
        "parallel": where,
        "hidden_dim_unpadded": 256 - hidden_pad,
        "intermediate_size_per_partition_unpadded": 128 - pad,
        "activation_situ_beta": 1.5,
        "activation_situ_linear_beta": 0.5,
    }
    layer |= {field: draw(_ODD_CONFIG[field]) for field in _ODD_CONFIG if field in odd}
    quant = draw(st.sampled_from(OWN_CONFIGS[name]))
    on_input, cast, mask, through = draw(st.tuples(*[st.booleans()] * 4))
    use: dict[str, Any] = {
        "arch": draw(st.sampled_from(("gfx942", "gfx950", "gfx1250"))),
        "leaf": name,
        "keys": draw(st.sampled_from(tuple(leaf.pairs))),
        "quant": quant,
        "tensors": frozenset(("w1_scale", "w2_scale") if quant.weights else ()),
        "config": MoEConfigSpec(**layer),
        "on_input": on_input,
        "topk": 1 if on_input else 2,
        "cast": cast,
        "mask": mask,
        "through": through,
    }
    use |= {field: draw(_ODD_USE[field]) for field in _ODD_USE if field in odd}
    if use.get("packed") and name != "AiterMxfp4Experts":
        del use["packed"]  # MoRI packs for MXFP4 only
    return LeafUse(**use)


def pads_uses() -> st.SearchStrategy[PadsUse]:
    """Return calls of the pads' rounding, a bad number now and then."""
    pads = mostly(st.integers(0, 600), st.integers(-200, -1))
    return st.builds(
        PadsUse,
        hidden_pad=pads,
        intermediate_pad=pads,
        activation=st.sampled_from((*TAKEN, *NOT_TAKEN)),
        use_mxfp4_w4a4=st.booleans(),
        tp_size=mostly(st.integers(1, 8), st.integers(-1, 0)),
    )


def settings_uses() -> st.SearchStrategy[SettingsUse]:
    """Return environments, bad values now and then."""
    bad = st.sampled_from(
        (
            ("VLLM_ROCM_USE_AITER_MOE_SITUV2", "a2w4"),
            ("VLLM_ROCM_AITER_MOE_DISPATCH_POLICY", "3"),
            ("VLLM_ROCM_AITER_MOE_DISPATCH_POLICY", "auto"),
        )
    )
    with_bad = st.tuples(environments(), bad).map(
        lambda t: tuple(sorted((dict(t[0]) | dict([t[1]])).items()))
    )
    return st.builds(
        SettingsUse,
        arch=st.sampled_from(ARCHS),
        env=mostly(environments(), with_bad),
        aiter=mostly(st.just("0.1.20"), st.none()),
    )


def config_uses() -> st.SearchStrategy[ConfigUse]:
    """Return layers and quantisations."""
    quant = st.sampled_from(tuple(SCHEME_CONFIGS.values())) | quants()
    return st.builds(
        ConfigUse, arch=st.sampled_from(ARCHS), env=environments(), config=configs(), quant=quant
    )


def _inits() -> st.SearchStrategy[InitStep]:
    ranks = st.integers(1, 3).flatmap(lambda size: st.tuples(st.integers(0, size - 1), st.just(size)))
    return st.builds(
        lambda rank, **fields: InitStep(tp_rank=rank[0], tp_size=rank[1], **fields),
        ranks,
        n_shared_experts=st.integers(0, 2),
        top_k=st.integers(1, 3),
        score=st.sampled_from((1.0, 0.5)),
        max_num_tokens=st.integers(1, 5),
        is_ep=st.booleans(),
        keywords=mostly(st.just(False), st.just(True)),
    )


@st.composite
def shared_experts_uses(draw: st.DrawFn) -> SharedExpertsUse:
    """Return a start, merges that fit it, and a last step that may not: what would come after is unlike."""
    first = draw(_inits())
    full = first.top_k + first.n_shared_experts + first.is_ep

    def fitting() -> InjectStep:
        rows = draw(st.integers(1, first.max_num_tokens))
        gates = (draw(st.integers(rows, 6)), first.n_shared_experts)
        return InjectStep(
            tokens=rows,
            width=draw(st.sampled_from((first.top_k, full))),
            topk=first.top_k,
            shared=first.n_shared_experts,
            gates=draw(st.none() | st.just(gates)) if first.n_shared_experts else None,
        )

    steps: list[InitStep | InjectStep] = [first, *(fitting() for _ in range(draw(st.integers(0, 2))))]
    if draw(mostly(st.just(False), st.just(True))):
        steps = []  # nothing was started
    odd = fitting()
    last: InitStep | InjectStep = odd
    match draw(
        st.sampled_from(("fits", "tokens", "width", "ids", "topk", "shared", "gates", "again", "other"))
    ):
        case "tokens":
            last = replace(odd, tokens=draw(st.integers(1, 6)))
        case "width":
            last = replace(odd, width=draw(st.integers(1, 6)))
        case "ids":
            last = replace(odd, ids_width=draw(st.integers(1, 6)))
        case "topk":
            last = replace(odd, topk=draw(st.integers(1, 4)))
        case "shared":
            last = replace(odd, shared=draw(st.integers(0, 3)))
        case "gates":
            last = replace(odd, gates=draw(st.tuples(st.integers(1, 5), st.integers(1, 3))))
        case "again":
            last = replace(first, keywords=draw(st.booleans()))
        case "other":
            last = draw(_inits())
    return SharedExpertsUse((*steps, last))


def routing_uses() -> st.SearchStrategy[RoutingUse]:
    """Return calls of the grouped top-k, wrong in one way at most: which refusal comes first is left open."""
    wrong = mostly(
        st.just({}),
        st.sampled_from(({"scoring_func": "sqrtsoftplus"}, {"buffers": "none"}, {"buffers": "small"})),
    )
    right = st.builds(
        RoutingUse,
        tokens=st.integers(2, 4),
        topk=st.integers(1, 3),
        renormalize=st.booleans(),
        num_expert_group=st.sampled_from((0, 2, 4)),
        topk_group=st.sampled_from((0, 1, 2)),
        scoring_func=st.sampled_from(("softmax", "sigmoid")),
        routed_scaling_factor=st.sampled_from((1.0, 2.5)),
        bias=st.booleans(),
        shared=st.integers(0, 2),
        fusion=st.booleans(),
    )
    return st.builds(lambda use, change: replace(use, **change), right, wrong)
