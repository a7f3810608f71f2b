"""A partition, its group and its readers, in memory: the plainest world in which records could be skipped.

Every record has a number of its own, so that another record at the same offset (after a truncation) is another record.
`owed` are those that somebody must process. A record may leave `owed` in four ways: it is processed, the log lost it by
truncation, retention removed it and a reader told so, or the application itself dropped it.
"""

from __future__ import annotations

from uuid import UUID

from aiogroup._core.offsets.ledger import Ledger
from aiogroup._core.recovery.book import Book
from aiogroup._core.recovery.lane_starts import Log, last_known, recover
from aiogroup._core.recovery.ranges import find, read, union
from aiogroup._core.recovery.token import DoneRanges, HandOffNote, LogId, make_id, read_done, read_token, write_done

PLACE = LogId("cluster", "orders", UUID(int=7), 3)


class World:
    def __init__(self, limit_chars=4096):
        self.limit_chars = limit_chars
        self.log_start = self.end = self.stable = 0
        self.epoch = 0
        self.records = {}  # by offset: (number, epoch)
        self.epochs = [(0, 0)]  # (epoch, first offset)
        self.owed = {}  # number: offset
        self.removed = {}  # by offset: numbers that retention removed
        self.count = self.ids = 0
        self.committed = None  # (offset, metadata, epoch)
        self.done = None  # the second commit log's metadata
        self.generation = 0
        self.blind = 0
        """Below, a truncation could not be seen by a client that goes by the commit alone: no epoch stands there."""

    def fresh_id(self):
        self.ids += 1
        return make_id(self.ids.to_bytes(8, "big"))

    def append(self, count, *, stable=True):
        for _ in range(count):
            self.records[self.end] = (self.count, self.epoch)
            if self.end >= self.blind:
                self.owed[self.count] = self.end
            self.count += 1
            self.end += 1
        if stable:
            self.stable = self.end

    def mark(self, count):
        """Offsets without a record: the ends of transactions."""
        self.end += count
        self.stable = self.end

    def truncate(self, offset):
        """An unclean leader: what stood from there on is gone."""
        offset = max(offset, self.log_start)
        if offset >= self.end:
            return
        if self.committed is not None and self.committed[2] < 0 and self.committed[0] > self.log_start:
            self.blind = max(self.blind, self.committed[0])
        for at in range(offset, self.end):
            self.owed.pop(self.records.pop(at, (-1,))[0], None)
        self.end = offset
        self.stable = min(self.stable, offset)
        self.epoch += 1
        self.epochs = [each for each in self.epochs if each[1] < offset or each[1] == 0] + [(self.epoch, offset)]

    def retain(self, offset):
        for at in range(self.log_start, min(offset, self.end)):
            if at in self.records:
                self.removed.setdefault(at, []).append(self.records.pop(at)[0])
        self.log_start = max(self.log_start, min(offset, self.end))
        self.stable = max(self.stable, self.log_start)

    def tell_gone(self, start, end):
        for at in range(start, end):
            for number in self.removed.get(at, ()):
                self.owed.pop(number, None)

    def process(self, offset):
        if offset in self.records:
            self.owed.pop(self.records[offset][0], None)

    def drop(self, start, end):
        self.tell_gone(start, end)
        for at in range(start, end):
            self.process(at)

    def skip(self, start, end):
        """The application seeks forward, perhaps behind the end."""
        self.drop(start, end)
        if end > self.end:
            self.blind = max(self.blind, end)

    def epoch_before(self, offset):
        """Of the record before, as whoever read it knows."""
        return max((epoch for epoch, start in self.epochs if start < offset), default=-1) if offset else -1

    def end_of(self, epoch):
        """OffsetForLeaderEpoch: where the newest epoch that is not newer than this one ended."""
        later = [start for each, start in self.epochs if each > epoch]
        return min(later, default=self.end)

    def commit(self, generation, offset, metadata, epoch):
        if generation != self.generation:
            return False  # a zombie
        self.committed = (offset, metadata[: self.limit_chars], epoch)
        return True


class Live:
    def __init__(self, world, offset, epoch):
        self.world = world
        self.ledger = Ledger(offset)
        self.epochs = {offset: epoch}

    def epoch_before(self, offset):
        return self.epochs.get(offset, -1)


class Reading:
    def __init__(self, span, epoch):
        self.start, self.end = span
        self.ledger = Ledger(self.start)
        self.epochs = {self.start: epoch}

    def epoch_before(self, offset):
        return self.epochs.get(offset, -1)

    def shorten(self, end):
        assert end >= self.ledger.position
        self.end = end


