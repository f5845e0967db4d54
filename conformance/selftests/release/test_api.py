"""The interface of a release: signatures, enumerations and archs, read without importing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aiter_conformance.release import ApiFacts, FindingCode, Parameter, open_release, read_api
from aiter_conformance.release.cpp_enums import parse_enums
from aiter_conformance.release.samples import sample_files, write_tree

Read = Callable[[dict[str, bytes | None]], ApiFacts]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the interface of the sample with files replaced, or removed (None)."""

    def reading(changes: dict[str, bytes | None]) -> ApiFacts:
        files = {path: data for path, data in (sample_files() | changes).items() if data is not None}
        with open_release(str(write_tree(tmp_path / "tree", files))) as release:
            return read_api(release)

    return reading


class TestReadApi:
    """`read_api`."""

    def test_a_good_release(self, read: Read) -> None:
        """Everything that the sample defines is found, and nothing is absent or wrong."""
        api = read({})
        assert (api.absent, api.findings) == ({}, ())
        assert api.fused_moe is not None
        assert (api.fused_moe.path, api.fused_moe.line, len(api.fused_moe.names)) == (
            "aiter/fused_moe.py",
            1,
            22,
        )
        assert api.fused_moe.parameters[0] == Parameter("hidden_states", "positional-or-keyword", None)
        assert api.fused_moe.parameters[-1] == Parameter(
            "gate_mode", "positional-or-keyword", "GateMode.SEPARATED.value"
        )
        assert api.asm_moe_tkw1 is not None
        assert len(api.asm_moe_tkw1.names) == 13
        assert api.activation_type is not None
        assert api.activation_type.members == {"No": -1, "Silu": 0, "Gelu": 1}
        assert api.activation_type.line == 2
        assert api.quant_type is not None
        assert api.quant_type.members["per_128x128"] == 5
        assert api.gate_mode is not None
        assert api.gate_mode.members == {"SEPARATED": "separated", "INTERLEAVE": "interleave"}
        assert api.archs == ("gfx942", "gfx950")

    def test_nothing_is_imported(self, read: Read) -> None:
        """A source that would fail when executed is read all the same."""
        api = read({"aiter/fused_moe.py": b"raise SystemExit(1)\ndef fused_moe(a, b=1): pass\n"})
        assert api.fused_moe is not None
        assert api.fused_moe.names == ("a", "b")

    @pytest.mark.parametrize(
        ("path", "facts"),
        [
            ("aiter/fused_moe.py", ["fused_moe"]),
            ("aiter/fused_moe_bf16_asm.py", ["asm_moe_tkw1"]),
            ("aiter/ops/flydsl/moe_common.py", ["gate_mode"]),
            ("csrc/include/aiter_enum.h", ["activation_type", "quant_type"]),
            ("aiter/jit/utils/chip_info.py", ["archs"]),
        ],
    )
    def test_a_missing_file_is_a_fact(self, read: Read, path: str, facts: list[str]) -> None:
        """Without the file the fact is None and its reason names the file; that is no finding."""
        api = read({path: None})
        assert [getattr(api, fact) for fact in facts] == [None] * len(facts)
        assert sorted(api.absent) == sorted(facts)
        assert all(path in reason for reason in api.absent.values())
        assert api.findings == ()

    def test_a_syntax_error_is_a_finding(self, read: Read) -> None:
        """A source that is not Python is a finding with its line, and the fact is absent."""
        api = read({"aiter/fused_moe.py": b"\ndef fused_moe(:\n    pass\n"})
        (finding,) = api.findings
        assert (finding.path, finding.line, finding.code) == (
            "aiter/fused_moe.py",
            2,
            FindingCode.SOURCE_UNREADABLE,
        )
        assert api.fused_moe is None
        assert api.absent == {"fused_moe": "aiter/fused_moe.py cannot be parsed"}

    def test_a_function_that_is_not_there(self, read: Read) -> None:
        """A module without the function says so; one nested in a class or a function does not count."""
        source = b"class A:\n    def fused_moe(self): pass\ndef other():\n    def fused_moe(): pass\n"
        api = read({"aiter/fused_moe.py": source})
        assert api.fused_moe is None
        assert api.absent == {"fused_moe": "aiter/fused_moe.py defines no function fused_moe"}

    def test_the_last_definition_counts(self, read: Read) -> None:
        """As at run time, a later definition replaces an earlier one, also one inside ``try`` or ``if``."""
        source = b"def fused_moe(a): pass\ntry:\n    def fused_moe(b): pass\nexcept ImportError:\n    pass\n"
        api = read({"aiter/fused_moe.py": source})
        assert api.fused_moe is not None
        assert (api.fused_moe.names, api.fused_moe.line) == (("b",), 3)

    def test_every_kind_of_parameter(self, read: Read) -> None:
        """Kinds and defaults come out as the language has them, and say what a caller may name."""
        api = read({"aiter/fused_moe.py": b"def fused_moe(a, /, b, c=1, *d, e, f=x.y, **g): pass\n"})
        assert api.fused_moe is not None
        assert api.fused_moe.parameters == (
            Parameter("a", "positional-only", None),
            Parameter("b", "positional-or-keyword", None),
            Parameter("c", "positional-or-keyword", "1"),
            Parameter("d", "var-positional", None),
            Parameter("e", "keyword-only", None),
            Parameter("f", "keyword-only", "x.y"),
            Parameter("g", "var-keyword", None),
        )
        assert api.fused_moe.takes("anything")

    def test_what_can_be_named(self, read: Read) -> None:
        """Without ``**`` only named parameters can be given by name, and positional-only ones cannot."""
        api = read({"aiter/fused_moe.py": b"def fused_moe(a, /, b, *c, d): pass\n"})
        assert api.fused_moe is not None
        assert [api.fused_moe.takes(name) for name in "abcde"] == [False, True, False, True, False]

    def test_a_gate_mode_that_is_computed(self, read: Read) -> None:
        """A member whose value is not a constant is a finding, never a guess."""
        api = read({"aiter/ops/flydsl/moe_common.py": b'class GateMode:\n    A = "a"\n    B = auto()\n'})
        assert api.gate_mode is not None
        assert api.gate_mode.members == {"A": "a"}
        assert [(f.line, f.code) for f in api.findings] == [(3, FindingCode.SOURCE_UNREADABLE)]

    def test_the_arch_table_in_its_newer_place(self, read: Read) -> None:
        """The table is found where later releases keep it."""
        api = read(
            {
                "aiter/jit/utils/chip_info.py": b"from build_targets import GFX_MAP\n",
                "aiter/jit/utils/build_targets.py": b'GFX_MAP: dict = {0: "native", 1: "gfx1250"}\n',
            }
        )
        assert api.archs == ("gfx1250",)


