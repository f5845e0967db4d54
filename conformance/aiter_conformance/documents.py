"""The JSON documents of the project: checked against their schema when read, whole or absent when written."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema

from aiter_conformance.axes import spec_dir
from aiter_conformance.errors import InfrastructureError

Migration = Callable[[dict[str, Any]], dict[str, Any]]


def parse(
    text: str, *, schema: str, source: str, older: Mapping[str, Migration] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the document that a text holds.

    Args:
        text: The document.
        schema: Name of its schema among ``matrices/spec/schemas``, e.g. ``evidence``.
        source: Name of the text, for messages.
        older: What makes a document of an older version, by its ``schema``, one that the schema accepts.

    Raises:
        InfrastructureError: The text is not JSON, or not what the schema asks for.
    """
    try:
        data: dict[str, Any] = json.loads(text)
        version = data.get("schema") if isinstance(data, dict) else None
        if isinstance(version, str) and version in older:
            data = older[version](data)
        _validator(schema).validate(data)
    except json.JSONDecodeError as error:
        msg = f"{source} must be JSON (line {error.lineno}: {error.msg}): restore it or make it anew"
        raise InfrastructureError(msg) from None
    except jsonschema.ValidationError as error:
        where = "/".join(str(part) for part in error.absolute_path) or "the top"
        msg = f"{source} must obey the schema {schema!r} (at {where}: {error.message})"
        raise InfrastructureError(msg) from None
    return data


@cache
def _validator(schema: str) -> jsonschema.Draft202012Validator:
    definition = json.loads((spec_dir() / "schemas" / f"{schema}.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(definition)


def render(document: dict[str, Any], *, compact: bool = False) -> str:
    """Return a document as text: one line for each key and for each item of a list of objects.

    A change of one cell is then one line in a diff. The text ends in a newline.

    Args:
        document: The document.
        compact: Leave out the spaces within an item's line, where a file's budget asks for that.
    """
    separators = (",", ":") if compact else (", ", ": ")
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = ",\n".join(
                "    " + json.dumps(item, ensure_ascii=False, separators=separators) for item in value
            )
            rendered = f"[\n{items}\n  ]"
        else:
            rendered = json.dumps(value, ensure_ascii=False)
        lines.append(f"  {json.dumps(key)}: {rendered}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_text(target: Path, text: str) -> None:
    """Write a text file whole or not at all, creating its folder.

    Raises:
        InfrastructureError: The file cannot be written.
    """
    write_bytes(target, text.encode())


def write_bytes(target: Path, content: bytes) -> None:
    """Write a file whole or not at all, creating its folder.

    Raises:
        InfrastructureError: The file cannot be written.
    """
    partial: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=target.parent, prefix=".partial-")
        with open(descriptor, "wb") as file:  # noqa: PTH123 -- a descriptor
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        Path(partial).chmod(0o666 & ~umask)  # mkstemp's file is private, a report is for everyone
        Path(partial).replace(target)
        partial = None
    except OSError as error:
        msg = f"{target} must be writable ({error.strerror}): make room or choose another folder"
        raise InfrastructureError(msg) from error
    finally:
        if partial is not None:
            Path(partial).unlink(missing_ok=True)
