"""Checks of one trace: is what the release launches what the call asks for, and can it run there?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from aiter_conformance.axes import Cell
from aiter_conformance.contract import ACCEPTED_ACTIVATIONS
from aiter_conformance.expected_call import CallInput, expected_gate_mode
from aiter_conformance.families import launch_kind, load_families
from aiter_conformance.trace.call import DIRECT_SCHEMES, Call
from aiter_conformance.trace.findings import Code, Finding
from aiter_conformance.trace.record import Launch, Role, Status, Trace


@dataclass(frozen=True, slots=True)
class SchemeRule:
    """What the kernels of a scheme must read.

    Attributes:
        w: Dtype of the weights.
        a: Dtypes in which activations may be read: what the scheme says first, and others that are no worse.
        quant: Members of ``QuantType`` whose scales fit.
    """

    w: str
    a: tuple[str, ...]
    quant: tuple[str, ...]


_SIXTEEN: Final = ("bf16", "fp16")
# A scale for the whole tensor may be repeated for each token, so kernels of the finer one do the coarser.
RULES: Final[dict[str, SchemeRule]] = {
    "bf16": SchemeRule("bf16", _SIXTEEN, ("No",)),
    "fp8-block": SchemeRule("fp8", ("fp8", *_SIXTEEN), ("per_1x128", "per_128x128")),
    "fp8-tensor-static": SchemeRule("fp8", ("fp8",), ("per_Tensor", "per_Token")),
    "fp8-tensor-dynamic": SchemeRule("fp8", ("fp8",), ("per_Tensor", "per_Token")),
    "fp8-channel": SchemeRule("fp8", ("fp8",), ("per_Token",)),
    "mxfp4-w4a16": SchemeRule("fp4", _SIXTEEN, ("per_1x32",)),
    "mxfp4-w4a4": SchemeRule("fp4", ("fp4", "fp8", *_SIXTEEN), ("per_1x32",)),
    "int4-w4a16": SchemeRule("int4", _SIXTEEN, ("per_1x32",)),
    "mxfp8": SchemeRule("fp8", ("fp8", *_SIXTEEN), ("per_1x32",)),
    "int8-token": SchemeRule("int8", ("int8",), ("per_Token",)),
}
# Families whose kernels take gate and up separated, whatever the call says: they have no other kernels.
_SEPARATED_ONLY: Final = ("ck", "asm-1stage", "asm-stage1")
# Families that can add biases at all.
_WITH_BIAS: Final = ("ck-tile", "flydsl", "opus", "grouped", "triton")
# Byte offsets in the buffer instructions that all families read and write with are 32 bits wide (CDNA3 and
# CDNA4 instruction sets, "Memory buffer instructions").
_BUFFER_BYTES: Final = 1 << 32
# The assembly kernels take an expert's stride as an int of bytes (csrc/py_itfs_cu/asm_fmoe.cu).
_EXPERT_BYTES: Final = 1 << 31

Check = Callable[[Trace, str], Iterator[Finding]]


def check_trace(trace: Trace, arch: str) -> tuple[Finding, ...]:
    """Return everything that is wrong with one call on a board of *arch*; a refusal is nothing wrong."""
    if trace.status is Status.REFUSED:
        return ()
    if trace.status is not Status.LAUNCHED:
        return (_ended_badly(trace),)
    found = [finding for check in _CHECKS for finding in check(trace, arch)]
    if not any(finding.fails for finding in found):
        # A family that cannot do the call was found above, by what it cannot do.
        found += _family_is_specified(trace, arch)
    return tuple(found)


def _found(trace: Trace, code: Code, cause: str, message: str | None = None) -> Finding:
    return Finding(code, trace.board, cause, message or cause, trace.call)


def _ended_badly(trace: Trace) -> Finding:
    if trace.died is not None:
        return _found(trace, Code.DIED, trace.died, f"the process ended: {trace.died}")
    raised = trace.raised
    place = raised.place if raised is not None else ""
    kind = raised.type if raised is not None else "an exception"
    return _found(trace, Code.RAISED, f"{kind} in {place}", str(raised))


def _launches_something(trace: Trace, arch: str) -> Iterator[Finding]:
    if not trace.products:
        yield _found(trace, Code.NOTHING_LAUNCHED, f"no product is launched on {arch}")


def _kernels_exist(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001 -- checks are called alike
    for launch in trace.products:
        if launch.problem is not None:
            origin = "tuned" if trace.row is not None else "default"
            message = f"the {origin} {launch.role} cannot run: {launch.problem}"
            yield _found(trace, Code.NO_KERNEL, launch.problem, message)
        elif launch.ignored is not None:
            cause = (
                f"a {launch.family} {launch.role} that a tuned row names is not made: another runs instead"
            )
            yield _found(trace, Code.TUNED_NOT_MADE, cause, f"{cause} ({launch.ignored})")


def _arch_can(trace: Trace, arch: str) -> Iterator[Finding]:
    for launch in trace.products:
        lacking = _lacking_instruction(launch, arch)
        if lacking is not None:
            cause = f"{arch} has no {lacking}, which {launch.family} kernels for {launch.a} x {launch.w} need"
            yield _found(trace, Code.NOT_FOR_ARCH, cause, f"{launch.kernel} cannot be compiled: {cause}")


def _lacking_instruction(launch: Launch, arch: str) -> str | None:
    """Return the instruction that a kernel needs and the arch lacks.

    Scaled matrix products, conversions from fp4 and packed bf16 additions to buffers came with CDNA4 (AMD's
    "CDNA4 instruction set architecture"; FlyDSL 0.3.1 and LLVM 22.1 "cannot select" the last for gfx942). CK
    leaves its fp4 kernels out on gfx942 (``gen_instances.py``).
    """
    if arch != "gfx942":
        return None
    if launch.family == "flydsl":
        if launch.a in ("fp4", "fp8") and launch.w in ("fp4", "fp8"):
            return "scaled matrix product (v_mfma_scale)"
        if launch.w == "fp4":
            return "conversion from fp4 (v_cvt_scalef32_pk_bf16_fp4)"
        if launch.role is Role.STAGE2 and launch.operator.endswith("_port"):
            return "atomic addition of bf16 pairs to a buffer (buffer_atomic_pk_add_bf16)"
    if launch.family == "ck" and launch.w == "fp4":
        return "scaled matrix product (v_mfma_scale)"
    return None


def _does_activation(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001
    wanted = ACCEPTED_ACTIVATIONS[trace.call.activation][0].lower()
    for launch in trace.launches:
        applies = launch.role in (Role.ONE_STAGE, Role.STAGE1, Role.ACTIVATION)
        if applies and launch.activation not in (None, wanted):
            cause = f"{launch.family} kernel for {launch.activation} where {wanted} is asked for"
            yield _found(trace, Code.WRONG_ACTIVATION, cause, f"{launch.kernel} is a {cause}")


def _reads_right_types(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001
    rule = RULES[trace.call.scheme]
    allowed = allowed_activations(trace.call)
    for launch in trace.products:
        what = f"{launch.family} {launch.role} of {trace.call.scheme}"
        if launch.w is not None and launch.w != rule.w:
            yield _found(trace, Code.WRONG_DTYPE, f"{what} reads {launch.w} weights, not {rule.w}")
        if launch.a is not None and launch.a not in allowed:
            code = Code.QUANTISED_SILENTLY if rule.a == _SIXTEEN else Code.WRONG_DTYPE
            yield _found(trace, code, f"{what} reads {launch.a} activations, not {rule.a[0]}")
        if launch.quant is not None and launch.quant not in rule.quant:
            yield _found(trace, Code.WRONG_QUANT, f"{what} takes {launch.quant} scales, not {rule.quant[0]}")


def allowed_activations(call: Call) -> tuple[str, ...]:
    """Return the dtypes in which a call's activations may be read: the scheme's, and what was asked for."""
    return (*RULES[call.scheme].a, *_asked_for(call))


def _asked_for(call: Call) -> tuple[str, ...]:
    """Return the dtypes of activations that the user asked for by name: SiTU's kernels are chosen so."""
    if call.activation != "situ":
        return ()
    return {"a4w4": ("fp4",), "a8w4": ("fp8",), "a16w4": ()}[call.situ]


