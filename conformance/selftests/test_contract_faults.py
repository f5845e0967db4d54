"""The contract checks catch planted faults: one of each kind, planted around our own subject.

Every fault is data: what is bent, the check that must see it, and what the check must say.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pytest
import torch

from aiter_conformance.axes import load_axes
from aiter_conformance.checks import (
    contract_bridge,
    contract_call,
    contract_cases,
    contract_declared,
    contract_results,
    contract_surface,
)
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import LEAVES
from aiter_conformance.protocols import (
    Entry,
    KernelCall,
    KernelEntry,
    MoEConfigSpec,
    QuantSpec,
    Settings,
    Subject,
)
from aiter_conformance.subjects import load_subject

Arguments = dict[str, Any]


@dataclass
class Bent:
    """A subject with something bent; everything else is the real one's."""

    real: Any
    leaf: Callable[[type], Mapping[str, Any]] = lambda _: {}
    names: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    call: Callable[[Entry, Arguments], Arguments] = lambda _, arguments: arguments
    faces: Callable[[Entry, KernelEntry], KernelEntry] = lambda _, faces: faces
    answers: Callable[[Settings], Settings] = lambda settings: settings
    config: Callable[[MoEConfigSpec], MoEConfigSpec] = lambda spec: spec
    quant: Callable[[QuantSpec], QuantSpec] = lambda spec: spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    @property
    def api(self) -> Any:
        """The real names, leaves replaced by bent subclasses."""
        return _BentApi(self)

    @contextmanager
    def recording(self, result: Callable[[KernelCall], torch.Tensor] | None = None) -> Iterator[Any]:
        """Show the recorded calls with bent arguments."""
        with self.real.recording(result) as calls:
            yield _BentCalls(calls, self.call)

    def entry(self, name: Entry) -> KernelEntry:
        """Return the bent faces."""
        return self.faces(name, self.real.entry(name))

    def settings(self) -> Settings:
        """Return bent settings."""
        return self.answers(self.real.settings())

    def moe_config(self, spec: MoEConfigSpec) -> Any:
        """Build the config of a bent description."""
        return self.real.moe_config(self.config(spec))

    def quant_config(self, spec: QuantSpec, tensors: Mapping[str, torch.Tensor]) -> Any:
        """Build the quantisation config of a bent description."""
        return self.real.quant_config(self.quant(spec), tensors)


@dataclass
class _BentCalls(Sequence[KernelCall]):
    calls: Sequence[KernelCall]
    bend: Callable[[Entry, Arguments], Arguments]

    def __len__(self) -> int:
        return len(self.calls)

    def __getitem__(self, index: Any) -> Any:
        call = self.calls[index]
        return KernelCall(call.entry, self.bend(call.entry, dict(call.arguments)))


class _BentApi:
    def __init__(self, bent: Bent) -> None:
        self._bent = bent

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._bent.real.api, name)
        if name in LEAVES:
            return type(name, (value,), dict(self._bent.leaf(value)))
        return self._bent.names[name](value) if name in self._bent.names else value


@dataclass(frozen=True)
class Fault:
    """What is bent, who must see it, and what must be in what it says."""

    name: str
    bends: Mapping[str, Any]
    check: Callable[[Subject], Report]
    says: str


# --------------------------------------------------------------------------- tools to bend with


