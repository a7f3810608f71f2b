"""The token: what is pending of a partition, as text behind the group's committed offset; and the second log's text.

    aiogroup/1 <id> live=150@7 pending=85-120,140-150 <checksum> 5:hello

The offset that it travels with is the low-water mark, the start of the first pending range. `live` is where the live
lane has processed everything up to, with the leader epoch of the record before (left out where it is not known). Behind
the token stands what the application itself committed as metadata, after its length in characters.

A service that leaves its ranges to batch jobs (`parallel_handoff`) says so in one more field, behind `pending`:

    handoff=1:<second group>:read_committed:1750000000,1750000300

`1` is the version of the field's own grammar. The second group is the mark of the group whose offsets are the second
commit log (eight hexadecimal digits, `second_group_mark`), followed by the service's isolation level, and for each
pending range, in their order, the second since the epoch at which a job last moved it, or at which it was left to jobs.

The version in front is 1 with and without that field. An aiogroup that does not know the field finds a token that is
not written as it knows them: it reads from the offset on, and from the log's start where that has passed the offset. It
repeats records and skips none. With another version in front it would take the whole for the application's metadata,
and its job would find nothing pending. A token of a later version (`aiogroup/2 ...`) is treated here in the same way.

A token is obeyed only if it is exactly what was written, for this very offset, partition and cluster. Everything else
(mirrored, restored, edited, written by somebody else) is as if there were none: whoever then starts at the offset
repeats records and skips none. So nothing here guesses.

    aiogroup-done/1 <id> done=85-100,110-120 at=1750000600 <checksum>

is what a batch job writes into the second commit log: the ranges it has done, of the token with this id, and the second
since the epoch at which it wrote that (left out by older jobs).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from aiogroup.config import MAX_COMMIT_METADATA
from aiogroup.recovery.ranges import Range, Ranges, close_smallest_gap, join, read
from aiogroup.values import dataclass

__all__ = [
    "ID_BYTES",
    "NO_EPOCH",
    "RESERVED_CHARS",
    "DoneRanges",
    "Found",
    "HandOffNote",
    "Place",
    "Token",
    "is_ours",
    "make_id",
    "read_committed",
    "read_done",
    "second_group_mark",
    "write_committed",
    "write_done",
]

NO_EPOCH: Final = -1
ID_BYTES: Final = 8
RESERVED_CHARS: Final = 512
"""Of the broker's limit so much is kept for the token: the application's own metadata must leave it."""

PREFIX: Final = "aiogroup/1 "
ANY_VERSION: Final = re.compile(r"aiogroup/([0-9]{1,9}) ")
DONE_PREFIX: Final = "aiogroup-done/1 "
MAX_OFFSET: Final = 2**63 - 1
MAX_SECOND: Final = 2**40
NUMBER: Final = r"(?:0|[1-9][0-9]{0,18})"
ID: Final = "(?P<id>[0-9a-f]{16})"
CHECKSUM: Final = "(?P<checksum>[0-9a-f]{16})(?P<place>[0-9a-f]{8})"
RANGES: Final = rf"{NUMBER}-{NUMBER}(?:,{NUMBER}-{NUMBER})*"
HAND_OFF: Final = (
    rf"handoff=1:(?P<group>[0-9a-f]{{8}}):(?P<level>read_(?:un)?committed):(?P<since>{NUMBER}(?:,{NUMBER})*)"
)
TOKEN: Final = re.compile(
    rf"aiogroup/1 {ID} live=(?P<live>{NUMBER})(?:@(?P<epoch>{NUMBER}))? pending=(?P<pending>{RANGES})(?: {HAND_OFF})? "
    rf"{CHECKSUM}"
    "(?P<topic>[0-9a-f]{8})?"  # tokens that were written before 0.2.0 lack it
)
USER: Final = re.compile(rf" (?P<length>{NUMBER}):(?P<text>.*)", re.DOTALL)
DONE: Final = re.compile(rf"aiogroup-done/1 {ID} done=(?P<done>{RANGES})(?: at=(?P<at>{NUMBER}))? {CHECKSUM}")


@dataclass(frozen=True, slots=True)
class Place:
    """Which partition of which cluster a token is about. A topic that was made anew has another `topic_id`."""

    cluster_id: str
    topic: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class HandOffNote:
    """What a job must know of a service that leaves its ranges to jobs.

    `second_group` is the mark of the group whose offsets are the second commit log. `since_s` says of each pending
    range, in seconds since the epoch, when a job last moved it, or when it was left to jobs.
    """

    second_group: str
    read_committed: bool
    since_s: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """`live` and `pending` of one partition, under the id by which a job's result is matched with them.

    `handoff` is there where the service leaves its ranges to jobs.
    """

    id: str
    live: int
    live_epoch: int
    pending: Ranges
    handoff: HandOffNote | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What committed metadata says: a usable `token` or `None`, and the application's own text without ours.

    `foreign` says why there is a token that must not be obeyed; "" where there is none, or a usable one. `id` is that
    of a token, usable or not. `is_of_former_topic`: it was written for a topic of this name that was deleted, so the
    offset means nothing either.
    """

    token: Token | None
    user: str
    foreign: str = ""
    id: str = ""
    is_of_former_topic: bool = False


