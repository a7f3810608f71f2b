"""The parts of the embedded broker that read, with a cluster around them: requests in, answers out, time by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.framing import RequestHeader, decode_request, decode_response, encode_request
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from aiogroup.embedded.machine.exchange import Exchange
from aiogroup.embedded.machine.faults.faults import Faults
from aiogroup.embedded.machine.ids import Ids
from aiogroup.embedded.machine.logs.batches import Record, build
from aiogroup.embedded.machine.logs.log import Log
from aiogroup.embedded.machine.logs.topics import Partition, Topics
from aiogroup.embedded.machine.reading.epochs import Epochs
from aiogroup.embedded.machine.reading.fetch import Fetching
from aiogroup.embedded.machine.reading.offsets import Offsets
from aiogroup.embedded.machine.refusals import Troubles
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.machine.timers import Timers
from aiogroup.embedded.messages.framing import encode_answer


@dataclass
class Address:
    host: str
    port: int
    rack: str | None = None


@dataclass(eq=False)
class Peer:
    """A connection that only notes what it is told."""

    node_id: int
    is_closed: bool = False
    answered_count: int = 0

    def answered(self, exchange, now_ms):
        self.answered_count += 1

    def close(self):
        self.is_closed = True


@dataclass
class ReadingMachine:
    """By default, topics have one partition on every node, led by node 0."""

    properties: dict[str, str] = field(default_factory=dict)
    racks: tuple[str | None, ...] = (None, None, None)
    now_ms: int = 1_000

    def __post_init__(self):
        self.settings = Settings.of(self.properties)
        self.timers, self.faults, self.troubles = Timers(), Faults(), Troubles()
        self.ids = Ids(Random(16))
        self.dead = []
        nodes = tuple(range(len(self.racks)))
        self.coming_ids = []
        self.topics = Topics(self._new_id, Log, lambda _index, _factor: nodes)
        self.fetching = Fetching(
            self.topics, self.timers, self.faults, self.settings, self, self.troubles, self.ids.session_id
        )
        self.offsets, self.epochs = Offsets(self.topics, self.faults), Epochs(self.topics, self.faults)
        self.count = 0
        self._handlers = {
            **self.fetching.handlers(),
            **self.offsets.handlers(),
            **self.epochs.handlers(),
        }

    def _new_id(self):
        return self.coming_ids.pop() if self.coming_ids else self.ids.uuid()

    def get(self, node_id):
        known = 0 <= node_id < len(self.racks)
        return Address("127.0.0.1", 9_000 + node_id, self.racks[node_id]) if known else None

    def is_up(self, node_id):
        return node_id not in self.dead

    def topic(self, name="t", partitions=1):
        return self.topics.create(name, partitions, self.now_ms)

    def partition(self, name="t", index=0) -> Partition:
        found = self.topics.partition(name, index)
        assert found is not None
        return found

    def append_batch(self, partition: Partition, batch: bytearray):
        """Append a batch as it is."""
        partition.log.append(bytearray(batch), partition.leader_epoch)
        partition.appended(len(batch), self.now_ms)

    def append(self, partition: Partition, count=1, value=b"v", at_ms=None):
        """One batch of records whose timestamps rise by 1 ms; returns its size."""
        first = self.now_ms if at_ms is None else at_ms
        batch = build([Record(n, first + n, None, value) for n in range(count)])
        self.append_batch(partition, batch)
        return len(batch)

    def send(self, request, version=None, node_id=0, peer=None) -> Exchange:
        """Give a request to a node, decoded from its bytes. The answer comes at once, or later."""
        self.count += 1
        version = request.MAX_VERSION if version is None else version
        header, read = decode_request(encode_request(request, version, self.count, "reader"))
        exchange = Exchange(self.count, peer or Peer(node_id), header, read, self.now_ms)
        self._handlers[type(request)](exchange, read, self.now_ms)
        return exchange

    def ask(self, request, version=None, node_id=0):
        """The answer to a request that is answered at once."""
        return answer_of(self.send(request, version, node_id))

    def pass_ms(self, ms):
        self.now_ms += ms
        self.timers.run(self.now_ms)

    def fetch(self, *wanted, version=18, node_id=0, **fields) -> Exchange:
        """Send a Fetch for `(partition, offset)` or whole `FetchPartition`s by `want`."""
        return self.send(self.fetch_request(*wanted, **fields), version, node_id)

    def fetch_request(self, *wanted, forgotten=(), max_wait_ms=500, min_bytes=1, **fields):
        return FetchRequest(
            topics=tuple(each if isinstance(each, FetchTopic) else want(*each) for each in wanted),
            forgotten_topics_data=tuple(
                ForgottenTopic(each.topic.name, each.topic.topic_id, (each.index,)) for each in forgotten
            ),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            **fields,
        )


def want(partition, offset=0, max_bytes=1 << 20, topic_id=None, **fields):
    """One partition of a Fetch, from an offset on."""
    topic = partition.topic
    ask = FetchPartition(partition.index, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)
    return FetchTopic(topic.name, topic.topic_id if topic_id is None else topic_id, (ask,))


def answer_of(exchange):
    """The answer, encoded and decoded again."""
    assert exchange.answered_at_ms is not None, "it waits"
    header: RequestHeader = exchange.header
    kind = type(exchange.request)
    frame = b"".join(encode_answer(kind, exchange.response, header.api_version, header.correlation_id))
    correlation_id, answer = decode_response(kind, header.api_version, frame[4:])
    assert correlation_id == header.correlation_id
    return answer


def parts(answer):
    """A Fetch answer by (topic id or name, partition)."""
    return {
        ((topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic), each.partition_index): each
        for topic in answer.responses
        for each in topic.partitions
    }


def only(answer):
    """The only partition of an answer."""
    ((each,),) = (topic.partitions for topic in answer.responses)
    return each
