"""One release on one board, imported; it makes calls and says what they did."""

from __future__ import annotations

import logging
import os
import pathlib
import sys
import time
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

from aiter_conformance.trace.call import call_from_json
from aiter_conformance.trace.worker import fake_torch
from aiter_conformance.trace.worker.answers import answers
from aiter_conformance.trace.worker.caller import Caller
from aiter_conformance.trace.worker.ck_instances import CkInstances
from aiter_conformance.trace.worker.dispatch import DispatchWatch
from aiter_conformance.trace.worker.fake_jit import FakeJit, make_enums
from aiter_conformance.trace.worker.importer import Importer, import_release
from aiter_conformance.trace.worker.placeholders import PlaceholderFinder
from aiter_conformance.trace.worker.recorder import Recorder, dtype_name
from aiter_conformance.trace.worker.tensors import Tensors

_MODULES = ("aiter", "aiter.fused_moe", "aiter.fused_moe_bf16_asm", "aiter.jit.core")
_HARNESS = Path(__file__).parents[2]


class _Log(logging.Handler):
    """Keeps warnings of the call that is running."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Session:
    """One release on one board, imported.

    Args:
        start: What the tracer says at the start; see `aiter_conformance.trace.tracer`.
    """

    def __init__(self, start: dict[str, Any]) -> None:
        self.root = Path(start["root"])
        self._private = Path(start["private"])
        self._recorder = Recorder()
        self._log = _Log()
        self._sort_globs()
        fake_torch.install(
            start["arch"],
            start["compute_units"],
            start["lds"],
            start["wave"],
            (start["capability"][0], start["capability"][1]),
            self._recorder.torch_activation,
        )
        began = time.monotonic()
        modules = self._import(start)
        self.seconds = time.monotonic() - began
        self.table_errors = _load_tables(modules["aiter.jit.core"])
        self._watch = DispatchWatch(modules["aiter.fused_moe"], self._recorder)
        self.facts = self._facts(modules)
        tensors = Tensors(start["fp8"], modules["aiter"].dtypes.i4x2)
        self._caller = Caller(start["arch"], start["version"], _parts(modules), tensors)
        self._instances = CkInstances(self.root, Path(start["private"]))

    @staticmethod
    def _sort_globs() -> None:
        """Make a folder's files come in the same order on every machine, in which releases merge tables."""
        unsorted = pathlib.Path.glob

        def glob(self: Path, *args: Any, **kwargs: Any) -> Any:
            return iter(sorted(unsorted(self, *args, **kwargs)))

        pathlib.Path.glob = glob  # type: ignore[method-assign]

    def _import(self, start: dict[str, Any]) -> dict[str, Any]:
        known = answers(start["arch"], start["lds"], start["wave"], start["versions"])
        finder = PlaceholderFinder(start["packages"], known, self._recorder.launch)
        sys.meta_path.insert(0, finder)
        _answer_versions(start["versions"])
        jit = FakeJit(self._recorder, make_enums(start["enums"]), start["constants"])
        importer = Importer(
            self.root,
            Path(start["private"]),
            Path(start["cache"]),
            jit,
            self._recorder,
            start["pci_device"],
        )
        modules = import_release(importer, self.root, _MODULES)
        self.unpatched = sorted(importer.unpatched)
        logger = logging.getLogger("aiter")
        logger.handlers[:] = [self._log]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        return modules

    def _facts(self, modules: dict[str, Any]) -> dict[str, Any]:
        dtypes = modules["aiter"].dtypes
        return {
            "fp8": dtype_name(dtypes.fp8),
            "int4": dtype_name(dtypes.i4x2),
            "watching": self._watch.watching,
            "unpatched": self.unpatched,
            "table_errors": self.table_errors,
            "import_seconds": round(self.seconds, 3),
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the call that is asked for and return what it did."""
        call = call_from_json(request["call"])
        self._recorder.begin()
        self._watch.begin()
        self._log.lines.clear()
        error = None
        try:
            self._caller(call)
        except Exception as raised:  # whatever the release raises is a result
            error = self._describe_error(raised)
        return {
            "events": [self._instances.resolve(event) for event in self._recorder.events],
            "error": error,
            "warnings": [self._without_paths(line) for line in self._log.lines],
        }

    def _describe_error(self, error: BaseException) -> dict[str, Any]:
        """Return type, message and the innermost place in the release or the harness; no traceback."""
        frames = traceback.extract_tb(error.__traceback__)
        origin, place = "other", ""
        for frame in frames:
            if frame.filename.startswith("aiter/"):
                origin, place = "release", f"{frame.filename}:{frame.lineno}"
            elif f"{os.sep}aiter_moe{os.sep}" in frame.filename:
                file = frame.filename.rpartition(f"aiter_moe{os.sep}")[2]
                origin, place = "subject", f"aiter_moe/{file}:{frame.lineno}"
            elif frame.filename.startswith(str(_HARNESS)):
                relative = Path(frame.filename).relative_to(_HARNESS.parent).as_posix()
                origin, place = "harness", f"{relative}:{frame.lineno}"
        return {
            "type": type(error).__name__,
            "message": self._without_paths(str(error)),
            "origin": origin,
            "place": place,
        }

    def _without_paths(self, text: str) -> str:
        for folder in (self.root, self._private):
            text = text.replace(f"{folder}/", "").replace(str(folder), "")
        return text


def _parts(modules: dict[str, Any]) -> dict[str, Any]:
    package = modules["aiter"]
    return {
        "ActivationType": package.ActivationType,
        "QuantType": package.QuantType,
        "dtypes": package.dtypes,
        "fused_moe": modules["aiter.fused_moe"].fused_moe,
        "asm_moe_tkw1": modules["aiter.fused_moe_bf16_asm"].asm_moe_tkw1,
    }


def _answer_versions(versions: dict[str, str]) -> None:
    """Make ``importlib.metadata`` know the placeholders' versions."""
    real = metadata.version

    def version(distribution_name: str) -> str:
        known = versions.get(distribution_name)
        return real(distribution_name) if known is None else known

    metadata.version = version


def _load_tables(core: Any) -> list[str]:
    """Make the release merge its tuned tables now, and return what that raises.

    Some releases raise when two tables hold the same shape, and rewrite their own tables so that the next try
    succeeds: the tries are made here, on the private copy, so that every call sees the tables at rest.
    """
    errors: list[str] = []
    for _ in range(3):
        try:
            _ = core.AITER_CONFIGS.AITER_CONFIG_FMOE_FILE
            break
        except AttributeError:  # older releases read one file, without merging
            break
        except Exception as error:  # whatever the release raises is a result
            errors.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return errors
