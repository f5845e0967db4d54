"""Where vLLM 0.33.0 does not do what SPEC says: one entry for each difference that was observed.

An entry that no longer shows is an error of the suites and of the differential, so a newer vLLM makes this
list shorter. ``reports/findings/vllm`` has a standalone script for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from aiter_conformance.contract import LEAVES, QUANT_METHODS
from aiter_conformance.differential import CRASH, ListedDifference, Mismatch, Refused
from aiter_conformance.differential_leaf import LeafUse
from aiter_conformance.differential_parts import (
    ConfigUse,
    InitStep,
    InjectStep,
    PadsUse,
    SettingsUse,
    SharedExpertsUse,
)
from aiter_conformance.protocols import Difference, MoEConfigSpec, ParallelSpec, QuantSpec

FP8_TOKEN = QuantSpec("fp8", "fp8", per_act_token=True, per_out_ch=True)
FP8_BLOCK = QuantSpec("fp8", "fp8", block_shape=(128, 128))
ABSENT = "absent"


def _ours(m: Mismatch, *words: str) -> bool:
    """Whether impl refuses for the reason that the words tell, and vLLM does not refuse."""
    refused = isinstance(m.impl, Refused) and m.impl.kind != CRASH and all(w in m.impl.text for w in words)
    return m.what.endswith("refused") and refused and m.other == ABSENT


def _theirs(m: Mismatch, *words: str) -> bool:
    """Whether vLLM refuses or breaks for the reason that the words tell."""
    refused = isinstance(m.other, Refused) and all(word in m.other.text for word in words)
    return m.what.endswith("refused") and refused


def _leaf(test: Callable[[LeafUse, Mismatch], bool]) -> Callable[[Any, Mismatch], bool]:
    return lambda given, mismatch: isinstance(given, LeafUse) and test(given, mismatch)


def _takes_tkw1(given: LeafUse) -> tuple[bool, bool]:
    """Return whether SPEC's leaf takes the tkw1 route, and whether vLLM's configuration does."""
    by_config = given.quant.activations == "fp8" and given.quant.per_act_token
    return given.on_input and given.leaf == "AiterFp8ChannelExperts", given.on_input and by_config


def _method(quant: QuantSpec) -> int:
    """Return the quantisation method that follows from a configuration alone (SPEC 4, derivation)."""
    weights = quant.weights or quant.activations  # as `make` has it
    if weights == "mxfp4" and quant.activations in (None, "mxfp4"):
        return QUANT_METHODS["BLOCK_1X32"]
    if quant.activations != "fp8":
        return QUANT_METHODS["NO"]
    if quant.block_shape is not None:
        return QUANT_METHODS["BLOCK_128x128"]
    return QUANT_METHODS["PER_TOKEN" if quant.per_out_ch else "PER_TENSOR"]


def _by_config(given: LeafUse, m: Mismatch) -> bool:
    """Whether a mismatch comes from vLLM going by the configuration where SPEC goes by the leaf."""
    if given.is_own_config or m.what in ("supported", "reason", "hint to enable AITER"):
        return False
    spec, theirs = _takes_tkw1(given)
    if spec != theirs:
        return True  # two different kernels: nothing of the calls can be compared
    blocked = given.on_input and given.quant.activations == "fp8" and given.quant.block_shape is not None
    if m.what == "refused":
        return (
            _ours(m, "apply_router_weight_on_input", "AiterFp8BlockExperts")
            or (blocked and _theirs(m, "not supported for block scaled moe"))
            or (given.is_w4a16 and (_ours(m, "_bias must be None") or _theirs(m, "'quant_dtype_a'")))
        )
    if m.what in ("argument quant_method", "argument quant_type"):
        own = QUANT_METHODS[LEAVES[given.leaf].quant_method]
        return (m.impl, m.other) == (_told(given, own), _told(given, _method(given.quant)))
    w4a16 = ("argument gate_mode", "argument bias1", "argument bias2", "argument q_dtype_a")
    return given.is_w4a16 and given.leaf != "AiterMxfp4Experts" and m.what in w4a16


def _told(given: LeafUse, method: int) -> Any:
    # What is at its default is not told to AITER; at the bridge it is 0.
    return ABSENT if given.through and method == 0 else method


def _padding_row(given: LeafUse, m: Mismatch) -> bool:
    """Whether only the first token's row differs, which is padding: in impl it weighs nothing."""
    router = ("argument topk_ids", "argument topk_weight", "argument topk_weights")
    if m.what not in router or ABSENT in (m.impl, m.other):
        return False
    (dtype, ours), (their_dtype, theirs) = m.impl, m.other
    if m.what == "argument topk_ids":
        harmless = given.config.num_experts if given.mask else 0  # the sentinel, or an id without weight
        rows_as_expected = ours[0] == [harmless] * given.topk and theirs[0] == [-1] * given.topk
    else:
        rows_as_expected = not given.mask and ours[0] == [0.0] * given.topk
    return rows_as_expected and bool((dtype, ours[1:]) == (their_dtype, theirs[1:]))


