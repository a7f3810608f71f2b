"""What administrators and their tools ask, beyond what clients need."""
