"""What the embedded broker does not do, each with advice, and the list of the refusals that a test ran into."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REFUSALS", "BrokerRefusal", "Refusal", "Trouble", "Troubles", "group_named", "whole_number"]


class BrokerRefusal(Exception):  # noqa: N818 (it is no error of a client: the embedded broker does not do this)
    """The embedded broker cannot do what a Python call asks for; the message says what helps."""


def whole_number(name: str, value: object, *, at_least: int | None = None) -> int:
    """Check an argument that must be a whole number.

    Raises:
        BrokerRefusal: it is not one, or too small. A text or a float would otherwise fail later, in a place that tells
            the caller nothing.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise BrokerRefusal(f"{name}={value!r}: a whole number, not {type(value).__name__}")
    if at_least is not None and value < at_least:
        raise BrokerRefusal(f"{name}={value}: it is at least {at_least}")
    return value


def group_named(group_id: object) -> str:
    """Check an argument that must name a group.

    Raises:
        BrokerRefusal: it is not a text.
    """
    if not isinstance(group_id, str):
        raise BrokerRefusal(f"a group is named by its id, a text, and not by {group_id!r}")
    return group_id


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that a client may ask for and not get."""

    name: str
    seen: str
    """What the client sees."""
    helps: str


REFUSALS = {
    each.name: each
    for each in (
        Refusal(
            "api",
            "the connection is closed, as Kafka does",
            "ask for an API and a version that ApiVersions lists, or test this on real Kafka (aiogroup.devkafka)",
        ),
        Refusal(
            "garbage",
            "the connection is closed, as Kafka does",
            "send whole frames of at most 100 MiB whose bytes are what their header says",
        ),
        Refusal(
            "share groups",
            "FindCoordinator answers INVALID_REQUEST for a share group",
            "test share groups on real Kafka",
        ),
        Refusal(
            "replicas",
            "Fetch answers INVALID_REQUEST for a replica id",
            "fetch as a consumer, with replica id -1: the replicas of the embedded broker need not fetch",
        ),
        Refusal(
            "settings",
            "settings are refused with INVALID_REQUEST or INVALID_CONFIG; those of loggers and groups are left out",
            "use the settings that DescribeConfigs lists, of topics and of the whole cluster",
        ),
        Refusal(
            "max_bytes",
            "Produce answers POLICY_VIOLATION",
            "give Broker a greater max_bytes, or delete topics that the test no longer needs",
        ),
        Refusal(
            "unpacked",
            "Produce answers POLICY_VIOLATION",
            "send smaller batches: a compressed one may have 64 MiB when it is unpacked, and 1,000,000 records",
        ),
        Refusal(
            "connections",
            "the connection is closed at once",
            "close clients that are no longer needed: 1,000 connections may be open",
        ),
        Refusal(
            "unreachable",
            "in virtual time nothing else can be connected to",
            "replace what is behind the address by something in the same loop, or run the broker in real time",
        ),
        Refusal(
            "rule",
            "the connection is closed, or an error is not said, or nothing happens",
            "correct the function that was given to rewrite() or when(), or to error() as when=",
        ),
        Refusal(
            "bug",
            "the connection is closed",
            "report it: the embedded broker failed at a request that it should have served",
        ),
    )
}
"""Every refusal by its name; the documentation's list is made from it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One refusal that happened."""

    refusal: Refusal
    what: str
    at_ms: int

    def __str__(self) -> str:
        return f"the embedded broker: {self.what}; {self.refusal.seen}. What helps: {self.refusal.helps}"


class Troubles:
    """The refusals that happened, at most `BOUND` of them; `lost_count` counts the rest."""

    BOUND = 1_000

    def __init__(self) -> None:
        self.kept: list[Trouble] = []
        self.lost_count = 0

    def note(self, name: str, what: str, now_ms: int) -> Trouble:
        """Remember that the refusal `name` happened; `what` says to whom and with which values."""
        trouble = Trouble(REFUSALS[name], what, now_ms)
        if len(self.kept) < self.BOUND:
            self.kept.append(trouble)
        else:
            self.lost_count += 1
        return trouble

    def note_settings(self, client_id: str | None, of: str, message: str | None, now_ms: int) -> None:
        """Settings were refused with this message. It counts as a trouble if Kafka would not have refused them."""
        if message is not None and "embedded broker" in message.lower():
            self.note("settings", f"{client_id or 'a client'} set settings of {of}: {message}", now_ms)
