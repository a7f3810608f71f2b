"""The names, types and labels of the figures: the table of docs/metrics.md. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["FAMILIES", "OF_ALL", "Family", "Merge"]

Kind = Literal["gauge", "counter", "histogram"]
Merge = Literal["sum", "max"]
OF_ALL: Final = ("group", "client_id")
"""The labels of every series."""


@dataclass(frozen=True, slots=True)
class Family:
    """One figure. `merge` says how the figures of several partitions, or of several processes, are combined."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    merge: Merge = "sum"

    @property
    def is_by_topic(self) -> bool:
        return "topic" in self.labels


FETCH: Final = "kafka_consumer_fetch_manager"
GROUP: Final = "kafka_consumer_coordinator"
TP: Final = ("topic", "partition")

_ALL: Final = (
    Family(f"{FETCH}_records_lag", "gauge", "Records between the position and the end, of both lanes.", TP),
    Family(f"{FETCH}_records_lag_max", "gauge", "The greatest lag of a partition.", ("topic",), "max"),
    Family(f"{FETCH}_records_consumed_total", "counter", "Records that the application was given.", ("topic",)),
    Family(f"{FETCH}_bytes_consumed_total", "counter", "Their bytes, by the average of their batch.", ("topic",)),
    Family(f"{GROUP}_assigned_partitions", "gauge", "Partitions that are assigned to this consumer."),
    Family(f"{GROUP}_rebalance_total", "counter", "Rebalances that this member completed."),
    Family(f"{GROUP}_failed_rebalance_total", "counter", "Steps of rebalances that failed."),
    Family(f"{GROUP}_heartbeat_total", "counter", "Heartbeats that the coordinator answered."),
    Family(f"{GROUP}_commit_total", "counter", "Commits that the coordinator took."),
    Family(f"{GROUP}_last_heartbeat_seconds_ago", "gauge", "Since the last answered heartbeat.", (), "max"),
    Family(f"{GROUP}_last_rebalance_seconds_ago", "gauge", "Since the last completed rebalance.", (), "max"),
    Family("kafka_consumer_last_poll_seconds_ago", "gauge", "Since the last request for records.", (), "max"),
    Family("aiogroup_lag_records", "gauge", "Records that are left, by lane.", (*TP, "lane")),
    Family("aiogroup_committed_offset", "gauge", "The committed offset.", TP),
    Family("aiogroup_end_offset", "gauge", "The offset up to which records can be read.", TP),
    Family("aiogroup_lag_age_seconds", "gauge", "The oldest knowledge of the end of a partition.", (), "max"),
    Family("aiogroup_record_age_seconds", "gauge", "Age of the newest record when handed out.", ("lane",), "max"),
    Family("aiogroup_state", "gauge", "1 for the state that the consumer is in, 0 for the others.", ("state",)),
    Family("aiogroup_deadline_used_ratio", "gauge", "How much of a time-out is used up.", ("deadline",), "max"),
    Family("aiogroup_rebalance_seconds", "histogram", "How long rebalances took.", ("reason",)),
    Family("aiogroup_handover_wait_seconds", "histogram", "Waits for records in hand at a rebalance.", ("reason",)),
    Family("aiogroup_commit_seconds", "histogram", "How long commits took.", ("outcome",)),
    Family("aiogroup_loop_blocked_seconds", "histogram", "For how long the event loop was blocked."),
    Family("aiogroup_events_total", "counter", "Events of the consumer (docs/events.md).", ("event", "level")),
    Family("aiogroup_buffered_bytes", "gauge", "Bytes that are fetched and not handed out."),
    Family("aiogroup_catch_up_left_records", "gauge", "Offsets that are pending in the catch-up lane.", TP),
    Family("aiogroup_restarts_total", "counter", "How often a service made another consumer."),
    Family("aiogroup_series_dropped", "gauge", "Series that were left out, as there are too many."),
)
FAMILIES: Final = {each.name: each for each in _ALL}
