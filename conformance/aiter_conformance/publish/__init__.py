"""Turning a matrix into documents."""
