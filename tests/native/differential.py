"""One input of the fuzzer: the C and the Python of aiogroup._core.native must make the same of it.

Its first byte says which function of the two gets it, the next three how it is called, the others are its bytes. They
are given in memory of exactly their length, so that AddressSanitizer sees a read of one byte too many.
"""

from __future__ import annotations

import random
from array import array

from aiokafka.structs import TopicPartition
from crc32c import crc32c

from aiogroup._core import native
from aiogroup._core.native import fetch, frames, pure
from aiogroup._core.native.wire import RawRecords

HEADER = 61
LAST_BASE_OFFSET = 2**63 - 2**31 - 1
ORIGIN = (TopicPartition("orders", 3), 0, "live", None)
TARGETS = ("reader", "frame", "extent", "answer")


def check(data: bytes) -> str:
    """What came of it, in a word; AssertionError where the C and the Python do not agree."""
    how, given = data[:4].ljust(4, b"\0"), data[4:]
    target = TARGETS[how[0] % len(TARGETS)]
    checks = {"reader": check_reader, "frame": check_frame, "extent": check_extent, "answer": check_answer}
    return checks[target](how, given)


def exactly(data):
    """Bytes, and no room behind them: bytes objects end in a NUL, and an array that grows takes more than it needs."""
    memory = memoryview(array("B", (0,)) * len(data))
    memory[:] = data
    return memory


# The extent of what was fetched.


def check_extent(how, given):
    from_offset = int.from_bytes(how[1:4], "big") << 8 * (how[3] % 5)
    told = native.extent(exactly(given), from_offset)
    assert told == pure.extent(exactly(given), from_offset)
    return f"extent damaged={told[0] is None} runs={min(len(told[1]), 4)}"


# An answer to Fetch.


def check_answer(_how, given):
    """Compared as tuples, so that the makers of structures have no part in it."""
    frame = exactly(given)
    told = native.read_fetch(frame, fields_of, fields_of, fields_of, bytes.hex, (1, 2, 3))
    assert told == fetch.read_fetch(frame, fields_of, fields_of, fields_of, bytes.hex, (1, 2, 3))
    if told is None:
        return "answer unusual"
    partitions = [partition for topic in told[1][3] for partition in topic[2]]
    kinds = {(bool(partition[10]), partition[8] is None) for partition in partitions}
    return f"answer topics={min(len(told[1][3]), 3)} kinds={sorted(kinds)}"


def fields_of(*values):
    return values


# An answer that is on its way.


def check_frame(how, given):
    """It comes in pieces; records are taken out of it where they are found, as `_core/protocol/receiver.py` does."""
    has_ids = bool(how[1] & 1)
    pieces = random.Random(how[2])  # so that an input is always cut at the same places
    frame, rest, place, found = bytearray(), bytearray(given), frames.AT_START, 0
    while rest and place[1] != frames.LOST:
        count = pieces.choice((1, 3, 40, len(rest)))
        frame += rest[:count]
        del rest[:count]
        length = 1
        while length and place[1] != frames.LOST:
            there = exactly(frame)
            told = native.next_records(there, place, has_ids)
            assert told == frames.next_records(there, place, has_ids)
            place, length = told
            found += length > 0
            missing = max(0, length - (len(frame) - place[0]))
            del frame[place[0] : place[0] + length]
            del rest[:missing]
    return f"frame stage={place[1]} found={min(found, 4)}"


# The records of a batch, and of those behind it.


def check_reader(how, given):
    """The first batch is as long as it says; what the C goes on to behind it is read batch by batch in Python."""
    if len(given) < HEADER:
        return "reader short"
    first, behind = cut(given)
    if int.from_bytes(first[:8], "big") > LAST_BASE_OFFSET:
        try:
            reader_of(native, first)
        except ValueError:
            return "reader refused"
        raise AssertionError("an offset that overflows was not refused")
    flags, at_most = how[1], how[2] % 16 + 1
    if flags & 8:
        behind = sealed(behind)
    from_offset = int.from_bytes(first[:8], "big") + how[3] % 8
    checksum = {"check": crc32c} if flags & 1 else {}
    plain = check_plain(how, sealed(given) if flags & 8 else given, from_offset)
    reading = reader_of(native, first, exactly(behind) if flags & 2 else None, committed=bool(flags & 4), **checksum)
    mine = drained([reading], at_most, from_offset)
    batches = [first]
    passed, behind = behind[: reading.passed], behind[reading.passed :]
    assert len(passed) == reading.passed
    while passed:
        batch, passed = cut(passed)
        batches.append(batch)
    del reading
    if any(map(has_long_attributes, batches)):
        return "reader attributes"
    theirs = drained([reader_of(pure, each) for each in batches], at_most, from_offset)
    assert mine == theirs
    return f"reader {mine[1]} batches={min(len(batches), 3)} records={min(len(mine[0]), 3)} plain={plain}"


def check_plain(how, given, from_offset):
    """What is read at once is what Python reads batch by batch, of batches that are all plain. How many were there."""
    flags, at_most = how[1], how[2] % 16 + 1
    check, committed = crc32c if flags & 1 else None, bool(flags & 4)
    told = native.read_plain(exactly(given), from_offset, at_most, ORIGIN, check, committed)
    if told is None:
        return 0
    batches = []
    while given:
        batch, given = cut(given)
        attributes = int.from_bytes(batch[21:23], "big")
        assert batch[16] == 2
        assert not attributes & (0x3F if committed else 0x2F)
        assert check is None or check(batch[21:]) == int.from_bytes(batch[17:21], "big")
        batches.append(batch)
    records, next_offset = told
    assert 1 <= len(records) <= at_most
    if not any(map(has_long_attributes, batches)):
        theirs = [reader_of(pure, each) for each in batches]
        assert drained(theirs, at_most, from_offset) == (list(map(fields, records)), "fine", 0)
        assert next_offset == theirs[-1].next_offset
    return min(len(batches), 3)


def cut(data):
    length = max(HEADER, int.from_bytes(data[8:12], "big") + 12)
    return data[:length], data[length:]


def sealed(behind):
    """The batches behind with a checksum that is right, whatever was changed in them."""
    done = bytearray()
    while len(behind) > HEADER:
        batch, behind = cut(behind)
        done += batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]
    return bytes(done + behind)


def reader_of(kind, batch, behind=None, check=None, committed=False):
    return kind.Reader(exactly(batch[:HEADER]), exactly(batch[HEADER:]), ORIGIN, behind, check, committed)


def fields(record):
    return record.offset, record.timestamp, record.key, record.value, record.headers


def drained(readers, at_most, from_offset):
    """The records of readers that stand behind each other, and how it ended."""
    records = []
    for reading in readers:
        try:
            while got := reading.read(at_most, from_offset):
                records += map(fields, got)
        except ValueError:
            return records, "damaged", reading.left
        try:
            reading.finish()
        except ValueError:
            return records, "unfinished", reading.left
    return records, "fine", readers[-1].left


def has_long_attributes(batch):
    """aiokafka takes a record's attributes for a number instead of a byte. Kafka leaves them at 0."""
    raws = RawRecords(memoryview(batch), 0)
    try:
        while True:
            if batch[HEADER + raws.skip()] >= 0x80:
                return True
    except ValueError:
        return False
