"""The errors that a job raises besides Kafka's. After any of them, only slices that succeeded are marked as done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiogroup.errors import AiogroupError, named
from aiogroup.structs import TopicPartition

__all__ = [
    "CatchupGroupError",
    "ClaimLostError",
    "ConnectorMissingError",
    "DrainError",
    "ForeignTokenError",
    "IncompleteError",
    "IsolationLevelError",
    "JavaMissingError",
    "NotHandedOffError",
    "NotLeftToJobsError",
    "NotProcessedError",
    "PySparkMissingError",
    "RangeBeyondEndError",
    "SparkStartError",
    "TableError",
    "TopicGoneError",
    "TopicRecreatedError",
    "UnsupportedSparkError",
]


class DrainError(AiogroupError):
    """The root of the errors that a job raises by itself."""


class PySparkMissingError(DrainError, ModuleNotFoundError):
    """PySpark, pyarrow or pandas is not installed: `pip install 'aiogroup[spark]'`. `name` says which."""


class UnsupportedSparkError(DrainError):
    """PySpark is older than 4.0, or `spark` is not a running session."""


class JavaMissingError(DrainError):
    """No Java that can run Spark was found: install Java 17 or 21 and set JAVA_HOME to it."""


class ConnectorMissingError(DrainError):
    """The Spark session has no Kafka connector: start it with `spark.jars.packages` or `spark.jars`."""


class SparkStartError(DrainError):
    """Spark did not start; the message ends with Spark's last output."""


class ForeignTokenError(DrainError):
    """The group's commit holds a token that must not be obeyed; `reasons` has the reason for each partition.

    Another program wrote, mirrored or edited the token. Start the service: it reads again from the committed offset,
    and writes a token of its own.
    """

    def __init__(self, reasons: Mapping[TopicPartition, str]) -> None:
        self.reasons = dict(reasons)
        listed = "; ".join(f"{tp.topic}-{tp.partition}: {why}" for tp, why in sorted(self.reasons.items()))
        super().__init__(
            f"the group's commit has a token that aiogroup did not write there: {listed}. Start the service, which "
            "reads again from the committed offset and commits a token of its own; then run the job"
        )


class NotHandedOffError(DrainError):
    """The service reads its ranges itself: a job would process their records a second time.

    Set `parallel_handoff=True` in the service. When it takes its partitions over, it commits a token that leaves the
    ranges to jobs.
    """

    def __init__(self, tps: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(tps)
        super().__init__(
            f"what is pending of {named(self.partitions)} is not left to jobs: the service that committed it reads it "
            "itself (parallel_handoff is off there, or its aiogroup is older than this one). Start the service with "
            "parallel_handoff=True, then run the job"
        )


class NotLeftToJobsError(DrainError):
    """The group is behind in a partition, and no token says what is left to jobs: start the service, which writes one.

    The message has a line for each such partition.
    """

    def __init__(self, lagging: Iterable[object]) -> None:
        super().__init__("\n".join(map(str, lagging)))


class CatchupGroupError(DrainError):
    """The service reads the progress of jobs from another group, and would never see this job's."""

    def __init__(self, group_id: str, tps: Iterable[TopicPartition]) -> None:
        self.group_id = group_id
        self.partitions = frozenset(tps)
        super().__init__(
            f"the service does not read what jobs do from the group {group_id!r}, says its token of "
            f"{named(self.partitions)}: name the service's parallel_group_id (catchup_group_id, --catchup-group)"
        )


class IsolationLevelError(DrainError):
    """The job is set to read uncommitted records, and the service reads committed ones only."""

    def __init__(self, tps: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(tps)
        super().__init__(
            f"the service reads {named(self.partitions)} with isolation level read_committed, and this job was given "
            "to read uncommitted records, aborted ones among them: leave isolation.level (--isolation-level) away, "
            "and the job takes the service's"
        )


class RangeBeyondEndError(DrainError):
    """A pending range ends beyond the log's end; `beyond` has (end of the range, end of the log) by partition."""

    def __init__(self, beyond: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.beyond = dict(beyond)
        listed = "; ".join(
            f"{tp.topic}-{tp.partition} is pending up to {end} and ends at {log_end}"
            for tp, (end, log_end) in sorted(self.beyond.items())
        )
        super().__init__(
            f"a range ends after the log: {listed}. Is isolation.level the service's, or is a transaction still open? "
            "Was the log truncated, the service finds out when it recovers: restart it"
        )


class TopicGoneError(DrainError):
    """The topic does not exist, or was deleted: there is nothing to read."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        super().__init__(
            f"no topic {', '.join(map(repr, sorted(self.topics)))} in this cluster: look at the name and at "
            "--bootstrap-server; was it deleted, what was pending of it is gone"
        )


class TopicRecreatedError(DrainError):
    """The topic was deleted and created again while it was read: its pending records are gone."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        super().__init__(
            f"topic {', '.join(map(repr, sorted(self.topics)))} was deleted and made anew while it was read: what was "
            "pending of it is gone. The service finds that out by itself; then run the job again"
        )


class IncompleteError(DrainError):
    """Records are missing from what Spark read, and nothing that Kafka does explains it. Run the job again."""


class NotProcessedError(DrainError):
    """`process` did not read all of its DataFrame: one of its actions must be over every record."""


class TableError(DrainError):
    """A table cannot take the records by `to_table` or `to_merge`; the message says why and what to do."""


class ClaimLostError(DrainError):
    """Several results in a row were dropped: the claim was lost, the token changed, or retention deleted a part.

    Give the driver more time (`session_timeout_ms`) or smaller slices (`slice_records`).
    """

    def __init__(self, drops_count: int) -> None:
        super().__init__(
            f"{drops_count} results in a row were dropped: when they were to be committed the claim had ended, or the "
            "service had a new token, or retention had deleted a part of them. They are pending still. Give the driver "
            "more time (session_timeout_ms) or smaller slices (slice_records)"
        )
