"""The implementations under test."""
