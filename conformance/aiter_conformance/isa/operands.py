"""What the decoder may accept for each opcode: order of operands, registers that they take, modifiers."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from aiter_conformance.isa.opcodes import Op


class Form(enum.Enum):
    """How an instruction's operands are written: ``d`` a destination, ``s`` a source, ``-`` nothing."""

    NONE = "-"
    IMMEDIATE = "i"
    BRANCH = "b"
    COMPARE = "s s"
    SCALAR = "d s..."
    SCALAR_K = "d i"
    SCALAR_LOAD = "d base offset"
    VECTOR = "d v..."
    SWAP = "v v"
    MATRIX = "d a b c..."
    LDS_READ = "d address"
    LDS_WRITE = "address data"
    LDS_PERMUTE = "d address data"
    BUFFER_LOAD = "d address descriptor offset"
    BUFFER_STORE = "data address descriptor offset"
    GLOBAL_LOAD = "d address base"
    GLOBAL_STORE = "address data base"
    GLOBAL_ATOMIC = "[d] address data base"


@dataclass(frozen=True, slots=True)
class Spec:
    """What the decoder may accept for one opcode.

    Attributes:
        form: Operand order.
        sources: Number of sources that follow the destination (or all operands where there is none).
        modifiers: Names of the modifiers that the cores model; any other is an error.
        signs: Whether sources may carry a sign or absolute-value modifier.
        dwords: Registers of the destination (of the data, for stores).
        source_dwords: Registers of each source, in the order of the sources.
        arches: Architectures that have it.
    """

    form: Form
    sources: int
    modifiers: frozenset[str] = frozenset()
    signs: bool = False
    dwords: int = 1
    source_dwords: tuple[int, ...] = ()
    arches: tuple[str, ...] = ("gfx942", "gfx950")


_CACHE_HINTS = frozenset({"sc0", "sc1", "nt"})
_DPP = frozenset({"row_newbcast", "quad_perm", "row_half_mirror", "row_mask", "bank_mask"})
_SDWA = frozenset({"dst_sel", "dst_unused", "src0_sel"})
_GFX950 = ("gfx950",)


def _scalar(sources: int, dwords: int = 1, *source_dwords: int) -> Spec:
    return Spec(Form.SCALAR, sources, dwords=dwords, source_dwords=source_dwords or (1,) * sources)


def _vector(sources: int, *, signs: bool = False, modifiers: frozenset[str] = frozenset()) -> Spec:
    return Spec(Form.VECTOR, sources, modifiers, signs, source_dwords=(1,) * sources)


def _packed(sources: int) -> Spec:
    return Spec(Form.VECTOR, sources, dwords=2, source_dwords=(2,) * sources)


def _vector_compare(*, signs: bool = False) -> Spec:
    return Spec(Form.VECTOR, 2, signs=signs, dwords=2, source_dwords=(1, 1))


def _matrix(operand_dwords: int, **changes: object) -> Spec:
    fields: dict[str, object] = {
        "form": Form.MATRIX,
        "sources": 3,
        "dwords": 4,
        "source_dwords": (operand_dwords, operand_dwords, 4),
    }
    return Spec(**(fields | changes))  # type: ignore[arg-type]


def _lds(form: Form, dwords: int) -> Spec:
    sources = {Form.LDS_READ: (1,), Form.LDS_WRITE: (1, dwords), Form.LDS_PERMUTE: (1, 1)}[form]
    return Spec(form, len(sources), frozenset({"offset"}), dwords=dwords, source_dwords=sources)


def _buffer(form: Form, dwords: int, *, lds: bool = False) -> Spec:
    sources = (1, 4, 1) if form is Form.BUFFER_LOAD else (dwords, 1, 4, 1)
    modifiers = _CACHE_HINTS | {"offen", "offset"} | ({"lds"} if lds else frozenset())
    return Spec(form, len(sources), modifiers, dwords=dwords, source_dwords=sources)


def _global(form: Form, dwords: int, data_dwords: int | None = None) -> Spec:
    sources = (1, 2) if form is Form.GLOBAL_LOAD else (1, data_dwords or dwords, 2)
    return Spec(form, len(sources), _CACHE_HINTS | {"offset"}, dwords=dwords, source_dwords=sources)


