"""Error codes that a test asks for, at the place in the answer where a handler would put them.

A fault never replaces the rest of a request: the other partitions are served. A handler asks `refusal` for each group,
topic or partition before it acts, and `denial` after it has acted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.exchange import Exchange

__all__ = ["Fault", "Faults", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """The part of a request that an error code is about. `None`: the request has no such part."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    member: str | None = None


NOWHERE = Place()


@dataclass(slots=True, eq=False)
class Fault:
    """One error code, to be used `times` times. `None` in `place` and `node_id` matches any."""

    api: str
    code: ErrorCode
    place: Place = NOWHERE
    node_id: int | None = None
    times: int | None = 1
    when: Callable[[Exchange], bool] | None = None
    after: bool = False
    """The request is carried out, and its answer says that it was not."""
    used_count: int = field(default=0, init=False)

    def fits(self, exchange: Exchange, place: Place, *, after: bool) -> bool:
        wanted = self.place
        return (
            self.api == exchange.api
            and self.after is after
            and self.node_id in (None, exchange.node_id)
            and wanted.topic in (None, place.topic)
            and wanted.partition in (None, place.partition)
            and wanted.group in (None, place.group)
            and wanted.member in (None, place.member)
            and (self.when is None or self.when(exchange))
        )


class Faults:
    """The faults of a cluster, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        self._faults.append(fault)

    def remove(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        self._faults.clear()

    @property
    def is_set(self) -> bool:
        """Whether there is any fault. A loop over many partitions asks this first, to save making each `Place`."""
        return bool(self._faults)

    def refusal(
        self, exchange: Exchange, place: Place = NOWHERE, *, among: Collection[ErrorCode] | None = None
    ) -> ErrorCode:
        """The code to answer instead of acting, or NONE.

        Args:
            exchange: the request.
            place: the part of it that is about to be done.
            among: the codes that are possible at this site; `None`: any. A site for the whole request names its own
                codes, so that it does not use up a code that is meant for a partition.
        """
        return self._code(exchange, place, among, after=False) if self._faults else ErrorCode.NONE

    def denial(
        self, exchange: Exchange, place: Place = NOWHERE, *, among: Collection[ErrorCode] | None = None
    ) -> ErrorCode:
        """The code to answer although the request was carried out, or NONE."""
        return self._code(exchange, place, among, after=True) if self._faults else ErrorCode.NONE

    def _code(self, exchange: Exchange, place: Place, among: Collection[ErrorCode] | None, *, after: bool) -> ErrorCode:
        for fault in tuple(self._faults):  # a `when` may remove some
            if (among is None or fault.code in among) and fault.fits(exchange, place, after=after):
                fault.used_count += 1
                if fault.used_count == fault.times:
                    self.remove(fault)  # a fault that is used up must cost nothing
                return fault.code
        return ErrorCode.NONE
