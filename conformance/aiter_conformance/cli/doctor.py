"""``doctor``: what is installed here, and what can therefore be tested."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Literal

import click

from aiter_conformance import __version__, subjects
from aiter_conformance.axes import load_axes
from aiter_conformance.cli.output import json_option, print_json, print_table
from aiter_conformance.errors import HarnessError
from aiter_conformance.evidence import Level
from aiter_conformance.runner import runnable


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        state: ``good``; ``absent`` where something cannot be tested without it; ``problem`` where results
            would mislead.
        message: What was found, and what to do.
    """

    name: str
    state: Literal["good", "absent", "problem"]
    message: str


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> int:
    """Say what is installed here and what can be tested. Exit code 1 if something would mislead."""
    checks = list(examine())
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        print_table(["looked at", "state", "found"], [[c.name, c.state, c.message] for c in checks], wrap=[2])
    return int(any(check.state == "problem" for check in checks))


def examine() -> Iterator[Check]:
    """Look at harness, torch, GPU, AITER, what levels need, vLLM's switches and the subjects.

    AITER is never imported.
    """
    yield Check("harness", "good", f"aiter-moe-conformance {__version__}, Python {platform.python_version()}")
    yield _torch()
    yield _gpu()
    yield _aiter()
    for level in (Level.TRACE, Level.REFERENCE, Level.ISA):
        _, missing = runnable((level,))
        message = missing[0] if missing else "what it needs is installed"
        yield Check(f"level {level.value}", "absent" if missing else "good", message)
    yield from _switches()
    for name in subjects.SUBJECTS:
        try:
            yield Check(f"subject {name}", "good", subjects.find_version(name))
        except (HarnessError, ImportError) as error:
            yield Check(f"subject {name}", "absent", str(error))


def _torch() -> Check:
    if importlib.util.find_spec("torch") is None:
        message = "not installed: releases and declarations can be read, calls and numbers cannot be tested"
        return Check("torch", "absent", message)
    return Check("torch", "good", metadata.version("torch"))


def _gpu() -> Check:
    if importlib.util.find_spec("torch") is None:
        return Check("GPU", "absent", "torch would have to be there to look")
    import torch

    if not torch.cuda.is_available():
        return Check("GPU", "absent", "none: everything but the level hardware can be tested")
    properties = torch.cuda.get_device_properties(0)
    arch = getattr(properties, "gcnArchName", "").partition(":")[0]
    if torch.version.hip is None:
        return Check("GPU", "absent", f"{properties.name} is no AMD GPU: the device contract alone can run")
    known = load_axes().archs
    if arch not in known:
        return Check("GPU", "absent", f"{arch} is not in the matrix, which knows {', '.join(known)}")
    return Check("GPU", "good", f"{properties.name}, {arch}, {properties.multi_processor_count} CUs")


def _aiter() -> Check:
    installed = {name: _version(name) for name in ("amd-aiter", "aiter")}
    if installed["amd-aiter"]:
        return Check("AITER", "good", f"amd-aiter {installed['amd-aiter']}")
    spec = importlib.util.find_spec("aiter")
    if spec is None:
        return Check(
            "AITER", "absent", "not installed: give a wheel file or a tree where a RELEASE is asked for"
        )
    if installed["aiter"]:
        message = (
            f"PyPI's 'aiter' {installed['aiter']} is installed, a package of async-iterator helpers. "
            "AMD's is 'amd-aiter', and both are imported as 'aiter': uninstall the first"
        )
        return Check("AITER", "problem", message)
    return Check("AITER", "good", "an 'aiter' without package metadata, such as a checkout on the path")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _switches() -> Iterator[Check]:
    # Off by default: a test of vLLM's leaves on real hardware would then test something else.
    for name, default in (("VLLM_ROCM_USE_AITER", "0"), ("VLLM_ROCM_USE_AITER_MOE", "1")):
        value = os.environ.get(name)
        on = (value or default).lower() in ("1", "true")
        said = "not set" if value is None else f"set to {value}"
        said += f": this switch of vLLM is {'on' if on else 'off'}"
        yield Check(name, "good" if on else "absent", said)
