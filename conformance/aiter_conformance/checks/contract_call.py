"""The exact kernel call of every leaf, under a recorder in place of both kernel calls (SPEC 3 and 4)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal, get_args

import torch

from aiter_conformance.axes import ROUTERS, load_axes
from aiter_conformance.checks.properties import Untouched, content
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import ACCEPTED_ACTIVATIONS, SCHEME_CONFIGS, W4A16_SCHEMES, leaf_of_scheme
from aiter_conformance.expected_call import (
    FP4X2,
    CallInput,
    Cast,
    Dtype,
    ExpectedCall,
    ExpectedRefusal,
    Same,
    Situ,
    expected_call,
)
from aiter_conformance.protocols import ENABLED, KernelCall, MoEConfigSpec, ParallelSpec, Subject
from aiter_conformance.simulated_aiter import FUTURE, SimulatedAiter, simulate

TOKENS: Final = 3
EXPERTS: Final = 8
HIDDEN: Final = 512
INTERMEDIATE: Final = 512  # of a partition

# Deployments with the MoE's tp_size that follows: only 1 doubles the intermediate pad.
PARALLEL: Final[dict[str, tuple[ParallelSpec, int]]] = {
    "one device": (ParallelSpec(), 1),
    "TP 2": (ParallelSpec(tp=2), 2),
    "TP 8": (ParallelSpec(tp=8), 8),
    "DP 2": (ParallelSpec(dp=2), 2),
    "EP 8": (ParallelSpec(tp=8, use_ep=True), 1),
    "DP 2, EP": (ParallelSpec(dp=2, use_ep=True), 1),
}
# (dead hidden columns, dead intermediate columns, moe_config.intermediate_pad), around each rounding.
PADS: Final = (
    (0, 0, None),
    (127, 63, None),
    (128, 64, None),
    (200, 200, None),
    (192, 192, None),
    (0, 96, None),
    (64, 0, None),
    (128, 192, 0),
    (128, 0, 192),
)


def variations(scheme: str) -> Iterator[dict[str, Any]]:
    """Yield every change of one argument of the plain call, as fields of `CallInput`."""
    yield {}
    yield {"topk": 1}
    yield {"mask": True}
    yield {"cast_router": True}
    yield {"a1q": True}
    yield {"output_dtype": "float16"}
    yield {"input_dtype": "float16"}
    yield {"dsv4": True}
    for biases in ((True, False), (False, True), (True, True)):
        yield {"biases": biases}
    for limit in (0.0, 7.0, 5):
        yield {"swiglu_limit": limit}
    for policy in (1, 2):
        yield {"policy": policy}
    for metadata in ("none", "one", "vector"):
        yield {"metadata": metadata}
    yield {"beta": 1.5, "linear_beta": 0.5}
    yield {"beta": 1.5}
    for situ in ("a8w4", "a16w4"):
        yield {"situ": situ}
    if scheme == "mxfp4-w4a4":
        yield {"packed": True, "a1q": True}


@dataclass(frozen=True, slots=True)
class Applied:
    """What one ``apply`` did: its inputs by name, the calls that it made, and how it ended."""

    tensors: Mapping[str, torch.Tensor]
    untouched: Untouched
    calls: list[KernelCall]
    error: Exception | None


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return distinct values in (0, 1], the same at every call."""
    count = math.prod(shape)
    return (torch.arange(1, count + 1) / max(count, 1)).reshape(shape).to(dtype)


def _tensors(given: CallInput) -> dict[str, torch.Tensor]:
    """Make the inputs of an apply; large weights are one element seen many times."""
    weight = torch.zeros(1, dtype=torch.uint8)
    made: dict[str, torch.Tensor] = {
        "w1": weight.expand(EXPERTS, 2 * INTERMEDIATE, HIDDEN),
        "w2": weight.expand(EXPERTS, HIDDEN, INTERMEDIATE),
        "topk_weights": ramp(
            TOKENS, given.topk, dtype=torch.bfloat16 if given.cast_router else torch.float32
        ),
        "topk_ids": (torch.arange(TOKENS * given.topk) % EXPERTS)
        .reshape(TOKENS, given.topk)
        .to(torch.int64 if given.cast_router else torch.int32),
        "expert_map": torch.ones(EXPERTS + 1, dtype=torch.int32),
        "a1q_scale": torch.ones(TOKENS, 1),
        "expert_num_tokens": torch.ones(EXPERTS if given.metadata == "vector" else 1, dtype=torch.int32),
        # Three that apply() is handed and must not use: static activation scales come from the quant config.
        "a2_scale decoy": torch.ones(1),
        "workspace13": torch.empty(0),
        "workspace2": torch.empty(0),
        **{name: torch.ones(1) for name in ("w1_scale", "w2_scale", "a1_scale", "a2_scale")},
        **{name: torch.ones(1) for name in ("w1_bias", "w2_bias")},
    }
    if given.packed:
        made["hidden_states"] = torch.zeros(TOKENS, HIDDEN // 2, dtype=torch.uint8).view(
            getattr(torch, FP4X2)
        )
    else:
        made["hidden_states"] = ramp(TOKENS, HIDDEN, dtype=getattr(torch, given.input_dtype))
    return made


