"""A gfx950 blockscale object of AITER reads far past the end of W2 when the hidden size is small.

python pf2_reads_past_w2.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys

from aiter_conformance.errors import UsageError
from aiter_conformance.isa import launch, toy
from aiter_conformance.isa.machine import KernelFaultError
from aiter_conformance.isa.objects import open_object

NAME = "gfx950/fmoe/silu/fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_pf2_16x128.co"
try:
    opened = open_object(sys.argv[1], NAME)
except UsageError as error:
    print(f"observed: nothing, for {error}")  # noqa: T201
    sys.exit(0)
print("expected: every read is inside a tensor")  # noqa: T201
shows = False
for hidden in (512, 1024, 2048):
    shape = toy.Shape(tokens=1, experts=1, topk=1, hidden=hidden, intermediate=128)
    problem = toy.problem(opened.kind, shape)
    ran = launch.run(opened.code, opened.program, problem.launch, core=opened.core, slack=1 << 16)
    furthest = max((read.furthest for read in ran.execution.over_reads), default=0)
    print(f"observed: hidden size {hidden}: reads up to {furthest} bytes past an end")  # noqa: T201
    shows |= furthest > 4096
    try:
        launch.run(opened.code, opened.program, problem.launch, core=opened.core, slack=64)
    except KernelFaultError as error:
        print(f"          with 64 bytes allowed: {error}")  # noqa: T201
sys.exit(shows)
