"""AITER's pertokenInt8 g1u0 atm_opt objects are wrong at hidden size 512, and right at 1024.

python int8_atm_opt_short_k.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys

from aiter_conformance.isa.judge import Case
from aiter_conformance.isa.objects import open_object
from aiter_conformance.isa.toy import Shape

print("expected: right at every hidden size that the host code lets through")  # noqa: T201
shows = False
for arch in ("gfx942", "gfx950"):
    name = f"{arch}/fmoe/silu/fmoe_bf16_pertokenInt8_g1u0_vs_atm_opt_silu_1tg_32x512.co"
    opened = open_object(sys.argv[1], name)
    for hidden in (512, 768, 1024, 1280, 1536, 2048):
        shape = Shape(tokens=1, experts=1, topk=1, hidden=hidden, intermediate=512)
        seen = opened.observe(Case("one token", shape))
        print(f"observed: {name}, hidden size {hidden}: relative error {seen.error:.2g}")  # noqa: T201
        shows |= not seen.right
sys.exit(shows)
