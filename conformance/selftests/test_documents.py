"""Documents: checked when read, whole or absent when written."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from aiter_conformance.documents import parse, render, write_text
from aiter_conformance.errors import InfrastructureError


class TestParse:
    """`parse`."""

    def test_text_that_is_no_json_names_file_and_line(self) -> None:
        """A broken text is an infrastructure error that says where."""
        with pytest.raises(InfrastructureError, match=r"^x\.json must be JSON \(line 2: "):
            parse('{\n"a": }', schema="evidence", source="x.json")

    def test_text_that_breaks_the_schema_names_the_place(self) -> None:
        """A text of another form is refused with the place that is wrong."""
        with pytest.raises(InfrastructureError, match="must obey the schema 'evidence' \\(at the top: "):
            parse("{}", schema="evidence", source="x.json")


class TestRender:
    """`render`."""

    def test_is_json_with_a_line_for_each_item(self) -> None:
        """What comes out is the same document, and each item of a list of objects has its line."""
        document = {"a": 1, "b": [], "c": [{"d": 2}, {"d": "é"}], "e": {"f": None}}
        text = render(document)
        assert json.loads(text) == document
        assert text.splitlines()[3:6] == ['  "c": [', '    {"d": 2},', '    {"d": "é"}']
        assert text.endswith("}\n")

    def test_compact_is_the_same_in_fewer_bytes(self) -> None:
        """Items keep their lines and lose the spaces between their parts, and no space of a text."""
        document = {"c": [{"d": [1, 2], "e": "a, b: c"}]}
        text = render(document, compact=True)
        assert json.loads(text) == document
        assert text.splitlines()[2] == '    {"d":[1,2],"e":"a, b: c"}'


class TestWriteText:
    """`write_text`."""

    def test_writes_whole_and_leaves_nothing_besides(self, tmp_path: Path) -> None:
        """The file holds the text, others may read it, and no temporary file stays."""
        target = tmp_path / "a" / "b.txt"
        write_text(target, "one\n")
        write_text(target, "two\n")
        assert target.read_bytes() == b"two\n"
        assert [p.name for p in target.parent.iterdir()] == ["b.txt"]
        reference = tmp_path / "reference"
        reference.touch()
        assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(reference.stat().st_mode)

    def test_keeps_the_old_file_when_it_cannot_write(self, tmp_path: Path) -> None:
        """A text that cannot be encoded leaves the old file and no temporary one."""
        target = tmp_path / "b.txt"
        write_text(target, "old\n")
        with pytest.raises(UnicodeEncodeError):
            write_text(target, "new \ud800\n")
        assert target.read_text() == "old\n"
        assert [p.name for p in tmp_path.iterdir()] == ["b.txt"]

    def test_a_place_that_is_no_folder_is_a_clear_error(self, tmp_path: Path) -> None:
        """The error names the file and what to do."""
        (tmp_path / "file").touch()
        with pytest.raises(InfrastructureError, match=r"must be writable .*choose another folder"):
            write_text(tmp_path / "file" / "b.txt", "x")
