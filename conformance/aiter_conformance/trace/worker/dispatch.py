"""Watches the release's own choice: its looks into the tuned tables, and what it settles on."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Iterable
from typing import Any

from aiter_conformance.trace.worker.recorder import Recorder, describe

_CHOOSER = "get_2stage_cfgs"
_TABLES = "cfg_2stages"
# What of a tuned row is kept.
_ROW_COLUMNS = ("block_m", "ksplit", "run_1stage", "kernelName1", "kernelName2", "_tag", "xbf16", "flat")


class _WatchedTable(dict[Any, Any]):
    """A tuned table that records who looks for what."""

    def __init__(self, content: dict[Any, Any], number: int, recorder: Recorder) -> None:
        super().__init__(content)
        self._number = number
        self._recorder = recorder
        self._kinds = _kinds_by_column(content)

    def get(self, key: Any, default: Any = None) -> Any:
        """See `dict.get`."""
        found = super().get(key)
        event: dict[str, Any] = {
            "event": "lookup",
            "table": self._number,
            "key": describe(key if isinstance(key, tuple) else (key,)),
            "hit": found is not None,
        }
        if found is not None:
            event["row"] = {
                column: describe(_plain(found[column])) for column in _ROW_COLUMNS if column in found
            }
        else:
            event["never"] = self._never(key)
        self._recorder.lookup(event)
        return default if found is None else found

    def _never(self, key: Any) -> list[str]:
        """Say which parts of a key are of a kind that no row has: such a look can never succeed."""
        if not isinstance(key, tuple) or len(key) != len(self._kinds):
            return [] if not self._kinds else [f"a key of {len(key)} parts, rows have {len(self._kinds)}"]
        return [
            f"{describe(part)!s} is a {_kind(part)}, rows have {' or '.join(sorted(kinds))}"
            for part, kinds in zip(key, self._kinds, strict=True)
            if _kind(part) not in kinds
        ]


def _kinds_by_column(table: Iterable[Any]) -> list[set[str]]:
    columns: list[set[str]] = []
    for key in table:
        if isinstance(key, tuple):
            columns = columns or [set() for _ in key]
            for kinds, part in zip(columns, key, strict=True):
                kinds.add(_kind(part))
    return columns


def _kind(value: Any) -> str:
    """Name the kind of a part of a key; values of two kinds are never equal."""
    if isinstance(value, numbers.Number) or type(value).__name__ == "bool_":
        return "number"
    return "text" if isinstance(value, str) else type(value).__name__


def _plain(value: Any) -> Any:
    """Turn numpy's scalars into Python's; a whole float, as a merged CSV gives it, into an integer."""
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


class DispatchWatch:
    """Wraps the release's chooser where it has one of the known name.

    Args:
        module: The release's ``aiter.fused_moe``.
        recorder: Told of every choice.
    """

    def __init__(self, module: Any, recorder: Recorder) -> None:
        self._module = module
        self._recorder = recorder
        self._choices: list[tuple[Any, ...]] = []
        chooser: Any = getattr(module, _CHOOSER, None)
        self._chooser = chooser
        self.watching = chooser is not None
        if chooser is not None:
            self._signature = inspect.signature(chooser)
            setattr(module, _CHOOSER, self._choose)

    def begin(self) -> None:
        """Forget what the release remembers of earlier calls, so that each call is seen whole."""
        self._choices.clear()
        if self.watching and hasattr(self._chooser, "cache_clear"):
            self._chooser.cache_clear()

    def _choose(self, *args: Any, **kwargs: Any) -> Any:
        if _is_unwatched(getattr(self._module, _TABLES, None)):
            # The first call loads the tables; they can be watched from the second on.
            before = len(self._recorder.events)
            self._chooser(*args, **kwargs)
            del self._recorder.events[before:]
            self.begin()
            watched = _watched(getattr(self._module, _TABLES), self._recorder)
            setattr(self._module, _TABLES, watched)
        place = len(self._recorder.events)
        choice = self._chooser(*args, **kwargs)
        # Releases choose twice for one call, before sorting and again before the stages; one record will do
        # unless they disagree.
        if (again := (args, kwargs, choice)) in self._choices:
            return choice
        self._choices.append(again)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        event = {
            "event": "choice",
            "arguments": {key: describe(value) for key, value in bound.arguments.items()},
            "choice": _describe_choice(choice),
        }
        if event not in self._recorder.events:
            self._recorder.events.insert(place, event)
        return choice


def _is_unwatched(tables: Any) -> bool:
    parts = tables if isinstance(tables, tuple) else (tables,)
    return not any(isinstance(part, _WatchedTable) for part in parts)


def _watched(tables: Any, recorder: Recorder) -> Any:
    if isinstance(tables, tuple):
        return tuple(_WatchedTable(part, number, recorder) for number, part in enumerate(tables))
    return _WatchedTable(tables, 0, recorder) if isinstance(tables, dict) else tables


def _describe_choice(choice: Any) -> dict[str, Any]:
    """Describe what the chooser returned: an object with two stages and some plain values."""
    described: dict[str, Any] = {}
    for name, value in sorted(getattr(choice, "__dict__", {}).items()):
        if isinstance(value, functools.partial):
            keywords = {key: describe(_plain(each)) for key, each in sorted(value.keywords.items())}
            described[name] = {"function": _function_name(value.func), "keywords": keywords}
        elif callable(value):
            described[name] = {"function": _function_name(value), "keywords": {}}
        else:
            described[name] = describe(_plain(value))
    return described


def _function_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