@dataclass(frozen=True, slots=True)
class DoneRanges:
    """What a job says it has done of the ranges pending under `id`, and when it said so: 0 is not known."""

    id: str
    done: Ranges
    at_s: int = 0


def make_id(random_bytes: bytes) -> str:
    """The id of a token, of `ID_BYTES` random bytes."""
    if len(random_bytes) != ID_BYTES:
        raise ValueError(f"an id is made of {ID_BYTES} random bytes, not {len(random_bytes)}")
    return random_bytes.hex()


def second_group_mark(group_id: str) -> str:
    """By which a token names the group of the second commit log."""
    return _hash(group_id, chars=8)


def is_ours(metadata: str) -> bool:
    """Whether this is a token, usable or not, of whatever version: its offset is a low-water mark."""
    return ANY_VERSION.match(metadata) is not None


# The group's own commit.


def write_committed(token: Token | None, place: Place, user: str = "", limit_chars: int = MAX_COMMIT_METADATA) -> str:
    """The metadata to commit with the low-water mark, in at most so many characters.

    Too many ranges: the smallest gaps between them are closed, which repeats records and skips none. Does not even one
    fit, there is no token: whoever starts at the low-water mark repeats everything behind it, and skips none.
    """
    if token is not None:
        tail = f" {len(user)}:{user}" if user else ""
        while True:
            text = _write_token(token, place) + tail
            if len(text) <= limit_chars:
                return text
            if len(token.pending) == 1:
                break
            token = _with_a_gap_closed(token)
    return user if len(user) <= limit_chars else ""


def read_committed(offset: int, metadata: str, place: Place) -> Found:
    """What the metadata of a committed offset says."""
    version = ANY_VERSION.match(metadata)
    if version is None:
        return Found(None, metadata)
    # None of what cannot be read is given back as the application's: it would be written again behind a new token.
    if version[0] != PREFIX:
        return Found(None, "", f"it has version {version[1]}, and this aiogroup reads version 1")
    match = TOKEN.match(metadata)
    user = None if match is None else _read_user(metadata[match.end() :])
    if match is None or user is None:
        return Found(None, "", "it is not written as a token is")
    token_id, body = match["id"], metadata[: match.start("checksum") - 1]
    if match["place"] != _place_checksum(place):
        return Found(None, user, "it was written for another cluster or topic", token_id)
    if match["topic"] not in (None, _topic_checksum(place)):
        return Found(None, user, "it was written for a topic that was deleted and made anew", token_id, True)
    if match["checksum"] != _checksum(body, place, offset):
        return Found(None, user, "its checksum is not that of this offset and partition", token_id)
    try:
        pending = _read_ranges(match["pending"])
    except ValueError as error:
        return Found(None, user, f"its ranges make no sense: {error}", token_id)
    live, epoch = int(match["live"]), int(match["epoch"]) if match["epoch"] else NO_EPOCH
    if pending[-1].end > live:
        return Found(None, user, f"it says that {pending[-1]} is pending, behind live={live}", token_id)
    if pending[0].start != offset:
        return Found(None, user, f"it says that {pending[0]} is pending first, and the offset is {offset}", token_id)
    if live > MAX_OFFSET or epoch >= 2**31:
        return Found(None, user, "its numbers are out of range", token_id)
    try:
        handoff = _read_hand_off(match, len(pending))
    except ValueError as error:
        return Found(None, user, f"what it says of the hand-off makes no sense: {error}", token_id)
    return Found(Token(token_id, live, epoch, pending, handoff), user, id=token_id)


