"""gfx950 blockscale objects of AITER scale the intermediate to 240, the largest code of gfx942's fp8.

python gfx950_scales_to_240.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys
from dataclasses import replace

import numpy as np

from aiter_conformance.isa import toy
from aiter_conformance.isa.judge import Case, cases
from aiter_conformance.isa.objects import open_object

OBJECTS = (
    "gfx950/fmoe/silu/fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256.co",
    "gfx950/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_32x128_3tg_pf2.co",
)
print("expected: the largest element of 128 becomes 448, the largest e4m3fn code")  # noqa: T201
shows = False
for name in OBJECTS:
    opened = open_object(sys.argv[1], name)
    few: Case = cases(opened.kind)[0]
    seen = opened.observe(few)
    to_448, to_240 = (
        toy.problem(replace(opened.kind, requant_max=largest), few.shape).expected
        for largest in (448.0, 240.0)
    )
    apart = np.linalg.norm(to_448 - to_240) / np.linalg.norm(to_448)
    print(  # noqa: T201
        f"observed: {name}: right with {seen.scaled_to or 448:g} (relative error {seen.error:.2g}); "
        f"scaling to 240 or to 448 makes {apart:.2g} of difference"
    )
    shows |= seen.scaled_to is not None
sys.exit(shows)
