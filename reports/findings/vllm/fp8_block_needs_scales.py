"""Block fp8 without weight scales fails with an assertion that says nothing."""

from vllm_on_cpu import apply, finish, layer, load

vllm = load()
quant = vllm.config.fp8_w8a8_moe_quant_config(None, None, block_shape=[128, 128])
try:
    apply(vllm, "AiterFp8BlockExperts", layer(vllm), quant)
    seen, shows = "a call without scales", False
except AssertionError as error:
    seen, shows = f"AssertionError with the text {str(error)!r}", not str(error)
finish("a call, or an error that names the missing scales", seen, shows=shows)