def static(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Bend one static method of the leaves."""
    return {"leaf": lambda cls: {name: staticmethod(partial(function, cls))}}


def apply(function: Callable[..., None]) -> dict[str, Any]:
    """Bend ``apply``: the function gets the leaf's own ``apply`` and its keyword arguments."""

    def bent(cls: Any) -> dict[str, Any]:
        def new_apply(self: Any, **arguments: Any) -> None:
            function(partial(cls.apply, self), arguments)

        return {"apply": new_apply}

    return {"leaf": bent}


def put(**values: Any) -> dict[str, Any]:
    """Bend recorded arguments to fixed values, where the entry has them."""
    return {"call": lambda _, a: {k: values.get(k, v) for k, v in a.items()}}


def swap(first: str, second: str) -> dict[str, Any]:
    """Exchange two recorded arguments."""
    return {
        "call": lambda _, a: {**a, first: a[second], second: a[first]} if {first, second} <= set(a) else a
    }


def arguments_of(scheme: str, activation: str = "silu") -> Callable[[Subject], Report]:
    """Return the check of single arguments."""
    return lambda subject: contract_call.call_of_arguments(subject, scheme, activation)


def pads_of(scheme: str, activation: str = "silu") -> Callable[[Subject], Report]:
    """Return the check of pads and deployments."""
    return lambda subject: contract_call.call_of_pads(subject, scheme, activation)


def of_leaf(check: Callable[..., Report], leaf: str, *more: str) -> Callable[[Subject], Report]:
    """Return a check of one leaf."""
    return lambda subject: check(subject, leaf, *more)


def release(version: str, entry: Entry = "fused_moe") -> Callable[[Subject], Report]:
    """Return the check of what reaches a release."""
    return lambda subject: contract_bridge.calls_of_release(subject, entry, version)


def wrapper(bend: Callable[[Callable[..., Any], Arguments], Any]) -> dict[str, Any]:
    """Bend what the dispatcher calls: the function gets the real wrapper and its keyword arguments."""

    def faces(_: Entry, real: KernelEntry) -> KernelEntry:
        return replace(real, wrapper=lambda **arguments: bend(real.wrapper, arguments))

    return {"faces": faces}


def fake(bend: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    """Bend the result of the fake."""

    def faces(_: Entry, real: KernelEntry) -> KernelEntry:
        return replace(real, fake=lambda **arguments: bend(real.fake(**arguments)))

    return {"faces": faces}


# --------------------------------------------------------------------------- declarations


def _one_pair_more(cls: Any, weight: Any, activation: Any) -> bool:
    return bool(cls._supports_quant_scheme(weight, activation)) or (
        str(weight) == "kMxfp8Static" and activation is None
    )


def _fewer_pairs(cls: Any, weight: Any, activation: Any) -> bool:
    return bool(cls._supports_quant_scheme(weight, activation)) and str(activation) != "kMxfp4Dynamic"


def _every_arch(cls: Any, weight: Any, activation: Any) -> bool:
    return any(weight == w and activation == a for w, a, _ in cls._ACCEPTS)


def _swapped_pair(cls: Any, weight: Any, activation: Any) -> bool:
    return bool(cls._supports_quant_scheme(activation, weight))


def _lora_first(cls: Any, real: Any, config: Any, *rest: Any) -> tuple[bool, str | None]:
    if config.is_lora_enabled:
        return False, f"{cls.__name__} does not support LoRA"
    answer: tuple[bool, str | None] = cls.is_supported_config(real, config, *rest)
    return answer


def _no_hint(cls: Any, real: Any, *rest: Any) -> tuple[bool, str | None]:
    supported, reason = cls.is_supported_config(real, *rest)
    return supported, reason and reason.partition(";")[0]


def _group_of_128(key: Any) -> Any:
    group = key.scale.group_shape
    return replace(key, scale=replace(key.scale, group_shape=type(group)(1, 128)))


def _takes_batching(cls: Any) -> dict[str, Any]:
    def initialise(self: Any, moe_config: Any, quant_config: Any, **_: Any) -> None:
        cls.__init__(self, moe_config, quant_config)

    return {"__init__": initialise}


def _width_as_it_comes(*sizes: Any) -> tuple[tuple[int, ...], ...]:
    _, tokens, _, hidden = sizes[:4]
    return (0,), (0,), (tokens, hidden)


def _always_supported(cls: Any, real: Any, *rest: Any) -> tuple[bool, str | None]:
    return True, None


MXFP4: Final = "AiterMxfp4Experts"
BLOCK: Final = "AiterFp8BlockExperts"
BF16: Final = "AiterUnquantizedExperts"


def cells_of(scheme: str) -> Callable[[Subject], Report]:
    """Return the check of all declarations of a scheme."""

    def check(subject: Subject) -> Report:
        report = Report()
        for cell in load_axes().cells():
            if cell.scheme == scheme:
                report.merge(contract_declared.declared(subject, cell))
        return report

    return check


DECLARED: Final = [
    Fault(
        "one pair of keys too many",
        static("_supports_quant_scheme", _one_pair_more),
        of_leaf(contract_declared.quant_schemes, BF16, "gfx950"),
        "weights kMxfp8Static, activations None",
    ),
    Fault(
        "one pair of keys missing",
        static("_supports_quant_scheme", _fewer_pairs),
        of_leaf(contract_declared.quant_schemes, MXFP4, "gfx950"),
        "weights kMxfp4Static, activations kMxfp4Dynamic",
    ),
    Fault(
        "keys on an arch without kernels",
        static("_supports_quant_scheme", _every_arch),
        of_leaf(contract_declared.quant_schemes, MXFP4, "gfx1250"),
        "AiterMxfp4Experts on gfx1250",
    ),
    Fault(
        "weight and activation keys exchanged",
        static("_supports_quant_scheme", _swapped_pair),
        contract_declared.listed_fp8_pairs,
        "kFp8StaticChannelSym with kFp8DynamicTokenSym",
    ),
    Fault(
        "a key of another structure",
        {"names": {"kInt8StaticTensorSym": lambda key: replace(key, symmetric=False)}},
        lambda subject: contract_declared.key_structure(subject, "gfx950"),
        "kInt8StaticTensorSym on gfx950",
    ),
    Fault(
        "a second pair of equal keys",
        {"names": {"kFp8Dynamic64Sym": _group_of_128}},
        lambda subject: contract_declared.key_structure(subject, "gfx950"),
        "kFp8Dynamic128Sym == kFp8Dynamic64Sym",
    ),
    Fault(
        "an activation too many",
        static("_supports_activation", lambda _, activation: activation.is_gated),
        of_leaf(contract_declared.activations, BF16),
        "with gelu_tanh",
    ),
    Fault(
        "an all-to-all family that is not refused",
        static("_supports_parallel_config", lambda _, config: not config.use_fi_nvl_two_sided_kernels),
        of_leaf(contract_declared.parallel_configs, BF16),
        "flashinfer_nvlink_one_sided",
    ),
    Fault(
        "an all-to-all family that is refused although it is not in use",
        static("_supports_parallel_config", lambda _, config: "flashinfer" not in config.all2all_backend),
        of_leaf(contract_declared.parallel_configs, BF16),
        "use_ep=False",
    ),
    Fault(
        "expert parallelism is not seen",
        {"config": lambda spec: replace(spec, parallel=replace(spec.parallel, use_ep=False))},
        contract_declared.parallel_sizes,
        "tp_size: must be 1",
    ),
    Fault(
        "an answer that is not a boolean",
        static("_supports_current_device", lambda cls: cls._supports_current_device() or None),
        of_leaf(contract_declared.device, BF16, "gfx90a"),
        "must be False (got None)",
    ),
    Fault(
        "a device that AITER does not serve",
        static("_supports_current_device", lambda _: True),
        of_leaf(contract_declared.device, BF16, "gfx1201"),
        "on gfx1201",
    ),
    Fault(
        "LoRA is asked first",
        static("is_supported_config", _lora_first),
        of_leaf(contract_declared.cascade, BF16),
        "and lora fail",
    ),
    Fault(
        "no hint to switch AITER on",
        static("is_supported_config", _no_hint),
        of_leaf(contract_declared.cascade, BF16),
        "VLLM_ROCM_USE_AITER=1",
    ),
    Fault(
        "everything is declared supported",
        static("is_supported_config", _always_supported),
        cells_of("mxfp4-w4a4"),
        "gfx942/mxfp4-w4a4/silu/out: supported",
    ),
    Fault(
        "an expert mask is not consumed",
        {"leaf": lambda _: {"consumes_expert_mask": False}},
        of_leaf(contract_declared.constants, BLOCK),
        "consumes_expert_mask",
    ),
    Fault(
        "another quantisation method",
        {"leaf": lambda cls: {"_AITER_QUANT_METHOD": type(cls._AITER_QUANT_METHOD)(4)}},
        of_leaf(contract_declared.constants, BLOCK),
        "_AITER_QUANT_METHOD",
    ),
    Fault(
        "batching arguments are taken",
        {"leaf": _takes_batching},
        of_leaf(contract_declared.constants, BLOCK),
        "max_num_tokens=1",
    ),
    Fault(
        "MoRI's quantised inputs are not expected",
        {"leaf": lambda _: {"expects_unquantized_inputs": property(lambda _: True)}},
        of_leaf(contract_declared.mori, MXFP4),
        "mori_high_throughput, use_ep True: expects_unquantized_inputs",
    ),
    Fault(
        "MoRI's packed width is taken for the output's",
        {"leaf": lambda _: {"workspace_shapes": _width_as_it_comes}},
        of_leaf(contract_declared.mori, MXFP4),
        "workspace_shapes",
    ),
]


# --------------------------------------------------------------------------- calls


def _pads_twice(_: Entry, arguments: Arguments) -> Arguments:
    return {**arguments, "intermediate_pad": 2 * arguments["intermediate_pad"]}


def _pads_halved(_: Entry, arguments: Arguments) -> Arguments:
    return {**arguments, "intermediate_pad": arguments["intermediate_pad"] // 2}


def _number(name: str, bend: Callable[[Any], Any]) -> dict[str, Any]:
    return {"call": lambda _, a: {**a, name: bend(a[name])} if name in a else a}


def _summed(real: Callable[..., None], arguments: Arguments) -> None:
    metadata = arguments["expert_tokens_meta"]
    if metadata is not None and metadata.expert_num_tokens is not None:
        total = metadata.expert_num_tokens.sum().reshape(1)
        arguments["expert_tokens_meta"] = replace(metadata, expert_num_tokens=total)
    real(**arguments)


def _in_place(real: Callable[..., None], arguments: Arguments) -> None:
    arguments["topk_ids"].clamp_(min=0)
    real(**arguments)


def _scaled_back(real: Callable[..., None], arguments: Arguments) -> None:
    # The bytes are those of before: only the version tells.
    arguments["hidden_states"].view(torch.uint8).bitwise_not_().bitwise_not_()
    real(**arguments)


def _twice(real: Callable[..., None], arguments: Arguments) -> None:
    real(**arguments)
    real(**arguments)


def _as_type_error(real: Callable[..., None], arguments: Arguments) -> None:
    try:
        real(**arguments)
    except ValueError as error:
        raise TypeError(str(error)) from error


def _router_as_out(real: Callable[..., None], arguments: Arguments) -> None:
    real(**{**arguments, "apply_router_weight_on_input": False})


def _without_biases(cls: Any) -> dict[str, Any]:
    def initialise(self: Any, moe_config: Any, quant_config: Any) -> None:
        cls.__init__(self, moe_config, quant_config)
        unbiased = {n: replace(getattr(quant_config, n), bias=None) for n in ("_w1", "_w2")}
        self.quant_config = replace(quant_config, **unbiased)

    return {"__init__": initialise}


def _only_gates_of_silu(config: MoEConfigSpec) -> MoEConfigSpec:
    return replace(config, swiglu_limit=None, hidden_dim_unpadded=None)


CALLS: Final = [
    Fault(
        "gate mode dropped", put(gate_mode=""), arguments_of("mxfp4-w4a16"), "gate_mode: must be 'interleave'"
    ),
    Fault(
        "packed rows said to be interleaved",
        put(gate_mode="interleave"),
        arguments_of("bf16", "swigluoai_uninterleave"),
        "gate_mode: must be 'separated'",
    ),
    Fault("pads doubled twice", {"call": _pads_twice}, pads_of("bf16"), "intermediate_pad: must be"),
    Fault("pads not doubled", {"call": _pads_halved}, pads_of("bf16"), "intermediate_pad: must be"),
    Fault("hidden pad not rounded", _number("hidden_pad", lambda p: p + 1), pads_of("bf16"), "hidden_pad"),
    Fault("pads exchanged", swap("hidden_pad", "intermediate_pad"), pads_of("bf16"), "hidden_pad"),
    Fault(
        "data parallelism doubles",
        {
            "config": lambda s: (
                replace(s, intermediate_size=s.intermediate_size // 2, parallel=replace(s.parallel, dp=1))
                if s.parallel.dp == 2 and not s.parallel.use_ep
                else s
            )
        },
        pads_of("bf16"),
        "tp=2",
    ),
    Fault("scales exchanged", swap("w1_scale", "w2_scale"), arguments_of("fp8-block"), "w1_scale"),
    Fault("biases exchanged", swap("bias1", "bias2"), arguments_of("mxfp4-w4a16"), "bias1"),
    Fault("weights exchanged", swap("w1", "w2"), arguments_of("bf16"), "w1"),
    Fault("tkw1 scales exchanged", swap("fc1_scale", "fc2_scale"), arguments_of("fp8-channel"), "fc1_scale"),
    Fault("betas exchanged", swap("beta", "linear_beta"), arguments_of("bf16", "situ"), "beta"),
    Fault("mask dropped", put(expert_mask=None), arguments_of("bf16"), "mask=True): expert_mask"),
    Fault("quantised input's scale dropped", put(a1_scale=None), arguments_of("fp8-block"), "a1_scale"),
    Fault("output dtype dropped", put(output_dtype=None), arguments_of("bf16"), "output_dtype"),
    Fault("policy dropped", put(moe_sorting_dispatch_policy=0), arguments_of("bf16"), "policy"),
    Fault("limit dropped", put(swiglu_limit=0.0), arguments_of("bf16", "swigluoai"), "swiglu_limit=7.0"),
    Fault("limit of another type", _number("swiglu_limit", int), arguments_of("bf16"), "swiglu_limit"),
    Fault("opt-in's dtype dropped", put(q_dtype_a=None), arguments_of("mxfp4-w4a16"), "q_dtype_a"),
    Fault(
        "another activation",
        _number("activation_method", lambda n: 0 if n == 1 else n),
        arguments_of("bf16", "gelu"),
        "activation_method: must be 1 (got 0)",
    ),
    Fault(
        "another quantisation",
        _number("quant_method", lambda n: 4 if n == 5 else n),
        arguments_of("fp8-block"),
        "quant_method: must be 5 (got 4)",
    ),
    Fault(
        "SITU's layout ignores the variable",
        put(gate_mode="separated"),
        arguments_of("mxfp4-w4a16", "situ"),
        "situ='a8w4'): gate_mode: must be 'interleave'",
    ),
    Fault(
        "router weights not cast",
        _number("topk_weight", lambda w: w.to(torch.bfloat16)),
        arguments_of("bf16"),
        "topk_weight",
    ),
    Fault(
        "router weights on the output instead",
        apply(_router_as_out),
        arguments_of("bf16"),
        "doweight_stage1: must be True",
    ),
    Fault(
        "the common route instead of tkw1",
        apply(_router_as_out),
        arguments_of("fp8-channel"),
        "must be ['asm_moe_tkw1'] (got ['fused_moe'])",
    ),
    Fault(
        "block fp8 takes router weights on the input",
        apply(_router_as_out),
        arguments_of("fp8-block"),
        "names AiterFp8BlockExperts",
    ),
    Fault(
        "two kernel calls", apply(_twice), arguments_of("bf16"), "calls: must be ['fused_moe'] (got ['fused"
    ),
    Fault(
        "a parameter left out",
        {"call": lambda _, a: dict(list(a.items())[:-1])},
        arguments_of("bf16"),
        "param",
    ),
    Fault("biases dropped in silence", {"leaf": _without_biases}, arguments_of("bf16"), "names w1_bias"),
    Fault(
        "tkw1 drops pads and limit",
        {"config": _only_gates_of_silu},
        arguments_of("fp8-channel"),
        "names swiglu_limit",
    ),
    Fault("a refusal of another type", apply(_as_type_error), arguments_of("fp8-block"), '(got "TypeError('),
    Fault("an input overwritten", apply(_scaled_back), arguments_of("bf16"), "['hidden_states']"),
    Fault("ids clamped in place", apply(_in_place), contract_cases.padding_rows, "['topk_ids']"),
    Fault("counts per expert summed", apply(_summed), contract_cases.expert_token_counts, "num_local_tokens"),
    Fault(
        "-1 passed on",
        _number("topk_ids", lambda ids: torch.where(ids == 0, -1, ids)),
        contract_cases.padding_rows,
        "ids: must be",
    ),
    Fault(
        "a padding row keeps its weight",
        _number("topk_weight", lambda w: w + 1),
        contract_cases.padding_rows,
        "weights: must be",
    ),
]


# --------------------------------------------------------------------------- results


def _always_copies(real: Callable[..., None], arguments: Arguments) -> None:
    output = arguments["output"]
    inner = torch.empty_like(output)
    real(**{**arguments, "output": inner})
    output.copy_(inner)


def _always_takes_over(real: Callable[..., None], arguments: Arguments) -> None:
    output = arguments["output"]
    inner = torch.empty(output.shape, dtype=output.dtype)
    real(**{**arguments, "output": inner})
    output.set_(inner)


def _broadcasts(real: Callable[..., None], arguments: Arguments) -> None:
    try:
        real(**arguments)
    except ValueError:
        arguments["output"].fill_(1)


def _forgets(real: Callable[..., None], arguments: Arguments) -> None:
    real(**{**arguments, "output": torch.empty_like(arguments["output"])})


RESULTS: Final = [
    Fault("always a copy", apply(_always_copies), contract_results.writing, "alike: output takes over"),
    Fault(
        "storage taken over always", apply(_always_takes_over), contract_results.writing, "output is a view"
    ),
    Fault("nothing written", apply(_forgets), contract_results.writing, "output holds the result"),
    Fault(
        "a wrong shape broadcast",
        apply(_broadcasts),
        contract_results.other_shapes,
        "result of shape [1, 512]",
    ),
]


# --------------------------------------------------------------------------- the bridge


def _drops(*names: str) -> dict[str, Any]:
    return wrapper(lambda real, a: real(**{k: v for k, v in a.items() if k not in names}))


def _swaps(first: str, second: str) -> dict[str, Any]:
    names = {first: second, second: first}
    return wrapper(lambda real, a: real(**{names.get(k, k): v for k, v in a.items()}))


def _situ_gets_a_beta(real: Callable[..., Any], arguments: Arguments) -> Any:
    defaults = {"beta": 1.0, "linear_beta": 25.0}
    return real(**{**arguments, **{k: arguments.get(k, v) for k, v in defaults.items()}})


def _without_switches(real: Callable[..., Any], arguments: Arguments) -> Any:
    try:
        return real(**arguments)
    except RuntimeError:
        return None


def _own_result(real: Callable[..., Any], arguments: Arguments) -> Any:
    return real(**arguments).T.contiguous()


def _renamed_in_fake(entry: Entry, real: KernelEntry) -> KernelEntry:
    def bent(hidden_states: Any, w1: Any, w2: Any, weights: Any, ids: Any, **rest: Any) -> Any:
        return real.fake(hidden_states, w1, w2, weights, ids, **rest)

    return replace(real, fake=bent)


_COUNTER: Final = itertools.count()


def _unsound_operator(_: Entry, real: KernelEntry) -> KernelEntry:
    """Replace the operator by one whose fake promises another shape."""
    name = f"aiter_moe_conf_selftest::unsound_{next(_COUNTER)}"
    operator = torch.library.custom_op(name, real.implementation, mutates_args=())

    def promise(hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return hidden_states.new_empty((1, hidden_states.shape[1]))

    operator.register_fake(promise)
    return replace(real, operator=operator._opoverload)


def _mutating_operator(_: Entry, real: KernelEntry) -> KernelEntry:
    """Replace the operator by one that writes to an input without saying so."""
    name = f"aiter_moe_conf_selftest::mutating_{next(_COUNTER)}"
    schema = str(real.operator._schema).partition("(")[2]
    torch.library.define(name, f"({schema}")

    def implementation(*args: Any, **kwargs: Any) -> Any:
        kwargs["hidden_states"].add_(1) if "hidden_states" in kwargs else args[0].add_(1)
        return real.implementation(*args, **kwargs)

    torch.library.impl(name, "CPU", implementation)
    torch.library.register_fake(name, real.fake)
    namespace, _, operator = name.partition("::")
    return replace(real, operator=getattr(getattr(torch.ops, namespace), operator).default)


BRIDGE: Final = [
    Fault("gate mode dropped in silence", _drops("gate_mode"), release("0.1.13"), "gate_mode='interleave'"),
    Fault("gate mode dropped for all", _drops("gate_mode"), release("0.1.20"), "gate_mode: must be"),
    Fault(
        "betas exchanged", _swaps("beta", "linear_beta"), release("0.1.19"), "beta: must be 4.0 (got 25.0)"
    ),
    Fault("biases exchanged", _swaps("bias1", "bias2"), release("0.1.7"), "bias1 is the tensor"),
    Fault(
        "smooth scales exchanged",
        _swaps("fc1_smooth_scale", "fc2_smooth_scale"),
        release("0.1.20", "asm_moe_tkw1"),
        "fc1_smooth_scale is the tensor",
    ),
    Fault("AITER's own betas for SITU", wrapper(_situ_gets_a_beta), release("0.1.20"), "beta"),
    Fault("activation quantisation dropped", _drops("q_dtype_a"), release("0.1.20"), "quant_dtype_a"),
    Fault("shared experts halved", _drops("shared_w2"), release("0.1.20"), "shared"),
    Fault("another result", wrapper(_own_result), release("0.1.14"), "result"),
    Fault(
        "policy unchecked",
        {"names": {}, "answers": lambda s: replace(s, dispatch_policy=min(s.dispatch_policy, 1))},
        contract_bridge.fusion_and_policy,
        "policy with",
    ),
    Fault(
        "fusion without fused MoE",
        {"answers": lambda s: replace(s, shared_experts_fusion=True)},
        contract_bridge.fusion_and_policy,
        "fusion with",
    ),
    Fault(
        "settings that look into AITER",
        {"answers": lambda s: (sys.modules["aiter"].ActivationType, s)[1]},
        contract_bridge.aiter_is_left_alone,
        "aiter.ActivationType",
    ),
    Fault(
        "a later change of SITU's variables taken",
        wrapper(_without_switches),
        contract_bridge.situ_switches,
        "after a change to AITER_SITUV2_A8W4",
    ),
    Fault(
        "SITU always separated",
        {"answers": lambda s: replace(s, situ_interleaved=False)},
        contract_bridge.situ_settings,
        "SITU interleaved on gfx942",
    ),
    Fault(
        "a fake of the packed width", fake(lambda r: r[:, : r.shape[1] // 2]), contract_bridge.fakes, "fake"
    ),
    Fault("a fake of another dtype", fake(lambda r: r.to(torch.float64)), contract_bridge.fakes, "fake"),
    Fault("a fake of other parameters", {"faces": _renamed_in_fake}, contract_bridge.parameters, "fake"),
    Fault(
        "an operator with a wrong fake",
        {"faces": _unsound_operator},
        contract_bridge.opcheck,
        "test_faketensor",
    ),
    Fault("an operator that writes", {"faces": _mutating_operator}, contract_bridge.opcheck, "test_schema"),
]

# Checks of one entry get the common one.
_OF_AN_ENTRY: Final = (contract_bridge.fakes, contract_bridge.parameters, contract_bridge.opcheck)


# --------------------------------------------------------------------------- public reports


def _rounded_to_128(real: Callable[..., Any]) -> Callable[..., Any]:
    def bent(scheme: str, activation: Any, hidden: int, intermediate: int) -> tuple[int, int]:
        return (real(scheme, activation, hidden, intermediate)[0], -(-intermediate // 128) * 128)

    return bent


def _terse(real: Callable[..., Any]) -> Callable[..., Any]:
    def bent(*args: Any, **kwargs: Any) -> Any:
        try:
            return real(*args, **kwargs)
        except ValueError:
            msg = "too many tokens"
            raise ValueError(msg) from None

    return bent


def _another_activation(real: Callable[..., None], arguments: Arguments) -> None:
    try:
        real(**arguments)
    except ValueError:
        real(**{**arguments, "activation": type(arguments["activation"])("silu")})


REPORTS: Final = [
    Fault(
        "bf16 rounded to 128", {"names": {"padded_sizes": _rounded_to_128}}, contract_cases.padded_sizes, "64"
    ),
    Fault(
        "no advice",
        {"names": {"inject_shared_expert_weights": _terse}},
        contract_cases.too_many_tokens,
        "leaves out",
    ),
    Fault(
        "silently another activation",
        apply(_another_activation),
        contract_cases.activations_by_release,
        "situ with AITER 0.1.14: ended: must be 'refused'",
    ),
    Fault(
        "silently another activation, down to AITER",
        apply(_another_activation),
        contract_cases.gate_mode_reaches_aiter,
        "must be 'refused' (got 'a call')",
    ),
]


# --------------------------------------------------------------------------- the surface


def _pads_first_for_last(real: Callable[..., Any]) -> Callable[..., Any]:
    def bent(
        intermediate_pad: int, hidden_pad: int, activation: Any, use_mxfp4_w4a4: bool, tp_size: int
    ) -> tuple[int, int]:
        pads: tuple[int, int] = real(hidden_pad, intermediate_pad, activation, use_mxfp4_w4a4, tp_size)
        return pads

    return bent


def _without_override(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **a: real(**{k: v for k, v in a.items() if k != "gate_mode_override"})


def _first_weight_counts(real: Callable[..., Any]) -> Callable[..., Any]:
    def bent(**arguments: Any) -> Any:
        if arguments.get("apply_router_weight_on_input"):
            for name in ("topk_weights", "topk_ids"):
                arguments[name] = arguments[name].reshape(3, -1)[:, :1]
        return real(**arguments)

    return bent


def _without_dtype(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a: {k: v for k, v in real(*a).items() if k != "q_dtype_a"}


def _only_biases_there(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a: {k: v for k, v in real(*a).items() if v is not None}


SURFACE: Final = [
    Fault(
        "a parameter in another place",
        {"names": {"aiter_moe_pads": _pads_first_for_last}},
        contract_surface.signatures,
        "aiter_moe_pads",
    ),
    Fault(
        "MoRI without AITER's MoE",
        {"config": lambda s: replace(s, parallel=replace(s.parallel, all2all_backend="naive"))},
        contract_surface.moe_configs,
        "mori_low_latency with {}",
    ),
    Fault(
        "an override that is not heard",
        {"names": {"rocm_aiter_fused_experts": _without_override}},
        contract_surface.dispatcher,
        "gelu, gate_mode_override interleave",
    ),
    Fault(
        "the first of several weights on the input",
        {"names": {"rocm_aiter_fused_experts": _first_weight_counts}},
        contract_surface.dispatcher_refusals,
        "router weights of shape [3, 2] on the input",
    ),
    Fault(
        "the opt-in's dtype left out",
        {"names": {"mxfp4_w4a16_extra_kwargs": _without_dtype}},
        contract_surface.extra_kwargs,
        "mxfp4-w4a16, DSV4.1 True, []: names",
    ),
    Fault(
        "biases left out where there are none",
        {"names": {"mxfp4_w4a16_extra_kwargs": _only_biases_there}},
        contract_surface.extra_kwargs,
        "DSV4.1 False, []: names",
    ),
    Fault(
        "per-channel scales that are not seen",
        {"quant": lambda spec: replace(spec, per_out_ch=False)},
        contract_surface.quant_configs,
        "per_out_ch_quant=True",
    ),
]


@pytest.fixture(scope="module")
def impl() -> Subject:
    """Our own subject, whatever the session tests: the faults are planted around it."""
    return load_subject("impl")


FAULTS: Final = [*DECLARED, *CALLS, *RESULTS, *BRIDGE, *REPORTS, *SURFACE]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_fault_is_caught(impl: Subject, fault: Fault) -> None:
    """The check finds the planted fault and says what the matter is; the suites run it without one."""
    check = partial(fault.check, entry="fused_moe") if fault.check in _OF_AN_ENTRY else fault.check
    bent: Any = Bent(impl, **fault.bends)
    problems = [str(mismatch) for mismatch in check(bent).mismatches]
    assert [problem for problem in problems if fault.says in problem] != [], problems[:3]


def test_names_are_distinct() -> None:
    """No two faults are alike."""
    names = [(fault.name, fault.says) for fault in FAULTS]
    assert sorted(set(names)) == sorted(names)
