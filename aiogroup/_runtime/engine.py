"""Everything below the public class of one consumer: starts its tasks, and ends them."""

from __future__ import annotations

from aiogroup._core.changes import Change, Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.membership.following import Cause
from aiogroup._core.native import IS_COMPILED
from aiogroup._core.subscription import Subscription
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._core.telemetry.meter import Meter
from aiogroup._core.values import dataclass
from aiogroup._runtime.delivery.handling import HandlingOrNone
from aiogroup._runtime.delivery.metering import MeteredGroup
from aiogroup._runtime.delivery.requests import Requests
from aiogroup._runtime.delivery.stopping import Stopping
from aiogroup._runtime.fetching.fetchers import Fetchers
from aiogroup._runtime.fetching.inflater import inflate
from aiogroup._runtime.fetching.positions import Positions
from aiogroup._runtime.fetching.validator import Validator
from aiogroup._runtime.following import Following
from aiogroup._runtime.group import GroupOrNone
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.loop.threads import Threads
from aiogroup._runtime.membership.callback_runs import CallbackRuns
from aiogroup._runtime.membership.inspection import MemberInspection
from aiogroup._runtime.membership.self_assignment import SelfAssignment
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.named_offsets import NamedOffsets
from aiogroup._runtime.offsets.offset_queries import OffsetQueries
from aiogroup._runtime.recovery.optional import ParallelRecoveryOrNone
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConsumerStoppedError

__all__ = ["Engine"]


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts of a consumer, which `build` makes. Made in the loop that runs it."""

    subscription: Subscription
    config: ConsumerConfig
    link: Link
    assignment: Assignment
    delivery: Delivery
    changes: Changes[Signal]
    emit: Emit
    supervisor: Supervisor
    threads: Threads
    inbox: Inbox
    stopping: Stopping
    callback_runs: CallbackRuns
    meters: list[Meter]
    following: Following
    group: GroupOrNone
    member: MemberInspection | None
    self_assignment: SelfAssignment
    requests: Requests
    refresher: Refresher
    positions: Positions
    validator: Validator
    fetchers: Fetchers
    offset_queries: OffsetQueries
    named_offsets: NamedOffsets
    recovery: ParallelRecoveryOrNone
    handling: HandlingOrNone

    async def start(self) -> None:
        """Reach the cluster, then start the tasks.

        Raises:
            AiogroupError: no bootstrap server answered, or one refused the credentials.
            ConsumerStoppedError: it was stopped meanwhile.
        """
        supervisor = self.supervisor
        if not IS_COMPILED:
            from aiogroup._core.native.diagnosis import why_not_compiled  # noqa: PLC0415 (looks at folders: few need it)

            if (slow := why_not_compiled()) is not None:
                self.emit(events.SlowDecoder(slow.why, slow.what_to_do))
        await supervisor.start()
        try:
            await supervisor.finish("first metadata", self.refresher.refresh_first)
        except BaseException:
            await self.close()
            raise
        if self.stopping.is_stopped:
            raise ConsumerStoppedError("the consumer was stopped while it started")
        self.group.begin_to_connect()  # the search for the coordinator will need it
        supervisor.spawn("refresher", self.refresher.run)
        supervisor.spawn("positions", self.positions.run)
        supervisor.spawn("held positions", self.positions.commit_held)
        supervisor.spawn("validator", self.validator.run)
        supervisor.spawn("fetchers", self.fetchers.run)
        supervisor.spawn("inflater", inflate, self.delivery, self.changes, self.threads)
        await self.recovery.start()
        self.following.follow(Cause.START)
        self.positions.note_sight(self.link.cluster)  # requested after the partitions were assigned

    def measure(self, meter: Meter) -> None:
        """Count in this meter from now on."""
        self.meters.append(meter)
        self.requests.wrap_group(lambda group, count: MeteredGroup(group, meter, self.delivery, count))

    async def close(self) -> None:
        """End every task and close every connection, at once."""
        try:
            await self.supervisor.close()
        finally:
            self.threads.close()
            self.fetchers.end_sessions()
            self.recovery.end_sessions()
            closing = self.link.close()  # after the tasks, so that none of them sees its connection break
            self.changes.tell(Change.INTERRUPTED)  # wake whoever still waits, since nothing will come
            self.handling.close()
        await self.link.wait_closed(closing)
