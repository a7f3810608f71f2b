"""A bounded Spark batch that reads the ranges that a service has left to jobs, while the service stays at the head
(KIP-333).

    python -m aiogroup.spark drain --bootstrap-server ... --group ... --topic ... --to parquet:PATH

The extra `aiogroup[spark]` brings PySpark; Java 17 or 21 comes from the machine.
"""

from typing import TYPE_CHECKING, Any

from aiogroup.spark.drain import drain, pending_ranges
from aiogroup.spark.errors import (
    CatchupGroupError,
    ClaimLostError,
    ConnectorMissingError,
    DrainError,
    ForeignTokenError,
    IncompleteError,
    IsolationLevelError,
    JavaMissingError,
    NotHandedOffError,
    NotLeftToJobsError,
    NotProcessedError,
    PySparkMissingError,
    RangeBeyondEndError,
    SparkStartError,
    TableError,
    TopicGoneError,
    TopicRecreatedError,
    UnsupportedSparkError,
)
from aiogroup.spark.gaps import Missing
from aiogroup.spark.isolation import Failed
from aiogroup.spark.progress import DrainReport, Progress, RoundProgress
from aiogroup.spark.reading import read_ranges
from aiogroup.spark.session import make_session
from aiogroup.spark.sinks import to_merge, to_parquet, to_table
from aiogroup.spark.standing import Lagging, Pending, Standing

if TYPE_CHECKING:
    from aiogroup.spark.source import AiogroupDataSource, PendingDataSource, settle

__all__ = [
    "AiogroupDataSource",
    "CatchupGroupError",
    "ClaimLostError",
    "ConnectorMissingError",
    "DrainError",
    "DrainReport",
    "Failed",
    "ForeignTokenError",
    "IncompleteError",
    "IsolationLevelError",
    "JavaMissingError",
    "Lagging",
    "Missing",
    "NotHandedOffError",
    "NotLeftToJobsError",
    "NotProcessedError",
    "Pending",
    "PendingDataSource",
    "Progress",
    "PySparkMissingError",
    "RangeBeyondEndError",
    "RoundProgress",
    "SparkStartError",
    "Standing",
    "TableError",
    "TopicGoneError",
    "TopicRecreatedError",
    "UnsupportedSparkError",
    "drain",
    "make_session",
    "pending_ranges",
    "read_ranges",
    "settle",
    "to_merge",
    "to_parquet",
    "to_table",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (a module's names)
    """Import PySpark only when a data source is asked for, or a name that belongs to one."""
    if name in ("AiogroupDataSource", "PendingDataSource", "settle"):
        from aiogroup.spark import source  # noqa: PLC0415 (an extra)

        return getattr(source, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
