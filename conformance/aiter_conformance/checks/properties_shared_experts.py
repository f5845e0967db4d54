"""Properties of shared experts fused into the routed call (SPEC 10): the buffers, and the injection.

The buffers are one pair for all layers, so what a call leaves behind matters as much as what it returns: they
are poisoned before a call that has to fill them, and compared as a whole after it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from aiter_conformance.checks.properties import (
    Reads,
    Untouched,
    compare_refusal,
    compare_tensors,
    share_memory,
)
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject

ARCH = "gfx950"
CALL_STYLE = "topk-init-call-style"
POISON_ID = -7777
INIT = "init_aiter_topK_meta_data"


@dataclass(frozen=True, slots=True)
class Buffers:
    """Arguments of ``init_aiter_topK_meta_data``, by its parameter names."""

    n_routed_experts: int = 8
    n_shared_experts: int = 1
    top_k: int = 2
    tp_rank: int = 0
    tp_size: int = 1
    shared_experts_score: float = 1.0
    max_num_tokens: int = 8
    is_EP: bool = False  # noqa: N815 -- SPEC's name

    @property
    def width(self) -> int:
        """Columns of both buffers."""
        return self.top_k + self.n_shared_experts + self.is_EP

    def values(self) -> tuple[Any, ...]:
        """Return the arguments in order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def shared_ids(self) -> list[list[int]]:
        """Return the ids that SPEC 10 puts into the shared columns, row by row."""
        first = self.n_routed_experts
        sentinel = first + self.n_shared_experts
        own = [first + i for i in range(self.n_shared_experts)]
        if not self.is_EP:
            return [list(own) for _ in range(self.max_num_tokens)]
        return [
            [*own, sentinel] if row % self.tp_size == self.tp_rank else [sentinel] * (len(own) + 1)
            for row in range(self.max_num_tokens)
        ]


def initialise(subject: Subject, buffers: Buffers) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the buffers and return the pair (weights, ids)."""
    subject.api.init_aiter_topK_meta_data(*buffers.values())
    pair: tuple[torch.Tensor, torch.Tensor] = subject.api.aiter_topK_meta_data
    return pair


def poison(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Fill both buffers with values that nothing writes: a slot that should have been filled then shows."""
    weights, ids = pair
    weights.fill_(float("nan"))
    ids.fill_(POISON_ID)


# --------------------------------------------------------------------------- initialisation


def check_buffers(subject: Subject, buffers: Buffers) -> Report:
    """Initialisation makes one pair of the right shape and dtype, its shared columns filled as SPEC says."""
    report = Report()
    with subject.environment(ARCH):
        report.compare("the buffers before initialisation", None, subject.api.aiter_topK_meta_data)
        returned = subject.api.init_aiter_topK_meta_data(*buffers.values())
        weights, ids = subject.api.aiter_topK_meta_data
    where = f"buffers of {buffers}"
    report.compare(f"{where}: what {INIT} returns", None, returned)
    shape = (buffers.max_num_tokens, buffers.width)
    faces = [(tuple(t.shape), t.dtype) for t in (weights, ids)]
    if report.compare(where, [(shape, torch.float32), (shape, torch.int32)], faces):
        report.compare(f"{where}: shared ids", buffers.shared_ids(), ids[:, buffers.top_k :].tolist())
        score = torch.full_like(weights[:, buffers.top_k :], buffers.shared_experts_score)
        compare_tensors(report, f"{where}: shared weights", score, weights[:, buffers.top_k :])
    return report


def check_shared_expert_runs_once(subject: Subject, buffers: Buffers) -> Report:
    """Over all ranks of an EP group, each token's every shared expert is named by exactly one rank."""
    report = Report()
    counts: dict[tuple[int, int], int] = {}
    sentinel = buffers.n_routed_experts + buffers.n_shared_experts
    for rank in range(buffers.tp_size):
        with subject.environment(ARCH):
            _, ids = initialise(subject, replace(buffers, tp_rank=rank, is_EP=True))
            for row, named in enumerate(ids[:, buffers.top_k :].tolist()):
                report.compare(f"{buffers}: last id of row {row} on rank {rank}", sentinel, named[-1])
                for expert in named:
                    if expert != sentinel:
                        counts[row, expert] = counts.get((row, expert), 0) + 1
    wanted = {
        (row, buffers.n_routed_experts + i): 1
        for row in range(buffers.max_num_tokens)
        for i in range(buffers.n_shared_experts)
    }
    report.compare(f"{buffers}: ranks that run (token, shared expert)", wanted, dict(sorted(counts.items())))
    return report


