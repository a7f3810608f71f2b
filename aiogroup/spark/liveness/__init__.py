"""What the telemetry of a fleet says about its time-outs: reads the event logs that `aiogroup.eventlog` writes."""

from aiogroup.spark.liveness.advice import Enough, Findings, Proposal
from aiogroup.spark.liveness.errors import EventsError
from aiogroup.spark.liveness.job import Advice, Damaged, advise
from aiogroup.spark.liveness.output.tables import table, write_tables
from aiogroup.spark.liveness.output.text import as_text
from aiogroup.spark.liveness.reading import read_events
from aiogroup.spark.liveness.schema import event_schema

__all__ = [
    "Advice",
    "Damaged",
    "Enough",
    "EventsError",
    "Findings",
    "Proposal",
    "advise",
    "as_text",
    "event_schema",
    "read_events",
    "table",
    "write_tables",
]
