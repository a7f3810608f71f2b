"""Writes the events of consumers, and samples of how they are, as lines of JSON, for an analysis of many members."""

from aiogroup.eventlog.event_log import EventLog

__all__ = ["EventLog"]
