"""vLLM's own module of AITER expert leaves as a subject: where its wheel is.

The wheel is named by the environment variable `WHEEL_VARIABLE`, or lies in ``build/downloads``. Nothing here
needs torch; the adapter itself is in `vllm_subject`.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from aiter_conformance.errors import InfrastructureError
from aiter_conformance.subjects.vllm_wheel import Wheel

if TYPE_CHECKING:
    from aiter_conformance.subjects.vllm_subject import VllmSubject

WHEEL_VARIABLE = "AITER_CONFORMANCE_VLLM_WHEEL"


def find_wheel() -> Path:
    """Return the vLLM wheel to test: the one that the variable names, else the newest downloaded one.

    Raises:
        InfrastructureError: There is none.
    """
    named = os.environ.get(WHEEL_VARIABLE)
    if named:
        return Path(named)
    folders = (Path("build/downloads"), Path(__file__).parents[3] / "build" / "downloads")
    wheels = [path for folder in folders for path in folder.glob("vllm-*.whl")]
    if not wheels:
        msg = (
            "there is no vLLM wheel: set "
            f"{WHEEL_VARIABLE} to one, or run `pip download --no-deps vllm -d build/downloads`"
        )
        raise InfrastructureError(msg)
    return max(wheels, key=lambda path: Wheel(path).version)


def find_version() -> str:
    """Return the version of the vLLM wheel, without importing anything out of it.

    Raises:
        InfrastructureError: There is no wheel.
        UsageError: It is not a wheel of vLLM.
    """
    return str(Wheel(find_wheel()).version)


@cache
def load() -> VllmSubject:
    """Return the adapter of the vLLM wheel, the same one in the whole process: torch knows an operator once.

    Raises:
        InfrastructureError: There is no wheel, or its module cannot be imported; the message says why.
        UsageError: It is not a wheel of vLLM.
    """
    from aiter_conformance.subjects.vllm_subject import VllmSubject

    return VllmSubject(Wheel(find_wheel()))
