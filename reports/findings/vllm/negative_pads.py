"""A negative pad is rounded away from zero, and a tp_size of 0 is taken, instead of being refused."""

from vllm_on_cpu import finish, load

vllm = load()
seen = {}
for given in ((-1, 0, 2), (0, -1, 1), (0, 64, 0)):
    hidden, intermediate, tp = given
    try:
        seen[given] = vllm.moe.aiter_moe_pads(hidden, intermediate, vllm.Act.SILU, False, tp)
    except (ValueError, AssertionError) as error:
        seen[given] = repr(error)
finish(
    "an error for each: pads count dead columns, and there is at least one rank",
    "; ".join(f"hidden {h}, intermediate {i}, tp {t} -> {pads}" for (h, i, t), pads in seen.items()),
    shows=any(isinstance(pads, tuple) for pads in seen.values()),
)
