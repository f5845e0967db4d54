"""What is asserted of a subject, as plain functions: each yields what does not hold."""
