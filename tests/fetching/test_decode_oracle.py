"""Random partitions against an oracle that knows the log: transactions, codecs, formats, compaction."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiokafka.structs import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.fetching.records.decode import DecodeSettings, PartitionDecoder
from tests.fetching import wire_batches as w
from tests.support.effort import examples

TP = TopicPartition("orders", 3)


@dataclass
class Entry:
    """A batch in the log: the offsets it spans, its bytes, the records left in it."""

    base: int
    end: int
    data: bytes
    records: list[w.Sent] = field(default_factory=list)
    producer: int | None = None
    aborted: bool = False

    def delivers(self, read_committed):
        return bool(self.records) and not (self.aborted and read_committed)


@dataclass
class Log:
    entries: list[Entry] = field(default_factory=list)
    end: int = 0
    open: dict[int, list[Entry]] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first and last offset

    def append(self, entry):
        self.entries.append(entry)
        self.end = entry.end

    def data(self, producer, count, kept, codec, whole):
        base = self.end
        sent = [
            w.Sent(n, b"k%d" % n if n % 3 else None, b"v%d" % n if n % 5 else None, n)
            for n in range(base, base + count)
        ]
        records = [r for r, keep in zip(sent, kept, strict=False) if keep]
        attributes = w.TRANSACTIONAL if producer else 0
        data = w.batch(
            records, base=base, last=base + count - 1, codec=codec if records else 0, attributes=attributes,
            producer=producer or -1,
        )  # fmt: skip
        entry = Entry(base, base + count, data, records, producer)
        if producer:
            self.open.setdefault(producer, []).append(entry)
        self.append(entry)
        if not records and not whole:  # the cleaner removed even the header
            self.entries.pop()

    def old(self, count, codec, magic):
        base = self.end
        sent = [w.Sent(n, None, b"old%d" % n, n if magic else -1) for n in range(base, base + count)]
        inner = b"".join(
            w.message(n if magic else base + n, None, r.value, magic=magic, timestamp=r.timestamp)
            for n, r in enumerate(sent)
        )
        if codec and magic:
            self.append(Entry(base, base + count, w.wrapper(base + count - 1, inner, codec), sent))
            return
        for record in sent:
            data = w.message(record.offset, None, record.value, magic=magic, timestamp=record.timestamp)
            self.append(Entry(record.offset, record.offset + 1, data, [record]))

    def finish(self, producer, *, abort):
        entries = self.open.pop(producer, [])
        if entries and abort:
            for entry in entries:
                entry.aborted = True
            self.aborted.append((producer, entries[0].base, self.end))
        self.append(Entry(self.end, self.end + 1, w.marker(self.end, producer, abort=abort)))


STEP = st.one_of(
    st.tuples(
        st.just("data"), st.sampled_from([None, 1, 2, 3]), st.integers(1, 5),
        st.lists(st.booleans(), min_size=5), st.integers(0, 4), st.booleans(),
    ),
    st.tuples(st.just("old"), st.integers(1, 3), st.integers(0, 3), st.integers(0, 1)),
    st.tuples(st.just("finish"), st.sampled_from([1, 2, 3]), st.booleans()),
)  # fmt: skip


def build(steps):
    log = Log()
    for kind, *arguments in steps:
        if kind == "finish":
            log.finish(arguments[0], abort=arguments[1])
        else:
            getattr(log, kind)(*arguments)
    for producer in list(log.open):  # a broker answers up to the last stable offset
        log.finish(producer, abort=producer == 2)
    return log


def plain(record):
    return record.offset, record.key, record.value, record.timestamp


@given(steps=st.lists(STEP, max_size=14), data=st.data(), committed=st.booleans(), own=st.booleans())
@settings(max_examples=examples(25), deadline=None)
def test_slices_of_any_size_give_what_the_log_holds(steps, data, committed, own):
    log = build(steps)
    fetch_offset = data.draw(st.integers(0, log.end))
    sizes = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    entries = [entry for entry in log.entries if entry.end > fetch_offset]
    aborted = [(producer, first) for producer, first, last in log.aborted if last >= fetch_offset]
    decoding = PartitionDecoder(
        TP, b"".join(e.data for e in entries), fetch_offset, data.draw(st.permutations(aborted)),
        DecodeSettings(
            read_committed=committed, value_deserializer=bytes if own else None, inflate_inline_bytes=40
        ),
        lambda record: None,
    )  # fmt: skip
    expected = [
        plain(record)
        for entry in entries
        if entry.delivers(committed)
        for record in entry.records
        if record.offset >= fetch_offset
    ]
    got = []
    for turn in range(10_000):
        if turn % 2 and decoding.needs_inflate():
            decoding.inflate()
        piece = decoding.next_slice(sizes[turn % len(sizes)])
        if piece is None:
            break
        assert 0 < len(piece) <= sizes[turn % len(sizes)]
        got += map(plain, piece)
        assert decoding.next_offset == position_after(piece[-1].offset, entries, committed)
    assert got == expected
    assert decoding.exhausted
    assert decoding.size_bytes == 0
    assert decoding.next_offset == max([fetch_offset] + [entry.end for entry in entries])


def position_after(offset, entries, committed):
    """Behind the record, or, if it was its batch's last, behind all up to the next batch to deliver."""
    at = next(n for n, entry in enumerate(entries) if entry.base <= offset < entry.end)
    if offset != entries[at].records[-1].offset:
        return offset + 1
    while at + 1 < len(entries) and not entries[at + 1].delivers(committed):
        at += 1
    return entries[at].end
