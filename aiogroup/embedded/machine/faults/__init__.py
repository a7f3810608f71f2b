"""Faults that a test asks for, and what the machine remembers of each exchange."""
