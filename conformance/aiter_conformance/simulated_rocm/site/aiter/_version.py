"""What a build of AITER writes here."""

version = "0.1.20+simulated"
