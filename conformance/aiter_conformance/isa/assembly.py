"""LLVM's assembly text to instructions: operands and modifiers, checked against `operands.SPECS`."""

from __future__ import annotations

import enum
import re
import struct
from dataclasses import dataclass, field

from aiter_conformance.errors import HarnessError
from aiter_conformance.isa.opcodes import Op
from aiter_conformance.isa.operands import SPECS, Form, Spec

VCC, M0, EXEC = 106, 124, 126
ACC_ROW = 256
"""Row of a0 in the vector register file; v0 is row 0."""
_SPECIAL = {"vcc": (VCC, 2), "m0": (M0, 1), "exec": (EXEC, 2)}
_SUFFIX = re.compile(r"_(e32|e64|sdwa|dpp)$")
_REGISTER = re.compile(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])$")
_MODIFIER = re.compile(r" ([a-z]\w*):(\[[\d,]+\]|\S+)")
_FLAG = re.compile(r"(?<=[\w\]|]) (offen|lds|sc0|sc1|nt|row_half_mirror)\b")
_NO_DESTINATION = (Form.COMPARE, Form.LDS_WRITE, Form.BUFFER_STORE, Form.GLOBAL_STORE)
_SELECT = {"BYTE_0": 0, "BYTE_1": 1, "BYTE_2": 2, "BYTE_3": 3, "WORD_0": 4, "WORD_1": 5, "DWORD": 6}


class UnknownInstructionError(HarnessError):
    """An instruction, operand or modifier that the emulator does not model."""


class Kind(enum.IntEnum):
    """What an operand is; the numbers are those of the instruction table."""

    NONE = 0
    VECTOR = 1
    SCALAR = 2
    CONSTANT = 3


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand.

    Attributes:
        kind: What it is.
        value: Row of the vector file (a0 is 256), SGPR number, or the constant's bits as a signed 32-bit
            number.
        dwords: Registers that it spans; 1 for a constant.
        negate: Whether its sign is flipped.
        absolute: Whether its sign is cleared first.
    """

    kind: Kind
    value: int
    dwords: int = 1
    negate: bool = False
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        op: Its opcode.
        destination: Where the result goes; None for stores, compares of scalars and control.
        sources: Sources in the order of `operands.Form`.
        modifiers: Modifier values: numbers, or tuples for bracketed lists; flags are 1.
    """

    op: Op
    destination: Operand | None
    sources: tuple[Operand, ...]
    modifiers: dict[str, int | tuple[int, ...]] = field(default_factory=dict)

    def number(self, name: str, default: int = 0) -> int:
        """Value of a numeric modifier or flag."""
        value = self.modifiers.get(name, default)
        if not isinstance(value, int):
            raise TypeError(f"modifier {name} must be a number (got {value})")
        return value

    def bits(self, name: str, count: int) -> tuple[int, ...]:
        """Values of a bracketed modifier, zeros where it is absent."""
        value = self.modifiers.get(name, (0,) * count)
        if not isinstance(value, tuple):
            raise TypeError(f"modifier {name} must be a list (got {value})")
        return value + (0,) * (count - len(value))


def _constant(text: str) -> int:
    if re.fullmatch(r"-?\d+\.\d+", text):
        return int(struct.unpack("<i", struct.pack("<f", float(text)))[0])
    value = int(text, 0)
    if not -(1 << 31) <= value < 1 << 32:
        raise ValueError(f"a constant must have 32 bits (got {text})")
    return value - (1 << 32) if value >= 1 << 31 else value


def parse_operand(text: str) -> Operand:
    """Parse one operand.

    Raises:
        ValueError: It is nothing that is modelled.
    """
    negate = text.startswith("-") and not text[1:2].isdigit()
    text = text[1:] if negate else text
    absolute = text.startswith("|") and text.endswith("|")
    text = text.strip("|") if absolute else text
    if text in _SPECIAL:
        index, dwords = _SPECIAL[text]
        return Operand(Kind.SCALAR, index, dwords, negate, absolute)
    match = _REGISTER.match(text)
    if match is None:
        return Operand(Kind.CONSTANT, _constant(text))
    first = int(match[2] or match[3])
    dwords = int(match[4]) - first + 1 if match[4] else 1
    if match[1] == "s":
        return Operand(Kind.SCALAR, first, dwords, negate, absolute)
    return Operand(Kind.VECTOR, first + (ACC_ROW if match[1] == "a" else 0), dwords, negate, absolute)


