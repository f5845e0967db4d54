"""What went wrong in public, as checks with the reported inputs that cover the kind and not the one input."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, Final

import torch

from aiter_conformance.axes import ROUTERS, Router
from aiter_conformance.checks.contract_call import EXPERTS, HIDDEN, SCHEMES, Applied, apply_leaf, ramp
from aiter_conformance.checks.properties import compare_refusal
from aiter_conformance.checks.report import Report
from aiter_conformance.contract import ACCEPTED_ACTIVATIONS, leaf_of_scheme
from aiter_conformance.expected_call import CallInput, expected_gate_mode
from aiter_conformance.protocols import ENABLED, Subject
from aiter_conformance.simulated_aiter import (
    FUTURE,
    VERSIONS,
    activation_members,
    fused_moe_parameters,
    simulate,
)


def _tkw1(scheme: str, router: Router) -> bool:
    return (scheme, router) == ("fp8-channel", "in")


def _takes(scheme: str, router: Router) -> bool:
    return router == "out" or leaf_of_scheme(scheme).router_on_input


def _takes_gate_mode(version: str) -> bool:
    return "gate_mode" in dict(fused_moe_parameters(version))


def _ended(subject: Subject, applied: Applied) -> str:
    """Say how an apply ended, for a comparison: "a call", "refused", or the failure itself."""
    error = applied.error
    if error is None:
        return "a call"
    return "refused" if subject.refusal(error) is ValueError else f"{type(error).__name__}: {error}"


# --------------------------------------------------------------------------- C3


def gate_mode_reaches_aiter(subject: Subject) -> Report:
    """vllm-project/vllm#44893 (C3): the layout of the weights is said, or the call is an error."""
    report = Report()
    for scheme, activation, version in itertools.product(SCHEMES, ACCEPTED_ACTIVATIONS, VERSIONS):
        given = CallInput(scheme=scheme, activation=activation, beta=4.0, linear_beta=25.0)
        gate_mode = expected_gate_mode(given)
        simulated = simulate(version)
        applied = apply_leaf(subject, given, installed=simulated, record=False)
        where = f"{scheme} with {activation} and AITER {version}"
        takes_gate_mode = _takes_gate_mode(version)
        has_activation = ACCEPTED_ACTIVATIONS[activation][0] in activation_members(version)
        if has_activation and (takes_gate_mode or not gate_mode):
            difference = None if takes_gate_mode else "needs-gate-mode-module"
            if report.compare(where, "a call", _ended(subject, applied), difference):
                sent = simulated.calls[0].arguments.get("gate_mode", "")
                report.compare(f"{where}: gate_mode", gate_mode, sent)
            continue
        difference = None if not has_activation else "needs-gate-mode-module"
        report.compare(where, "refused", _ended(subject, applied), difference)
        report.compare(f"{where}: calls", [], [call.function for call in simulated.calls])
        said = "activation" if not has_activation else "gate_mode"
        report.compare(f"{where}: {applied.error} says {said}", True, said in str(applied.error), difference)
    return report


# --------------------------------------------------------------------------- C5


def expert_token_counts(subject: Subject) -> Report:
    """vllm-project/vllm#53261 (C5): counts per expert are not a row count, and neither is their sum."""
    report = Report()
    tokens = 8
    # The reported counts, whose sum is by chance the number of tokens, and others whose sum is not.
    for scheme, counts in itertools.product(SCHEMES, ([0, 5, 3, 0], [0, 10, 6, 0], [3, 1], [16, 0])):
        given = CallInput(scheme=scheme, metadata="vector")
        tensors = {**_routed(tokens, 2), "expert_num_tokens": torch.tensor(counts, dtype=torch.int32)}
        applied = apply_leaf(subject, given, tensors=tensors)
        where = f"{scheme}, expert_num_tokens {counts}"
        if report.compare(where, "a call", _ended(subject, applied)):
            got = applied.calls[0].arguments["num_local_tokens"]
            # The number of rows would say the same as None.
            fine = got is None or (got.numel() == 1 and int(got) == tokens)
            report.compare(
                f"{where}: num_local_tokens", "None", "None" if fine else str(got), "num-local-tokens-vector"
            )
    return report


def _routed(tokens: int, topk: int) -> dict[str, torch.Tensor]:
    return {
        "hidden_states": ramp(tokens, HIDDEN, dtype=torch.bfloat16),
        "topk_weights": ramp(tokens, topk),
        "topk_ids": (torch.arange(tokens * topk, dtype=torch.int32) % EXPERTS).reshape(tokens, topk),
        "a1q_scale": torch.ones(tokens, 1),
    }


# --------------------------------------------------------------------------- C6


def padding_rows(subject: Subject) -> Report:
    """vllm-project/vllm#57036 (C6): every id that reaches AITER is one, and a padding row weighs nothing."""
    report = Report()
    for scheme, router, mask, dtype in itertools.product(
        SCHEMES, ROUTERS, (False, True), (torch.int32, torch.int64)
    ):
        if not _takes(scheme, router):
            continue
        topk = 1 if router == "in" else 2
        ids = torch.tensor([[-1, -1], [0, 3], [-1, 2]], dtype=dtype)[:, -topk:]
        tensors = {**_routed(3, topk), "topk_ids": ids.contiguous()}
        applied = apply_leaf(
            subject, CallInput(scheme=scheme, router=router, topk=topk, mask=mask), tensors=tensors
        )
        where = (
            f"{scheme}, router weights {router}, {'mask' if mask else 'no mask'}, {dtype} ids {ids.tolist()}"
        )
        applied.untouched.compare(report, where)
        if not report.compare(where, "a call", _ended(subject, applied)):
            continue
        arguments = applied.calls[0].arguments
        weights = arguments["topk_weights" if _tkw1(scheme, router) else "topk_weight"]
        # The sentinel, the mask's last entry, is nobody's expert; without a mask the weight must be 0.
        instead = EXPERTS if mask else 0
        expected_ids = torch.where(ids < 0, instead, ids).tolist()
        report.compare(f"{where}: ids", expected_ids, arguments["topk_ids"].tolist(), "negative-topk-ids")
        if not mask:
            expected = torch.where(ids < 0, 0.0, tensors["topk_weights"]).tolist()
            report.compare(f"{where}: weights", expected, weights.tolist(), "negative-topk-ids")
        else:
            real = ids >= 0
            expected = tensors["topk_weights"][real].tolist()
            report.compare(f"{where}: weights of real rows", expected, weights[real].tolist())
    return report


