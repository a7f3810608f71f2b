"""The requests that read logs: Fetch with its sessions and its waiting, ListOffsets, OffsetForLeaderEpoch."""
