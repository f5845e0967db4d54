"""Generated inputs of the property checks, as hypothesis strategies over plain descriptions.

Sizes are small on purpose: what the dispatcher does depends on their relations, not on their magnitude.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

from hypothesis import assume
from hypothesis import strategies as st

from aiter_conformance.axes import load_axes
from aiter_conformance.checks.properties_checkpoint import FNUZ_ARCH, FP8_SCHEMES, Layer
from aiter_conformance.checks.properties_derivation import Answers
from aiter_conformance.checks.properties_leaf import LeafCase
from aiter_conformance.checks.properties_mask import Placement
from aiter_conformance.checks.properties_pads import PaddedCall, Pads
from aiter_conformance.checks.properties_shared_experts import Buffers, Injection
from aiter_conformance.checks.properties_shared_refusals import BadShapes
from aiter_conformance.checks.properties_topk import Routing
from aiter_conformance.contract import ACCEPTED_ACTIVATIONS, SCHEME_CONFIGS, SUPPORTED_ARCHS
from aiter_conformance.protocols import MoEConfigSpec, ParallelSpec
from aiter_conformance.topk_oracle import Scoring

# Activations for which the call carries nothing that an AITER may lack.
CALL_ACTIVATIONS = tuple(ACCEPTED_ACTIVATIONS)
# Around the tiles that pads are rounded to: one below, on, and one above.
_EDGES = st.integers(0, 24).flatmap(lambda n: st.sampled_from((64 * n - 1, 64 * n, 64 * n + 1)))


def activations() -> st.SearchStrategy[str]:
    """Every value of ``MoEActivation``, those that no leaf takes included."""
    return st.sampled_from(load_axes().activations)


def raw_pads() -> st.SearchStrategy[int]:
    """Padding deltas, with the edges of 64- and 128-wide tiles among them."""
    return st.one_of(st.integers(0, 2048), _EDGES.filter(lambda pad: pad >= 0))


def pads() -> st.SearchStrategy[Pads]:
    """Good calls of ``aiter_moe_pads``."""
    return st.builds(
        Pads,
        hidden=raw_pads(),
        intermediate=raw_pads(),
        activation=activations(),
        w4a4=st.booleans(),
        tp_size=st.sampled_from((1, 1, 2, 3, 4, 8)),
    )


def bad_pads() -> st.SearchStrategy[Pads]:
    """Calls of ``aiter_moe_pads`` with one thing wrong, or more."""
    wrong = st.integers(-2048, -1)
    return st.one_of(
        st.builds(lambda good, pad: replace(good, hidden=pad), pads(), wrong),
        st.builds(lambda good, pad: replace(good, intermediate=pad), pads(), wrong),
        st.builds(lambda good, size: replace(good, tp_size=size), pads(), st.integers(-8, 0)),
    )


def parallel_specs() -> st.SearchStrategy[ParallelSpec]:
    """Deployments over up to eight devices, with and without expert parallelism."""

    def spec(tp: int, pcp: int, dp: int, use_ep: bool) -> ParallelSpec:
        return ParallelSpec(tp=tp, pcp=pcp, dp=dp, use_ep=use_ep and tp * pcp * dp > 1)

    sizes = st.sampled_from((1, 1, 2))
    return st.builds(spec, st.sampled_from((1, 1, 2, 4)), sizes, sizes, st.booleans())


def _config(activation: str, experts: int, topk: int, **fields: Any) -> MoEConfigSpec:
    if activation == "situ":
        fields |= {"activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0}
    return MoEConfigSpec(num_experts=experts, experts_per_token=topk, activation=activation, **fields)


@st.composite
def padded_calls(draw: st.DrawFn, negative: bool = False) -> PaddedCall:
    """Leaf calls with padded sizes; ``negative``: an unpadded size is above the padded one."""
    scheme = draw(st.sampled_from(tuple(SCHEME_CONFIGS)))
    where = draw(parallel_specs())
    ranks = 1 if where.use_ep else where.tp * where.pcp * where.dp
    hidden, intermediate = draw(st.sampled_from((256, 512))), draw(st.sampled_from((128, 256, 384)))
    config = _config(
        draw(st.sampled_from(CALL_ACTIVATIONS)),
        8,  # divides into every ep_size of parallel_specs
        1,
        hidden_dim=hidden,
        intermediate_size=intermediate * ranks,
        parallel=where,
    )
    packed = scheme == "mxfp4-w4a4" and draw(st.booleans())
    case = LeafCase(scheme, config, ((0,), (1,)), packed=packed)
    if negative:
        which = draw(st.sampled_from(("hidden", "intermediate", "override")))
        low = draw(st.integers(-256, -1))
        return PaddedCall(
            case,
            low if which == "hidden" else 0,
            low if which == "intermediate" else 0,
            low if which == "override" else None,
        )
    override = draw(st.none() | st.integers(0, 320))
    return PaddedCall(
        case, draw(st.integers(0, hidden - 1)), draw(st.integers(0, intermediate - 1)), override
    )


@st.composite
def leaf_cases(
    draw: st.DrawFn,
    *,
    on_input: bool | None = None,
    min_topk: int = 1,
    with_local_tokens: bool = False,
) -> LeafCase:
    """Leaf calls with any routing, padding rows among them.

    Args:
        draw: Of hypothesis.
        on_input: Whether router weights apply to the input; None: either. Where they do, topk is 1 unless
            ``min_topk`` asks for more.
        min_topk: Smallest number of experts a token.
        with_local_tokens: Whether the call carries metadata about local tokens.
    """
    schemes = tuple(SCHEME_CONFIGS)
    applied = draw(st.booleans()) if on_input is None else on_input
    if applied:
        schemes = tuple(scheme for scheme in schemes if scheme != "fp8-block")
    scheme = draw(st.sampled_from(schemes))
    tkw1 = applied and scheme == "fp8-channel"
    # What asm_moe_tkw1 cannot be told is refused by the leaf (SPEC 3); the contract suite has those.
    activations_here = ("silu", "gelu", "swigluoai") if tkw1 else CALL_ACTIVATIONS
    experts = draw(st.integers(max(2, min_topk), 6))
    topk = 1 if applied and min_topk == 1 else draw(st.integers(min_topk, min(4, experts)))
    expert = st.one_of(st.integers(0, experts - 1), st.integers(0, experts - 1), st.integers(-3, -1))
    ids = draw(st.lists(st.tuples(*[expert] * topk), min_size=0, max_size=6))
    local_tokens: tuple[int, ...] | None = None
    if with_local_tokens and not tkw1:
        counts = st.lists(st.integers(0, 8), min_size=0, max_size=4).map(tuple)
        local_tokens = draw(st.none() | counts)
    return LeafCase(
        scheme,
        _config(draw(st.sampled_from(activations_here)), experts, topk, hidden_dim=64, intermediate_size=32),
        tuple(ids),
        ids_dtype=draw(st.sampled_from(("int32", "int64"))),
        weights_dtype=draw(st.sampled_from(("float32", "bfloat16", "float16", "float64"))),
        masked=draw(st.booleans()),
        on_input=applied,
        local_tokens=local_tokens,
    )


# --------------------------------------------------------------------------- derivation


def answers() -> st.SearchStrategy[Answers]:
    """Every combination of what a quant config can answer, impossible ones included."""
    return st.builds(Answers, *[st.booleans()] * 7)


# --------------------------------------------------------------------------- shared experts


@st.composite
def buffers(draw: st.DrawFn, *, ep: bool | None = None, shared: bool = False) -> Buffers:
    """Initialisations of the shared-expert buffers.

    Args:
        draw: Of hypothesis.
        ep: Whether with the sentinel column; None: either.
        shared: Whether at least one shared expert is required.
    """
    tp_size = draw(st.integers(1, 5))
    return Buffers(
        n_routed_experts=draw(st.integers(1, 12)),
        n_shared_experts=draw(st.integers(1 if shared else 0, 3)),
        top_k=draw(st.integers(1, 4)),
        tp_rank=draw(st.integers(0, tp_size - 1)),
        tp_size=tp_size,
        shared_experts_score=draw(st.sampled_from((1.0, 0.5, 0.4, 0.0))),
        max_num_tokens=draw(st.integers(1, 9)),
        is_EP=draw(st.booleans()) if ep is None else ep,
    )


@st.composite
def injections(draw: st.DrawFn) -> Injection:
    """Good calls of ``inject_shared_expert_weights``, without tokens and with full buffers among them."""
    where = draw(buffers(shared=True))
    return Injection(
        where,
        tokens=draw(st.integers(0, where.max_num_tokens)),
        wide=draw(st.booleans()),
        gates=draw(st.booleans()),
        spare_gates=draw(st.integers(0, 2)),
        weights_dtype=draw(st.sampled_from(("float32", "bfloat16", "float16"))),
        ids_dtype=draw(st.sampled_from(("int32", "int64"))),
    )


@st.composite
def bad_shapes(draw: st.DrawFn) -> BadShapes:
    """Injections in which exactly one thing does not belong to the rest."""
    injection = draw(injections().filter(lambda i: i.tokens > 0))
    where = injection.buffers
    good = BadShapes.good(injection)
    widths = [n for n in range(where.width + 3) if n not in (where.top_k, where.width)]
    other = st.integers(1, 3)
    kind = draw(
        st.sampled_from(("width", "id_columns", "id_rows", "gate_rows", "gate_columns", "shared", "topk"))
    )
    if kind == "width":
        width = draw(st.sampled_from(widths))
        return replace(good, columns=width, id_columns=width)
    if kind == "id_columns":
        return replace(good, id_columns=good.id_columns + draw(other))
    if kind == "id_rows":
        return replace(good, id_rows=good.id_rows + draw(other))
    if kind == "gate_rows":
        return replace(good, gate_rows=draw(st.integers(0, good.gate_rows - 1)))
    if kind == "gate_columns":
        columns = draw(st.integers(0, 5).filter(lambda n: n != good.gate_columns))
        return replace(good, gate_columns=columns)
    if kind == "shared":
        # The buffers are for another number of shared experts; the call agrees with itself.
        fewer = draw(st.integers(1, 5).filter(lambda n: n != good.shared))
        return replace(good, shared=fewer, gate_columns=fewer)
    return replace(good, topk=good.topk + draw(other))


# --------------------------------------------------------------------------- grouped top-k


def _distinct_sums(n: int) -> list[int]:
    """Return the first ``n`` numbers of Mian and Chowla: no two pairs of them have the same sum."""
    numbers: list[int] = []
    sums: set[int] = set()
    candidate = 0
    while len(numbers) < n:
        candidate += 1
        new = {candidate + number for number in (*numbers, candidate)}
        if not new & sums:
            numbers.append(candidate)
            sums |= new
    return numbers


@st.composite
def routings(draw: st.DrawFn, *, min_tokens: int = 0, min_shared: int = 0) -> Routing:
    """Grouped top-k calls without ties: neither two experts nor two groups of a token score alike.

    Scores lie on a grid of `_distinct_sums`, in any order, so that their sums by pairs differ by at least a
    step of the grid, which is far more than float32 or, with few experts, bfloat16 can move them. What the
    grid cannot promise is left to the oracle, which knows the smallest margin of its decisions.
    """
    low = draw(st.sampled_from(("float32", "float32", "bfloat16", "float16")))
    groups = draw(st.sampled_from((1, 2, 4)))
    size = draw(st.integers(1, 6 if low == "float32" else 8 // groups))
    experts = groups * size
    topk_groups = draw(st.integers(1, groups))
    topk = draw(st.integers(1, min(6, topk_groups * size)))
    grid = _distinct_sums(experts)
    scoring: Scoring = draw(st.sampled_from(get_args(Scoring)))
    bias: tuple[float, ...] | None = None
    if draw(st.booleans()):
        bias = tuple(n / 16 for n in draw(st.lists(st.integers(-4, 4), min_size=experts, max_size=experts)))
    tokens = draw(st.lists(st.permutations(grid), min_size=max(1, min_tokens), max_size=5))

    def logit(value: int, expert: int) -> float:
        if bias is None and scoring == "softmax":
            return math.log(value)
        score = 0.3 + 0.4 * value / grid[-1] - (0.0 if bias is None else bias[expert])
        return math.log(score / (1.0 - score))

    routing = Routing(
        tuple(tuple(logit(value, expert) for expert, value in enumerate(row)) for row in tokens),
        topk,
        draw(st.booleans()),
        groups,
        topk_groups,
        scoring,
        draw(st.sampled_from((1.0, 2.5, 0.125))),
        bias,
        low,
        shared=draw(st.integers(min_shared, 2)),
        is_ep=draw(st.booleans()),
        spare_rows=draw(st.integers(0, 2)),
    )
    assume(routing.oracle().margin > 1e-4)
    return routing


# --------------------------------------------------------------------------- weights


def sizes() -> st.SearchStrategy[tuple[str, str, int, int]]:
    """Scheme, activation, hidden and intermediate size, with the edges of the granules among the sizes."""
    near = st.integers(1, 12).flatmap(lambda n: st.sampled_from((64 * n - 1, 64 * n, 64 * n + 1)))
    size = st.one_of(st.integers(1, 4096), near)
    return st.tuples(st.sampled_from(tuple(SCHEME_CONFIGS)), st.sampled_from(CALL_ACTIVATIONS), size, size)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Layers that a checkpoint can hold, small, with sizes that do and do not fill a tile."""
    scheme = draw(st.sampled_from(tuple(SCHEME_CONFIGS)))
    hidden = 32 * draw(st.integers(1, 9))
    intermediate = draw(st.integers(1, 200))
    arch = "gfx942" if scheme == "int4-w4a16" else "gfx950"
    if scheme in FP8_SCHEMES:
        intermediate = 32 * draw(st.integers(1, 5))  # nothing is padded, so what is given must fit the tiles
        arch = draw(st.sampled_from(SUPPORTED_ARCHS))
    if scheme.startswith("mxfp4"):
        intermediate = 2 * draw(st.integers(1, 140))  # two values a byte
    return Layer(
        scheme,
        draw(st.sampled_from(CALL_ACTIVATIONS)),
        hidden,
        intermediate,
        arch,
        experts=draw(st.integers(1, 3)),
        situ=draw(st.sampled_from(("a16w4", "a8w4", "a4w4"))),
        dsv4=scheme == "mxfp4-w4a16" and draw(st.booleans()),
        fnuz=scheme in FP8_SCHEMES and arch == FNUZ_ARCH and draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Experts over ranks in any order, ranks without experts among them."""
    ranks = draw(st.integers(1, 4))
    owner = draw(st.lists(st.integers(0, ranks - 1), min_size=1, max_size=12))
    return Placement(tuple(owner), ranks, draw(st.integers(0, 2)))


@st.composite
def bad_expert_maps(draw: st.DrawFn) -> tuple[int, ...]:
    """Maps in which a local index is missing or comes twice, as in a mask."""
    values = draw(st.lists(st.integers(-1, 6), min_size=1, max_size=8))
    held = sorted(value for value in values if value >= 0)
    assume(held != list(range(len(held))))
    return tuple(values)
