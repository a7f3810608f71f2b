"""InitProducerId (22).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import INT16, INT32, INT64, STRING, Request, Response, structure, wire


@structure
class InitProducerIdResponse(Response):
    """The answer to `InitProducerIdRequest`."""

    throttle_time_ms: int = wire(INT32, ignorable=True)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16)


@structure
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """Asks for the id and epoch by which a producer's batches are distinguished from repeated ones; since version 3
    with what the producer has, to go on after an error (KIP-360). A transactional producer gets its own id again, with
    the next epoch.
    """

    API_KEY = 22
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 2
    RESPONSE = InitProducerIdResponse

    transactional_id: str | None = wire(STRING, nullable=0)
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(INT64, since=3, default=-1)
    producer_epoch: int = wire(INT16, since=3, default=-1)
