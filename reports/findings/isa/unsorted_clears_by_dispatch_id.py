"""AITER's kernels for unsorted tokens take from 8 bytes that nobody wrote whether the output is cleared.

python unsorted_clears_by_dispatch_id.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys
from dataclasses import replace

import numpy as np

from aiter_conformance.errors import UsageError
from aiter_conformance.isa import launch, toy
from aiter_conformance.isa.objects import open_object

OBJECTS = (
    "gfx942/fmoe/silu/fmoe_bf16_a16_blockscaleFp8_g1u1_vs_silu_1tg_16x128_flat_pf3.co",
    "gfx942/fmoe/silu/fmoe_bf16_a16_blockscaleFp8_g1u1_vs_silu_1tg_emsort_16x128_pf3.co",
    "gfx950/fmoe/silu/fmoe_bf16_blockscaleBf16_g1u1_flat_vs_silu_1x128.co",
    "gfx950/fmoe/silu/fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x256.co",
)
# What the last launch there left: the low half of its dispatch's number, and that the output was cleared.
LEFT = {"another dispatch's number": (12345, 0xDEADC0DE), "its own number": (0, 0xDEADC0DE)}
print("expected: right (relative error below 2e-2) whatever the bytes behind the output hold")  # noqa: T201
shows = False
for name in OBJECTS:
    try:
        opened = open_object(sys.argv[1], name)
    except UsageError as error:
        print(f"observed: nothing, for {error}")  # noqa: T201
        continue
    shape = toy.Shape(tokens=2, experts=2, topk=1, hidden=2048, intermediate=opened.kind.tile_n, groups=1)
    problem = toy.problem(opened.kind, shape)
    for words, bits in LEFT.items():
        output = problem.launch.buffers["O"].data.copy()
        output[-4:] = np.array(bits, np.uint32).view(output.dtype)
        buffers = {**problem.launch.buffers, "O": replace(problem.launch.buffers["O"], data=output)}
        work = replace(problem.launch, buffers=buffers)
        ran = launch.run(opened.code, opened.program, work, core=opened.core, slack=1 << 16)
        error = problem.error(ran.outputs["O"])
        print(f"observed: {name}: {words}: relative error {error:.2g}")  # noqa: T201
        shows |= not error < 2e-2
sys.exit(shows)
