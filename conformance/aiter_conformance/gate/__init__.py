"""The release gate: what changes from one AITER release to another, by cause, with a decision."""
