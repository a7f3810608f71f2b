"""The error that this package raises."""

from __future__ import annotations

from aiogroup.errors import AiogroupError


class DevKafkaError(AiogroupError):
    """Kafka could not be fetched, started or changed; the message has the end of the log and what to do."""
