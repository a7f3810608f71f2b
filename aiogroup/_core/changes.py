"""What changes, and who wakes for it: the one table of what a task waits for and another one changes.

Whoever changes something says what it was, with `Changes.tell`, and does not know who waits. A task that waits checks
its condition, waits for its `Waiter`, and checks again. Only the poll watchdog looks again by a clock to be safe, so a
change that nobody tells of leaves a task asleep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum, auto
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["WAKES", "Bell", "Change", "Changes", "Waiter"]


class Waiter(Enum):
    REQUESTS = auto()
    """The application: its requests for records, and the calls that wait for a position or an assignment."""
    FETCHERS = auto()
    POSITIONS = auto()
    """The tasks that look positions up and have leaders check them."""
    MEMBER = auto()
    """The member's own tasks: heartbeat, rebalance, watchdogs."""
    LEAVING = auto()
    """A rebalance or a stop that waits until the application holds nothing, or until a callback or a round has ended.
    """
    ROUND = auto()
    """Commits that wait until the group has decided a round."""
    COMMITS = auto()
    """Commits that wait for other commits, and whoever waits until none is under way."""
    INFLATER = auto()


class Change(IntEnum):  # an int, so that `tell` finds its bells in a list
    ASSIGNED = 0
    """Partitions came, went, or began again with a recreated topic."""
    POSITION = auto()
    """The position of a lane was found, moved, confirmed, or put in doubt."""
    BARRED = auto()
    """A lane was barred, or a bar was lifted."""
    READABLE = auto()
    """A lane has an error for the application, a batch was decompressed, or records that were held back for a range may
    be delivered. Of records that a broker has sent, ANSWERED tells.
    """
    ANSWERED = auto()
    """A broker has answered with records or with where a log ends, or has failed to answer."""
    FETCHABLE = auto()
    """Memory was freed, records of some lanes are waited for, or a lane may be fetched from another broker."""
    INFLATABLE = auto()
    """A batch is to be decompressed in a thread."""
    HAND = auto()
    """Something that the application held is processed, moved, or set aside."""
    MEMBER = auto()
    """The membership has moved, or a heartbeat was answered after an outage."""
    CALLBACK = auto()
    """A rebalance callback has ended, or the gate that was closed for it is open again."""
    METADATA = auto()
    COMMIT_ENDED = auto()
    """A request to commit was answered or given up, or the commit waits for a round."""
    COMMITS_RELEASED = auto()
    """Commits that were held back before a JoinGroup may go on."""
    COMMITTED = auto()
    """Offsets have become durable, and with them records processed."""
    INTERRUPTED = auto()
    """The application must look before it gets another record: there is an error, an outage has begun or ended, or the
    consumer ends.
    """


_ABOUT_LANES: Final = (Waiter.REQUESTS, Waiter.FETCHERS, Waiter.POSITIONS, Waiter.LEAVING)

WAKES: Final[Mapping[Change, tuple[Waiter, ...]]] = {
    Change.ASSIGNED: _ABOUT_LANES,
    Change.POSITION: _ABOUT_LANES,
    Change.BARRED: (Waiter.REQUESTS, Waiter.FETCHERS, Waiter.POSITIONS),
    Change.READABLE: (Waiter.REQUESTS,),
    Change.ANSWERED: (Waiter.REQUESTS,),
    Change.FETCHABLE: (Waiter.FETCHERS,),
    Change.INFLATABLE: (Waiter.INFLATER,),
    Change.HAND: (Waiter.LEAVING,),
    Change.MEMBER: (Waiter.MEMBER, Waiter.LEAVING, Waiter.ROUND, Waiter.COMMITS, Waiter.REQUESTS),
    Change.CALLBACK: (Waiter.LEAVING, Waiter.REQUESTS),
    Change.METADATA: (Waiter.FETCHERS, Waiter.POSITIONS),
    Change.COMMIT_ENDED: (Waiter.COMMITS,),
    Change.COMMITS_RELEASED: (Waiter.ROUND, Waiter.COMMITS),
    Change.COMMITTED: (Waiter.LEAVING, Waiter.REQUESTS),
    Change.INTERRUPTED: (Waiter.REQUESTS,),
}
"""Each waiter once, in the order in which they wake."""


class Bell(Protocol):
    def pulse(self) -> None:
        """Wake everybody who waits now, after the running step."""
        ...


class _Silent:
    def pulse(self) -> None:
        """Nobody waits."""


B_co = TypeVar("B_co", bound=Bell, covariant=True)


class Changes(Generic[B_co]):
    """One bell for each waiter; `tell` rings those that `WAKES` names."""

    __slots__ = ("_bells", "_woken")

    def __init__(self, make_bell: Callable[[], B_co]) -> None:
        self._bells = {waiter: make_bell() for waiter in Waiter}
        self._woken = [tuple(self._bells[waiter] for waiter in WAKES[change]) for change in Change]

    def __getitem__(self, waiter: Waiter) -> B_co:
        """The bell to wait for."""
        return self._bells[waiter]

    def tell(self, change: Change) -> None:
        for bell in self._woken[change]:
            bell.pulse()

    @staticmethod
    def silent() -> Changes[Bell]:
        """For what belongs to no consumer yet: nobody waits."""
        return Changes[Bell](_Silent)
