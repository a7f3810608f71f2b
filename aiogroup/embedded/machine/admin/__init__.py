"""Requests of administrators and their tools, beyond what clients need."""
