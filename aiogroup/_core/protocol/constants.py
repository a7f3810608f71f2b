"""Values in Kafka's messages that have a meaning of their own."""

from __future__ import annotations

from typing import Final

from aiogroup._core.protocol.messages.fetch import ReplicaState

FETCH_BY_ID: Final = 13
"""The first version of Fetch that names topics by id."""
OFFSETS_BY_ID: Final = 10
"""The same of OffsetCommit and OffsetFetch."""
NO_REPLICA: Final = ReplicaState()
"""Of who asks as a consumer."""
NO_HIGH_WATERMARK: Final = 0x7FFF_FFFF_FFFF_FFFF
"""Of who asks as a consumer, which tells the broker of none."""

LATEST: Final = -1
"""As the time of ListOffsets: the end of the log."""
EARLIEST: Final = -2
"""As the time of ListOffsets: the begin of the log."""

GROUP: Final = 0
"""As the type of FindCoordinator's keys."""

NOT_ASKED: Final = -0x8000_0000
"""Authorized operations that were not asked for."""
