"""One-stage kernels of AITER add behind the output where the hidden size is no multiple of 256.

python hidden_size_writes_outside.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys

from aiter_conformance.isa.judge import Case
from aiter_conformance.isa.objects import open_object
from aiter_conformance.isa.toy import Shape

OBJECTS = (
    "gfx942/fmoe/silu/fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256.co",
    "gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x256.co",
    "gfx950/fmoe/silu/fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256.co",
    "gfx950/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x256.co",
)
print("expected: the kernel adds inside the output O [tokens, hidden] alone")  # noqa: T201
shows = False
for name in OBJECTS:
    shape = Shape(tokens=1, experts=1, topk=1, hidden=384, intermediate=256)
    seen = open_object(sys.argv[1], name).observe(Case("384", shape))
    print(f"observed: {name}, hidden size 384: {seen.fault or 'so it does'}")  # noqa: T201
    shows |= seen.fault is not None
sys.exit(shows)
