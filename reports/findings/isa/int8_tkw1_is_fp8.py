"""AITER's pertokenInt8 tkw1 objects hold fp8 machine code.

python int8_tkw1_is_fp8.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys

from aiter_conformance.isa.judge import Case
from aiter_conformance.isa.objects import open_object
from aiter_conformance.isa.toy import Shape

print("expected: int8 codes go through int8 matrix instructions, and the result is right")  # noqa: T201
shows = False
for arch in ("gfx942", "gfx950"):
    name = f"{arch}/fmoe/silu/fmoe_bf16_pertokenInt8_g1u1_tkw1_silu_1tg_32x256.co"
    opened = open_object(sys.argv[1], name)
    matrix = sorted({text.split()[0] for text in opened.program.texts if text.startswith("v_mfma")})
    seen = opened.observe(Case("one token", Shape(tokens=1, experts=1, topk=1, hidden=512, intermediate=256)))
    error = "NaN" if seen.error is None else f"{seen.error:.2g}"
    print(f"observed: {name}: {', '.join(matrix)}; relative error {error}")  # noqa: T201
    shows |= not seen.right
sys.exit(shows)
