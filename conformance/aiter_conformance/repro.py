"""Standalone scripts that repeat one case's kernel call without the harness: numpy, torch and AITER alone."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from aiter_conformance import documents
from aiter_conformance.errors import UsageError
from aiter_conformance.golden import apply_leaf, live
from aiter_conformance.numerics.inputs import Problem
from aiter_conformance.numerics.oracle import expected
from aiter_conformance.numerics.packed import Packed, layouts_of, pack
from aiter_conformance.numerics.pipeline import Pipeline, pipeline_of
from aiter_conformance.numerics.weights import WEIGHT_BLOCKS
from aiter_conformance.protocols import KernelCall, Subject

# Tokens whose expected output a script carries: more would make it large and tell no more.
JUDGED_TOKENS: Final = 64

_BEGIN, _END = "    # BEGIN RECIPE\n", "    # END RECIPE\n"
# SPEC 7: what AITER calls the parameters of the operators.
_RENAMED: Final = {
    "activation_method": "activation",
    "quant_method": "quant_type",
    "output_dtype": "dtype",
    "q_dtype_a": "quant_dtype_a",
    "topk_weights": "topk_weight",
}
_MODULES: Final = {"fused_moe": "aiter.fused_moe", "asm_moe_tkw1": "aiter.fused_moe_bf16_asm"}
# Neutral values are not sent (SPEC 7); enums and the flags of stage 1 always are.
_ALWAYS: Final = {"activation", "quant_type", "doweight_stage1"}


def script(problem: Problem, subject: Subject, pipeline: Pipeline | None = None) -> str:
    """Return the text of a script that makes the call which a subject's leaf makes for a problem.

    The script rebuilds the inputs, checks their digest, calls AITER and compares with the expected output of
    at most `JUDGED_TOKENS` tokens, the first and the last among them.

    Raises:
        UsageError: The leaf makes no call for this problem.
    """
    packed = pack(problem)
    _, calls = apply_leaf(problem, packed, subject, lambda _: torch.zeros_like(packed.hidden_states))
    if len(calls) != 1:
        msg = f"the leaf must make one kernel call for {problem.case} (got {len(calls)})"
        raise UsageError(msg)
    recipe = _recipe(problem, packed, calls[0], pipeline or pipeline_of(problem))
    template = Path(__file__).with_name("repro_template.py").read_text(encoding="utf-8")
    head, rest = template.split(_BEGIN)
    _, tail = rest.split(_END)
    lines = json.dumps(json.dumps(recipe, sort_keys=True))
    return f"{head}    {lines}\n{tail}"


def write_script(problem: Problem, subject: Subject, path: Path) -> None:
    """Write a script, whole or not at all."""
    documents.write_text(path, script(problem, subject))


def _recipe(problem: Problem, packed: Packed, call: KernelCall, pipeline: Pipeline) -> dict[str, Any]:
    case, cell = problem.case, problem.case.cell
    judged = np.unique(np.linspace(0, max(case.tokens - 1, 0), JUDGED_TOKENS, dtype=np.int64))
    expect = live(expected(problem, pipeline, judged.tolist() if case.tokens else []), problem)
    layouts = layouts_of(problem)
    static = problem.static_scales
    tensors, scalars = _arguments(packed, call)
    return {
        "case": f"{case} rank {problem.rank} {problem.features}",
        "digest": problem.digest(),
        "scheme": cell.scheme,
        "fp8": problem.fp8.name,
        "block": list(WEIGHT_BLOCKS[cell.scheme]),
        "seed": case.seed,
        "tokens": case.tokens,
        "hidden": problem.hidden_size,
        "live_k": problem.live_hidden,
        "width": problem.intermediate_size,
        "live_n": problem.live_intermediate,
        "tp": case.tp,
        "part": problem.rank if case.tp > 1 else 0,
        "experts": list(problem.held_experts),
        "biases": problem.features.biases,
        "static": None if static is None else [float(value) for value in static],
        "layouts": [
            {"elements": x.elements, "interleaved": x.gate_up_interleaved, "scales": x.scales}
            for x in layouts
        ],
        "topk_ids": _bytes(problem.topk_ids),
        "topk_weights": _bytes(problem.topk_weights),
        "expert_mask": None if problem.expert_mask is None else _bytes(problem.expert_mask),
        "tokens_judged": _bytes(expect.tokens),
        "expected": _bytes(expect.values),
        "bound": _bytes(expect.bound),
        "module": _MODULES[call.entry],
        "function": call.entry,
        "tensors": tensors,
        "scalars": scalars,
    }


def _arguments(packed: Packed, call: KernelCall) -> tuple[dict[str, str], dict[str, Any]]:
    """Return AITER's arguments: those that are tensors by the script's names for them, and the others."""
    known = {id(getattr(packed, n)): n for n in ("hidden_states", "topk_ids", "expert_mask", "w1", "w2")}
    known[id(packed.topk_weights)] = "topk_weight"
    names = {"w1_bias": "bias1", "w2_bias": "bias2"}
    known |= {id(tensor): names.get(name, name) for name, tensor in packed.quant.items()}
    tensors: dict[str, str] = {}
    scalars: dict[str, Any] = {}
    for ours, value in call.arguments.items():
        name = _RENAMED.get(ours, ours)
        if isinstance(value, torch.Tensor):
            tensors[name] = known.get(id(value), name)
        elif isinstance(value, torch.dtype):
            scalars[name] = str(value).removeprefix("torch.")
        elif name in _ALWAYS or (value not in (None, "", 0, False) and value != -1):
            scalars[name] = value
    return tensors, scalars


def _bytes(values: NDArray[Any]) -> list[Any]:
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return [base64.b64encode(little.tobytes()).decode("ascii"), little.dtype.str, list(little.shape)]
