"""Properties of ``make_expert_mask`` (SPEC 11): which experts a rank runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from aiter_conformance.checks.properties import Untouched, compare_refusal, compare_tensors
from aiter_conformance.checks.report import Report
from aiter_conformance.protocols import Subject


@dataclass(frozen=True, slots=True)
class Placement:
    """Which rank holds which expert.

    Attributes:
        owner: Rank of each of the model's experts.
        ranks: Number of ranks.
        shared: Shared experts that are fused; every rank holds them.
    """

    owner: tuple[int, ...]
    ranks: int
    shared: int = 0

    def expert_map(self, rank: int) -> torch.Tensor:
        """Return vLLM's canonical map: the local index, or -1 for an expert elsewhere."""
        held = [expert for expert, owner in enumerate(self.owner) if owner == rank]
        local = [held.index(expert) if expert in held else -1 for expert in range(len(self.owner))]
        return torch.tensor(local, dtype=torch.int32)


def check_mask(subject: Subject, placement: Placement) -> Report:
    """A rank's own and shared experts are 1, the sentinel 0; over all ranks each expert is held once."""
    report = Report()
    total = [0] * len(placement.owner)
    for rank in range(placement.ranks):
        where = f"make_expert_mask on rank {rank} of {placement}"
        given = placement.expert_map(rank)
        with subject.environment("gfx950"):
            before = Untouched({"expert_map": given})
            mask = subject.api.make_expert_mask(given, placement.shared)
            before.compare(report, where)
        own = [int(owner == rank) for owner in placement.owner]
        wanted = torch.tensor([*own, *[1] * placement.shared, 0], dtype=torch.int32)
        compare_tensors(report, where, wanted, mask)
        total = [a + b for a, b in zip(total, mask.tolist(), strict=False)]
    report.compare(f"ranks that hold each expert of {placement}", [1] * len(total), total)
    return report


def check_no_mask(subject: Subject, shared: int) -> Report:
    """Without expert parallelism there is no mask, shared experts or not."""
    report = Report()
    with subject.environment("gfx950"):
        report.compare("make_expert_mask of None", None, subject.api.make_expert_mask(None, shared))
    return report


def check_mask_refuses(subject: Subject, expert_map: tuple[int, ...], shared: int) -> Report:
    """What is no map of this rank, a mask among them, is refused instead of made into another mask."""
    report = Report()
    with subject.environment("gfx950"):
        given = torch.tensor(expert_map, dtype=torch.int32)
        compare_refusal(
            report,
            subject,
            f"make_expert_mask of {list(expert_map)} with {shared} shared experts",
            ValueError,
            lambda: subject.api.make_expert_mask(given, shared),
        )
    return report
