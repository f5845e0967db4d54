"""Operators; the simulated AITER has no shuffles, so the harness packs."""