class Inputs:
    """The inputs of many applies, made once for each kind of call: what is never written to can be shared.

    After each apply only torch's version counters are looked at, which every operation of torch moves; the
    bytes are compared at the end, by `compare`.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[dict[str, torch.Tensor], Untouched, Untouched]] = {}

    def of(self, given: CallInput) -> tuple[dict[str, torch.Tensor], Untouched]:
        """Return the tensors of a call by name, and what says whether they were written to."""
        kind = (given.topk, given.cast_router, given.metadata == "vector", given.packed, given.input_dtype)
        if kind not in self._made:
            made = _tensors(given)
            self._made[kind] = made, _Versions(_kept(made)), Untouched(_kept(made))
        made, versions, _ = self._made[kind]
        return made, versions

    def compare(self, report: Report, where: str) -> None:
        """Compare the bytes of all inputs with what they were when they were made."""
        for _, _, untouched in self._made.values():
            untouched.compare(report, where)


class _Versions(Untouched):
    """Looks at version counters alone."""

    def _now(self) -> dict[str, tuple[int, bytes]]:
        return {name: (tensor._version, b"") for name, tensor in self._tensors.items()}


def _kept(made: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return all but the weights, which are one element seen many times."""
    return {name: t for name, t in made.items() if name not in ("w1", "w2")}


