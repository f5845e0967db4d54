"""AITER's two kernel calls as data: what each parameter is called there, and when it need not be sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel call.

    Attributes:
        name: Its name here.
        aiter_name: Its name in AITER.
        neutral: The value that says nothing and is not sent, besides None.
        since: The first AITER release that has it; None where none up to `NEWEST_KNOWN` has.
    """

    name: str
    aiter_name: str
    neutral: int | float | str | None = None
    since: str | None = "v0.1.1"

    def is_neutral(self, value: object) -> bool:
        """Whether `value` need not be sent."""
        # A tensor is never compared: that would synchronise with the device.
        return value is None or (self.neutral is not None and value == self.neutral)


NEWEST_KNOWN: Final = "main of 2026-08-22"
"""The newest AITER whose signature was read; the first releases below come from its git tags up to there."""

FUSED_MOE: Final = (
    Parameter("hidden_states", "hidden_states"),
    Parameter("w1", "w1"),
    Parameter("w2", "w2"),
    Parameter("topk_weight", "topk_weight"),
    Parameter("topk_ids", "topk_ids"),
    Parameter("expert_mask", "expert_mask"),
    Parameter("activation_method", "activation"),
    Parameter("quant_method", "quant_type"),
    Parameter("doweight_stage1", "doweight_stage1"),
    Parameter("w1_scale", "w1_scale"),
    Parameter("w2_scale", "w2_scale"),
    Parameter("a1_scale", "a1_scale"),
    Parameter("a2_scale", "a2_scale"),
    Parameter("num_local_tokens", "num_local_tokens", since="v0.1.4"),
    Parameter("output_dtype", "dtype", since="v0.1.4"),
    Parameter("hidden_pad", "hidden_pad", neutral=0, since="v0.1.6.post2"),
    Parameter("intermediate_pad", "intermediate_pad", neutral=0, since="v0.1.6.post2"),
    Parameter("gate_mode", "gate_mode", neutral="", since="v0.1.14"),
    Parameter("bias1", "bias1", since="v0.1.6.post2"),
    Parameter("bias2", "bias2", since="v0.1.6.post2"),
    Parameter("moe_sorting_dispatch_policy", "moe_sorting_dispatch_policy", neutral=0, since="v0.1.5"),
    Parameter("swiglu_limit", "swiglu_limit", neutral=0.0, since="v0.1.14"),
    Parameter("beta", "beta", since="v0.1.19"),
    Parameter("linear_beta", "linear_beta", since="v0.1.19"),
    Parameter("shared_w1", "shared_w1", since="v0.1.19.post1"),
    Parameter("shared_w2", "shared_w2", since="v0.1.19.post1"),
    Parameter("shared_w1_scale", "shared_w1_scale", since="v0.1.19.post1"),
    Parameter("shared_w2_scale", "shared_w2_scale", since="v0.1.19.post1"),
    Parameter("shared_expert_id", "shared_expert_id", neutral=-1, since="v0.1.19.post1"),
    Parameter("q_dtype_a", "quant_dtype_a", since=None),
)

ASM_MOE_TKW1: Final = (
    Parameter("hidden_states", "hidden_states"),
    Parameter("w1", "w1"),
    Parameter("w2", "w2"),
    Parameter("topk_weights", "topk_weight"),
    Parameter("topk_ids", "topk_ids"),
    Parameter("fc1_scale", "fc1_scale"),
    Parameter("fc2_scale", "fc2_scale"),
    Parameter("fc1_smooth_scale", "fc1_smooth_scale"),
    Parameter("fc2_smooth_scale", "fc2_smooth_scale"),
    Parameter("a16", "a16"),
    Parameter("per_tensor_quant_scale", "per_tensor_quant_scale"),
    Parameter("expert_mask", "expert_mask"),
    Parameter("activation_method", "activation"),
)


def accepted_names(function: Callable[..., Any], parameters: Iterable[Parameter]) -> frozenset[str]:
    """Return which of the `parameters` AITER's `function` takes by keyword, under AITER's names."""
    taken = inspect.signature(function).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken):
        return frozenset(parameter.aiter_name for parameter in parameters)
    return frozenset(parameter.name for parameter in taken)


def aiter_keywords(
    parameters: Iterable[Parameter], arguments: Mapping[str, Any], accepted: Container[str], version: str
) -> dict[str, Any]:
    """Return the keywords of a call to AITER: the arguments that say something, under AITER's names.

    Args:
        parameters: The call.
        arguments: A value for each parameter.
        accepted: What the installed AITER takes, under AITER's names.
        version: That AITER's version, for the message.

    Raises:
        ValueError: An argument says something that this AITER cannot take. Ours: upstream drops some.
    """
    keywords = {}
    for parameter in parameters:
        value = arguments[parameter.name]
        if parameter.is_neutral(value):
            continue
        if parameter.aiter_name not in accepted:
            first = parameter.since or f"later than {NEWEST_KNOWN}"
            msg = (
                f"{parameter.name} must be left at its default with AITER {version}, whose call has no "
                f"{parameter.aiter_name} (got a value); the first AITER that has it is {first}"
            )
            raise ValueError(msg)
        keywords[parameter.aiter_name] = value
    return keywords
