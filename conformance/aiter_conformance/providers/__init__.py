"""Who computes a kernel call: reference, isa, hardware."""
