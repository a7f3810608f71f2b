"""What the tasks of one consumer share."""

from __future__ import annotations

import dataclasses
from dataclasses import field

from aiogroup._core.changes import Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.telemetry.counts import Failures, Totals
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.loop.threads import Threads
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig

__all__ = ["Context"]


@dataclasses.dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Context:
    """What all parts of a consumer share."""

    config: ConsumerConfig
    link: Link
    changes: Changes[Signal]
    """What tasks tell of and wait for; the assignment and the delivery tell of their changes here, too."""
    assignment: Assignment
    delivery: Delivery
    emit: Emit
    supervisor: Supervisor = field(init=False)
    threads: Threads = field(default_factory=Threads)
    inbox: Inbox = field(init=False)
    totals: Totals = field(init=False)
    failures: Failures = field(init=False)

    def __post_init__(self) -> None:
        self.failures = Failures(self.emit, now_ms)
        self.totals = Totals(self.failures.emit)
        self.emit = self.totals.emit
        self.inbox = Inbox(self.delivery.interrupt, self.emit)
        self.supervisor = Supervisor(self.inbox.fail_by_task)
