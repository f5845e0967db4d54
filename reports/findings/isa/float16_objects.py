"""Some of AITER's float16 objects compute in bfloat16, or add bfloat16 bits to a float16 output.

python float16_objects.py RELEASE

RELEASE is a wheel of amd-aiter, a tree, git:DIR@TAG or installed. Needs aiter-moe-conformance[isa]; no GPU.
"""

import sys

from aiter_conformance.isa.judge import Case
from aiter_conformance.isa.objects import named_objects, open_object
from aiter_conformance.isa.toy import Shape
from aiter_conformance.release.artefact import open_release

NAMES = (
    "fmoe_fp16_noquantFp16_g1u0_vs_atm_inlv_silu_1tg_32x512.co",
    "fmoe_fp16_noquantBf16_g1u0_vs_atm_inlv_silu_1tg_ps_32x512.co",
    "fmoe_fp16_pertokenFp8_g1u1_vs_silu_1tg_32x128.co",
    "fmoe_fp16_pertokenFp8_g1u1_silu_1tg_32x256.co",
    "fmoe_fp16_pertokenInt8_g1u1_silu_1tg_32x256.co",
)
with open_release(sys.argv[1]) as release:
    named = set(named_objects(release))
print("expected: float16 in, float16 out, and right")  # noqa: T201
shows = False
for arch in ("gfx942", "gfx950"):
    for name in NAMES:
        opened = open_object(sys.argv[1], f"{arch}/fmoe/silu/{name}")
        used = {text.split()[0] for text in opened.program.texts}
        matrix = sorted(m for m in used if m.startswith("v_mfma"))
        narrows = sorted(used & {"v_cvt_pkrtz_f16_f32", "v_cvt_f16_f32_e32"}) or ["nothing"]
        adds = sorted(m for m in used if m.startswith("global_atomic"))
        shape = Shape(tokens=1, experts=1, topk=1, hidden=512, intermediate=opened.kind.tile_n)
        seen = opened.observe(Case("one token", shape))
        error = "NaN" if seen.error is None else f"{seen.error:.2g}"
        shows |= not seen.right
        print(  # noqa: T201
            f"observed: {opened.path}{'' if opened.path in named else ' (in no manifest)'}: "
            f"{', '.join(matrix)}; {', '.join(narrows)} makes float16, {', '.join(adds)} adds; "
            f"relative error {error}"
        )
sys.exit(shows)