def _write_token(token: Token, place: Place) -> str:
    epoch = "" if token.live_epoch == NO_EPOCH else f"@{token.live_epoch}"
    body = f"{PREFIX}{token.id} live={token.live}{epoch} pending={_write_ranges(token.pending)}"
    if token.handoff is not None:
        level = "read_committed" if token.handoff.read_committed else "read_uncommitted"
        body += f" handoff=1:{token.handoff.second_group}:{level}:{','.join(map(str, token.handoff.since_s))}"
    offset = token.pending[0].start
    return f"{body} {_checksum(body, place, offset)}{_place_checksum(place)}{_topic_checksum(place)}"


def _with_a_gap_closed(token: Token) -> Token:
    """One range less: what became one has been waiting since the older one has."""
    closed, handoff = close_smallest_gap(token.pending), token.handoff
    if handoff is not None:
        waiting = tuple(zip(token.pending, handoff.since_s, strict=True))
        since_s = (min(at for each, at in waiting if span.start <= each.start < span.end) for span in closed)
        handoff = replace(handoff, since_s=tuple(since_s))
    return replace(token, pending=closed, handoff=handoff)


def _read_hand_off(match: re.Match[str], range_count: int) -> HandOffNote | None:
    """Raises:
    ValueError: not every range has its instant, or one is out of range.
    """
    if match["group"] is None:
        return None
    since_s = tuple(map(int, match["since"].split(",")))
    if len(since_s) != range_count:
        raise ValueError(f"{len(since_s)} instants for {range_count} ranges")
    if max(since_s) > MAX_SECOND:
        raise ValueError(f"{max(since_s)} is no instant")
    return HandOffNote(match["group"], match["level"] == "read_committed", since_s)


def _read_user(tail: str) -> str | None:
    """The application's text behind a token; `None`: that is not how it is written.

    Older versions wrote what they could not read of a former token there. That is nobody's.
    """
    if not tail:
        return ""
    match = USER.fullmatch(tail)
    if match is None or int(match["length"]) != len(match["text"]) or not match["text"]:
        return None
    return "" if is_ours(match["text"]) else match["text"]


# The second commit log.


def write_done(done: DoneRanges, place: Place, limit_chars: int = MAX_COMMIT_METADATA) -> str:
    """The metadata for the second commit log; "" when nothing is done, or not even one range fits.

    Ranges that touch are one. What does not fit is left out, the smallest first: it is done again.
    """
    ranges = join(done.done)
    by_size = sorted(ranges, key=lambda each: each.end - each.start)
    while by_size:
        kept = set(by_size)
        body = f"{DONE_PREFIX}{done.id} done={_write_ranges(each for each in ranges if each in kept)}"
        body += f" at={done.at_s}" if done.at_s else ""
        text = f"{body} {_checksum(body, place)}{_place_checksum(place)}"
        if len(text) <= limit_chars:
            return text
        del by_size[0]
    return ""


def read_done(metadata: str, place: Place) -> DoneRanges | None:
    """What a job has done; `None` when the text is not exactly what one wrote: no progress is known then."""
    match = DONE.fullmatch(metadata)
    if match is None or match["place"] != _place_checksum(place):
        return None
    if match["checksum"] != _checksum(metadata[: match.start("checksum") - 1], place):
        return None
    try:
        return DoneRanges(match["id"], _read_ranges(match["done"]), min(int(match["at"] or 0), MAX_SECOND))
    except ValueError:
        return None


# Leaves.


def _write_ranges(ranges: Iterable[Range]) -> str:
    return ",".join(map(str, ranges))


def _read_ranges(text: str) -> Ranges:
    pairs = (each.split("-") for each in text.split(","))
    ranges = read((int(start), int(end)) for start, end in pairs)
    if ranges[-1].end > MAX_OFFSET:
        raise ValueError(f"{ranges[-1]} is behind every offset")
    return ranges


def _checksum(body: str, place: Place, offset: int | None = None) -> str:
    """Of the text before it, the offset that it stands with, and the partition by its topic's id."""
    return _hash(body, "" if offset is None else str(offset), place.topic_id.hex, str(place.partition), chars=16)


def _place_checksum(place: Place) -> str:
    """Of what a mirror changes: the cluster, and the topic's name."""
    return _hash(place.cluster_id, place.topic, chars=8)


def _topic_checksum(place: Place) -> str:
    """Of what tells a topic from a former one of the same name."""
    return _hash(place.topic_id.hex, chars=8)


def _hash(*parts: str, chars: int) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:chars]
