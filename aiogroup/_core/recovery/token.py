"""The token: a partition's pending ranges as metadata of the group's committed offset; and the text of the second log.

    aiogroup/1 <id> live=150@7 pending=85-120,140-150 <checksum> 5:hello

The committed offset beside it is the low-water mark, the start of the first pending range. `live` is the processed
offset of the live lane, with the leader epoch of the record before it (left out when it is not known). After the token
comes the metadata that the application itself committed, preceded by its length in characters.

A service that leaves its ranges to batch jobs (`parallel_handoff`) adds one more field, after `pending`:

    handoff=1:<second group>:read_committed:1750000000,1750000300

`1` is the version of the field's own grammar. The second group is the mark of the group whose offsets are the second
commit log (eight hexadecimal digits, `second_group_mark`), followed by the service's isolation level, and for each
pending range, in their order, the second since the epoch at which a job last moved it, or at which it was left to jobs.

The version in front is 1 with and without that field. An aiogroup that does not know the field cannot read the token:
it reads from the committed offset on, or from the log's start if that is above the offset. It repeats records and skips
none. If the version in front were another one, that aiogroup would take the whole text for the application's metadata,
and a job of that version would find nothing pending. A token of a later version (`aiogroup/2 ...`) is treated here in
the same way.

A token is obeyed only if it is exactly as it was written, for this offset, partition and cluster. Any other token
(mirrored, restored, edited, or written by another program) counts as none: a member that then starts at the offset
repeats records and skips none. So nothing here guesses.

    aiogroup-done/1 <id> done=85-100,110-120 at=1750000600 <checksum>

is the text that a batch job writes into the second commit log: the token's id, the ranges of that token that are done,
and the second since the epoch at which it was written (older jobs leave this out). A working job writes it again each
minute, even before any range is done (`done= at=...`; an older aiogroup takes that for no progress).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from aiogroup._core.recovery.ranges import Range, Ranges, close_smallest_gap, join, read
from aiogroup._core.values import dataclass
from aiogroup.config import MAX_COMMIT_METADATA

__all__ = [
    "ID_BYTES",
    "NO_EPOCH",
    "RESERVED_CHARS",
    "DoneRanges",
    "Found",
    "HandOffNote",
    "LogId",
    "Token",
    "is_ours",
    "make_id",
    "read_done",
    "read_token",
    "second_group_mark",
    "write_done",
    "write_token",
]

NO_EPOCH: Final = -1
ID_BYTES: Final = 8
RESERVED_CHARS: Final = 512
"""The part of the broker's limit that is kept for the token: the application's own metadata must leave it free."""

# The patterns below are compiled when they are first used: most consumers never see a token.
PREFIX: Final = "aiogroup/1 "
ANY_VERSION: Final = r"aiogroup/([0-9]{1,9}) "
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
TOKEN: Final = (
    rf"aiogroup/1 {ID} live=(?P<live>{NUMBER})(?:@(?P<epoch>{NUMBER}))? pending=(?P<pending>{RANGES})(?: {HAND_OFF})? "
    rf"{CHECKSUM}"
    "(?P<topic>[0-9a-f]{8})?"  # tokens that were written before 0.2.0 lack it
)
USER: Final = rf"(?s) (?P<length>{NUMBER}):(?P<text>.*)"
DONE: Final = rf"aiogroup-done/1 {ID} done=(?P<done>{RANGES})?(?: at=(?P<at>{NUMBER}))? {CHECKSUM}"


@dataclass(frozen=True, slots=True)
class LogId:
    """The partition and cluster that a token is about. A topic that was recreated has another `topic_id`."""

    cluster_id: str
    topic: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class HandOffNote:
    """The token's field for jobs, written by a service that leaves its ranges to them.

    `second_group` is the mark of the group whose offsets are the second commit log. `since_s` has for each pending
    range the second since the epoch at which a job last moved it, or at which it was left to jobs.
    """

    second_group: str
    read_committed: bool
    since_s: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """`live` and `pending` of one partition, with the id that a job's result names.

    `handoff` is `None` unless the service leaves its ranges to jobs.
    """

    id: str
    live: int
    live_epoch: int
    pending: Ranges
    handoff: HandOffNote | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The contents of committed metadata: a usable `token` or `None`, and the application's own text.

    `foreign` says why a token must not be obeyed; "" if there is no token, or a usable one. `id` is the token's id,
    whether it is usable or not. `is_of_former_topic`: the token was written for a topic of this name that was deleted,
    so the committed offset means nothing either.
    """

    token: Token | None
    user: str
    foreign: str = ""
    id: str = ""
    is_of_former_topic: bool = False