# --------------------------------------------------------------------------- C9

# Intermediate size -> what must be allocated for bf16 weights.
BF16_SIZES: Final = {
    64: 64,
    96: 128,
    150: 192,
    192: 192,
    193: 256,
    224: 256,
    384: 384,
    704: 768,
    1408: 1408,
}


def padded_sizes(subject: Subject) -> Report:
    """vllm-project/vllm#55368 (C9): bf16 and mxfp4 weights are padded to what the kernels' tiles need."""
    report = Report()
    with subject.environment("gfx950", installed=simulate(FUTURE)):
        function = subject.api.padded_sizes
        activation = subject.api.MoEActivation

        def ask(scheme: str, value: str, hidden: int, intermediate: int) -> list[int]:
            return list(function(scheme, activation(value), hidden, intermediate))

        for given, allocated in BF16_SIZES.items():
            for value, hidden in itertools.product(ACCEPTED_ACTIVATIONS, (2880, 4096)):
                got = ask("bf16", value, hidden, given)
                report.compare(f"bf16 with {value}: {hidden}, {given}", [hidden, allocated], got)
        for value in ACCEPTED_ACTIVATIONS:
            # gpt-oss: 2880 is a multiple of 128 / 2 but not of 128 or 256.
            for hidden, intermediate in ((2880, 2880), (2880, 1440), (3072, 384), (3072, 768), (256, 256)):
                step = 128 if value in ("silu", "situ") else 256
                expected = [_up(hidden, step), _up(intermediate, step)]
                got = ask("mxfp4-w4a16", value, hidden, intermediate)
                report.compare(f"mxfp4-w4a16 with {value}: {hidden}, {intermediate}", expected, got)
                expected = [_up(hidden, 256), _up(intermediate, 128)]
                got = ask("mxfp4-w4a4", value, hidden, intermediate)
                report.compare(f"mxfp4-w4a4 with {value}: {hidden}, {intermediate}", expected, got)
    return report


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


# --------------------------------------------------------------------------- C12


def too_many_tokens(subject: Subject) -> Report:
    """vllm-project/vllm#54732 (C12): too few rows are an error that says both numbers and what to do."""
    report = Report()
    fusion = {**ENABLED, "VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS": "1"}
    for rows, tokens, is_ep in ((64, 128, False), (64, 65, False), (1, 2, True)):
        with subject.environment("gfx950", fusion, installed=simulate(FUTURE)):
            api = subject.api
            api.init_aiter_topK_meta_data(8, 1, 2, 0, 1, 1.0, rows, is_ep)
            weights, ids = ramp(tokens, 2), torch.zeros(tokens, 2, dtype=torch.int32)
            compare_refusal(
                report,
                subject,
                f"{tokens} tokens with buffers of {rows} rows, EP {is_ep}",
                ValueError,
                partial(api.inject_shared_expert_weights, weights, ids, 2, 1),
                says=(str(rows), str(tokens), "init_aiter_topK_meta_data"),
                says_difference="shared-experts-advice",
            )
    return report


# --------------------------------------------------------------------------- activations by release


def activations_by_release(subject: Subject) -> Report:
    """An activation that the leaf or the AITER at hand cannot do is an error that says which of the two."""
    report = Report()
    routes: tuple[tuple[str, Router], ...] = (("bf16", "out"), ("fp8-channel", "in"))
    releases: tuple[str | None, ...] = (*VERSIONS, None)
    values = (*ACCEPTED_ACTIVATIONS, "gelu_tanh", "relu2", "swiglustep")
    for (scheme, router), version, value in itertools.product(routes, releases, values):
        if _tkw1(scheme, router) and value in ("situ", "swigluoai_uninterleave"):
            continue
        given = CallInput(
            scheme=scheme,
            activation=value,
            router=router,
            topk=1 if router == "in" else 2,
            beta=4.0,
            linear_beta=25.0,
        )
        applied = apply_leaf(subject, given, installed=None if version is None else simulate(version))
        where = f"{scheme}, router weights {router}, {value} with AITER {version or 'not installed'}"
        expected = _activation_error(value, version)
        got = None if applied.error is None else str(applied.error)
        if expected is None:
            too_old = not (version and _takes_gate_mode(version)) and not _tkw1(scheme, router)
            report.compare(where, None, got, "needs-gate-mode-module" if too_old else None)
        else:
            report.compare(f"{where}: ended", "refused", _ended(subject, applied))
            report.compare(f"{where}: {got} says {expected!r}", True, expected in str(got))
    return report


def _activation_error(value: str, version: str | None) -> str | None:
    """Return the beginning of the error's message, or None where the activation is fine (SPEC 4 step 2)."""
    if value not in ACCEPTED_ACTIVATIONS:
        return "Unsupported activation"
    member, number = ACCEPTED_ACTIVATIONS[value]
    if number <= 1:  # these two are named by vLLM's own numbers: no AITER is asked
        return None
    known: dict[str, Any] = {} if version is None else activation_members(version)
    return None if member in known else "AITER does not support activation"
