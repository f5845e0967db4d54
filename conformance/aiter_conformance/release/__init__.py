"""Reading AITER releases without importing them."""