def _is_last(given: SharedExpertsUse, m: Mismatch) -> bool:
    """Whether a mismatch is about the last step; before it everything fits, so both must do the same."""
    return m.what.startswith(f"step {len(given.steps) - 1} ")


def _called_otherwise(given: SharedExpertsUse) -> bool:
    """Whether the last step starts with the same arguments again, passed in another way."""
    first, last = given.steps[0], given.steps[-1]
    if not (isinstance(first, InitStep) and isinstance(last, InitStep)):
        return False
    return first != last and replace(last, keywords=first.keywords) == first


def _fits_not(given: SharedExpertsUse) -> bool:
    """Whether the last step merges what does not fit the buffers or one another (SPEC 10)."""
    first, last = given.steps[0], given.steps[-1]
    if not isinstance(last, InjectStep) or last.shared == 0:
        return False
    wrong = last.ids_width not in (None, last.width)
    if last.gates is not None:
        wrong |= last.gates[0] < last.tokens or last.gates[1] != last.shared
    if isinstance(first, InitStep):
        full = first.top_k + first.n_shared_experts + first.is_ep
        wrong |= full != last.topk + last.shared + first.is_ep or last.width not in (last.topk, full)
    return wrong


_LISTED = (
    ListedDifference(
        id="num-local-tokens-vector",
        what="The number of tokens of each expert is passed on as num_local_tokens.",
        consequence=(
            "Behind an all-to-all that counts tokens per expert, AITER computes as many rows as the first "
            "expert has tokens and leaves the others as they were."
        ),
        spec="SPEC 3, step 2; CASES C5",
        explains=_leaf(
            lambda c, m: (
                c.metadata == "vector"
                and m.what == "argument num_local_tokens"
                and m.impl in (None, ABSENT)
                and m.other == "expert_num_tokens"
            )
        ),
        witnesses=(LeafUse(metadata="vector"),),
    ),
    ListedDifference(
        id="negative-topk-ids",
        what="The ids -1 of padding rows are passed on.",
        consequence=(
            "In no release read (up to v0.1.20.post1) is -1 an id: what AITER does with the row is left open."
        ),
        spec="SPEC 4, step 3; CASES C6",
        explains=_leaf(lambda c, m: c.negative_id and _padding_row(c, m)),
        witnesses=(LeafUse(negative_id=True), LeafUse(negative_id=True, mask=True)),
    ),
    ListedDifference(
        id="bias-dropped",
        what="Biases are left out of the call, except with MXFP4 weights and unquantised activations.",
        consequence="A model with biases in its experts gives wrong numbers, with no message.",
        spec="SPEC 3, biases",
        explains=_leaf(lambda c, m: c.has_bias and not c.is_w4a16 and _ours(m, "_bias must be None")),
        witnesses=(LeafUse(tensors=frozenset({"w1_bias"})), LeafUse(tensors=frozenset({"w2_bias"}))),
    ),
    ListedDifference(
        id="tkw1-drops-arguments",
        what=(
            "Router weights on the input of fp8 channel layers: pads, swiglu_limit, SITU's parameters, gate "
            "mode, scales of quantised activations and output dtype are left out of the call of asm_moe_tkw1."
        ),
        consequence="Padded, clamped or SITU layers give wrong numbers, with no message.",
        spec="SPEC 3, tkw1",
        explains=_leaf(
            lambda c, m: (
                _takes_tkw1(c) == (True, True)
                and (
                    _ours(m, "must be neutral", "asm_moe_tkw1") or _ours(m, "expert_tokens_meta must be None")
                )
            )
        ),
        witnesses=tuple(
            LeafUse(leaf="AiterFp8ChannelExperts", quant=FP8_TOKEN, on_input=True, topk=1, **more)
            for more in (
                {"config": MoEConfigSpec(swiglu_limit=7.0)},
                {"config": MoEConfigSpec(hidden_dim_unpadded=128)},
                {"config": MoEConfigSpec(activation="swigluoai_uninterleave")},
                {"a1q": True},
                {"output_dtype": "float32"},
            )
        ),
    ),
    ListedDifference(
        id="tkw1-metadata-object",
        what="The tkw1 route takes expert_tokens_meta, as long as it holds no counts.",
        consequence="None today: such metadata says nothing.",
        spec="SPEC 3, tkw1",
        explains=_leaf(
            lambda c, m: _takes_tkw1(c) == (True, True) and _ours(m, "expert_tokens_meta must be None")
        ),
        witnesses=(
            LeafUse(leaf="AiterFp8ChannelExperts", quant=FP8_TOKEN, on_input=True, topk=1, metadata="none"),
        ),
    ),
    ListedDifference(
        id="one-dispatcher",
        what="The quantisation method and the tkw1 route follow from the configuration, not from the leaf.",
        consequence=(
            "A configuration that is not the leaf's own is not noticed; that of int4 weights reaches AITER "
            "as unquantised."
        ),
        spec="SPEC header; SPEC 3 and 4, derivation",
        explains=_leaf(_by_config),
        witnesses=(
            LeafUse(leaf="AiterMxfp4Experts", quant=QuantSpec(None, "int4"), arch="gfx942"),
            LeafUse(leaf="AiterFp8TensorExperts", quant=FP8_TOKEN, on_input=True, topk=1),
            LeafUse(leaf="AiterFp8TensorExperts", quant=QuantSpec(None, "mxfp4")),
            LeafUse(leaf="AiterFp8TensorExperts", quant=FP8_BLOCK, on_input=True, topk=1),
        ),
    ),
    ListedDifference(
        id="situ-ignores-dsv4",
        what="With SITU, the DSV4.1 opt-in to MXFP4 activations has no effect on the call.",
        consequence="AITER chooses the activations' type itself, although a4w4 was asked for.",
        spec="SPEC 4, mxfp4_w4a16_extra_kwargs",
        explains=_leaf(
            lambda c, m: (
                c.config.activation == "situ"
                and c.config.use_mxfp4_w4a4_dsv4
                and c.is_w4a16
                and ((m.what == "argument q_dtype_a" and m.other is None) or _ours(m, "q_dtype_a"))
            )
        ),
        witnesses=(
            LeafUse(
                leaf="AiterMxfp4Experts",
                quant=QuantSpec(None, "mxfp4"),
                config=MoEConfigSpec(activation="situ", use_mxfp4_w4a4_dsv4=True),
            ),
        ),
    ),
    ListedDifference(
        id="needs-gate-mode-module",
        what="Every call imports AITER's GateMode, whether it names a gate mode or not.",
        consequence="With an AITER before v0.1.14 every scheme fails with an ImportError, bf16 too.",
        spec="SPEC 4, step 6",
        explains=_leaf(lambda _c, m: _theirs(m, "ModuleNotFoundError", "aiter.ops.flydsl")),
        witnesses=(LeafUse(aiter="0.1.13"),),
    ),
    ListedDifference(
        id="late-type-error",
        what="An argument that the installed AITER cannot take ends in AITER's own TypeError.",
        consequence="The error names neither the AITER version nor the one that is needed.",
        spec="SPEC 7, last point",
        explains=_leaf(
            lambda c, m: (
                c.through and _theirs(m, "TypeError", "unexpected keyword") and isinstance(m.impl, Refused)
            )
        ),
        witnesses=(
            LeafUse(
                leaf="AiterMxfp4Experts",
                quant=QuantSpec(None, "mxfp4"),
                config=MoEConfigSpec(use_mxfp4_w4a4_dsv4=True),
                through=True,
            ),
        ),
    ),
    ListedDifference(
        id="situ-beta-required",
        what="SITU without beta or linear_beta is passed on.",
        consequence="AITER computes with 1.0 or 25.0, by path, and the model gives wrong numbers.",
        spec="SPEC 1, SITU",
        explains=_leaf(lambda c, m: c.config.activation == "situ" and _ours(m, "beta must be given")),
        witnesses=(LeafUse(config=MoEConfigSpec(activation="situ"), through=True),),
    ),
    ListedDifference(
        id="fp8-block-needs-scales",
        what="Block fp8 without weight scales ends in an assertion without a text.",
        consequence="Nothing tells the user what is missing.",
        spec="SPEC header",
        explains=_leaf(
            lambda c, m: (
                c.quant.block_shape is not None
                and not c.tensors >= {"w1_scale", "w2_scale"}
                and _theirs(m, "AssertionError")
            )
        ),
        witnesses=(LeafUse(leaf="AiterFp8BlockExperts", quant=FP8_BLOCK),),
    ),
    ListedDifference(
        id="result-shape-broadcast",
        what="A result of another shape is broadcast into the output.",
        consequence="A kernel that answers with one row fills every token's row with it.",
        spec="SPEC 6",
        explains=_leaf(lambda c, m: c.result == "row" and _ours(m, "shape of output")),
        witnesses=(LeafUse(result="row"),),
    ),
    ListedDifference(
        id="negative-pads",
        what="Negative pads are rounded, away from zero, and a tp_size below 1 is taken.",
        consequence="A layer whose unpadded size is larger than its size gets a pad that masks nothing.",
        spec="SPEC 5",
        explains=lambda c, m: (
            isinstance(c, PadsUse) and min(c.hidden_pad, c.intermediate_pad, c.tp_size - 1) < 0 and _ours(m)
        ),
        witnesses=(PadsUse(hidden_pad=-1), PadsUse(intermediate_pad=-1), PadsUse(tp_size=0)),
    ),
    ListedDifference(
        id="dispatch-policy-unchecked",
        what="Any number is taken as VLLM_ROCM_AITER_MOE_DISPATCH_POLICY.",
        consequence="A typo reaches AITER.",
        spec="SPEC 7",
        explains=lambda c, m: isinstance(c, SettingsUse) and _ours(m, "VLLM_ROCM_AITER_MOE_DISPATCH_POLICY"),
        witnesses=(
            SettingsUse(env=(("VLLM_ROCM_AITER_MOE_DISPATCH_POLICY", "3"), ("VLLM_ROCM_USE_AITER", "1"))),
        ),
    ),
    ListedDifference(
        id="settings-read-without-aiter",
        what="Bad values of AITER's switches end the import of vLLM where AITER plays no part.",
        consequence="A machine without AITER, or on another GPU, does not start.",
        spec="SPEC 7",
        explains=lambda c, m: (
            isinstance(c, SettingsUse)
            and (c.aiter is None or c.arch not in ("gfx942", "gfx950", "gfx1250"))
            and m.impl == ABSENT
            and _theirs(m, "ValueError")
        ),
        witnesses=(
            SettingsUse(aiter=None, env=(("VLLM_ROCM_USE_AITER_MOE_SITUV2", "a2w4"),)),
            SettingsUse(arch="gfx90a", env=(("VLLM_ROCM_AITER_MOE_DISPATCH_POLICY", "auto"),)),
        ),
    ),
    ListedDifference(
        id="mori-flag-name",
        what="The flag for MoRI is called use_mori_kernels.",
        consequence="Code that reads use_mori_epv1_kernels needs a newer vLLM.",
        spec="SPEC header",
        explains=lambda c, m: isinstance(c, ConfigUse) and m.what == "config use_mori_epv1_kernels",
        witnesses=(ConfigUse(),),
    ),
    ListedDifference(
        id="mori-needs-gated",
        what="With MoRI, a layer whose activation is not gated ends in MoRI's assertion about AITER's MoE.",
        consequence="The message asks for what is already switched on, instead of naming the activation.",
        spec="SPEC 9, MoRI",
        explains=lambda c, m: (
            isinstance(c, ConfigUse | LeafUse)
            and c.config.activation.endswith("_no_mul")
            and m.impl == ABSENT
            and _theirs(m, "Mori needs to be used with aiter fused_moe")
        ),
        witnesses=(
            ConfigUse(
                config=MoEConfigSpec(
                    activation="silu_no_mul",
                    parallel=ParallelSpec(dp=2, use_ep=True, all2all_backend="mori_high_throughput"),
                )
            ),
        ),
    ),
    ListedDifference(
        id="topk-init-call-style",
        what="The same arguments to init_aiter_topK_meta_data by keyword are taken for others.",
        consequence="The second layer's start fails where layers pass them in different ways.",
        spec="SPEC 10",
        explains=lambda c, m: isinstance(c, SharedExpertsUse) and _called_otherwise(c) and _is_last(c, m),
        witnesses=(SharedExpertsUse((InitStep(), InitStep(keywords=True))),),
    ),
    ListedDifference(
        id="shared-experts-unchecked",
        what="inject_shared_expert_weights checks neither widths nor shapes, and writes before it fails.",
        consequence="A router of another width gets gates written over its routed experts' weights.",
        spec="SPEC 10",
        explains=lambda c, m: isinstance(c, SharedExpertsUse) and _fits_not(c) and _is_last(c, m),
        witnesses=(
            SharedExpertsUse((InitStep(), InjectStep(width=5, gates=(2, 1)))),
            SharedExpertsUse((InitStep(), InjectStep(gates=(2, 3)))),
            SharedExpertsUse((InitStep(), InjectStep(shared=2))),
        ),
    ),
)

