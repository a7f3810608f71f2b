"""Read by mypy in place of aiokafka's errors, from which those of `aiogroup/errors.py` derive.

aiokafka ships no `py.typed`. With its classes as bases mypy would accept any attribute of an error, even one that does
not exist. Nothing imports this at run time.
"""

from __future__ import annotations

from typing import Any


class KafkaError(RuntimeError):
    retriable: bool
    invalid_metadata: bool


class CommitFailedError(KafkaError):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...  # noqa: ANN401 (as aiokafka has it)


class BrokerResponseError(KafkaError):
    errno: int
    message: str
    description: str


class ConsumerStoppedError(Exception): ...


class IllegalOperation(Exception): ...  # noqa: N818 (aiokafka's name)


class AuthenticationFailedError(KafkaError): ...


class IllegalStateError(KafkaError): ...


class KafkaConfigurationError(KafkaError): ...


class KafkaConnectionError(KafkaError): ...


class KafkaProtocolError(KafkaError): ...


class KafkaTimeoutError(KafkaError): ...


class NoOffsetForPartitionError(KafkaError): ...


class RecordTooLargeError(KafkaError): ...


class CorruptRecordException(BrokerResponseError): ...  # noqa: N818 (aiokafka's name)


class GroupAuthorizationFailedError(BrokerResponseError): ...


class InconsistentGroupProtocolError(BrokerResponseError): ...


class InvalidSessionTimeoutError(BrokerResponseError): ...


class InvalidTopicError(BrokerResponseError): ...


class OffsetOutOfRangeError(BrokerResponseError): ...


class RebalanceInProgressError(BrokerResponseError): ...


class TopicAuthorizationFailedError(BrokerResponseError): ...


class UnknownTopicOrPartitionError(BrokerResponseError): ...


class UnsupportedVersionError(BrokerResponseError): ...
