"""Runs the release's own generator of CK instances for a call, and says what it makes.

An operator of CK is compiled on first use from what the generator writes. Without running it, nobody can say
whether the kernel that a tuned row names is made at all, nor which one an empty name stands for.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tempfile
import types
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from aiter_conformance.trace.worker.ck_heuristics import HeuristicsError, NoKernelError, Picked, pick

_LOOKUP: Final = "gemm_moe_ck2stages_lookup.h"
_HEURISTICS: Final = "ck2stages_moe_stage{stage}_heuristic_dispatch.hpp"
_NAME: Final = re.compile(r'\{"(moe_ck2stages_\w+)"')
_STAGE: Final = re.compile(r"stage([12])")


@dataclass(frozen=True, eq=False)
class _Generated:
    names: frozenset[str]
    heuristics: dict[str, str]
    error: str | None

    @cache  # noqa: B019 -- lives as long as the process
    def pick(self, stage: str, parameters: tuple[tuple[str, int | str], ...]) -> Picked | str | None:
        """Return what the heuristics pick, or why they pick nothing; None where they cannot be read."""
        try:
            return pick(self.heuristics.get(stage, ""), dict(parameters))
        except NoKernelError as error:
            return str(error)
        except HeuristicsError:
            return None


class CkInstances:
    """What the generator makes, remembered by its command line.

    Args:
        root: The release's private copy.
        private: Folder to write in.
    """

    def __init__(self, root: Path, private: Path) -> None:
        self._root = root
        self._private = private
        self._generated: dict[str, _Generated] = {}

    def resolve(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return an operator's event with ``instance``: what its generator has for it; others as they are."""
        command = event.pop("generator", None)
        stage = _STAGE.search(event.get("name", ""))
        if command is None or stage is None:
            return event
        generated = self._generated.get(command)
        if generated is None:
            generated = self._generated[command] = self._generate(command)
        return event | {"instance": _instance(generated, stage[1], event["arguments"])}

    def _generate(self, command: str) -> _Generated:
        script, *arguments = shlex.split(command)
        if not script.startswith(str(self._root)):
            return _Generated(frozenset(), {}, "its generator is not part of the release")
        folder = Path(tempfile.mkdtemp(prefix="instances-", dir=self._private))
        error = _run(script, [str(folder) if part == "{}" else part for part in arguments])
        lookup = folder / _LOOKUP
        names = frozenset(_NAME.findall(lookup.read_text()) if lookup.exists() else ())
        heuristics = {
            stage: path.read_text()
            for stage in "12"
            if (path := folder / _HEURISTICS.format(stage=stage)).exists()
        }
        return _Generated(names, heuristics, error)


def _run(script: str, arguments: list[str]) -> str | None:
    """Run a Python program of the release in this process and return what it fails with, if it does."""
    said = io.StringIO()
    argv, sys.argv = sys.argv, [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    before = sys.modules["__main__"]
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    program.__file__ = script
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            exec(_program(script), vars(program))  # noqa: S102 -- the release's own program
    except SystemExit as ended:
        if ended.code:
            return (
                said.getvalue().strip().splitlines()[-1] if said.getvalue().strip() else f"exit {ended.code}"
            )
    except Exception as error:  # whatever the release raises is a result
        return f"{type(error).__name__}: {error}"
    finally:
        sys.modules["__main__"] = before
        sys.argv = argv
        sys.path.remove(str(Path(script).parent))
    return None


@cache
def _program(script: str) -> types.CodeType:
    """Return a program's code: it is run for every kind of call, and compiling it takes as long as a run."""
    return compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)


def _instance(generated: _Generated, stage: str, arguments: dict[str, Any]) -> dict[str, Any]:
    name = arguments.get("kernelName") or ""
    made: dict[str, Any] = {"made": len(generated.names)}
    if generated.error is not None:
        return made | {"error": generated.error}
    if name:
        made["named"] = name in generated.names
        if made["named"]:
            return made
    # AITER falls back to its heuristics where a name is empty, and where it is not made.
    states = arguments["hidden_states" if stage == "1" else "inter_states"]
    weights, out = arguments["w1"], arguments["out"]
    inter_dim = weights["shape"][1] // 2
    parameters = (
        ("block_m", int(arguments["block_m"])),
        ("inter_dim", inter_dim),
        ("x_dtype", states["dtype"]),
        ("w_dtype", weights["dtype"]),
        ("y_dtype", out["dtype"]),
    )
    picked = generated.pick(stage, parameters)
    if not isinstance(picked, Picked):
        return made | {"error": picked or "what the generator writes cannot be read"}
    sizes = "x".join(str(size) for size in (picked.threads, *picked.tile))
    return made | {
        "tile": list(picked.tile),
        "picked": sizes,
        "candidates": sorted(name for name in generated.names if f"gemm{stage}_{sizes}_" in name),
    }
