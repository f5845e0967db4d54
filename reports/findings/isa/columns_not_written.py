"""Some 32x128 one-stage objects of AITER write the last 256 columns of the output and no others.

python columns_not_written.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys

import numpy as np

from aiter_conformance.isa import launch, toy
from aiter_conformance.isa.objects import open_object

OBJECTS = (
    "gfx950/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x128.co",
    "gfx950/fmoe/gelu/fmoe_bf16_pertokenFp8_g1u1_vs_gelu_1tg_32x128.co",
    "gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x128.co",
    "gfx942/fmoe/silu/fmoe_fp16_pertokenFp8_g1u1_vs_silu_1tg_32x128.co",
)
print("expected: every column of the output is written")  # noqa: T201
shows = False
for name in OBJECTS:
    opened = open_object(sys.argv[1], name)
    problem = toy.problem(opened.kind, toy.Shape(tokens=1, experts=1, topk=1, hidden=1024, intermediate=128))
    ran = launch.run(opened.code, opened.program, problem.launch, core=opened.core, slack=1 << 16)
    written = np.flatnonzero(ran.outputs["O"][0])
    error = problem.error(ran.outputs["O"])
    columns = f"of columns 0 to 1023, {written[0]} to {written[-1]} are"
    print(f"observed: {name}: {columns}; relative error {error:.2g}")  # noqa: T201
    shows |= bool(written[0])
sys.exit(shows)