@dataclass(frozen=True, slots=True)
class DoneRanges:
    """The ranges that a job has done for the token with this `id`, and when it wrote that (0: not known)."""

    id: str
    done: Ranges
    at_s: int = 0


def make_id(random_bytes: bytes) -> str:
    """The id of a token, made of `ID_BYTES` random bytes."""
    if len(random_bytes) != ID_BYTES:
        raise ValueError(f"an id is made of {ID_BYTES} random bytes, not {len(random_bytes)}")
    return random_bytes.hex()


def second_group_mark(group_id: str) -> str:
    """The mark by which a token names the group of the second commit log."""
    return _hash(group_id, chars=8)


def is_ours(metadata: str) -> bool:
    """Whether this is a token of any version, usable or not: then the committed offset is a low-water mark."""
    return re.match(ANY_VERSION, metadata) is not None


# The group's own commit.


def write_token(token: Token | None, log_id: LogId, user: str = "", limit_chars: int = MAX_COMMIT_METADATA) -> str:
    """The metadata to commit with the low-water mark, of at most `limit_chars` characters.

    If there are too many ranges, the smallest gaps between them are closed, which repeats records and skips none. If
    not even one range fits, no token is written: a member that starts at the low-water mark repeats everything after
    it, and skips none.
    """
    if token is not None:
        tail = f" {len(user)}:{user}" if user else ""
        while True:
            text = _as_text(token, log_id) + tail
            if len(text) <= limit_chars:
                return text
            if len(token.pending) == 1:
                break
            token = _with_a_gap_closed(token)
    return user if len(user) <= limit_chars else ""


def read_token(offset: int, metadata: str, log_id: LogId) -> Found:
    """Read the metadata of a committed offset."""
    version = re.match(ANY_VERSION, metadata)
    if version is None:
        return Found(None, metadata)
    # Text that cannot be read is not returned as the application's: it would be written again after a new token.
    if version[0] != PREFIX:
        return Found(None, "", f"it has version {version[1]}, and this aiogroup reads version 1")
    match = re.match(TOKEN, metadata)
    user = None if match is None else _read_user(metadata[match.end() :])
    if match is None or user is None:
        return Found(None, "", "it is not written as a token is")
    token_id, body = match["id"], metadata[: match.start("checksum") - 1]
    if match["place"] != _name_checksum(log_id):
        return Found(None, user, "it was written for another cluster or topic", token_id)
    if match["topic"] not in (None, _topic_checksum(log_id)):
        return Found(None, user, "it was written for a topic that was deleted and recreated", token_id, True)
    if match["checksum"] != _checksum(body, log_id, offset):
        return Found(None, user, "its checksum is not that of this offset and partition", token_id)
    try:
        pending = _read_ranges(match["pending"])
    except ValueError as error:
        return Found(None, user, f"its ranges make no sense: {error}", token_id)
    live, epoch = int(match["live"]), int(match["epoch"]) if match["epoch"] else NO_EPOCH
    if pending[-1].end > live:
        return Found(None, user, f"it says that {pending[-1]} is pending, above live={live}", token_id)
    if pending[0].start != offset:
        return Found(None, user, f"it says that {pending[0]} is pending first, and the offset is {offset}", token_id)
    if live > MAX_OFFSET or epoch >= 2**31:
        return Found(None, user, "its numbers are out of range", token_id)
    try:
        handoff = _read_hand_off(match, len(pending))
    except ValueError as error:
        return Found(None, user, f"what it says of the hand-off makes no sense: {error}", token_id)
    return Found(Token(token_id, live, epoch, pending, handoff), user, id=token_id)