class Member:
    """A consumer with the mode on, from the taking over of its partition to its end."""

    def __init__(self, world, *, min_backlog=1, read_committed=True, policy="earliest", hand_off=False):
        self.world = world
        self.hand_off = hand_off
        self.read_committed = read_committed
        world.generation += 1
        self.generation = world.generation
        end = world.stable if read_committed else world.end
        epoch, truncated_at, last = -1, None, world.epochs[-1][0]
        if world.committed is None:
            offset = world.log_start if policy == "earliest" else end
            if policy != "earliest":
                world.drop(0, end)
            recovery = recover(
                offset, Log(world.log_start, end, last), min_backlog=min_backlog, fresh_id=world.fresh_id()
            )
        else:
            offset, metadata, epoch = world.committed
            found = read_committed_of(offset, metadata)
            known, asked = last_known(offset, epoch, found)
            if asked >= 0 and (cut := world.end_of(asked)) < known:
                truncated_at = cut
            cut_epoch = -1 if truncated_at is None else world.epoch_before(truncated_at)
            log = Log(world.log_start, end, last, truncated_at, cut_epoch)
            recovery = recover(
                offset, log, epoch=epoch, found=found, min_backlog=min_backlog, fresh_id=world.fresh_id()
            )
        for gone in recovery.gone:
            world.tell_gone(*gone)
        self.checked = world.epoch
        self.live = Live(world, recovery.live, recovery.live_epoch)
        self.book = Book(PLACE, recovery, self.live, self._make, world.fresh_id, self._note_of)
        self.in_hand = []  # (ledger, offset, number)
        self.in_flight = None
        self.is_cut = False
        self.last = {}  # by lane: the last that was delivered
        self.wishes = {}  # what a seek wants again: owed as soon as a commit says so
        if world.committed is None:  # durable before the first delivery, or the policy would say otherwise next time
            self.commit()
        elif hand_off and (begun := self.book.commit_begun()) is not None:  # no job sees what is not written
            assert begun.offset == world.committed[0] or recovery.gone or truncated_at is not None
            self._send(begun)

    def _note_of(self, pending):
        return HandOffNote("0" * 8, self.read_committed, tuple(each.end for each in pending)) if self.hand_off else None

    def _make(self, span, epoch):
        # As of the live lane: an offset that was only sought is taken for one that was read up to.
        known = min(self.world.epoch_before(span.start), self.checked)
        return Reading(span, epoch if epoch >= 0 else known)

    # Reading.

    def check(self):
        """The leader changed: does its log hold what was read?"""
        world = self.world
        if self.checked == world.epoch:
            return
        self.checked = world.epoch
        position = self.live.ledger.position
        epoch = self.live.epoch_before(position)
        if epoch < 0 or (cut := world.end_of(epoch)) >= position:
            return
        self.is_cut = True  # what was processed and not named may be followed by nothing that will be
        self._move(self.book.offsets.truncate(cut))

    def deliver_live(self, count):
        self.check()
        ledger, world = self.live.ledger, self.world
        if ledger.position < world.log_start:
            world.tell_gone(ledger.position, world.log_start)
            ledger.pass_over(world.log_start)
        limit = world.stable if self.read_committed else world.end
        if ledger.position > world.end:
            return  # out of range: the policy would say; nothing is passed over by waiting
        for at in range(ledger.position, min(ledger.position + count, limit)):
            self._hand_out(ledger, at)
            self.live.epochs[at + 1] = world.epoch_before(at + 1)

    def deliver_catch_up(self, count):
        world = self.world
        for each in self.book.cursors:
            ledger = each.ledger
            if ledger.position >= each.end:
                continue
            if self.hand_off:
                return
            if ledger.position < world.log_start:
                target = min(world.log_start, each.end)
                world.tell_gone(ledger.position, target)
                ledger.pass_over(target)
            limit = world.stable if self.read_committed else world.end
            for at in range(ledger.position, min(ledger.position + count, each.end, limit)):
                self._hand_out(ledger, at)
                each.epochs[at + 1] = world.epoch_before(at + 1)
            return

    def _hand_out(self, ledger, at):
        if at not in self.world.records:
            ledger.pass_over(at + 1)
            return
        ledger.deliver([at], at + 1)
        self.last["live" if ledger is self.live.ledger else "catch-up"] = at
        self.in_hand.append((ledger, at, self.world.records[at][0]))

    def process(self, count, *, newest=False):
        """The application is done with some, in order or (acknowledging) not."""
        for _ in range(min(count, len(self.in_hand))):
            ledger, at, number = self.in_hand.pop(-1 if newest else 0)
            self._done(ledger, at, number)

    def _done(self, ledger, at, number):
        self.world.owed.pop(number, None)
        self.wishes.pop(number, None)
        ledger.ack(at)

    # Committing.

    def commit(self):
        commit = self.book.commit_processed()
        return self.send(commit)

    def commit_late(self):
        """It is written, and neither there nor answered yet."""
        self.land()
        self.in_flight = self.book.commit_processed()

    def land(self, *, heard=True):
        """What is in flight arrives; a later commit is never there before."""
        commit, self.in_flight = self.in_flight, None
        return commit is None or self._send(commit, heard=heard)

    def send(self, commit):
        self.land()
        return self._send(commit)

    def _send(self, commit, *, heard=True):
        if len(commit.metadata) > self.world.limit_chars:
            commit = self.book.shorter(commit, self.world.limit_chars)
        taken = self.world.commit(self.generation, commit.offset, commit.metadata, commit.leader_epoch)
        if taken and commit.seeks_count == self.book.seeks_count:
            there = self.world.records
            self.world.owed |= {number: at for number, at in self.wishes.items() if there.get(at, (-1,))[0] == number}
            self.wishes = {}
        if taken and heard:
            self.book.note_durable(commit)
        return taken

    def commit_named(self, offset):
        """Only what it holds no record below of: what the application calls processed, is."""
        lanes = self.book.reported
        try:
            after = lanes.commit(offset)
        except ValueError:
            return None
        ledgers = {id(self.live.ledger): after.live.processed}
        ledgers |= {id(each.ledger): lane.processed for each, lane in zip(self.book.cursors, after.ranges, strict=True)}
        for entry in list(self.in_hand):
            ledger, at, number = entry
            if at < ledgers.get(id(ledger), 0) and (at < offset):
                self.in_hand.remove(entry)
                self._done(ledger, at, number)
        return self.send(self.book.commit_named(offset))

    def commit_last(self):
        """By name, and no more than that: the last that was delivered by each lane."""
        for offset in [each + 1 for each in self.last.values()]:
            self.commit_named(offset)

    # Moving.

    def seek(self, offset, lane=None, *, drop_pending=False):
        self.check()
        try:
            moved = self.book.seek(offset, lane, drop_pending=drop_pending)
        except ValueError:
            return
        world, live, pending = self.world, self.book.offsets.live, self.book.pending
        for gone in moved.dropped:
            self._skip(*gone)
        if moved.lane == "live":
            self._skip(live.processed, moved.live)
        if drop_pending:
            world.skip(0, offset)
            self.wishes.clear()
        elif moved.lane == "catch-up" and find(pending, offset) is None and not moved.dropped:
            self._wish(offset, live.start)
        if moved.lane == "live" and not drop_pending:
            self._wish(moved.live, live.position)
        self._move(moved)

    def _skip(self, start, end):
        self.world.skip(start, end)
        self.wishes = {number: at for number, at in self.wishes.items() if not start <= at < end}

    def _wish(self, start, end):
        records = self.world.records
        self.wishes |= {records[at][0]: at for at in range(start, end) if at in records}

    def _move(self, moved):
        # Nobody knows the epoch before an offset that was only sought, so that a truncation behind it cannot be proved:
        # as with any consumer. Here it is known.
        epoch = self.world.epoch_before(moved.live)
        self.live.ledger.close()
        self.live.ledger = Ledger(moved.live)
        self.live.epochs.setdefault(moved.live, epoch)
        self.book.move(moved)
        self.in_hand.clear()

    def fold(self):
        self.book.fold(None if self.world.done is None else read_done(self.world.done, PLACE))