def _quant_tensors(given: CallInput, made: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    names = [name for name, there in zip(("w1_bias", "w2_bias"), given.biases, strict=True) if there]
    if SCHEME_CONFIGS[given.scheme].weights is not None:
        names += ["w1_scale", "w2_scale"]
    if given.scheme == "fp8-tensor-static":
        names += ["a1_scale", "a2_scale"]
    return {name: made[name] for name in names}


@cache
def _capable_aiter() -> SimulatedAiter:
    """Return one AITER that can do everything; under a recorder no call reaches it."""
    return simulate(FUTURE)


def environment_of(
    subject: Subject,
    given: CallInput,
    *,
    arch: str | None = None,
    installed: SimulatedAiter | Literal["any"] | None = "any",
) -> AbstractContextManager[None]:
    """Return the environment that a call is made in; calls of equal `environment_key` can share one.

    Args:
        subject: The subject.
        given: What the call is told.
        arch: None takes one on which the scheme is supported.
        installed: The AITER that is found, None for none; "any" is one that can do everything.
    """
    env = {
        **ENABLED,
        "VLLM_ROCM_USE_AITER_MOE_SITUV2": given.situ,
        "VLLM_ROCM_AITER_MOE_DISPATCH_POLICY": str(given.policy),
    }
    arch = arch or ("gfx942" if given.scheme == "int4-w4a16" else "gfx950")
    return subject.environment(arch, env, installed=_capable_aiter() if installed == "any" else installed)


def environment_key(given: CallInput) -> tuple[str, int]:
    """Return what of a call is in its environment."""
    return given.situ, given.policy


def apply_leaf(
    subject: Subject,
    given: CallInput,
    parallel: ParallelSpec | None = None,
    *,
    arch: str | None = None,
    installed: SimulatedAiter | Literal["any"] | None = "any",
    tensors: Mapping[str, torch.Tensor] | None = None,
    result: Callable[[KernelCall], torch.Tensor] | None = None,
    record: bool = True,
) -> Applied:
    """Build the scheme's leaf in a fresh environment, apply it once, and return what it did.

    Args:
        subject: The subject.
        given: What the call is told.
        parallel: A deployment whose MoE has ``given.tp`` as its tp_size; None picks one.
        arch: See `environment_of`.
        installed: See `environment_of`.
        tensors: Inputs to use instead of the made ones, ``output`` among them.
        result: Makes the kernel's answer.
        record: False lets the call go on to ``installed``.
    """
    with environment_of(subject, given, arch=arch, installed=installed):
        return apply_here(subject, given, parallel, tensors=tensors, result=result, record=record)


def apply_here(
    subject: Subject,
    given: CallInput,
    parallel: ParallelSpec | None = None,
    *,
    tensors: Mapping[str, torch.Tensor] | None = None,
    inputs: Inputs | None = None,
    result: Callable[[KernelCall], torch.Tensor] | None = None,
    record: bool = True,
) -> Applied:
    """Do what `apply_leaf` does in the environment that is set already.

    Args:
        subject: The subject.
        given: What the call is told; the environment must be one for it.
        parallel: See `apply_leaf`.
        tensors: See `apply_leaf`.
        inputs: What other applies were given, *tensors* left out; None makes inputs for this one alone.
        result: See `apply_leaf`.
        record: See `apply_leaf`.
    """
    spec = parallel or next(p for p, tp in PARALLEL.values() if tp == given.tp)
    if given.packed:
        spec = replace(spec, dp=2, use_ep=True, all2all_backend="mori_high_throughput")
    shared, untouched = inputs.of(given) if inputs else (_tensors(given), None)
    made = {**shared, **(tensors or {})}
    tokens = made["topk_ids"].shape[0]
    output = made.pop("output", torch.empty(tokens, HIDDEN, dtype=getattr(torch, given.output_dtype)))
    calls: list[KernelCall] = []
    error = None
    experts = _build(subject, given, spec, made)
    if untouched is None:
        untouched = Untouched(_kept(made))
    with subject.recording(result) if record else nullcontext(calls) as calls:
        try:
            experts.apply(
                output=output,
                hidden_states=made["hidden_states"],
                w1=made["w1"],
                w2=made["w2"],
                topk_weights=made["topk_weights"],
                topk_ids=made["topk_ids"],
                activation=subject.api.MoEActivation(given.activation),
                global_num_experts=EXPERTS,
                expert_map=made["expert_map"] if given.mask else None,
                a1q_scale=made["a1q_scale"] if given.a1q else None,
                a2_scale=made["a2_scale decoy"],
                workspace13=made["workspace13"],
                workspace2=made["workspace2"],
                expert_tokens_meta=_metadata(subject, given, made),
                apply_router_weight_on_input=given.router == "in",
            )
        except Exception as raised:
            error = raised
    return Applied(made, untouched, calls, error)


def _build(
    subject: Subject, given: CallInput, parallel: ParallelSpec, made: Mapping[str, torch.Tensor]
) -> Any:
    config = subject.moe_config(
        MoEConfigSpec(
            num_experts=EXPERTS,
            num_local_experts=EXPERTS,
            experts_per_token=given.topk,
            hidden_dim=HIDDEN,
            intermediate_size=INTERMEDIATE * given.tp,
            in_dtype=given.input_dtype,
            activation=given.activation,
            parallel=parallel,
            hidden_dim_unpadded=HIDDEN - given.hidden_pad,
            intermediate_size_per_partition_unpadded=INTERMEDIATE - given.intermediate_pad,
            intermediate_pad=given.intermediate_pad_given,
            swiglu_limit=given.swiglu_limit,
            activation_situ_beta=given.beta,
            activation_situ_linear_beta=given.linear_beta,
            use_mxfp4_w4a4_dsv4=given.dsv4,
        )
    )
    quant = subject.quant_config(SCHEME_CONFIGS[given.scheme], _quant_tensors(given, made))
    leaf = leaf_of_scheme(given.scheme).name
    return getattr(subject.api, leaf)(moe_config=config, quant_config=quant)


def _metadata(subject: Subject, given: CallInput, made: Mapping[str, torch.Tensor]) -> Any:
    if given.metadata == "absent":
        return None
    counts = None if given.metadata == "none" else made["expert_num_tokens"]
    return subject.api.ExpertTokensMetadata(expert_num_tokens=counts, expert_num_tokens_cpu=None)


def _describe(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return an argument in the terms of `expected_call`: tensors by the input that they are or equal."""
    if isinstance(value, torch.dtype):
        return Dtype(str(value).removeprefix("torch."))
    if not isinstance(value, torch.Tensor):
        return value
    for name in ("topk_weights", "topk_ids"):
        if value.shape == tensors[name].shape and content(value) == content(tensors[name].to(value.dtype)):
            return Cast(name, str(value.dtype).removeprefix("torch."))
    for name, tensor in tensors.items():
        if value is tensor:
            return Same(name)
    return f"another tensor, {list(value.shape)} {value.dtype}"


def _refusal_difference(given: CallInput, expected: ExpectedRefusal) -> str | None:
    """Return the id under which a subject may make the call instead of refusing it."""
    names = set(expected.names)
    if names & {"topk", leaf_of_scheme(given.scheme).name}:
        return None
    if "expert_tokens_meta" in names:
        return "tkw1-metadata-object" if given.metadata == "none" else None
    return "bias-dropped" if names <= {"w1_bias", "w2_bias"} else "tkw1-drops-arguments"


def compare_apply(report: Report, subject: Subject, given: CallInput, applied: Applied) -> None:
    """Compare what an ``apply`` did with what the contract expects of it, inputs left alone included."""
    expected = expected_call(given)
    where = f"{leaf_of_scheme(given.scheme).name}.apply, {_changed(given)}"
    applied.untouched.compare(report, where)
    if isinstance(expected, ExpectedRefusal):
        difference = _refusal_difference(given, expected)
        refused = applied.error is not None and subject.refusal(applied.error) is ValueError
        got = [call.entry for call in applied.calls] or repr(applied.error)
        wanted = f"a ValueError that names {' or '.join(expected.names)}"
        if not report.compare(where, wanted, wanted if refused and not applied.calls else got, difference):
            return
        said = str(applied.error).replace("_", " ")
        named = any(name.replace("_", " ") in said for name in expected.names)
        report.compare(f"{where}: {applied.error} names {expected.names}", True, named, "terse-refusals")
        return
    if applied.error is not None:
        report.compare(where, "a call", repr(applied.error))
        return
    _compare_call(report, where, given, expected, applied)


def _compare_call(
    report: Report, where: str, given: CallInput, expected: ExpectedCall, applied: Applied
) -> None:
    if not report.compare(f"{where}: calls", [expected.entry], [call.entry for call in applied.calls]):
        return
    arguments = applied.calls[0].arguments
    report.compare(f"{where}: parameters", list(expected.arguments), list(arguments))
    for name, value in expected.arguments.items():
        if name in arguments:
            got = _describe(arguments[name], applied.tensors)
            report.compare(f"{where}: {name}", value, got, _argument_difference(name, given))


def _argument_difference(name: str, given: CallInput) -> str | None:
    if name == "num_local_tokens" and given.metadata == "vector":
        return "num-local-tokens-vector"
    if name == "q_dtype_a" and given.dsv4 and given.activation == "situ" and given.scheme in W4A16_SCHEMES:
        return "situ-ignores-dsv4"
    return None


def _changed(given: CallInput) -> str:
    """Name the fields that are not the default, so that a failure can be built again."""
    plain = CallInput(scheme=given.scheme)
    changed = [
        f"{name}={getattr(given, name)!r}"
        for name in CallInput.__dataclass_fields__
        if name == "scheme" or getattr(given, name) != getattr(plain, name)
    ]
    return f"CallInput({', '.join(changed)})"


# --------------------------------------------------------------------------- the checks


def call_of_pads(subject: Subject, scheme: str, activation: str) -> Report:
    """The call is exact for both routers, every deployment, all pads, SITU's layouts and the opt-in."""
    report = Report()
    situs: tuple[Situ, ...] = get_args(Situ) if activation == "situ" else ("a4w4",)
    opt_in = (False, True) if scheme in W4A16_SCHEMES else (False,)
    for (spec, tp), (hidden, intermediate, override), router, situ, dsv4 in itertools.product(
        PARALLEL.values(), PADS, ROUTERS, situs, opt_in
    ):
        given = CallInput(
            scheme=scheme,
            activation=activation,
            router=router,
            topk=1 if router == "in" else 2,
            tp=tp,
            hidden_pad=hidden,
            intermediate_pad=intermediate,
            intermediate_pad_given=override,
            situ=situ,
            dsv4=dsv4,
            beta=4.0 if activation == "situ" else None,
            linear_beta=25.0 if activation == "situ" else None,
        )
        compare_apply(report, subject, given, apply_leaf(subject, given, spec))
    return report


def call_of_arguments(subject: Subject, scheme: str, activation: str) -> Report:
    """The call is exact for every single change of an argument, router weights on either side."""
    report = Report()
    for router, change in itertools.product(ROUTERS, variations(scheme)):
        topk = 1 if router == "in" else 2
        given = replace(CallInput(scheme=scheme, activation=activation, router=router, topk=topk), **change)
        compare_apply(report, subject, given, apply_leaf(subject, given))
    return report


def call_of_argument_pairs(subject: Subject, scheme: str) -> Report:
    """The call is exact for every two changes at once, the activation taking turns."""
    report = Report()
    activations = itertools.cycle(ACCEPTED_ACTIVATIONS)
    changes = list(variations(scheme))
    for first, second in itertools.combinations(changes, 2):
        if set(first) & set(second):
            continue
        for router in ROUTERS:
            # asm_moe_tkw1 takes no pads: with them, no other argument would be reached.
            takes_pads = (scheme, router) != ("fp8-channel", "in")
            base = CallInput(
                scheme=scheme,
                activation=next(activations),
                router=router,
                topk=1 if router == "in" else 2,
                hidden_pad=128 if takes_pads else 0,
                intermediate_pad=96 if takes_pads else 0,
            )
            given = replace(base, **first, **second)
            compare_apply(report, subject, given, apply_leaf(subject, given))
    return report


SCHEMES: Final = tuple(load_axes().schemes)