def gate_mode(call: Call) -> str:
    """Return the layout in which the call's weights lie: what it says to AITER, or AITER's default."""
    if call.entry == "fused_moe":
        return call.gate_mode or "separated"
    given = CallInput(scheme=call.scheme, activation=call.activation, router=call.router, situ=call.situ)
    return expected_gate_mode(given) or "separated"


def _reads_right_layout(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001
    lies = gate_mode(trace.call)
    for launch in trace.products:
        if launch.role not in (Role.ONE_STAGE, Role.STAGE1):
            continue
        reads = "separated" if launch.family in _SEPARATED_ONLY else launch.gate_mode
        if reads in ("separated", "interleave") and reads != lies:
            cause = f"{launch.family} {launch.role} reads gate and up {reads}, the weights lie {lies}"
            yield _found(trace, Code.WRONG_LAYOUT, cause)


def _weighs_once(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001
    on_input = trace.call.router == "in"
    for launch in trace.products:
        if launch.role is Role.ONE_STAGE:
            wrong = launch.operator.endswith("tkw1") != on_input
        else:
            expected = on_input == (launch.role is Role.STAGE1)
            wrong = launch.router_weight is not None and launch.router_weight != expected
        if wrong:
            where = "input" if on_input else "output"
            cause = f"{launch.family} {launch.role} with router weights on the {where} puts them elsewhere"
            yield _found(trace, Code.WRONG_ROUTER, cause)


def _adds_bias(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001
    if not trace.call.bias:
        return
    for launch in trace.products:
        added = launch.bias if launch.family in _WITH_BIAS else False
        if added is False:
            yield _found(trace, Code.BIAS_DROPPED, f"{launch.family} {launch.role} adds no bias")


def _heeds_mask(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001
    sorts = [launch for launch in trace.launches if launch.expert_mask is not None]
    if trace.call.mask and sorts and not any(launch.expert_mask for launch in sorts):
        yield _found(trace, Code.MASK_DROPPED, f"{sorts[0].operator} is not told which experts are local")


def _pads_are_dead(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001
    call = trace.call
    for launch in trace.products:
        if launch.role is Role.STAGE2:
            dead = {"n_pad": call.hidden_pad, "k_pad": call.intermediate_pad}
        else:
            dead = {"n_pad": 2 * call.intermediate_pad, "k_pad": call.hidden_pad}
        for name, most in dead.items():
            told = getattr(launch, name)
            if told is not None and told > most:
                axis = "columns" if name == "n_pad" else "depth"
                cause = f"{launch.family} {launch.role} skips more {axis} than are dead"
                yield _found(
                    trace, Code.PADS_TOO_LARGE, cause, f"{cause}: it is told {told}, and {most} are dead"
                )


def _splits_leave_two_tiles(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001
    for launch in trace.products:
        depth, tile = launch.depth, launch.tile[2] if launch.tile is not None else 0
        if launch.split_k > 1 and depth and tile:
            tiles = depth // (launch.split_k * tile)
            if tiles < 2:
                cause = f"{launch.family} {launch.role} leaves a part of the split depth fewer than two tiles"
                message = f"a depth of {depth} split by {launch.split_k} leaves {tiles} tiles of {tile} each"
                yield _found(trace, Code.SPLIT_TOO_FINE, cause, message)


def _offsets_fit(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001
    for launch in trace.products:
        if launch.largest > _BUFFER_BYTES:
            cause = f"{launch.family} {launch.role} addresses a tensor beyond 32-bit byte offsets"
            message = f"{cause}: {launch.largest} bytes in one tensor of {launch.operator}"
            yield _found(trace, Code.OFFSET_OVERFLOW, cause, message)
        if launch.family.startswith("asm") and launch.weights >= _EXPERT_BYTES:
            cause = f"{launch.family} takes an expert's stride as a 32-bit number of bytes"
            message = f"{cause}: one expert has {launch.weights}"
            yield _found(trace, Code.OFFSET_OVERFLOW, cause, message)


def _lookups_can_match(trace: Trace, arch: str) -> Iterator[Finding]:  # noqa: ARG001
    call = trace.call
    for lookup in trace.lookups:
        if lookup.never:
            part = lookup.never[0].partition(" is a ")[2] or lookup.never[0]
            cause = f"a look into the tuned table can never succeed: a part of its key is a {part}"
            yield _found(trace, Code.TUNED_NEVER, cause, f"{cause} ({'; '.join(lookup.never)})")
        numbers = [part for part in lookup.key if isinstance(part, int) and not isinstance(part, bool)]
        for name, size in (
            ("hidden size", call.hidden),
            ("intermediate size", call.intermediate),
            ("number of local experts", call.held),
            ("number of experts per token", call.columns),
        ):
            if numbers and size not in numbers:
                masked = " with an expert mask" if call.mask else ""
                cause = f"the tuned table is asked for another {name} than the call's{masked}"
                message = f"{cause} ({size} is not in {numbers})"
                yield _found(trace, Code.TUNED_KEY_DIFFERS, cause, message)


def _family_is_specified(trace: Trace, arch: str) -> Iterator[Finding]:
    call = trace.call
    if call.entry != "leaf" or call.scheme in DIRECT_SCHEMES:
        return
    cell = Cell(arch, call.scheme, call.activation, call.router)
    served = {launch_kind(family.name) for family in load_families() if family.may_launch(cell)}
    launched = {launch.family for launch in trace.products if launch.role is not Role.STAGE2}
    for family in sorted(launched - served):
        cause = f"families.toml knows no {family} kernel for {cell.scheme} {cell.activation}/{cell.router}"
        yield _found(trace, Code.FAMILY_UNKNOWN, f"{cause} on {arch}")


_CHECKS: Final[tuple[Check, ...]] = (
    _launches_something,
    _kernels_exist,
    _arch_can,
    _does_activation,
    _reads_right_types,
    _reads_right_layout,
    _weighs_once,
    _adds_bias,
    _heeds_mask,
    _pads_are_dead,
    _splits_leave_two_tiles,
    _offsets_fit,
    _lookups_can_match,
)
