"""The broker as one pure machine: bytes and instants go in, bytes come out. No event loop, clock, socket or thread."""