class Job:
    """A batch job: what it read when it began, and what it has done since."""

    def __init__(self, world):
        self.world = world
        self.id, self.pending, self.done = "", (), ()
        if world.committed is not None:
            found = read_committed_of(*world.committed[:2])
            if found.token is not None:
                self.id, self.pending = found.token.id, found.token.pending

    def work(self, count):
        """The first or last so many offsets of what was pending; none that the log does not hold (it would wait)."""
        world, offsets = self.world, [at for each in self.pending for at in range(*each)]
        taken = offsets[:count] if count % 2 else offsets[-count:]
        if not taken or any(at not in world.records for at in taken):
            return
        for at in taken:
            world.process(at)
        self.done = union(self.done, read((at, at + 1) for at in taken))

    def write(self):
        """Read, unite what has the same id, drop what another id made worthless, commit."""
        world = self.world
        if not self.done or world.committed is None:
            return
        if read_committed_of(*world.committed[:2]).id != self.id:
            return
        self.write_frozen()

    def write_frozen(self):
        """The same without looking: it was frozen behind its look."""
        if self.done:
            ranges = self.done
            before = None if self.world.done is None else read_done(self.world.done, PLACE)
            if before is not None and before.id == self.id:
                ranges = union(before.done, ranges)
            self.world.done = write_done(DoneRanges(self.id, ranges), PLACE)


def read_committed_of(offset, metadata):
    return read_token(offset, metadata, PLACE)


class Plain:
    """A reader without the mode, in any language: it starts at the offset and commits another, without a token."""

    def __init__(self, world):
        self.world = world
        world.generation += 1
        self.generation = world.generation
        if world.committed is None:
            self.position = world.log_start
            return
        self.position, _, epoch = world.committed
        if epoch >= 0:
            self.position = min(self.position, world.end_of(epoch))
        if self.position < world.log_start:
            world.tell_gone(self.position, world.log_start)
            self.position = world.log_start

    def read(self, count):
        for _ in range(count):
            if self.position < self.world.stable:
                self.world.process(self.position)
                self.position += 1

    def commit(self):
        self.world.commit(self.generation, self.position, "", self.world.epoch_before(self.position))
