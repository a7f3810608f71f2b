"""The log of a simulated partition: batches, leaders, and where each leader's epoch began."""

from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from aiogroup.protocol.errors import ErrorCode as E

BATCHES_PER_FETCH = 4


class Log:
    """One partition: what all its replicas have, and who leads it."""

    def __init__(self, leader, number=0):
        self.leader = leader
        self.number = number  # of topics of this name; each record says it as its timestamp
        self.epoch = 0
        self.end = 0
        self.starts = {0: 0}  # where each epoch began
        self.batches = []  # (offset behind its last record, bytes)

    def elect(self, leader):
        self.leader, self.epoch = leader, self.epoch + 1
        self.starts[self.epoch] = self.end

    def refusal(self, node, epoch):
        """What a broker says to who means another leader."""
        if self.leader != node:
            return E.NOT_LEADER_OR_FOLLOWER
        if 0 <= epoch < self.epoch:
            return E.FENCED_LEADER_EPOCH
        return E.UNKNOWN_LEADER_EPOCH if epoch > self.epoch else E.NONE

    def end_of(self, epoch):
        """LeaderEpochFileCache.endOffsetFor."""
        if epoch > self.epoch:
            return -1, -1
        return epoch, self.starts.get(epoch + 1, self.end)

    def append(self, count):
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
        for number in range(count):
            builder.append(number, self.number, None, b"", [])
        data = builder.build()
        data[0:8] = self.end.to_bytes(8, "big")
        data[12:16] = self.epoch.to_bytes(4, "big")
        self.end += count
        self.batches.append((self.end, bytes(data)))

    def read(self, offset):
        behind = (data for end, data in self.batches if end > offset)
        return b"".join(data for data, _ in zip(behind, range(BATCHES_PER_FETCH), strict=False))
