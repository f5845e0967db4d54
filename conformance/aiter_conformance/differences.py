"""Where a subject may be listed to differ from the contract: ids, and what the contract asks for there.

A subject lists the ids that apply to it, each with its consequence (`protocols.Difference`).
"""

from __future__ import annotations

from types import MappingProxyType

DIFFERENCES = MappingProxyType(
    {
        # Declarations.
        "device-answer-not-boolean": "whether the device is supported is True or False",
        "fp8-key-baked-at-import": "an fp8 quant key names no flavour: the arch decides when it is read",
        "fp8-block-needs-scales": "block fp8 without weight scales is refused in words",
        "mori-needs-gated": "MoRI requires AITER's MoE to be enabled, whatever the activation",
        "mori-flag-name": "the flag of MoRI's kernels is use_mori_epv1_kernels",
        "one-dispatcher": "a leaf names its quantisation method, and says if it weights the input",
        # Calls.
        "bias-dropped": "a bias that the route cannot hand on is refused",
        "negative-pads": "a negative pad and a tp_size below 1 are refused",
        "negative-topk-ids": "an id below 0 is replaced by one that AITER knows and that weighs nothing",
        "num-local-tokens-vector": "counts per expert are not passed on as a row count",
        "result-shape-broadcast": "a result of another shape than the output is refused",
        "situ-ignores-dsv4": "the DSV4.1 opt-in asks for MXFP4 activations whatever the activation",
        "terse-refusals": "a refusal names the argument or the leaf that is the matter",
        "tkw1-drops-arguments": "what asm_moe_tkw1 cannot be told is refused",
        "tkw1-metadata-object": "the tkw1 route takes no expert tokens metadata, not even without counts",
        # The bridge to AITER.
        "argument-dropped-in-silence": "a gate mode that AITER cannot take is refused with both versions",
        "late-type-error": "an argument that AITER cannot take is refused with both versions",
        "dispatch-policy-unchecked": "a dispatch policy other than 0, 1 and 2 is refused",
        "fake-of-packed-fp4": "the fake of a packed fp4 input has the unpacked number of columns",
        "first-arguments-by-position": "AITER is called by keyword",
        "needs-gate-mode-module": "an AITER without gate modes is used for what needs none",
        "neutral-arguments-sent": "an argument that says nothing is not sent",
        "situ-beta-required": "SITU without beta or linear_beta is refused",
        "situ-environment-unchecked": "AITER's own SITU variables are checked at every call",
        "settings-read-without-aiter": "a bad value matters only where AITER is used",
        # Shared experts.
        "shared-experts-advice": "the error of a missing or too small buffer says what to call",
        "shared-experts-unchecked": "widths and shapes are checked before anything is written",
        "topk-init-call-style": "the same arguments initialise once, by position or by keyword",
    }
)
