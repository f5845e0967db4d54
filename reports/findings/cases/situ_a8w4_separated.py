"""One kernel call of AITER's fused mixture of experts, with the output that is expected of it.

Needs numpy and torch, and AITER on a ROCm GPU to run the kernel; ``--inputs`` only rebuilds and checks the
inputs. Exits 0 where the output is right, 1 where it is wrong, 3 where it could not be computed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from typing import Any

import numpy as np
import torch

RECIPE: dict[str, Any] = json.loads(
    "{\"biases\": false, \"block\": [1, 32], \"bound\": [\"gjyE/AxzgT+8j1AFmL2BP5DnJCIspXI/QeBru31hbD9CwJHmc6xoP4az00S2gm8/pSofifLpgT/pShktzFCJP1yIG4nhEX0/Apmiin+aXT/q/uBpy7ljP0XLba2jw2c/edwDcUjXdT8QLfy+UNdiP3jWu3RQPnQ/vdAnji/8aD+qItpe4jp5P1a8UzaJfVg/pgpSCRtIWT/80oyMWJV4P0mBwzNFomI/VwE5NWAecD+MqUibMN10P5nr5YDvlGg/WOV+rt7Jbz91A8Wyqg5iP42PO8Th/XQ/mMiEGbi3eT+CBUJrZyZrPwaxeAUAnWM/KDqz0AqtXT9aoTRhmEVpP+Qhm2st1XI/nX92VOOndT9SggHKcBhrPxgEkP0+lEw/726SYRDHaj/QHquqa/11P+QDnMc4NXM/rDSeLjZ2XT98hjNy2zRkP7TYgQgE62I/ipn9c5r8dz9e7EYnyB1tP4SIxqdFung/OK9aCS4kbj8E04pJKaZuP8ieA75o0GU/EMF8Xz4qbT9KIdyeAwhmP2P5x5nsg3U/fNNU+0wxdT/wRUPMz+JYP5ZxFdULFn8/FDuaIWCSbD99lx6C/ZN/P714yZXVfGg/2d0Qtg9bZz+2Ftu6kY1nP9K/zhaTtG4/5rti1kiMYz98xmYaXZBzP3tJb/yQjXc/88uKDScqcz+W1d9SFf5qPzDBsVtPVm8/RNGY90g8eT91AMcUGT1kP20NwejXL3g/SLZkYD6VUz+y6zg7MqZlPxRVQE7d6m0/uJWoig77Zz/OPaMKGOR2P2NXUTVC/2Y/xozu6YKIfj+G7gZZ11x5P0o8sUdp3Yc/erdQze7eYT8aVojDhSRqP3LW5UL0YWY/WinYiKyaeD9RWnN9FwVkP7PODjqIW3E/iu695SIIbz8WFwjqB8xdPy7UE1X6xmc/LD1PRdDicj+xxcZbSjp1P+Zkjh92R2Y/9dOLdUznYj+WTso1/TpmP+PESBWG3n0/md68arzxiD+o29gzcT1mPwrA7VIiIWg/zmSIt3bZcj9ayjAvu4tyP8gLaWahcIA/CPtVAoOGYj8cKnQNyrtwP0584PMRQIM/QhDz7DFCcz+Up+UTPb9yPy64m3cXk2c/XOEQbJnIgD9CutEWCdZrP6gc3ox6MXs/0ZgiD0CKYT/dx3AeZWZxP9O7jQvtmnw/STN6F5/iaj/ychuJlM1cP4VfwG8AkmQ/2LKZVZfZYD9cqVyrYP9qP0Xbg5mOKWs/1CAyEvM9ZT8emr6TE1x/P3h4upyp+FU/hD+ZN/eFcD8UTEe/IYhqP1Qtrl9OPHE/jllC0au9ej/xlyd3nJNvP1YKeX1voXc/fOaejYfQaD8IyC6XjnJsP1zhtiKwbm8/Ts9HrtRGZT/1f8Ot8wprPy+03+4I23Q/5MWBT40Mbj/uTLsxPGV0P+5R6h8kIWs/J+C67Hs5Yz9EXEhLESlqP0QxeZbWuF4/9rhjHLGLdD+aLm7u08FxP3Lxv8HekHE/Vq2SpMbWdj+xIpgmZ2N6P/XPCQbWbXo/OL57U47mgT9wDXliTMR1PyWvjF9rSmI/KNXjnDL3cz+LvCaCOrBjPytgFbeLvnk/7pN5ixEvbj+sM7NCTERhP206hTxoKGc/I+NoSadKYT/kEklCilx/PzJWl2wufXQ/N7v9XbQDfD/KGnLX0wZwPxxPXS2UTmY/xqO8cd+xcT8A7reNPadmP0qSycenhIA/vAIbvgsfaz/jjYoi+bRxP5ir9tFXvHI/dI0huIVVdj+uf65f+hViP/xuu2gA/nw/7gA5mnVBdT+0ruu6Tr9rP8W/t9eN7nk/F3oWJgyscz+/OydMQ65zP9yx5aMGDHo/nw3vY9Cuaj/6zZpniTpyP7opcyF7cnE/eiTw2ivFZD+ELmmlZdNWP6zPgTv9xYA/VEqTI4ymYT+6RjDI0j5nP3CF5sGgCmQ/5hg+xVTNZz9ingMQM3RxP1SokaNn21M/dGFb6/7yYz+mCbGwCfNrPyCIyEI3QXg/HQXWe9XUdD/vQU6u3D9sPze1NiknWXE/CYswTmRUcD+cw+My1w9qP2H9BAOsyHM/hEs9KfyJcD/EHIJMzjllP4fwW8u7s3M/OjOgSEUFaz+G4fARmOtxP0jzC2ndD34/FyZHG68pYD+MzzG+HhRrPxAh3ptcf2I/gSsQ+Retfj/lcl60sYxyP0plwz8Ex3I/1tQy0PKqaj/5SyKpldlpP7R97T5MuWM/30LCnvGxbT+EvFLbFuReP6+LgDmDOmo/yM/4LZx4fz+ss+nlgFloP9EXcNkLwmA/wYvv19cfdj8ez/75PVBkP7bvRlL6cWA/zJ6IikemXD9xj7y+2YRkP/T4+gMLBWU/5BQ76snsaT926goMh1B3PyiPc+EGFnM/xFO26/C2dT/iMxxAytduP4aNSyZBrGU/+VtKAoB3YT87fcwiKhdnPyTno/3umHc/KC7P8Nsmej/xMzdsl2dmP1IL7s+/03Q/IrPpfc4GgD8grkiK2a17P9auXaZjgGs/RF8U2evKbj9ns62RXiFlP8GYDQHvloE/mS+twOunYz8soOxe1dVxP2WK+kSto3k/Ax6E//9JcT8Lx7Qj2/xyPyQhKcg9Ylg/g0VyymLXdT8gWWNSOM9uP4LkSQge7mA/86UvYgMweT/iaeA1UC91PynTSc0p03E/mMG05ltndD/8TLtVGjBXP/kd4VTdC3I/1AEo/WbycT8=\", \"<f8\", [1, 256]], \"case\": \"gfx942/int4-w4a16/situ/out@E2-k1-K256-N256-M1-tp1-ep1-hp0-ip0-s0 rank 0 Features(biases=False, swiglu_limit=None, beta=1.75, linear_beta=2.25, shared_experts=0, routing='mixed', situ='a8w4', dsv4=False, dispatched=False)\", \"digest\": \"430eab007669e67fa283ca11d2cc3e50b91b1eb1418c7f683d995f3312bc2627\", \"expected\": [\"gNqGKGMJ8r8AAY8xW47wvwAJpgco7uC/AIQUjRb7zT8AmMcQxZSjvwCc9QCZe9Q/ABrZnaBU8z/A+3+2GaP9PwBg5Cw4we2/AHBzhccTob8AoE6Il8apPwDSm5JEZtC/AKYo0u+d5b8AgNt1xEXDvwAAwxjz2+A/AAzGOUdaz78ADR2LPYDlPwBA8Ra1eoC/ANCMvvUioD8A9G0MhlrnPwAkmn5rlsY/APBAi3QQ1D8ABY2UuJbiPwC6MwRjutI/AFCBZ9zT1r8A/OmCU4jAPwA8230Qv+K/AFAEB8ux5j8AtNMASoDTPwDMc+9kHrq/AAAYuyZSmj8AGHDmlJ7JvwCMmM56LOC/AEbB4R5t478AsProxCy0vwCAEAkyPIq/AI7MyMPh1D8Awcct2zXmPwBYcowARd8/AIBhb3IGhL8AoIIO74jCvwCu5kSgIMA/AGCNTJBL3T8AVNizjUzSv8BMtbQmpOM/ABCIEezN078AYNQBo1PHPwDAZCvd+L0/ABA6Hugpzz8AtNGK8Vy4vwDE7GVewt2/AKCjP58A4L8AgITkt0mVvwAmFwdZQPE/AG21bobG0L8Aypg12IHuPwAav9pdgde/AMp482WB1T8A6MHXue/IvwDkTMYxgdE/ACYBzBIgzr8AwQ6RrxHhPwC2EAnlNuQ/AGw4nmWz278ATClppJfYvwDvywxkbNI/ALScTun16r8ASOy6nx6/vwDGjt/WiOa/AIBNeC66lb8AWAb+yFbNvwDoY7kGU9i/ACBH/L+yyD8AjDUx4PPmvwAUYEJ+IcC/AHQgM9m2778A1JFErhjnvwC4/1EcAf0/AHhe2/7ClD8AZn30JBjOvwDQKhGtVbM/AOQjKvE95j8AXP9+5TzEvwBN8cgVq9W/ANyn7EPa278AeO8Q67yyvwC485jDQM0/AAeocZab478A8jU9hfHiPwBYAfPKmMw/AChVVgrTu78A0BkP6hC9PwBWUIYiDOy/ANrFtsPK+r8A4J8RoevEvwD4+VH3mMo/AIapSm6T3b8A+vM2KEzhP8CEIEcSZPC/AABXSCItoT8A3uN9JPrYv4BIMEizSva/gKgpeDmN2T8AkGiKaDbhvwCIl/QEvse/QCObAv3u8r9AxGMgEj7WvwC7DxgvWuy/AEhuG7JXsz8ALMKcCWXXPwAyeaRVP+u/AEyKRKyoyD8AfBuNynPEPwAYoXmnmrO/AOy9cvDJpz8AMBze3APHPwBUweUkMMY/AO5byNY+zL8APGtKyPDwvwBA4oBkv6a/AJDNJtIaxz8AUeidLnLQvwDu2Xw/Gt2/AIfHwvv85z8AJM8+8QbKPwDT/0HF2ei/APABIWCN0D8AuQK8s5/SPwDoWWLELtO/ALA3g9QStL8A3hbgKrjUvwCm2tAxFeK/AHhJHbaF2D8ASG9L+mvfPwDI/xaEL8i/ACBBHexHmr8A4KESo43IvwCQareljbo/AKN7l24e4j8AoOkSp0ffvwDKfeDI49m/AHQ4xiQO5j8A5tTm/a/mvwDmA6BZi+m/APlYjtGy8r8AOQBtLYDiPwDIx26zhrw/AKCnuPPJ378AaOq3SJC8vwBWBOqTJeM/AC/y50ma0r8AwJcwCt6nvwAGNlnX1tG/AMi54m0gvr8A+Bo1CRnuPwDdP2/AnuS/ALoVnuxm7L8Aen32t+HRPwBAKRjF+bS/AFIkgWLd3T8AvrUgHSS5vwBEX+TrXO4/AIiE+GUa1D8Atmdg1//gPwAY21J9geC/AIjhEB645b8AhNap6ya8vwCgQFRm0Oy/gLEGB2QV1D8AMEr1ycHFvwBmO9dF8us/AAQPQlzL3L8AXWcv9x7YPwBYEnB7fuq/AJ6BHRo+1b+ApxDq703XvwB4O5ZjbNk/ACwwbg2zv78AgFnyfBObP4CLBt4hqPK/AICThJXvlb8AUHUqTnm1PwBysvsNfMG/ABaJCkRszb8AaIDJs8HcPwCA5uvuzYK/ACBwDyB+x78ALXNZH5LQvwDQCq4tROa/AHidbG8HyL8AEifOn/7VvwB0w8OQvtu/gG/tvS2d0b8A4A6qAtrSPwDIgJcdf9y/AOidee/U2b8APFKaraDBPwC8hWqL/t6/AEicYD6+w78A7I9wasfUvwDSgu8RRPA/AGRXHLyKxL8AaFz7wX3RvwDAG8RafcA/AFpwWTf87z8AdOmPk1DdvwB6WRxXd98/APRuVt3u0z8AxPlaotPLvwCgQBGLN7g/AJwo5QC/zj8AEDTZ7Lq4PwDMyLDLXti/gNSYlzc17z8AEP+kpR7QvwAICNlptLq/ABIkOwWo5D8A+KU+MpHLPwB4MnBaesA/AIC2TfOlhT8AOLkbzbi3PwCwoBkwtsW/AIDTk/1/0j8A5HbS1RrlPwCmdGQ5Cdw/AEhcaT99478AKBjmgw3FvwDoGbywAcg/ABhqQhcNt78AWIYfhJm3PwAG1FzIxOk/AEhXguNb5j8ARGUM4cXKvwB+Kz0vzdy/AMhdCAKu8D8AgCsS7UrrPwCsRmPSf9O/AFjQrfSZ0r8AeBwqu+qyvwBR4YdRw++/APicozH/vr8A2HU36nC/vwCWVuMxnus/AORxN1Uc0j8AFda6PB7QvwDgDnuGbKq/APBPHSvJ5L8AwPskvCbavwAMFF2WCba/AKoC4r5W5z8ADb+Ywn/kPwAiaC8BzOK/AJArghGg4D8AwHnSmauUPwDVjxsfrdk/AGCPphDo2z8=\", \"<f8\", [1, 256]], \"expert_mask\": null, \"experts\": [0, 1], \"fp8\": \"e4m3fnuz\", \"function\": \"fused_moe\", \"hidden\": 256, \"layouts\": [{\"elements\": \"int4\", \"interleaved\": false, \"scales\": \"int4\"}, {\"elements\": \"int4\", \"interleaved\": false, \"scales\": \"int4\"}], \"live_k\": 256, \"live_n\": 256, \"module\": \"aiter.fused_moe\", \"part\": 0, \"scalars\": {\"activation\": 3, \"beta\": 1.75, \"doweight_stage1\": false, \"dtype\": \"bfloat16\", \"gate_mode\": \"interleave\", \"linear_beta\": 2.25, \"quant_type\": 3}, \"scheme\": \"int4-w4a16\", \"seed\": 0, \"static\": null, \"tensors\": {\"hidden_states\": \"hidden_states\", \"topk_ids\": \"topk_ids\", \"topk_weight\": \"topk_weight\", \"w1\": \"w1\", \"w1_scale\": \"w1_scale\", \"w2\": \"w2\", \"w2_scale\": \"w2_scale\"}, \"tokens\": 1, \"tokens_judged\": [\"AAAAAAAAAAA=\", \"<i8\", [1]], \"topk_ids\": [\"AAAAAA==\", \"<i4\", [1, 1]], \"topk_weights\": [\"AOkNPw==\", \"<f4\", [1, 1]], \"tp\": 1, \"width\": 256}"
)

FP8 = {"e4m3fn": (torch.float8_e4m3fn, 448.0), "e4m3fnuz": (torch.float8_e4m3fnuz, 240.0)}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


# --------------------------------------------------------------------------- random bits


def words(seed: int, stream: int, expert: int, count: int) -> Any:
    """Return 64-bit words of Philox 4x64-10, addressed by (seed, stream, expert)."""
    return np.random.Philox(key=seed << 64 | stream << 32 | expert).random_raw(count)


def bell(seed: int, stream: int, expert: int, shape: tuple[int, ...]) -> Any:
    """Return sums of four 16-bit numbers, centred, in units of 2^-15."""
    raw = words(seed, stream, expert, int(np.prod(shape)))
    parts = sum((raw >> np.uint64(s) & np.uint64(0xFFFF)).astype(np.int64) for s in (0, 16, 32, 48))
    return ((np.asarray(parts) - 2 * 0xFFFF) / 2.0**15).reshape(shape)


def integers(seed: int, stream: int, expert: int, shape: tuple[int, ...], limit: int) -> Any:
    """Return integers in 0 .. limit - 1."""
    raw = words(seed, stream, expert, int(np.prod(shape))) >> np.uint64(32)
    return (raw % np.uint64(limit)).astype(np.int64).reshape(shape)


def exponents(seed: int, stream: int, expert: int, shape: Any, block: Any, limit: int) -> Any:
    """Return integers of which neighbouring blocks never have the same, repeated to every element."""
    rows, columns = (max(n, 1) if b == -1 else b for n, b in zip(shape, block, strict=True))
    grid = (-(-shape[0] // rows), -(-shape[1] // columns))
    down = 1 + integers(seed, stream, 2 * expert, (grid[0], 1), limit - 1)
    across = 1 + integers(seed, stream, 2 * expert + 1, (1, grid[1]), limit - 1)
    steps = (np.cumsum(down, axis=0) + np.cumsum(across, axis=1)) % limit
    return np.repeat(np.repeat(steps, rows, 0), columns, 1)[: shape[0], : shape[1]]


# --------------------------------------------------------------------------- quantisation: codes, scales


def bf16_bits(x: Any) -> Any:
    """Return bfloat16 bits, rounded once from float64."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    quantum = np.maximum(exponent, -125) - 8
    rounded = np.ldexp(np.rint(np.ldexp(mantissa, exponent - quantum)), quantum)
    return (rounded.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def amax(x: Any, block: Any) -> Any:
    """Return the largest magnitude of each block and the block's size."""
    rows, columns = (n if b == -1 else b for n, b in zip(x.shape, block, strict=True))
    parts = np.abs(x).reshape(x.shape[0] // rows, rows, x.shape[1] // columns, columns)
    return parts.max(axis=(1, 3)).astype(np.float32), rows, columns


def quantise(x: Any) -> tuple[Any, Any]:
    """Return (codes, scales) of weights [R, C]; scales are None for bf16."""
    scheme, block = RECIPE["scheme"], RECIPE["block"]
    if scheme == "bf16":
        return bf16_bits(x), None
    x = x.astype(np.float32)
    largest, rows, columns = amax(x, block)
    if scheme.startswith("fp8"):
        dtype, maximum = FP8[RECIPE["fp8"]]
        scales = largest / np.float32(maximum)
        scales = np.where(scales == 0, np.float32(1), scales)
        scaled = x / np.repeat(np.repeat(scales, rows, 0), columns, 1)
        codes = torch.from_numpy(np.clip(scaled, -maximum, maximum) + np.float32(0)).to(dtype)
        return codes.view(torch.uint8).numpy(), scales
    if scheme == "int4-w4a16":
        scales = np.maximum(largest, np.float32(1e-6)) / np.float32(7)
        codes = np.clip(np.rint(x / np.repeat(scales, columns, 1)), -7, 7).astype(np.int8)
        return codes, bf16_bits(scales)
    mantissa, exponent = np.frexp(largest)
    power = np.where(largest == 0, -127, np.maximum(exponent - 3 + (mantissa > 0.75), -127))
    scaled = np.clip(x / np.ldexp(1.0, np.repeat(power, columns, 1)), -6, 6).astype(np.float32)
    middles = (E2M1[1:] + E2M1[:-1]) / 2
    size = np.abs(scaled)[..., None]
    up = (size > middles) | ((size == middles) & (np.arange(7) % 2 == 1))
    codes = (up.sum(-1) + 8 * np.signbit(scaled)).astype(np.uint8)
    return codes, (power + 127).astype(np.uint8)


# --------------------------------------------------------------------------- inputs


def weights(expert: int) -> tuple[Any, ...]:
    """Return (w1, its scales, w2, its scales, b1, b2) of one expert, before any shuffle."""
    seed, live_k, live_n, width, hidden = (RECIPE[k] for k in ("seed", "live_k", "live_n", "width", "hidden"))
    block, whole = RECIPE["block"], live_n * RECIPE["tp"]
    part = slice(RECIPE["part"] * live_n, (RECIPE["part"] + 1) * live_n)
    limit = 3 if block == [-1, -1] else 4

    def structured(values: int, scales: int, shape: tuple[int, int]) -> Any:
        power = exponents(seed, scales, expert, shape, block, limit) - limit + 2
        base = bell(seed, values, expert, shape) * ((4 + expert % 3) / 4)
        return np.ldexp(base, power) / np.sqrt(np.float64(shape[1]))

    w1, w2 = structured(3, 4, (2 * whole, live_k)), structured(5, 6, (live_k, whole))
    first, second = np.zeros((2 * width, hidden)), np.zeros((hidden, width))
    first[:live_n, :live_k], second[:live_k, :live_n] = w1[:whole][part], w2[:, part]
    first[width : width + live_n, :live_k] = w1[whole:][part] * 0.75
    b1 = b2 = None
    if RECIPE["biases"]:
        b1, b2 = np.zeros(2 * width, np.float32), np.zeros(hidden, np.float32)
        both = bell(seed, 7, expert, (2 * whole,)).astype(np.float32)
        b1[:live_n], b1[width : width + live_n] = both[:whole][part], both[whole:][part]
        b2[:live_k] = bell(seed, 8, expert, (live_k,))
    return (*quantise(first), *quantise(second), b1, b2)


def hidden_bits() -> Any:
    """Return the hidden states as bfloat16 bits [M, K]."""
    seed, tokens, live = RECIPE["seed"], RECIPE["tokens"], RECIPE["live_k"]
    scale = (3 + integers(seed, 2, 2, (tokens, 1), 4)) / 4
    power = exponents(seed, 2, 0, (tokens, live), (1, 32), 3) - 1
    bits = np.zeros((tokens, RECIPE["hidden"]), np.uint16)
    bits[:, :live] = bf16_bits(np.ldexp(0.625 * bell(seed, 1, 0, (tokens, live)) * scale, power))
    primes = [n for n in range(128, 256) if all(n % d for d in range(2, 16))]
    raised = np.array([next((n for n in primes if n >= m), 259) - 128 for m in range(128, 256)])
    for start in range(0, bits.shape[1], 128):  # the peak of each 128 gets a prime significand
        block = bits[:, start : start + 128]
        rows, peak = np.arange(tokens), (block & 0x7FFF).argmax(axis=1)
        value = block[rows, peak]
        block[rows, peak] = np.where(value & 0x7FFF, (value & 0xFF80) + raised[value & 0x7F], value)
    return bits


def array(name: str) -> Any:
    """Return an array that the recipe holds as bytes, or None."""
    if RECIPE.get(name) is None:
        return None
    data, dtype, shape = RECIPE[name]
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape)


def digest(named: list[tuple[str, Any]]) -> str:
    """Return the sha256 of the inputs, as the recipe has it."""
    total = hashlib.sha256()
    for name, value in named:
        if value is not None:
            little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
            total.update(f"{name} {little.dtype.str} {little.shape}\n".encode())
            total.update(little.tobytes())
    return total.hexdigest()


# --------------------------------------------------------------------------- layout


def shuffle(x: Any) -> Any:
    """Reorder [E, R, C] in tiles of 16 rows by 16 bytes."""
    pack = 16 // x.itemsize
    tiles = x.reshape(x.shape[0], x.shape[1] // 16, 16, x.shape[2] // pack, pack)
    return np.ascontiguousarray(tiles.swapaxes(2, 3)).reshape(x.shape)


def interleave(x: Any) -> Any:
    """Reorder [E, 2N, C] to 16 gate rows, 16 up rows, ..."""
    tiles = x.reshape(x.shape[0], 2, x.shape[1] // 32, 16, x.shape[2])
    return np.ascontiguousarray(tiles.swapaxes(1, 2)).reshape(x.shape)


def packed(codes: Any, scales: Any, layout: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return a weight and its scales as a loader leaves them."""
    if layout["interleaved"]:
        codes, scales = interleave(codes), interleave(scales)
    elements, kind = layout["elements"], layout["scales"]
    if elements == "int4":
        nibbles = (shuffle(codes).view(np.uint8) & 15).reshape(-1, 2, 4)
        data = (nibbles[:, 0] | nibbles[:, 1] << 4).reshape(*codes.shape[:2], -1)
        weight = torch.from_numpy(data).view(getattr(torch, "int4", torch.uint8))
    elif elements == "fp4":
        data = shuffle(codes[..., ::2] | codes[..., 1::2] << 4)
        weight = torch.from_numpy(data).view(getattr(torch, "float4_e2m1fn_x2", torch.uint8))
    elif elements == "fp8":
        weight = torch.from_numpy(shuffle(codes)).view(FP8[RECIPE["fp8"]][0])
    else:
        weight = torch.from_numpy(shuffle(codes).view(np.int16)).view(torch.bfloat16)
    weight.is_shuffled = True  # type: ignore[attr-defined]
    if scales is None:
        return weight, None
    if kind == "int4":
        pairs = scales.reshape(*scales.shape[:2], -1, 2).transpose(0, 2, 1, 3)
        return weight, torch.from_numpy(np.ascontiguousarray(pairs).view(np.int16)).view(torch.bfloat16)
    if kind == "plain":
        flat = scales.reshape(-1) if RECIPE["block"] == [-1, -1] else scales
        return weight, torch.from_numpy(np.ascontiguousarray(flat))
    rows, groups = scales.shape[0] * scales.shape[1], scales.shape[2]
    height = -(-rows // 256) * 256 if kind == "e8m0" else rows
    full = np.full((height, -(-groups // 8) * 8), 0 if kind == "e8m0" else 127, np.uint8)
    full[:rows, :groups] = scales.reshape(rows, groups)
    tiles = full.reshape(height // 32, 2, 16, full.shape[1] // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1)
    return weight, torch.from_numpy(np.ascontiguousarray(tiles).reshape(full.shape))


def build() -> tuple[dict[str, Any], str]:
    """Return the tensors of the call by name, and the digest of the inputs."""
    hidden, ids, router, mask = hidden_bits(), array("topk_ids"), array("topk_weights"), array("expert_mask")
    made = {expert: weights(expert) for expert in RECIPE["experts"]}
    named = [("hidden", hidden), ("topk_ids", ids), ("topk_weights", router), ("expert_mask", mask)]
    parts = ("w1", "w1_scale", "w2", "w2_scale", "b1", "b2")
    named += [(f"{name}[{e}]", value) for e in made for name, value in zip(parts, made[e], strict=True)]
    stacked = [
        None if made[RECIPE["experts"][0]][i] is None else np.stack([m[i] for m in made.values()])
        for i in range(6)
    ]
    w1, w1_scale = packed(stacked[0], stacked[1], RECIPE["layouts"][0])
    w2, w2_scale = packed(stacked[2], stacked[3], RECIPE["layouts"][1])
    tensors = {
        "hidden_states": torch.from_numpy(hidden.view(np.int16)).view(torch.bfloat16),
        "w1": w1,
        "w2": w2,
        "w1_scale": w1_scale,
        "w2_scale": w2_scale,
        "bias1": None if stacked[4] is None else torch.from_numpy(stacked[4]),
        "bias2": None if stacked[5] is None else torch.from_numpy(stacked[5]),
        "topk_weight": torch.from_numpy(router.copy()),
        "topk_ids": torch.from_numpy(ids.copy()),
        "expert_mask": None if mask is None else torch.from_numpy(mask.copy()),
        "a1_scale": None if RECIPE["static"] is None else torch.tensor(RECIPE["static"][:1]),
        "a2_scale": None if RECIPE["static"] is None else torch.tensor(RECIPE["static"][1:]),
    }
    return tensors, digest(named)


# --------------------------------------------------------------------------- call and comparison


def run(tensors: dict[str, Any]) -> torch.Tensor:
    """Make the call on the GPU and return its output."""
    import aiter  # noqa: A004 -- its own name

    arguments: dict[str, Any] = {}
    for ours, theirs in RECIPE["tensors"].items():
        tensor = tensors[theirs].to("cuda")
        if getattr(tensors[theirs], "is_shuffled", False):
            tensor.is_shuffled = True
        arguments[ours] = tensor
    for name, value in RECIPE["scalars"].items():
        enum = {"activation": "ActivationType", "quant_type": "QuantType"}.get(name)
        arguments[name] = getattr(torch, value) if name == "dtype" else value
        if enum:
            arguments[name] = getattr(aiter, enum)(value)
    module = __import__(RECIPE["module"], fromlist=[RECIPE["function"]])
    result: torch.Tensor = getattr(module, RECIPE["function"])(**arguments)
    return result


def compare(output: Any) -> int:
    """Print how the output compares, and return the exit code."""
    tokens, expected, bound = (array(name) for name in ("tokens_judged", "expected", "bound"))
    got = output[tokens][:, : expected.shape[1]]
    error = np.abs(got - expected)
    wrong = ~(error <= 2 * bound)
    if not wrong.any():
        largest = np.max(error / np.maximum(bound, 1e-300))
        sys.stdout.write(f"right: {wrong.size} elements, the largest error is {largest:.3g} bounds\n")
        return 0
    row, column = np.argwhere(wrong)[0]
    want, got_it, allowed = expected[row, column], got[row, column], 2 * bound[row, column]
    sys.stdout.write(
        f"wrong: {wrong.sum()} of {wrong.size} elements, the first at token {tokens[row]}, column {column}: "
        f"must be {want:.6g} within {allowed:.3g} (got {got_it:.6g})\n"
    )
    return 1


def main(arguments: list[str]) -> int:
    """Rebuild the inputs, make the call, compare."""
    tensors, found = build()
    sys.stdout.write(f"{RECIPE['case']}\ninputs {found}\n")
    if found != RECIPE["digest"]:
        sys.stdout.write(f"not run: the inputs must have the digest {RECIPE['digest']}\n")
        return 3
    if "--inputs" in arguments:
        return 0
    try:
        output = run(tensors)
    except Exception as error:  # whatever AITER raises is the answer
        sys.stdout.write(f"not run: {type(error).__name__}: {error}\n")
        return 3
    return compare(output.to(torch.float64).cpu().numpy())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
