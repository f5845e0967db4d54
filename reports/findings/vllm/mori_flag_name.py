"""The flag that says that MoRI carries the tokens is called use_mori_kernels."""

from vllm_on_cpu import finish, layer, load

vllm = load()
names = [name for name in dir(layer(vllm)) if "mori" in name]
finish("use_mori_epv1_kernels", ", ".join(names), shows="use_mori_epv1_kernels" not in names)