class TestParseEnums:
    """`parse_enums`."""

    @pytest.mark.parametrize(
        ("text", "members"),
        [
            ("enum E { A, B, C };", {"A": 0, "B": 1, "C": 2}),
            ("enum class E : int { A = -1, B, C = 7, D, };", {"A": -1, "B": 0, "C": 7, "D": 8}),
            ("enum struct E : std::uint8_t { A = 0x10u, B };", {"A": 16, "B": 17}),
            (
                "enum E { A = 1 << 3, B = A | 1, C = ~A, D = (B + 2) * 2 };",
                {"A": 8, "B": 9, "C": -9, "D": 22},
            ),
            ("typedef enum { A = 2, B } E;", {"A": 2, "B": 3}),
            ("typedef enum E_ { A } E;", None),
            ("enum E { A /* = 5, X */, // B = 9,\n C };", {"A": 0, "C": 1}),
            ("// enum E { Z };\nenum E { A };", {"A": 0}),
            ('const char* s = "enum E { Z };";\nenum E { A };', {"A": 0}),
            ("enum E {};", {}),
        ],
    )
    def test_values(self, text: str, members: dict[str, int] | None) -> None:
        """Explicit, implicit and computed values are those that a compiler gives."""
        enums, faults = parse_enums(text)
        assert faults == []
        assert (enums["E"].members if "E" in enums else None) == members

    @pytest.mark.parametrize(
        "text",
        [
            "enum E { A = f(1) };",
            "enum E { A = B };",
            "enum E { A, A };",
            "enum E { A = 1 << 99999 };",
            "enum E { A = };",
            "enum E { A B };",
            "enum E { = 3 };",
            "enum E { A = 1.5 };",
            "enum E { A }; enum E { B };",
        ],
    )
    def test_what_is_beyond_it_is_said(self, text: str) -> None:
        """A body that cannot be evaluated is a fault with the enumeration's name, never a wrong value."""
        enums, ((line, message),) = parse_enums(text)
        assert line == 1
        assert "E" in message
        assert "E" not in enums or enums["E"].members == {"A": 0}

    def test_lines_survive_comments(self) -> None:
        """The line is that of the source, comments of several lines above it included."""
        enums, _ = parse_enums("/* one\n two\n*/\nenum class E\n{ A };\n")
        assert enums["E"].line == 4
