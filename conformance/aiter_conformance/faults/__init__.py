"""Does the suites' green mean anything? Faults are planted in ``impl``, and each must turn a test red.

`planted` are written by hand, each a mistake that somebody could make; `mutants` are generated, so that no
corner is left out for want of imagination. Both are variants of one module's source (`variant`). One process
loads torch and collects the suites once (`collected`); for each variant it forks a child (`pool`) that
imports the variant in place of the module (`patching`) and runs the tests that reach the changed lines
(`reach`), cheapest first, up to the first that fails. Nothing is written into the tree.

``python -m aiter_conformance.faults`` runs all of it.
"""
