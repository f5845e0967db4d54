"""Observes the two sides of a comparison, side by side where that takes long."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.evidence import Level
from aiter_conformance.gate.side import Side, find_kept, observe
from aiter_conformance.release.artefact import open_release
from aiter_conformance.runner import Progress
from aiter_conformance.subjects import load_subject


def observe_pair(
    texts: tuple[str, str],
    subject_name: str,
    levels: Sequence[Level],
    build: Path,
    progress: Progress | None = None,
    *,
    side_by_side: bool = False,
) -> tuple[Side, Side]:
    """Observe two releases, or return what was kept of them.

    Args:
        texts: The old and the new release, as `open_release` takes them.
        subject_name: The implementation whose cells are observed, by its name.
        levels: Levels to observe.
        build: Folder that keeps observations, see `observe`.
        progress: See `runner.collect`; not called from processes.
        side_by_side: Observe what is not kept in a process each, for then two cores share the work.

    Raises:
        UsageError: There is no such release.
        InfrastructureError: A release cannot be read, or a process died.
    """
    subject = load_subject(subject_name)
    kept: dict[str, Side] = {}
    for text in texts:
        with open_release(text) as opened:
            found = find_kept(opened, subject, levels, build)
        if found is not None:
            kept[text] = found
    missing = [text for text in dict.fromkeys(texts) if text not in kept]
    if side_by_side and len(missing) > 1:
        if progress is not None:
            progress("releases side by side", 0, len(missing))
        # Spawned, for torch does not survive a fork of a process that has used its threads.
        with ProcessPoolExecutor(len(missing), mp_context=get_context("spawn")) as pool:
            running = [pool.submit(_observe, text, subject_name, levels, build, None) for text in missing]
            try:
                kept |= {text: one.result() for text, one in zip(missing, running, strict=True)}
            except BrokenProcessPool as error:
                msg = "a process that observes a release must live (it died: is there memory enough?)"
                raise InfrastructureError(msg) from error
    else:
        kept |= {text: _observe(text, subject_name, levels, build, progress) for text in missing}
    return kept[texts[0]], kept[texts[1]]


def _observe(
    text: str, subject_name: str, levels: Sequence[Level], build: Path, progress: Progress | None
) -> Side:
    with open_release(text) as opened:
        return observe(opened, load_subject(subject_name), levels, build, progress)