def _as_text(token: Token, log_id: LogId) -> str:
    epoch = "" if token.live_epoch == NO_EPOCH else f"@{token.live_epoch}"
    body = f"{PREFIX}{token.id} live={token.live}{epoch} pending={_write_ranges(token.pending)}"
    if token.handoff is not None:
        level = "read_committed" if token.handoff.read_committed else "read_uncommitted"
        body += f" handoff=1:{token.handoff.second_group}:{level}:{','.join(map(str, token.handoff.since_s))}"
    offset = token.pending[0].start
    return f"{body} {_checksum(body, log_id, offset)}{_name_checksum(log_id)}{_topic_checksum(log_id)}"


def _with_a_gap_closed(token: Token) -> Token:
    """The token with one range fewer: the joined range has been waiting since the older of the two has."""
    closed, handoff = close_smallest_gap(token.pending), token.handoff
    if handoff is not None:
        waiting = tuple(zip(token.pending, handoff.since_s, strict=True))
        since_s = (min(at for each, at in waiting if span.start <= each.start < span.end) for span in closed)
        handoff = replace(handoff, since_s=tuple(since_s))
    return replace(token, pending=closed, handoff=handoff)


def _read_hand_off(match: re.Match[str], range_count: int) -> HandOffNote | None:
    """The field for jobs, if there is one.

    Raises:
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
    """The application's text after a token; `None` if it is not written as such.

    A text that is a token itself was left there by a consumer that could not read that token. It is not the
    application's, and is dropped.
    """
    if not tail:
        return ""
    match = re.fullmatch(USER, tail)
    if match is None or int(match["length"]) != len(match["text"]) or not match["text"]:
        return None
    return "" if is_ours(match["text"]) else match["text"]


# The second commit log.


def write_done(done: DoneRanges, log_id: LogId, limit_chars: int = MAX_COMMIT_METADATA) -> str:
    """The metadata for the second commit log; "" if there is nothing to write, or no room for it.

    Ranges that touch become one. If not all ranges fit, the smallest are left out, and jobs do them again.
    """
    ranges = join(done.done)
    by_size = sorted(ranges, key=lambda each: each.end - each.start)
    while by_size or done.at_s:
        kept = set(by_size)
        body = f"{DONE_PREFIX}{done.id} done={_write_ranges(each for each in ranges if each in kept)}"
        body += f" at={done.at_s}" if done.at_s else ""
        text = f"{body} {_checksum(body, log_id)}{_name_checksum(log_id)}"
        if len(text) <= limit_chars:
            return text
        if not by_size:
            break
        del by_size[0]
    return ""


def read_done(metadata: str, log_id: LogId) -> DoneRanges | None:
    """The ranges that a job has done. `None`, for no known progress, if the text is not one that a job wrote."""
    match = re.fullmatch(DONE, metadata)
    if match is None or match["place"] != _name_checksum(log_id):
        return None
    if match["checksum"] != _checksum(metadata[: match.start("checksum") - 1], log_id):
        return None
    try:
        done = _read_ranges(match["done"]) if match["done"] else ()
    except ValueError:
        return None
    return DoneRanges(match["id"], done, min(int(match["at"] or 0), MAX_SECOND))


# Leaves.


def _write_ranges(ranges: Iterable[Range]) -> str:
    return ",".join(map(str, ranges))


def _read_ranges(text: str) -> Ranges:
    pairs = (each.split("-") for each in text.split(","))
    ranges = read((int(start), int(end)) for start, end in pairs)
    if ranges[-1].end > MAX_OFFSET:
        raise ValueError(f"{ranges[-1]} is above every offset")
    return ranges


def _checksum(body: str, log_id: LogId, offset: int | None = None) -> str:
    """The checksum of the text before it, the committed offset, the topic's id and the partition."""
    return _hash(body, "" if offset is None else str(offset), log_id.topic_id.hex, str(log_id.partition), chars=16)


def _name_checksum(log_id: LogId) -> str:
    """The checksum of what changes when a topic is mirrored: the cluster, and the topic's name."""
    return _hash(log_id.cluster_id, log_id.topic, chars=8)


def _topic_checksum(log_id: LogId) -> str:
    """The checksum of the topic's id, which distinguishes a topic from a former one of the same name."""
    return _hash(log_id.topic_id.hex, chars=8)


def _hash(*parts: str, chars: int) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:chars]
