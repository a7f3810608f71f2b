"""What reads logs: Fetch with its sessions and its waiting, ListOffsets, OffsetForLeaderEpoch."""
