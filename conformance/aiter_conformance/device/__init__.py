"""The device contract: what a leaf must keep on any GPU, whatever computes the kernel call.

A GPU runs behind the host, in streams, and replays what was captured. So a leaf must not wait for the device,
must run where it is called, must keep to the buffers it is given, and must leave neither copies nor memory
behind. The kernels are the harness's own model in torch, on the device. What holds here therefore holds of
the leaf and of nothing that AITER ships: no cell of the matrix rests on it.
"""