def _modifier(name: str, text: str) -> int | tuple[int, ...]:
    if text.startswith("["):
        return tuple(int(x) for x in text[1:-1].split(","))
    if name in ("dst_sel", "src0_sel"):
        return _SELECT[text]
    if name == "dst_unused":
        return {"UNUSED_PAD": 0, "UNUSED_PRESERVE": 1}[text]
    return int(text, 0)


def _split(
    op: Op, spec: Spec, operands: list[Operand], *, lds: bool
) -> tuple[Operand | None, tuple[Operand, ...]]:
    """Divide operands into destination and sources."""
    form = spec.form
    if form in (Form.NONE, Form.IMMEDIATE, Form.BRANCH):
        return None, ()
    returns_nothing = form is Form.GLOBAL_ATOMIC and len(operands) == spec.sources
    if form in _NO_DESTINATION or lds or returns_nothing:
        destination, sources = None, operands
    else:
        destination, sources = operands[0], operands[1:]
        if destination.kind is Kind.CONSTANT or destination.dwords != spec.dwords:
            raise ValueError(f"destination must span {spec.dwords} registers")
    if len(sources) != spec.sources:
        raise ValueError(f"{op.name.lower()} must have {spec.sources} sources (got {len(sources)})")
    for source, dwords in zip(sources, spec.source_dwords, strict=True):
        if source.kind is not Kind.CONSTANT and source.dwords != dwords:
            raise ValueError(f"a source must span {dwords} registers (got {source.dwords})")
        if (source.negate or source.absolute) and not spec.signs:
            raise ValueError("sign modifiers are not modelled here")
    return destination, tuple(sources)


def _check_modifiers(spec: Spec, modifiers: dict[str, int | tuple[int, ...]]) -> None:
    extra = set(modifiers) - spec.modifiers
    if extra:
        raise ValueError(f"modifiers {sorted(extra)} are not modelled here")
    for name in ("row_mask", "bank_mask"):
        if modifiers.get(name, 0xF) != 0xF:
            raise ValueError(f"{name} must be 0xf (got {modifiers[name]})")
    if "offen" in spec.modifiers and "offen" not in modifiers:
        raise ValueError("a buffer access must be offen")
    if modifiers.keys() & {"cbsz", "blgp"} and not modifiers.get("cbsz") == modifiers.get("blgp") == 4:
        raise ValueError("operands of a scaled matrix instruction must both be fp4 (cbsz 4 and blgp 4)")


def parse(text: str, arch: str) -> Instruction:
    """Parse one line of LLVM's disassembly.

    Args:
        text: e.g. ``v_add_u32_e32 v1, 64, v2``.
        arch: Architecture that runs it.

    Raises:
        UnknownInstructionError: The emulator does not model it on that architecture; the message has the
            text.
    """
    mnemonic, _, rest = text.partition(" ")
    rest = " " + rest.strip()
    try:
        op = Op[_SUFFIX.sub("", mnemonic).upper()]
        spec = SPECS[op]
        if arch not in spec.arches:
            raise ValueError(f"{mnemonic} is not an instruction of {arch}")
        if spec.form in (Form.NONE, Form.IMMEDIATE, Form.BRANCH):
            return Instruction(op, None, ())
        modifiers = {m[1]: _modifier(m[1], m[2]) for m in _MODIFIER.finditer(rest)}
        rest = _MODIFIER.sub("", rest)
        modifiers |= {m[1]: 1 for m in _FLAG.finditer(rest)}
        operands = [parse_operand(x) for x in _FLAG.sub("", rest).strip().split(", ")]
        _check_modifiers(spec, modifiers)
        destination, sources = _split(op, spec, operands, lds="lds" in modifiers)
        return Instruction(op, destination, sources, modifiers)
    except (KeyError, ValueError) as error:
        reason = "no such instruction is modelled" if isinstance(error, KeyError) else str(error)
        raise UnknownInstructionError(f"cannot emulate '{text}' on {arch}: {reason}") from error
