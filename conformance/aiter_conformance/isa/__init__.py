"""Executing AMD code objects without the hardware."""
