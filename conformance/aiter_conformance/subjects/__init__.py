"""The implementations under test, by name."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from aiter_conformance.errors import UsageError

if TYPE_CHECKING:
    from aiter_conformance.protocols import Subject

# Each module offers find_version() -> str, which imports neither torch nor the subject, and
# load() -> Subject.
SUBJECTS: dict[str, str] = {
    "impl": "aiter_conformance.subjects.impl",
    "vllm": "aiter_conformance.subjects.vllm",
}


def _module(name: str) -> ModuleType:
    if name not in SUBJECTS:
        msg = f"subject must be one of {', '.join(SUBJECTS)} (got {name!r})"
        raise UsageError(msg)
    return importlib.import_module(SUBJECTS[name])


def find_version(name: str) -> str:
    """Return the version of a subject without importing it or torch.

    Raises:
        UsageError: There is no subject of that name.
        InfrastructureError: The subject cannot be found.
    """
    version: str = _module(name).find_version()
    return version


def load_subject(name: str) -> Subject:
    """Import a subject and return its adapter.

    Raises:
        UsageError: There is no subject of that name.
        InfrastructureError: The subject cannot be found or imported.
    """
    subject: Subject = _module(name).load()
    return subject
