"""aiogroup: an asyncio Kafka consumer-group client that loses no record and hides no signal."""

import typing

from aiogroup._core.delivery.merge import MergeState, Waiting
from aiogroup._core.telemetry.events import Event, Observer
from aiogroup._core.telemetry.health import GroupMetadata, Health, HealthStatus
from aiogroup._runtime.delivery.merged import Merged
from aiogroup._runtime.shutdown import StopReport
from aiogroup._runtime.telemetry.log_context import LogContext
from aiogroup.assignors import Assignor, Held, MemberSubscription
from aiogroup.config import ConsumerConfig
from aiogroup.consumer import Consumer
from aiogroup.errors import (
    AiogroupError,
    AssignorError,
    AuthenticationFailedError,
    BrokerError,
    CommitFailedError,
    ConcurrentConsumptionError,
    ConfigError,
    ConnectionLostError,
    ConsumerStoppedError,
    CorruptRecordError,
    DeadLetterError,
    DuplicateStaticMember,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupError,
    GroupNotFoundError,
    IllegalOperation,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    InvalidTopicError,
    KafkaTimeoutError,
    LogTruncationError,
    MemberNotFoundError,
    MergeStalledError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    PollIntervalExceeded,
    ProtocolError,
    RebalanceInProgressError,
    RecordDeserializationError,
    RecordError,
    RecordTooLargeError,
    StaticMemberInfoMissing,
    TimestampError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiogroup.listener import ConsumerRebalanceListener, RebalanceListener
from aiogroup.records import (
    CatchUpProgress,
    Lag,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionLag,
    PartitionMetadata,
    Record,
    Records,
    TopicPartition,
)
from aiogroup.settings import ConsumerSettings, SettingsBesideDeserializers

__all__ = [
    "AiogroupError",
    "Assignor",
    "AssignorError",
    "AuthenticationFailedError",
    "BrokerError",
    "CatchUpProgress",
    "CommitFailedError",
    "ConcurrentConsumptionError",
    "ConfigError",
    "ConnectionLostError",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRebalanceListener",
    "ConsumerSettings",
    "ConsumerStoppedError",
    "CorruptRecordError",
    "DeadLetterError",
    "DuplicateStaticMember",
    "Event",
    "FencedInstanceIdError",
    "GroupAuthorizationError",
    "GroupError",
    "GroupMetadata",
    "GroupNotFoundError",
    "Health",
    "HealthStatus",
    "Held",
    "IllegalOperation",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InvalidSessionTimeoutError",
    "InvalidTopicError",
    "KafkaTimeoutError",
    "Lag",
    "LogContext",
    "LogTruncationError",
    "MemberNotFoundError",
    "MemberSubscription",
    "MergeStalledError",
    "MergeState",
    "Merged",
    "NoOffsetForPartitionError",
    "Observer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "PartitionLag",
    "PartitionMetadata",
    "PollIntervalExceeded",
    "ProtocolError",
    "RebalanceInProgressError",
    "RebalanceListener",
    "Record",
    "RecordDeserializationError",
    "RecordError",
    "RecordTooLargeError",
    "Records",
    "SettingsBesideDeserializers",
    "StaticMemberInfoMissing",
    "StopReport",
    "TimestampError",
    "TopicAuthorizationError",
    "TopicPartition",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
    "Waiting",
]

__version__: str
"""The installed version, as pip knows it. It is looked up when it is read, so that importing does not cost more."""

if not typing.TYPE_CHECKING:  # with a `__getattr__` a type checker would accept every name, as a text

    def __getattr__(name: str) -> str:
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 (few applications read it)

        try:
            return version("aiogroup")
        except PackageNotFoundError:  # a folder on the path that is not installed
            return "0+unknown"