def check_init_again(subject: Subject, buffers: Buffers, other: Buffers) -> Report:
    """The same arguments again change nothing; other arguments are refused and change nothing either."""
    report = Report()
    with subject.environment(ARCH):
        pair = initialise(subject, buffers)
        poison(pair)
        before = Untouched({"weights": pair[0], "ids": pair[1]})
        again = subject.api.init_aiter_topK_meta_data(*buffers.values())
        report.compare(f"{INIT} again with {buffers}", None, again)
        _compare_pair(report, f"the buffers after {INIT} again with {buffers}", subject, pair)
        if other != buffers:
            where = f"{INIT} with {other} after {buffers}"
            compare_refusal(report, subject, where, RuntimeError, lambda: initialise(subject, other))
            _compare_pair(report, f"the buffers after {where}", subject, pair)
            subject.api.init_aiter_topK_meta_data(*buffers.values())
        before.compare(report, f"repeated {INIT} with {buffers}")
    return report


def check_init_again_by_keyword(subject: Subject, buffers: Buffers) -> Report:
    """The same arguments are the same however they are written: by keyword, by position, or as defaults."""
    report = Report()
    by_keyword = {field.name: getattr(buffers, field.name) for field in fields(buffers)}
    with subject.environment(ARCH):
        pair = initialise(subject, buffers)
        where = f"{INIT} of {buffers} again, by keyword"
        try:
            got = repr(subject.api.init_aiter_topK_meta_data(**by_keyword))
        except Exception as error:  # shown, and explained by a difference or not
            got = type(error).__name__
        report.compare(where, "None", got, CALL_STYLE)
        _compare_pair(report, f"the buffers after {where}", subject, pair)
    return report


def check_reset(subject: Subject, buffers: Buffers, other: Buffers) -> Report:
    """After a reset there are no buffers, and any arguments make new ones."""
    report = Report()
    with subject.environment(ARCH):
        initialise(subject, buffers)
        report.compare("reset_aiter_topK_meta_data", None, subject.api.reset_aiter_topK_meta_data())
        report.compare("the buffers after a reset", None, subject.api.aiter_topK_meta_data)
        weights, ids = initialise(subject, other)
        shape = (other.max_num_tokens, other.width)
        report.compare(
            f"shapes after a reset and {other}", [shape, shape], [tuple(weights.shape), tuple(ids.shape)]
        )
        report.compare(
            f"shared ids after a reset and {other}", other.shared_ids(), ids[:, other.top_k :].tolist()
        )
    return report


def _compare_pair(
    report: Report, where: str, subject: Subject, pair: tuple[torch.Tensor, torch.Tensor]
) -> None:
    now = subject.api.aiter_topK_meta_data
    same = now is not None and all(a is b for a, b in zip(pair, now, strict=True))
    report.compare(f"{where} are the same tensors", True, same)


# --------------------------------------------------------------------------- injection


@dataclass(frozen=True, slots=True)
class Injection:
    """One call of ``inject_shared_expert_weights`` after initialisation.

    Attributes:
        buffers: The initialisation.
        tokens: Rows of the routed result, at most ``buffers.max_num_tokens``.
        wide: The routed result already has the buffer's width.
        gates: Whether dynamic gate weights of the shared experts are given.
        spare_gates: Rows of gate weights beyond ``tokens``.
        weights_dtype: torch name of the dtype of a narrow routed result's weights.
        ids_dtype: torch name of the dtype of a narrow routed result's ids.
    """

    buffers: Buffers
    tokens: int
    wide: bool = False
    gates: bool = True
    spare_gates: int = 0
    weights_dtype: str = "float32"
    ids_dtype: str = "int32"