SPECS: dict[Op, Spec] = {
    Op.S_NOP: Spec(Form.IMMEDIATE, 1),
    Op.S_WAITCNT: Spec(Form.IMMEDIATE, 1),
    Op.S_SLEEP: Spec(Form.IMMEDIATE, 1),
    Op.S_BARRIER: Spec(Form.NONE, 0),
    Op.S_ENDPGM: Spec(Form.NONE, 0),
    Op.S_BRANCH: Spec(Form.BRANCH, 0),
    Op.S_CBRANCH_SCC0: Spec(Form.BRANCH, 0),
    Op.S_CBRANCH_SCC1: Spec(Form.BRANCH, 0),
    Op.S_MOV_B32: _scalar(1),
    Op.S_MOV_B64: _scalar(1, 2, 2),
    Op.S_BCNT1_I32_B64: _scalar(1, 1, 2),
    **{
        op: _scalar(2)
        for op in (
            *(
                Op.S_ADD_U32,
                Op.S_ADDC_U32,
                Op.S_ADD_I32,
                Op.S_SUB_U32,
                Op.S_SUB_I32,
                Op.S_MUL_I32,
                Op.S_MUL_HI_U32,
            ),
            *(Op.S_AND_B32, Op.S_OR_B32, Op.S_LSHL_B32, Op.S_LSHR_B32, Op.S_LSHL1_ADD_U32, Op.S_CSELECT_B32),
        )
    },
    Op.S_AND_B64: _scalar(2, 2, 2, 2),
    Op.S_CSELECT_B64: _scalar(2, 2, 2, 2),
    Op.S_ADDK_I32: Spec(Form.SCALAR_K, 1, source_dwords=(1,)),
    **{
        op: Spec(Form.COMPARE, 2, source_dwords=(1, 1))
        for op in (
            *(Op.S_CMP_EQ_U32, Op.S_CMP_GE_U32, Op.S_CMP_GT_U32, Op.S_CMP_LT_U32, Op.S_CMP_LT_I32),
            Op.S_SETVSKIP,
        )
    },
    Op.S_LOAD_DWORD: Spec(Form.SCALAR_LOAD, 2, source_dwords=(2, 1)),
    Op.S_LOAD_DWORDX2: Spec(Form.SCALAR_LOAD, 2, dwords=2, source_dwords=(2, 1)),
    Op.V_NOP: Spec(Form.NONE, 0),
    **{op: _vector(1) for op in (Op.V_MOV_B32, Op.V_ACCVGPR_READ_B32, Op.V_ACCVGPR_WRITE_B32)},
    **{
        op: _vector(2)
        for op in (
            *(Op.V_ADD_U32, Op.V_ADD_I32, Op.V_SUB_U32, Op.V_SUBREV_U32, Op.V_MUL_LO_U32, Op.V_MUL_HI_U32),
            *(Op.V_MUL_U32_U24, Op.V_MUL_I32_I24, Op.V_MIN_U32, Op.V_AND_B32, Op.V_OR_B32, Op.V_XOR_B32),
            *(Op.V_LSHLREV_B32, Op.V_LSHRREV_B32, Op.V_MBCNT_LO_U32_B32, Op.V_MBCNT_HI_U32_B32),
        )
    },
    **{op: _vector(3) for op in (Op.V_ADD3_U32, Op.V_LSHL_ADD_U32, Op.V_BFE_U32, Op.V_PERM_B32)},
    Op.V_CNDMASK_B32: Spec(Form.VECTOR, 3, source_dwords=(1, 1, 2)),
    Op.V_ADD_F32: _vector(2, signs=True),
    Op.V_MUL_F32: _vector(2, signs=True, modifiers=_DPP),
    Op.V_FMA_F32: _vector(3, signs=True),
    Op.V_MAX_F32: _vector(2, signs=True, modifiers=_DPP),
    Op.V_MAX3_F32: _vector(3, signs=True),
    Op.V_EXP_F32: _vector(1, signs=True),
    Op.V_RCP_F32: _vector(1, signs=True),
    Op.V_RCP_IFLAG_F32: _vector(1, signs=True),
    Op.V_PK_MUL_F32: _packed(2),
    Op.V_PK_FMA_F32: _packed(3),
    Op.V_CVT_F32_I32: _vector(1),
    Op.V_CVT_F32_U32: _vector(1),
    Op.V_CVT_I32_F32: _vector(1, signs=True),
    Op.V_CVT_U32_F32: _vector(1, signs=True),
    Op.V_CVT_OFF_F32_I4: _vector(1, modifiers=_SDWA),
    Op.V_CVT_F16_F32: _vector(1, signs=True, modifiers=_SDWA),
    Op.V_CVT_PKRTZ_F16_F32: _vector(2, signs=True),
    Op.V_CVT_PK_BF16_F32: Spec(Form.VECTOR, 2, signs=True, source_dwords=(1, 1), arches=_GFX950),
    Op.V_CVT_PK_FP8_F32: _vector(2, signs=True, modifiers=frozenset({"op_sel"})),
    Op.V_CVT_SCALEF32_PK_FP4_F32: Spec(
        Form.VECTOR, 3, frozenset({"op_sel"}), source_dwords=(1, 1, 1), arches=_GFX950
    ),
    **{
        op: _vector_compare()
        for op in (Op.V_CMP_EQ_U32, Op.V_CMP_NE_U32, Op.V_CMP_LT_U32, Op.V_CMP_LE_U32, Op.V_CMP_GT_U32)
    },
    Op.V_CMP_U_F32: _vector_compare(signs=True),
    Op.V_READFIRSTLANE_B32: _vector(1),
    Op.V_READLANE_B32: _vector(2),
    Op.V_WRITELANE_B32: _vector(2),
    Op.V_PERMLANE16_SWAP_B32: Spec(Form.SWAP, 1, source_dwords=(1,), arches=_GFX950),
    Op.V_PERMLANE32_SWAP_B32: Spec(Form.SWAP, 1, source_dwords=(1,), arches=_GFX950),
    Op.V_MFMA_F32_16X16X16_BF16: _matrix(2),
    Op.V_MFMA_F32_16X16X16_F16: _matrix(2),
    Op.V_MFMA_F32_16X16X32_FP8_FP8: _matrix(2),
    Op.V_MFMA_I32_16X16X32_I8: _matrix(2),
    Op.V_MFMA_F32_16X16X128_F8F6F4: _matrix(8, arches=_GFX950),
    Op.V_MFMA_SCALE_F32_16X16X128_F8F6F4: _matrix(
        4,
        sources=5,
        source_dwords=(4, 4, 4, 1, 1),
        modifiers=frozenset({"op_sel", "op_sel_hi", "cbsz", "blgp"}),
        arches=_GFX950,
    ),
    Op.DS_READ_U8: _lds(Form.LDS_READ, 1),
    Op.DS_READ_B32: _lds(Form.LDS_READ, 1),
    Op.DS_READ_B64: _lds(Form.LDS_READ, 2),
    Op.DS_READ_B128: _lds(Form.LDS_READ, 4),
    Op.DS_WRITE_B8: _lds(Form.LDS_WRITE, 1),
    Op.DS_WRITE_B16: _lds(Form.LDS_WRITE, 1),
    Op.DS_WRITE_B32: _lds(Form.LDS_WRITE, 1),
    Op.DS_WRITE_B64: _lds(Form.LDS_WRITE, 2),
    Op.DS_WRITE_B128: _lds(Form.LDS_WRITE, 4),
    Op.DS_BPERMUTE_B32: _lds(Form.LDS_PERMUTE, 1),
    Op.BUFFER_LOAD_DWORD: _buffer(Form.BUFFER_LOAD, 1, lds=True),
    Op.BUFFER_LOAD_DWORDX2: _buffer(Form.BUFFER_LOAD, 2),
    Op.BUFFER_LOAD_DWORDX4: _buffer(Form.BUFFER_LOAD, 4, lds=True),
    Op.BUFFER_STORE_DWORD: _buffer(Form.BUFFER_STORE, 1),
    Op.BUFFER_STORE_DWORDX4: _buffer(Form.BUFFER_STORE, 4),
    Op.GLOBAL_LOAD_DWORD: _global(Form.GLOBAL_LOAD, 1),
    Op.GLOBAL_LOAD_DWORDX2: _global(Form.GLOBAL_LOAD, 2),
    Op.GLOBAL_LOAD_DWORDX4: _global(Form.GLOBAL_LOAD, 4),
    Op.GLOBAL_STORE_DWORDX2: _global(Form.GLOBAL_STORE, 2),
    Op.GLOBAL_ATOMIC_ADD_F32: _global(Form.GLOBAL_ATOMIC, 1),
    Op.GLOBAL_ATOMIC_PK_ADD_F16: _global(Form.GLOBAL_ATOMIC, 1),
    Op.GLOBAL_ATOMIC_PK_ADD_BF16: _global(Form.GLOBAL_ATOMIC, 1),
    Op.GLOBAL_ATOMIC_CMPSWAP_X2: _global(Form.GLOBAL_ATOMIC, 2, 4),
}