# Those that only the contract and property suites can show.
_SHOWN_ELSEWHERE = (
    Difference(
        "fp8-key-baked-at-import",
        "Quant keys name the fp8 type of the GPU that vLLM was imported on, and equal no others.",
    ),
    Difference(
        "device-answer-not-boolean",
        "Where AITER is not supported the switches answer None, which `if` takes for False; it is passed on "
        "as the dispatch policy, too.",
    ),
    Difference(
        "terse-refusals",
        "A refusal does not name the leaf and the argument, so that the user has to read the source.",
    ),
    Difference(
        "shared-experts-advice",
        "The errors of a missing or too small buffer do not say what to call and with how much.",
    ),
    Difference(
        "argument-dropped-in-silence",
        "A gate mode that AITER cannot be told is left out: it takes interleaved weights for separated.",
    ),
    Difference(
        "neutral-arguments-sent",
        "With an AITER before v0.1.14 every call fails: swiglu_limit is passed even where there is none.",
    ),
    Difference(
        "first-arguments-by-position",
        "A parameter that AITER inserts before its 13th shifts all that follow, with no message.",
    ),
    Difference(
        "fake-of-packed-fp4",
        "Traced with packed fp4 input, the result has half the columns that it has when it runs.",
    ),
    Difference(
        "situ-environment-unchecked",
        "When AITER_SITUV2_A8W4 or AITER_SITUV2_A4W4 changes after the start, calls keep the old layout.",
    ),
)

DIFFERENCES: MappingProxyType[str, Difference] = MappingProxyType(
    {difference.id: difference for difference in (*_LISTED, *_SHOWN_ELSEWHERE)}
)
