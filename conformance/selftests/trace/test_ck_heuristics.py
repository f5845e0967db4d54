"""What the generated C++ picks is read right, and what is not understood is said so."""

from __future__ import annotations

import pytest

from aiter_conformance.trace.worker.ck_heuristics import HeuristicsError, NoKernelError, Picked, pick

SOURCE = """
#pragma once
MoeKernel moe_stage1_heuristic_dispatch(int block_m, int inter_dim, at::ScalarType x_dtype)
{
#if defined(__Float4_e2m1fn_x2)
    if (dtype_checker<F8>{}(x_dtype)
        && 1 == act_op
        && 4 == quant)
    {
        if (block_m == 16)
        {
            if (inter_dim % 256 == 0) // two statements without braces
                return ck_moe_stage1_gemm<F8, F32, Op, V1, 256, 16, 128, 256/sizeof(F8), 1, 4, false>;
            else
                return ck_moe_stage1_gemm<F8, F32, Op, V1, 128, 16, 128, 128/sizeof(F8), 1, 2, false>;
        }
        else if (block_m == 64)
        {
            return ck_moe_stage1_gemm<B16, B16, F32, B16, Op, V3, 256, 64, 128, 128/sizeof(B16), 1, 4, false>;
        }
        else
        {
            TORCH_CHECK(
                false,
                "Unsupported block_m value: ",
                block_m);
        }
    }
#endif
    TORCH_CHECK(false, "Unsupported kernel config");
}
"""


class TestPick:
    """`pick` over branches, conditions and sizes."""

    @pytest.mark.parametrize(
        ("block_m", "inter_dim", "expected"),
        [
            (16, 512, Picked((16, 128, 256), 1, 256)),
            (16, 384, Picked((16, 128, 128), 1, 128)),
            (64, 1, Picked((64, 128, 64), 3, 256)),
        ],
    )
    def test_takes_the_branch(self, block_m: int, inter_dim: int, expected: Picked) -> None:
        """The kernel of the branch whose conditions hold is returned; depths are in elements."""
        parameters = {"block_m": block_m, "inter_dim": inter_dim, "x_dtype": "float8_e4m3fn"}
        assert pick(SOURCE, parameters) == expected

    @pytest.mark.parametrize(
        ("block_m", "dtype", "words"),
        [
            (32, "float8_e4m3fnuz", "Unsupported block_m value: 32"),
            (16, "bfloat16", "Unsupported kernel config"),
        ],
    )
    def test_says_what_cpp_would_raise(self, block_m: int, dtype: str, words: str) -> None:
        """Where the function raises, its own sentence is given."""
        with pytest.raises(NoKernelError, match=words):
            pick(SOURCE, {"block_m": block_m, "inter_dim": 256, "x_dtype": dtype})

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            ("block_m == 16", "popcount(block_m) == 1", "must compare parameters"),
            ("block_m == 16", "colour == 16", "may ask for"),
            ("256/sizeof(F8)", "kDepth", "a number"),
            ("V1, 256, 16, 128, 256/sizeof(F8), 1, 4, false", "V1, 256", "must name"),
            ("return ck_moe_stage1_gemm<F8, F32, Op, V1, 256", "goto x; return f<F8, V1, 256", "must start"),
            ("moe_stage1_heuristic_dispatch(", "moe_stage1_choose(", "function whose name"),
        ],
    )
    def test_refuses_what_it_does_not_understand(self, old: str, new: str, words: str) -> None:
        """Code of another form is an error that says what was expected, never a guess."""
        with pytest.raises(HeuristicsError, match=words):
            pick(SOURCE.replace(old, new, 1), {"block_m": 16, "inter_dim": 256, "x_dtype": "float8_e4m3fn"})
