"""What the right numbers are: formats, layouts, inputs, the oracle and the verdict. Needs no torch."""
