"""A merge over partitions whose logs are lists of times, and a brute-force version of it, record by record."""

from __future__ import annotations

from aiogroup._core.changes import Change
from aiogroup._core.delivery import merge, merging
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.records.decode import DecodeSettings, PartitionDecoder
from tests.fetching import wire_batches
from tests.support.records import LATEST, tp

STALL_MS = 1_000


def always():
    return True


class World:
    """The real merge: partitions 0, 1, ... of one topic, fetched when the test says so.

    `merge` and `merging` are the modules that decide; a test may give others.
    """

    def __init__(self, count, max_idle_ms=0, *, auto_ack=True, per_turn=8, modules=(merge, merging), **settings):
        self.now_ms = 0
        self.logs = {number: [] for number in range(count)}
        self.assignment = Assignment()
        self.delivery = Delivery(self.assignment, auto_ack=auto_ack, records_per_turn=per_turn, turn_ms=60_000)
        self.rule = modules[0].MergeRule(max_idle_ms, STALL_MS)
        self.merging = modules[1].Merging(
            self.assignment,
            self.delivery,
            self.rule,
            records_per_turn=per_turn,
            read_committed=False,
            **settings,
        )
        self.assign(*range(count))

    def __getitem__(self, number):
        return self.assignment[tp(number)]

    # What happens to it.

    def assign(self, *numbers, at=0):
        for partition in self.assignment.add({tp(number): LATEST for number in numbers}):
            partition.start_at(at)
        self.delivery.close_cursor()

    def revoke(self, number):
        self.delivery.close_cursor()
        removed = self.assignment.remove([tp(number)])
        self.delivery.forget(removed)

    def seek(self, number, offset):
        self.delivery.forget([self[number]])
        self[number].start_at(offset)

    def pause(self, number, is_paused=True):
        self[number].bar(Bar.PAUSED, when=is_paused)
        self.delivery.close_cursor()

    def produce(self, number, *times):
        self.logs[number] += times

    def fetch(self, number, count=None):
        """A fetch answer with `count` records, by default all."""
        partition, log = self[number], self.logs[number]
        first = partition.target.offset
        upto = len(log) if count is None else min(len(log), first + count)
        partition.log.end_offset, partition.log.heard_at_ms = len(log), self.now_ms
        if upto > first:
            sent = [wire_batches.Sent(offset, value=b"v", timestamp=log[offset]) for offset in range(first, upto)]
            data = wire_batches.batch(sent)
            partition.put(PartitionDecoder(partition.tp, data, first, (), DecodeSettings(), lambda record: None))
            partition.target.fetched(upto)
        self.delivery.look_again(Change.ANSWERED)

    def hold(self, number, *times):
        """Produce and fetch."""
        self.produce(number, *times)
        self.fetch(number)

    # The results.

    def ask(self, count=None):
        """The next records, at most `count`, until the merge waits."""
        given = []
        while count is None or len(given) < count:
            record = self.merging.cursor.take()
            if record is None:
                self.delivery.process_all()
                assert not self.merging.decode_ahead(always)
                record = self.merging.open(self.now_ms, 10**12, always)
            if record is None:
                break
            given.append(record)
        return given

    def times(self, count=None):
        return [record.timestamp for record in self.ask(count)]

    def places(self, count=None):
        return [(record.partition, record.offset) for record in self.ask(count)]

    def states(self):
        """The state of each partition, by number."""
        return {name.partition: str(each.state) for name, each in self.rule.waiting_for.items()}

    def positions(self):
        self.delivery.settle()
        return {each.tp.partition: each.position for each in self.assignment}

    def committable(self):
        self.delivery.settle()
        return {each.tp.partition: each.ledger.committable for each in self.assignment}


class Oracle:
    """The rules of KIP-695 to the letter, by brute force: every record is chosen separately."""

    def __init__(self, count, max_idle_ms):
        self.now_ms = 0
        self.max_idle_ms = max_idle_ms
        self.logs = {number: [] for number in range(count)}
        self.owned = {}
        self.enforced = self.late = 0
        self.stream_time = -1
        self.waiting = {}
        self.in_hand = None
        self.assign(*range(count))

    def assign(self, *numbers, at=0):
        for number in numbers:
            self.owned[number] = {"position": at, "fetched": at, "end": None, "deadline": None, "paused": False}

    def revoke(self, number):
        del self.owned[number]
        self.in_hand = None if self.in_hand == number else self.in_hand

    def seek(self, number, offset):
        self.owned[number] |= {"position": offset, "fetched": offset}
        self.in_hand = None if self.in_hand == number else self.in_hand

    def pause(self, number, is_paused=True):
        self.owned[number]["paused"] = is_paused

    def produce(self, number, *times):
        self.logs[number] += times

    def fetch(self, number, count=None):
        of, log = self.owned[number], self.logs[number]
        of["end"] = len(log)
        of["fetched"] = max(of["fetched"], len(log) if count is None else min(len(log), of["fetched"] + count))

    def hold(self, number, *times):
        self.produce(number, *times)
        self.fetch(number)

    def ask(self, count):
        given = []
        while len(given) < count:
            self.in_hand = None  # asking for more means that it is processed
            chosen = self._choose()
            if chosen is None:
                break
            given.append(chosen)
            self.in_hand = chosen[0]
        return given

    def committable(self):
        return {number: of["position"] - (number == self.in_hand) for number, of in self.owned.items()}

    def _choose(self):
        heads, given_up, self.waiting = [], 0, {}
        for number, of in self.owned.items():
            if of["paused"]:
                of["deadline"] = None
            elif of["fetched"] > of["position"]:
                of["deadline"] = None
                heads.append((self.logs[number][of["position"]], number))
            elif of["end"] is None or of["end"] > of["position"]:
                of["deadline"] = None
                self.waiting[number] = "unknown" if of["end"] is None else "behind"
            else:
                if of["deadline"] is None:
                    of["deadline"] = self.now_ms + self.max_idle_ms
                if self.now_ms < of["deadline"]:
                    self.waiting[number] = "idling"
                else:
                    given_up += 1
        missing = given_up + len(self.waiting)
        if self.max_idle_ms == -1:
            self.waiting = {}
        if not heads or self.waiting:
            return None
        at, number = min(heads)
        offset = self.owned[number]["position"]
        self.owned[number]["position"] += 1
        self.enforced += missing > 0
        self.late += at < self.stream_time
        lateness = max(0, self.stream_time - at)
        self.stream_time = max(self.stream_time, at)
        return number, offset, lateness
