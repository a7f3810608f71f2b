"""Callbacks inside the machine for tests: each request, its answers, generations, members that fell silent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiogroup.embedded.machine.exchange import Exchange
    from aiogroup.embedded.machine.groups.group import Group

__all__ = ["Observer", "Observers"]


class Observer:
    """A subclass overrides the callbacks that it needs. It must not change the machine from within a call."""

    def before_request(self, exchange: Exchange, now_ms: int) -> None:
        """A request was decoded; its handler comes next."""

    def on_answers(self, exchange: Exchange | None, answered: Sequence[Exchange], now_ms: int) -> None:
        """The exchanges that were answered in one step, because of a request or by time (`exchange` is `None`)."""

    def on_generation(self, group: Group, now_ms: int) -> None:
        """A generation begins, or the group is empty now."""

    def on_expired(self, group: Group, member_id: str, now_ms: int) -> None:
        """A member's session has expired, and it is removed."""


class Observers(Observer):
    """All observers of a cluster."""

    def __init__(self) -> None:
        self.all: list[Observer] = []

    def before_request(self, exchange: Exchange, now_ms: int) -> None:
        for each in self.all:
            each.before_request(exchange, now_ms)

    def on_answers(self, exchange: Exchange | None, answered: Sequence[Exchange], now_ms: int) -> None:
        for each in self.all:
            each.on_answers(exchange, answered, now_ms)

    def on_generation(self, group: Group, now_ms: int) -> None:
        for each in self.all:
            each.on_generation(group, now_ms)

    def on_expired(self, group: Group, member_id: str, now_ms: int) -> None:
        for each in self.all:
            each.on_expired(group, member_id, now_ms)
