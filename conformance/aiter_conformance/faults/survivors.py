"""Mutants that nothing can tell from the original, with the reason: ``matrices/spec/survivors.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from aiter_conformance.axes import spec_dir
from aiter_conformance.errors import InfrastructureError
from aiter_conformance.faults.trial import Trial


def load_survivors(path: Path | None = None) -> dict[str, str]:
    """Return the ids of the listed mutants, each with the reason why it survives.

    Raises:
        InfrastructureError: An entry has no reason, or a mutant is listed twice.
    """
    path = spec_dir() / "survivors.toml" if path is None else path
    reasons: dict[str, str] = {}
    for group in tomllib.loads(path.read_text(encoding="utf-8")).get("group", []):
        reason = group.get("reason", "").strip()
        for mutant in group.get("mutants", []):
            if not reason or mutant in reasons:
                msg = f"{path.name} must give each mutant one reason (got {mutant!r} without one, or twice)"
                raise InfrastructureError(msg)
            reasons[mutant] = reason
    return reasons


def stale(listed: Iterable[str], trials: Iterable[Trial], modules: Iterable[str]) -> list[str]:
    """Return the listed mutants of the given modules that are caught, or are no longer generated."""
    survived = {trial.variant.id for trial in trials if trial.verdict == "survived"}
    prefixes = tuple(f"{module}:" for module in modules)
    return [mutant for mutant in listed if mutant.startswith(prefixes) and mutant not in survived]
