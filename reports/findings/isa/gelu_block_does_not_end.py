"""gfx950 blockscale GELU objects of AITER with a 32x384 tile do not end.

python gelu_block_does_not_end.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys

from aiter_conformance.errors import UsageError
from aiter_conformance.isa.judge import BUDGET, Case
from aiter_conformance.isa.objects import open_object
from aiter_conformance.isa.toy import Shape

print(f"expected: a wave ends within {BUDGET} instructions; all of the SiLU object take 10,640")  # noqa: T201
shows = False
for kind, act in (("vs", "silu"), ("vs", "gelu"), ("novs", "gelu")):
    name = f"gfx950/fmoe/{act}/fmoe_bf16_blockscaleFp8_g1u1_{kind}_{act}_32x384.co"
    try:
        opened = open_object(sys.argv[1], name)
    except UsageError as error:
        print(f"observed: nothing, for {error}")  # noqa: T201
        continue
    shape = Shape(tokens=1, experts=1, topk=1, hidden=512, intermediate=384)
    seen = opened.observe(Case("one token", shape))
    print(f"observed: {name}: {seen.fault or f'{seen.instructions} instructions of all waves'}")  # noqa: T201
    shows |= seen.fault is not None
sys.exit(shows)
