"""One-stage kernels of AITER give wrong columns where the hidden size is an odd multiple of 256.

python odd_hidden_size.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys

import numpy as np

from aiter_conformance.isa import launch, toy
from aiter_conformance.isa.objects import open_object

OBJECTS = (
    "gfx942/fmoe/silu/fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256.co",
    "gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256.co",
    "gfx950/fmoe/silu/fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256.co",
    "gfx950/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256.co",
)
print("expected: each 64 columns of the output are W2's own 64 rows times the intermediate")  # noqa: T201
shows = False
for name in OBJECTS:
    opened = open_object(sys.argv[1], name)
    for hidden in (512, 768, 1024, 1280):
        shape = toy.Shape(tokens=2, experts=1, topk=1, hidden=hidden, intermediate=256)
        problem = toy.problem(opened.kind, shape)
        ran = launch.run(opened.code, opened.program, problem.launch, core=opened.core, slack=1 << 16)
        got = problem.decode(ran.outputs["O"]).reshape(2, -1, 64)
        right = problem.expected.reshape(got.shape)
        # Which part of the right answer each part of the output is: that with the same direction.
        unit = [part / np.linalg.norm(part, axis=(0, 2), keepdims=True) for part in (got, right)]
        holds = np.einsum("tic,tjc->ij", *unit).argmax(1)
        moved = [f"{64 * i} holds {64 * j}" for i, j in enumerate(holds) if i != j]
        shows |= bool(moved)
        error = problem.error(ran.outputs["O"])
        print(f"observed: {name}, hidden size {hidden}: relative error {error:.2g}")  # noqa: T201
        if moved:
            print(f"          columns from {moved[0]}, ..., from {moved[-1]}")  # noqa: T201
sys.exit(shows)
