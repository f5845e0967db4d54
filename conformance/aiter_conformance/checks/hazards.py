"""Hazards of the contract: what goes wrong although a subject does just what the contract asks for.

The contract keeps them as upstream has them. Each is observed in what the subject does, and the ledger has an
entry for it (`ledger.HAZARD`), so that none can be repaired, or come back, unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aiter_conformance.checks.contract_call import apply_leaf
from aiter_conformance.checks.properties_derivation import KNOWN_DISAGREEMENTS
from aiter_conformance.checks.properties_shared_experts import (
    ARCH,
    Buffers,
    Injection,
    initialise,
    inject,
    routed,
)
from aiter_conformance.contract import SCHEME_CONFIGS, leaf_of_scheme
from aiter_conformance.expected_call import CallInput
from aiter_conformance.numerics.layout import weight_layouts
from aiter_conformance.protocols import ENABLED, Subject


@dataclass(frozen=True, slots=True)
class Hazard:
    """One hazard, and how it is seen.

    Attributes:
        id: Its name; entries of the ledger are about it by this name.
        spec: Where SPEC has it.
        needs: Names of SPEC that the subject must have.
        observe: Returns a sentence on what was seen; None where the hazard does not show.
    """

    id: str
    spec: str
    needs: tuple[str, ...]
    observe: Callable[[Subject], str | None]


def observe_hazards(subject: Subject) -> dict[str, str]:
    """Return the hazards that show in what the subject does, id to what was seen.

    Those that rest on something that the subject has not got are left out.
    """
    seen = {h.id: h.observe(subject) for h in HAZARDS if not subject.missing.intersection(h.needs)}
    return {name: sentence for name, sentence in seen.items() if sentence is not None}


def _argument(subject: Subject, given: CallInput, name: str) -> Any:
    """Return an argument of the one kernel call that a leaf makes."""
    applied = apply_leaf(subject, given)
    if applied.error is not None:
        raise applied.error
    (call,) = applied.calls
    return call.arguments[name]


def _doubled_pads(given: CallInput) -> Callable[[Subject], str | None]:
    def observe(subject: Subject) -> str | None:
        told = _argument(subject, given, "intermediate_pad")
        if told <= given.intermediate_pad:
            return None
        return f"{given.intermediate_pad} columns of each half are dead, and the call says {told}."

    return observe


def _situ_gate_layout(subject: Subject) -> str | None:
    """SPEC 12 says how a loader leaves gate and up rows; w4a16's loader alone follows SITU's setting."""
    conflicts = []
    for scheme in SCHEME_CONFIGS:
        given = CallInput(scheme=scheme, activation="situ", situ="a8w4", beta=4.0, linear_beta=25.0)
        first, _ = weight_layouts(scheme, "situ", situ_interleaved=True)
        lies = "interleave" if first.gate_up_interleaved else "separated"
        if _argument(subject, given, "gate_mode") != lies:
            conflicts.append(scheme)
    if not conflicts:
        return None
    return f"With a8w4, {', '.join(conflicts)} are called otherwise than their gate and up rows lie."


def _int4_gate_layout(subject: Subject) -> str | None:
    first, _ = weight_layouts("int4-w4a16", "silu", situ_interleaved=False)
    said = _argument(subject, CallInput(scheme="int4-w4a16"), "gate_mode")
    if first.gate_up_interleaved or said != "interleave":
        return None
    return f"Gate and up rows of int4 weights lie separated, and the call says {said}."


def _situ_limit(subject: Subject) -> str | None:
    given = CallInput(
        scheme="mxfp4-w4a16", activation="situ", swiglu_limit=7.0, beta=4.0, linear_beta=25.0, situ="a16w4"
    )
    told = _argument(subject, given, "swiglu_limit")
    return f"SiTU has no limit, and the call says {told}." if told else None


def _derivations(subject: Subject) -> str | None:
    shown = []
    for known in KNOWN_DISAGREEMENTS:
        with subject.environment(ARCH, ENABLED):
            leaf = leaf_of_scheme(known.scheme).name
            declared = getattr(subject.api, leaf)._AITER_QUANT_METHOD
            derived = subject.api.derive_aiter_quant_method(subject.quant_config(known.config, {}))
        if derived != declared:
            shown.append(
                f"{known.config.weights} weights: {leaf} says {declared.name}, derived {derived.name}"
            )
    return "; ".join(shown) + "." if shown else None


def _stale_gates(subject: Subject) -> str | None:
    buffers = Buffers()
    with_gates = Injection(buffers, tokens=2)
    without = Injection(buffers, tokens=2, gates=False)
    with subject.environment(ARCH):
        device = initialise(subject, buffers)[0].device
        column = buffers.top_k
        before = inject(subject, with_gates, routed(with_gates, device))[0][:, column].tolist()
        after = inject(subject, without, routed(without, device))[0][:, column].tolist()
    if after != before:
        return None
    return f"A call without gates weighs shared experts by {after}, the gates of the call before."


_SHARED = ("init_aiter_topK_meta_data", "inject_shared_expert_weights", "aiter_topK_meta_data")
_GPT_OSS = CallInput(scheme="mxfp4-w4a16", activation="swigluoai", hidden_pad=192, intermediate_pad=192)
_DSV4 = CallInput(scheme="mxfp4-w4a16", dsv4=True, intermediate_pad=192)

HAZARDS: Final = (
    Hazard("pads-doubled", "5; CASES C2", (), _doubled_pads(_GPT_OSS)),
    Hazard("pads-doubled-dsv4", "4, step 5", (), _doubled_pads(_DSV4)),
    Hazard("situ-gate-layout", "4, step 6", (), _situ_gate_layout),
    Hazard("int4-gate-layout", "4", (), _int4_gate_layout),
    Hazard("situ-limit", "1", (), _situ_limit),
    Hazard("derivation-disagrees", "4", ("derive_aiter_quant_method",), _derivations),
    Hazard("stale-shared-gates", "10", _SHARED, _stale_gates),
)
