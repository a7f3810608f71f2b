"""A member of the simulated group: a real consumer, and an application that reads, works, commits, seeks and stalls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from aiokafka.structs import TopicPartition

from aiogroup import Consumer
from aiogroup._core.telemetry import events
from aiogroup.errors import (
    AiogroupError,
    BrokerError,
    CommitFailedError,
    ConcurrentConsumptionError,
    ConnectionLostError,
    ConsumerStoppedError,
    FencedInstanceIdError,
    KafkaTimeoutError,
    RebalanceInProgressError,
)
from tests.simulation.checker import Ownerships
from tests.simulation.loop import Process

STYLES = ("iterate", "one", "batches", "acks")
COMMIT_ERRORS = (CommitFailedError, RebalanceInProgressError, KafkaTimeoutError, ConnectionLostError)
INTRUDES_EVERY = 5
QUIET = (events.HeartbeatSent, events.HeartbeatAcknowledged, events.OffsetsCommitted)


async def sleep_ms(duration_ms):
    await asyncio.sleep(duration_ms / 1000)


class Member:
    """`habits` says what its application does, `settings` what its consumer is told. One process, one life."""

    def __init__(self, world, name, *, instance_id=None, style, habits, settings):
        self.world = world
        self.checker = world.checker
        self.rng = world.rng
        self.process = Process(name)
        self.owner = instance_id or name
        self.instance_id = instance_id
        self.style = style
        self.habits = self.nature = habits
        self.ownerships = Ownerships(world.checker, name)
        self.consumer = None
        self.settings = settings
        self.is_running = False
        self.is_stopping = False
        self.stop_began_at = 0.0
        self.is_dead = False
        self.error = None
        self.in_hand = set()  # partitions of which it works at a record
        self.given_up = set()  # partitions that its stop could not hand over
        self.done = {}  # by partition: what its application has processed since it came
        self.known = {}  # by partition: the topic of that name that it was told of
        self.busy_ms = 0  # its application works for so long at the next record
        self.commit_ended_at = 0.0  # its application's last one, which waits for a join
        self.hand_over_ends_at = 0.0  # when a stop waits no longer for what is in hand
        self.on_busy = None
        self.intruding = set()  # tasks of its application that read on beside the other one
        self.intrusions = itertools.cycle((_by_getone, _by_getmany, _by_anext, _by_loop))
        self.task = None
        if self.is_slow:
            world.checker.slow.add(name)
        if self.is_slow or style in ("batches", "acks", "lanes") or not world.checker.is_calm:
            world.checker.is_exact = False
        # It stalls, or is called in two rounds one after the other: it falls silent, and its name keeps its partitions.
        if instance_id is not None and self.is_slow:
            world.checker.excused.add(name)
        self.begin()

    def tell(self, what):
        self.world.tell(self.process.name, what)

    def begin(self):
        self.task = self.world.loop.create_task(self.live(), context=self.process.context.copy())

    def on_event(self, event):
        if self.is_dead:
            return
        if not isinstance(event, QUIET):
            self.tell(event)
        try:
            if isinstance(event, events.TopicRecreated):
                self._on_recreated(TopicPartition(event.topic, event.partition))
            self.checker.on_event(self, event)
        except Exception as error:
            self.checker.fail(f"the checker failed at {event}: {error!r}")  # the consumer goes on without it
            raise

    def _on_recreated(self, tp):
        self.known[tp] = self.checker.made_counts.get(tp.topic, 0)
        self.in_hand.discard(tp)  # it is given up, whether it is worked at or not
        self.ownerships.moved_if_owned(tp)

    @property
    def is_slow(self):
        """Its application makes the group wait, or stalls: it is to lose what it held."""
        return self.nature.stall_ms > 0 or self.nature.callback_ms > 1_000

    # The listener.

    async def on_partitions_assigned(self, tps):
        self.tell(f"assigned {short(tps)}")
        self.ownerships.assigned(tps)
        for tp in tps:
            self.done.pop(tp, None)
        await self._dawdle()

    async def on_partitions_revoked(self, tps):
        self.tell(f"revoked {short(tps)}")
        self.ownerships.revoked(tps)
        if self.in_hand & tps and self.style != "acks" and not self.is_stopping:
            self.checker.fail(f"{self.process.name} is to give up {short(self.in_hand & tps)}, which it works at")
        await self._dawdle()
        if self.style == "batches":
            await self._commit("in the callback", {tp: self.done.pop(tp) for tp in tps if tp in self.done})

    async def on_partitions_lost(self, tps):
        self.tell(f"lost {short(tps)}")
        self.in_hand -= tps
        self.ownerships.revoked(tps)
        for tp in tps:
            self.done.pop(tp, None)
        await self._dawdle()

    async def _dawdle(self):
        if self.habits.callback_ms and self.rng.random() < 0.5:
            await sleep_ms(self.rng.randrange(self.habits.callback_ms))

    # Its life.

    async def live(self):
        try:
            self.consumer = Consumer(
                self.world.topic, listener=self, observers=(self,), group_instance_id=self.instance_id, **self.settings
            )
            while not await self._start():
                await sleep_ms(500)
            self.is_running = True
            self.checker.away.back(self.owner)
            asking = asyncio.get_running_loop().create_task(self._ask())
            try:
                await getattr(self, f"_read_{self.style}")()
            finally:
                asking.cancel()
        except ConsumerStoppedError:
            if not self.is_stopping:
                self.checker.fail(f"{self.process.name} was stopped by nobody")
        except FencedInstanceIdError as error:
            self._fenced(error)
        except Exception as error:  # noqa: BLE001 (whatever it is: no application wants it)
            self.error = error
            self.checker.fail(f"{self.process.name} was given {error!r}")
        finally:
            self.is_running = False

    def _fenced(self, error):
        self.error = error
        self.tell("fenced")
        if self.instance_id not in self.world.shared_names:
            self.checker.fail(f"{self.process.name} was fenced, and nobody else has its name")

    async def _start(self):
        """False: no broker could be reached; another consumer may."""
        try:
            await self._in_time("start", self.consumer.start(), 2 * self.settings["request_timeout_ms"])
        except (ConnectionLostError, KafkaTimeoutError) as error:
            self.tell(f"could not start: {error}")
            return False
        return True

    async def _in_time(self, what, work, limit_ms):
        """A call ends within its time-out, as long as its process runs."""
        loop = self.world.loop
        began_at, frozen_ms = loop.time(), self.process.frozen_ms
        try:
            return await work
        finally:
            took_ms = (loop.time() - began_at) * 1000 - (self.process.frozen_ms - frozen_ms)
            if took_ms > limit_ms + 1_500 and not self.is_dead:
                self.checker.fail(f"{self.process.name}: {what} took {took_ms:.0f} ms, not {limit_ms}")

    async def _ask(self):
        """Another task of the application asks for what is committed, whatever the group is doing."""
        limit_ms = self.world.late_ms if self.checker.is_calm else self.settings["default_api_timeout_ms"]
        while True:
            await sleep_ms(self.rng.randrange(500, 2_500))
            try:
                await self._in_time("committed", self.consumer.committed(TopicPartition(self.world.topic, 0)), limit_ms)
            except ConsumerStoppedError:
                return
            except AiogroupError as error:
                self.tell(f"committed: {error!r}")
                if self.checker.is_calm:
                    self.checker.fail(f"{self.process.name}: {error!r}, and nothing was wrong")

    def begin_intrusion(self):
        """Nobody waits for it: in a process that dies in this turn of the loop it never ends."""
        task = asyncio.get_running_loop().create_task(self._intrude())
        self.intruding.add(task)
        task.add_done_callback(self.intruding.discard)

    async def _intrude(self):
        """A mistake of the application: it asks for records while its other task works at one, and is refused."""
        if self.is_stopping or not self.in_hand & self.consumer.assignment():
            return
        way = next(self.intrusions)
        with contextlib.suppress(ConcurrentConsumptionError):
            await way(self.consumer)
            self.tell(f"reads on {way.__name__} beside its other task")

    async def _work(self, records, began=None):
        """The application does something with each; then they are processed. `began`: the ownerships they came of."""
        rng = self.rng
        began = began or dict(self.ownerships.numbers)
        for record in records:
            habits = self.habits
            if self._is_still(named(record), began) and record.timestamp >= self.known.get(named(record), 0):
                self.in_hand.add(named(record))
            if self.busy_ms:
                busy_ms, self.busy_ms = self.busy_ms, 0
                self.tell(f"is busy for {busy_ms} ms")
                self.on_busy()
                await sleep_ms(busy_ms)
            if habits.work_ms:
                if self.style != "acks" and record.offset % INTRUDES_EVERY == 0:
                    self.begin_intrusion()
                await sleep_ms(rng.randrange(habits.work_ms))
            if habits.stall_ms and rng.random() < habits.stall_share:
                self.tell(f"stalls for {habits.stall_ms} ms")
                await sleep_ms(habits.stall_ms)
            self.in_hand.discard(named(record))
            if not self.checker.is_of_former(record):
                self.checker.note_processed(named(record), record.offset)
            if self._is_still(named(record), began) and self._is_last_known(record):
                self.done[named(record)] = record.offset + 1

    def _is_last_known(self, record):
        """Nothing came of a newer topic of that name: the application does not know that this one is gone."""
        return record.timestamp >= self.ownerships.logs.get(named(record), 0)

    def _is_still(self, tp, began):
        """Owned without interruption since: what was delivered under an earlier ownership is not ours to commit."""
        return tp in self.ownerships.next and self.ownerships.numbers[tp] == began.get(tp)

    async def _read_iterate(self):
        left_in_hand = {}  # by partition; it comes again, after others where that was so before
        while True:
            async for record in self.consumer:
                is_again = left_in_hand.get(record.tp) == record.offset
                left_in_hand.pop(record.tp, None)
                self.ownerships.delivered(record, is_again=is_again)
                if self.habits.breaks and self.rng.random() < 0.1:
                    left_in_hand[record.tp] = record.offset
                    break
                await self._work([record])
                self._fidget()
            else:
                return

    async def _read_one(self):
        while True:
            wait_ms = self.rng.choice((20, 300, 2_000))
            with contextlib.suppress(TimeoutError):
                record = await self._in_time("getone", asyncio.wait_for(self._getone(), wait_ms / 1000), wait_ms)
                await self._work([record])
            self._fidget()

    async def _getone(self):
        """`wait_for` runs it in a task of its own before Python 3.12: a stop may come between that task and ours."""
        record = await self.consumer.getone()
        self.ownerships.delivered(record)
        return record

    async def _read_batches(self):
        while True:
            batch = await self._in_time("getmany", self.consumer.getmany(timeout_ms=1_000), 1_000)
            for records in batch.values():
                for record in records:
                    self.ownerships.delivered(record)
            began = dict(self.ownerships.numbers)
            for records in batch.values():
                await self._work(records, began)
            if batch and not self.is_stopping:
                offsets = {
                    tp: each[-1].offset + 1
                    for tp, each in batch.items()
                    if self._is_still(tp, began) and self._is_last_known(each[-1])
                }
                await self._commit("after a batch", offsets if self.rng.random() < 0.5 else None)
            self._fidget()

    async def _read_lanes(self):
        """What each lane gave is committed by name, again and again until that is taken, as careless ones do it."""
        while True:
            batch = await self._in_time("getmany", self.consumer.getmany(timeout_ms=1_000, max_records=20), 1_000)
            for records in batch.values():
                for record in records:
                    self.ownerships.delivered(record)
            began = dict(self.ownerships.numbers)
            for records in batch.values():
                await self._work(records, began)
            for lane in ("catch-up", "live"):
                ends = {named(record): record.offset + 1 for record in batch.all() if record.lane == lane}
                for tp, offset in ends.items():
                    await self._insist(tp, offset, began)

    async def _insist(self, tp, offset, began):
        """It does not look whether the partition is there: it stops when it is told that it came, or came back."""
        limit_ms = self.settings["default_api_timeout_ms"]
        for _ in range(40):
            if self.is_stopping or self.ownerships.numbers[tp] != began.get(tp):
                return
            try:
                await self._in_time("commit", self.consumer.commit({tp: offset}), limit_ms)
                return
            except COMMIT_ERRORS:
                await sleep_ms(self.rng.randrange(1, 200))
            except BrokerError as error:
                if not error.retriable:
                    raise
            except ValueError as error:
                if self._is_still(tp, began):
                    self.checker.fail(
                        f"{self.process.name} was handed {tp} up to {offset}, and may not say so: {error}"
                    )
                return

    async def _commit(self, why, offsets=None):
        limit_ms = self.settings["default_api_timeout_ms"]
        if offsets is not None:
            offsets = {tp: each for tp, each in offsets.items() if tp in self.consumer.assignment()}
            if not offsets:
                return
        began_at = self.world.loop.time()
        commit = self.consumer.commit(offsets)
        if self.habits.cancels and self.rng.random() < 0.3:
            commit = asyncio.wait_for(commit, self.rng.randrange(1, 200) / 1000)
        try:
            await self._in_time(f"commit {why}", commit, limit_ms)
        except TimeoutError as error:
            if isinstance(error, KafkaTimeoutError):
                self._commit_failed(why, error, began_at)
        except COMMIT_ERRORS as error:
            self._commit_failed(why, error, began_at)
        except BrokerError as error:  # the last one before the time-out
            if not error.retriable and "the topic is deleted" not in str(error):
                raise
            self._commit_failed(why, error, began_at)
        finally:
            self.commit_ended_at = self.world.loop.time()

    def _commit_failed(self, why, error, began_at):
        self.tell(f"commit {why} failed: {type(error).__name__}")
        if not self.checker.is_calm or any(each.is_slow for each in self.world.members):
            return
        match error:
            case CommitFailedError() if error.not_owned <= self.given_up:
                return  # it was stopped while it waited for a join
            case CommitFailedError() if self.is_stopping and "the consumer was stopped" in str(error):
                if self.checker.away.since(self.stop_began_at, besides=self.owner):
                    return  # the others decided the round without it, after it had waited for half of its time
            case RebalanceInProgressError() if self._took_all(began_at) and self.checker.away.since(began_at):
                return
        self.checker.fail(f"{self.process.name}: {error!r}, and nothing was wrong")

    def _took_all(self, began_at):
        return (self.world.loop.time() - began_at) * 1000 >= self.settings["default_api_timeout_ms"] - 1

    async def _read_acks(self):
        """Two workers; records are done out of order."""
        pending = set()
        try:
            while True:
                batch = await self._in_time("getmany", self.consumer.getmany(timeout_ms=500, max_records=8), 500)
                for records in batch.values():
                    for record in records:
                        self.ownerships.delivered(record)
                        task = asyncio.get_running_loop().create_task(self._work_and_ack(record))
                        pending.add(task)
                        task.add_done_callback(pending.discard)
                while len(pending) > 16:
                    await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                self._fidget()
        finally:
            for task in pending:
                task.cancel()

    async def _work_and_ack(self, record):
        await self._work([record])
        record.ack()

    def _fidget(self):
        """Seeks and pauses, as the application likes; never over what is not processed."""
        habits, rng, consumer = self.habits, self.rng, self.consumer
        if self.is_stopping or not habits.fidgets or rng.random() > 0.05:
            return
        owned = sorted(consumer.assignment() & self.ownerships.next.keys())
        if not owned:
            return
        tp = rng.choice(owned)
        if rng.random() < 0.5:
            paused = consumer.paused()
            self.tell(f"{'resumes' if tp in paused else 'pauses'} {short([tp])}")
            (consumer.resume if tp in paused else consumer.pause)(tp)
        elif self.checker.gap_free[tp]:
            offset = rng.randrange(self.checker.gap_free[tp])
            self.tell(f"seeks {short([tp])} to {offset}")
            self.checker.moved.add(tp)
            self.ownerships.moved(tp)
            self.done.pop(tp, None)
            consumer.seek(tp, offset)

    # What is done to it.

    async def stop(self, timeout_ms=5_000):
        self.is_stopping = True
        self.stop_began_at = self.world.loop.time()
        self.checker.excused.add(self.process.name)
        self.checker.away.left(self.owner)
        self.tell("is stopped")
        self.hand_over_ends_at = self.stop_began_at + timeout_ms / 2_000
        report = await self._in_time("stop", self.consumer.stop(timeout_ms), timeout_ms)
        self.tell(f"stopped: {report}")
        if self.instance_id is None:
            self.checker.away.back(self.owner)
        return report

    def settle(self):
        """The faults are over: it reads everything and stalls no more."""
        self.habits = self.habits.settled()
        self.busy_ms = 0
        if self.is_running:
            with contextlib.suppress(AiogroupError):
                for tp in self.consumer.paused():
                    self.consumer.resume(tp)


def named(record):
    return TopicPartition(record.topic, record.partition)


def short(tps):
    return " ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(tps)) or "nothing"


async def _by_getone(consumer):
    await consumer.getone()


async def _by_getmany(consumer):
    await consumer.getmany(timeout_ms=0)


async def _by_anext(consumer):
    await anext(consumer)


async def _by_loop(consumer):
    async for _ in consumer:
        return
