"""Sockets, threads and event loops around the machine."""
