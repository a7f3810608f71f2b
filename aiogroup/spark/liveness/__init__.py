"""What the telemetry of a fleet says about its time-outs: reads the event logs that `aiogroup.eventlog` writes."""

from aiogroup.spark.liveness.errors import EventsError
from aiogroup.spark.liveness.reading import read_events
from aiogroup.spark.liveness.schema import event_schema

__all__ = ["EventsError", "event_schema", "read_events"]
