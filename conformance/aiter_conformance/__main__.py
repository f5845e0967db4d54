"""``python -m aiter_conformance`` is the command ``aiter-conformance``."""

from aiter_conformance.cli import main

main()
