"""AITER's fused mixture-of-experts leaves and their dispatcher, as vLLM defines them."""