def routed(injection: Injection, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Build a routed result: every element differs from every other, and from all that is in the buffers."""
    buffers = injection.buffers
    columns = buffers.width if injection.wide else buffers.top_k
    n = injection.tokens * columns
    weights = (torch.arange(n, device=device) + 3).reshape(injection.tokens, columns) / 64
    ids = (torch.arange(n, device=device) % buffers.n_routed_experts).reshape(injection.tokens, columns)
    if injection.wide:
        return weights.float(), ids.int()
    return weights.to(getattr(torch, injection.weights_dtype)), ids.to(getattr(torch, injection.ids_dtype))


def gates_of(injection: Injection, device: torch.device) -> torch.Tensor | None:
    """Build the dynamic gate weights of the shared experts, or None."""
    if not injection.gates:
        return None
    shape = (injection.tokens + injection.spare_gates, injection.buffers.n_shared_experts)
    return -1.0 - torch.arange(shape[0] * shape[1], device=device).reshape(shape) / 32


def inject(subject: Subject, injection: Injection, given: tuple[torch.Tensor, torch.Tensor]) -> Any:
    """Call ``inject_shared_expert_weights`` with a routed result and the gates of the description."""
    buffers = injection.buffers
    gates = gates_of(injection, given[0].device)
    return subject.api.inject_shared_expert_weights(*given, buffers.top_k, buffers.n_shared_experts, gates)


def check_injection(subject: Subject, injection: Injection) -> Report:
    """Routed columns keep the routing, shared ones hold the gates or what they held, no other row changes.

    The buffers are poisoned first, ids included: a slot that the call should have filled and did not shows.
    """
    report = Report()
    buffers, tokens, topk = injection.buffers, injection.tokens, injection.buffers.top_k
    where = f"injection {injection}"
    with subject.environment(ARCH):
        pair = initialise(subject, buffers)
        poison(pair)
        given = routed(injection, pair[0].device)
        expected = [buffer.clone() for buffer in pair]
        into = [t.clone() for t in given] if injection.wide else [b[:tokens].clone() for b in expected]
        if not injection.wide:
            into[0][:, :topk], into[1][:, :topk] = given[0].float(), given[1].int()
        gates = gates_of(injection, pair[0].device)
        if gates is not None:
            # The sentinel column of EP, the last one, is not among these.
            into[0][:, topk : topk + buffers.n_shared_experts] = gates[:tokens]
        inputs = Untouched({} if injection.wide else {"topk_weights": given[0], "topk_ids": given[1]})
        with Reads() as reads:
            answer = inject(subject, injection, given)
        report.compare(f"{where}: operations that read a value", [], reads.seen)
        homes = given if injection.wide else (pair[0][:tokens], pair[1][:tokens])
        for name, wanted, got, home in zip(("weights", "ids"), into, answer, homes, strict=True):
            compare_tensors(report, f"{where}: {name}", wanted, got)
            report.compare(f"{where}: {name} lie where SPEC says", True, share_memory(home, got))
            report.compare(f"{where}: strides of the {name}", home.stride(), got.stride())
        inputs.compare(report, where)
        if not injection.wide:
            expected[0][:tokens], expected[1][:tokens] = into
        for name, wanted, buffer in zip(("weights", "ids"), expected, pair, strict=True):
            compare_tensors(report, f"{where}: buffer of {name}", wanted, buffer)
    return report


def check_no_shared_experts(subject: Subject, injection: Injection, *, initialised: bool) -> Report:
    """Without shared experts the very inputs come back, whether or not there are buffers."""
    report = Report()
    where = f"injection of no shared experts, buffers {'there' if initialised else 'missing'}"
    with subject.environment(ARCH):
        pair = initialise(subject, injection.buffers) if initialised else None
        before = Untouched({} if pair is None else {"weights": pair[0], "ids": pair[1]})
        given = routed(injection, torch.device("cpu") if pair is None else pair[0].device)
        answer = subject.api.inject_shared_expert_weights(*given, injection.buffers.top_k, 0)
        report.compare(where, True, answer[0] is given[0] and answer[1] is given[1])
        before.compare(report, where)
    return report


def check_gates_are_kept(subject: Subject, injection: Injection) -> Report:
    """None keeps what the last call wrote into the shared columns, its dynamic gates included (a hazard)."""
    report = Report()
    buffers, topk = injection.buffers, injection.buffers.top_k
    shared = slice(topk, topk + buffers.n_shared_experts)
    with_gates = replace(injection, gates=True, wide=False)
    where = f"injection without gates after {with_gates}"
    with subject.environment(ARCH):
        pair = initialise(subject, buffers)
        first = inject(subject, with_gates, routed(with_gates, pair[0].device))
        kept = first[0][:, shared].clone()
        without = replace(with_gates, gates=False)
        second = inject(subject, without, routed(without, pair[0].device))
        compare_tensors(report, f"{where}: shared weights", kept, second[0][:, shared].clone())
        # Rows that no call has reached still hold the score.
        untouched = pair[0][injection.tokens :, shared]
        score = torch.full_like(untouched, buffers.shared_experts_score)
        compare_tensors(report, f"{where}: later rows", score, untouched.clone())
    return report
