"""Trace: run a release's own dispatch code on a board that is not there, and record what it would launch.

AITER decides in Python which kernels a call launches. `Tracer` imports that Python, unchanged, in a process
of its own under a fake ROCm runtime, makes calls with tensors that have no storage, and returns what
happened.
"""
