"""How each level of evidence observes cells, one module a level."""
