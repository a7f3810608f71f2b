"""Topics and their partitions' logs: batches are kept as the bytes that came."""
