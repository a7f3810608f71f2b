"""Groups: their coordinator, rounds, members and committed offsets."""
