"""The fp8 quant keys hold the flavour of the GPU that vLLM was imported on."""

import sys

import torch
from vllm_on_cpu import finish, load

vllm = load("gfx942")
key = vllm.moe.kFp8StaticTensorSym
sys.modules["vllm.platforms.rocm"]._GCN_ARCH = "gfx950"  # as if asked about another GPU
platform = sys.modules["vllm.platforms"].current_platform.fp8_dtype()
finish(
    "a key that means the fp8 flavour of the GPU in question, here float8_e4m3fn",
    f"{key.dtype}, while the platform says {platform}",
    shows=key.dtype != platform and key.dtype == torch.float8_e4m3fnuz,
)
