"""The instructions that run: what the MoE code objects of AITER releases use on gfx942 and gfx950.

A name is LLVM's mnemonic without its encoding suffix (``_e32``, ``_e64``, ``_sdwa``, ``_dpp``). The order of
`Op` is part of the fast core's dispatch: families are contiguous, and the ``FIRST_*`` constants say where
each begins.
"""

from __future__ import annotations

import enum


class Op(enum.IntEnum):
    """Opcode numbers of the instruction table."""

    # Control: nothing that a wave computes.
    S_NOP = 0
    S_WAITCNT = enum.auto()
    S_SLEEP = enum.auto()
    S_BARRIER = enum.auto()
    S_ENDPGM = enum.auto()
    S_BRANCH = enum.auto()
    S_CBRANCH_SCC0 = enum.auto()
    S_CBRANCH_SCC1 = enum.auto()
    # Scalar.
    S_MOV_B32 = enum.auto()
    S_MOV_B64 = enum.auto()
    S_BCNT1_I32_B64 = enum.auto()
    S_ADD_U32 = enum.auto()
    S_ADDC_U32 = enum.auto()
    S_ADD_I32 = enum.auto()
    S_SUB_U32 = enum.auto()
    S_SUB_I32 = enum.auto()
    S_MUL_I32 = enum.auto()
    S_MUL_HI_U32 = enum.auto()
    S_AND_B32 = enum.auto()
    S_AND_B64 = enum.auto()
    S_OR_B32 = enum.auto()
    S_LSHL_B32 = enum.auto()
    S_LSHR_B32 = enum.auto()
    S_LSHL1_ADD_U32 = enum.auto()
    S_CSELECT_B32 = enum.auto()
    S_CSELECT_B64 = enum.auto()
    S_ADDK_I32 = enum.auto()
    S_CMP_EQ_U32 = enum.auto()
    S_CMP_GE_U32 = enum.auto()
    S_CMP_GT_U32 = enum.auto()
    S_CMP_LT_U32 = enum.auto()
    S_CMP_LT_I32 = enum.auto()
    S_SETVSKIP = enum.auto()
    S_LOAD_DWORD = enum.auto()
    S_LOAD_DWORDX2 = enum.auto()
    # Vector, integer: 32-bit lanes in and out.
    V_NOP = enum.auto()
    V_MOV_B32 = enum.auto()
    V_ACCVGPR_READ_B32 = enum.auto()
    V_ACCVGPR_WRITE_B32 = enum.auto()
    V_ADD_U32 = enum.auto()
    V_ADD_I32 = enum.auto()
    V_SUB_U32 = enum.auto()
    V_SUBREV_U32 = enum.auto()
    V_MUL_LO_U32 = enum.auto()
    V_MUL_HI_U32 = enum.auto()
    V_MUL_U32_U24 = enum.auto()
    V_MUL_I32_I24 = enum.auto()
    V_MIN_U32 = enum.auto()
    V_AND_B32 = enum.auto()
    V_OR_B32 = enum.auto()
    V_XOR_B32 = enum.auto()
    V_LSHLREV_B32 = enum.auto()
    V_LSHRREV_B32 = enum.auto()
    V_ADD3_U32 = enum.auto()
    V_LSHL_ADD_U32 = enum.auto()
    V_BFE_U32 = enum.auto()
    V_PERM_B32 = enum.auto()
    V_MBCNT_LO_U32_B32 = enum.auto()
    V_MBCNT_HI_U32_B32 = enum.auto()
    V_CNDMASK_B32 = enum.auto()
    # Vector, float32 arithmetic: MODE's single-precision denormal bits apply.
    V_ADD_F32 = enum.auto()
    V_MUL_F32 = enum.auto()
    V_FMA_F32 = enum.auto()
    V_MAX_F32 = enum.auto()
    V_MAX3_F32 = enum.auto()
    V_EXP_F32 = enum.auto()
    V_RCP_F32 = enum.auto()
    V_RCP_IFLAG_F32 = enum.auto()
    V_PK_MUL_F32 = enum.auto()
    V_PK_FMA_F32 = enum.auto()
    # Vector, conversions.
    V_CVT_F32_I32 = enum.auto()
    V_CVT_F32_U32 = enum.auto()
    V_CVT_I32_F32 = enum.auto()
    V_CVT_U32_F32 = enum.auto()
    V_CVT_OFF_F32_I4 = enum.auto()
    V_CVT_F16_F32 = enum.auto()
    V_CVT_PKRTZ_F16_F32 = enum.auto()
    V_CVT_PK_BF16_F32 = enum.auto()
    V_CVT_PK_FP8_F32 = enum.auto()
    V_CVT_SCALEF32_PK_FP4_F32 = enum.auto()
    # Vector, compares and moves between lanes or to scalars.
    V_CMP_EQ_U32 = enum.auto()
    V_CMP_NE_U32 = enum.auto()
    V_CMP_LT_U32 = enum.auto()
    V_CMP_LE_U32 = enum.auto()
    V_CMP_GT_U32 = enum.auto()
    V_CMP_U_F32 = enum.auto()
    V_READFIRSTLANE_B32 = enum.auto()
    V_READLANE_B32 = enum.auto()
    V_WRITELANE_B32 = enum.auto()
    V_PERMLANE16_SWAP_B32 = enum.auto()
    V_PERMLANE32_SWAP_B32 = enum.auto()
    # Matrix.
    V_MFMA_F32_16X16X16_BF16 = enum.auto()
    V_MFMA_F32_16X16X16_F16 = enum.auto()
    V_MFMA_F32_16X16X32_FP8_FP8 = enum.auto()
    V_MFMA_I32_16X16X32_I8 = enum.auto()
    V_MFMA_F32_16X16X128_F8F6F4 = enum.auto()
    V_MFMA_SCALE_F32_16X16X128_F8F6F4 = enum.auto()
    # LDS.
    DS_READ_U8 = enum.auto()
    DS_READ_B32 = enum.auto()
    DS_READ_B64 = enum.auto()
    DS_READ_B128 = enum.auto()
    DS_WRITE_B8 = enum.auto()
    DS_WRITE_B16 = enum.auto()
    DS_WRITE_B32 = enum.auto()
    DS_WRITE_B64 = enum.auto()
    DS_WRITE_B128 = enum.auto()
    DS_BPERMUTE_B32 = enum.auto()
    # Global memory, through a buffer descriptor or by address.
    BUFFER_LOAD_DWORD = enum.auto()
    BUFFER_LOAD_DWORDX2 = enum.auto()
    BUFFER_LOAD_DWORDX4 = enum.auto()
    BUFFER_STORE_DWORD = enum.auto()
    BUFFER_STORE_DWORDX4 = enum.auto()
    GLOBAL_LOAD_DWORD = enum.auto()
    GLOBAL_LOAD_DWORDX2 = enum.auto()
    GLOBAL_LOAD_DWORDX4 = enum.auto()
    GLOBAL_STORE_DWORDX2 = enum.auto()
    GLOBAL_ATOMIC_ADD_F32 = enum.auto()
    GLOBAL_ATOMIC_PK_ADD_F16 = enum.auto()
    GLOBAL_ATOMIC_PK_ADD_BF16 = enum.auto()
    GLOBAL_ATOMIC_CMPSWAP_X2 = enum.auto()


FIRST_SCALAR = Op.S_MOV_B32
FIRST_VECTOR = Op.V_NOP
FIRST_FLOAT = Op.V_ADD_F32
FIRST_CONVERT = Op.V_CVT_F32_I32
FIRST_CROSS = Op.V_CMP_EQ_U32
FIRST_MATRIX = Op.V_MFMA_F32_16X16X16_BF16
FIRST_LDS = Op.DS_READ_U8
FIRST_GLOBAL = Op.BUFFER_LOAD_DWORD
