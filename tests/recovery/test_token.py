"""The token: exactly what was written is read, and nothing else is; what does not fit repeats records, never skips."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.recovery import ranges as r
from aiogroup._core.recovery.ranges import Range
from aiogroup._core.recovery.token import (
    DoneRanges,
    HandOffNote,
    LogId,
    Token,
    is_ours,
    make_id,
    read_done,
    read_token,
    second_group_mark,
    write_done,
    write_token,
)
from tests.recovery.test_ranges import offsets, some_ranges
from tests.support.effort import examples

PLACE = LogId("cluster", "orders", UUID(int=7), 3)
TOKEN = Token("0123456789abcdef", 150, 7, (Range(85, 120),))
TEXT = "aiogroup/1 0123456789abcdef live=150@7 pending=85-120 "
users = st.text("aZ09 :=-,@\t\n\0ä€😀", max_size=40)  # all of Unicode is a table that takes seconds to make


@st.composite
def tokens(draw):
    pending = draw(some_ranges(least=1))
    live = pending[-1].end + draw(st.integers(0, 9))
    note = None
    if draw(st.booleans()):
        since_s = tuple(draw(st.integers(0, 2**33)) for _ in pending)
        note = HandOffNote(second_group_mark("billing.catchup"), draw(st.booleans()), since_s)
    return Token(make_id(draw(st.binary(min_size=8, max_size=8))), live, draw(st.integers(-1, 9)), pending, note)


def test_a_token_is_written_as_the_specification_says():
    text = write_token(TOKEN, PLACE)
    assert text.startswith(TEXT)
    assert text.isascii()
    assert len(text) == len(TEXT) + 32
    assert write_token(TOKEN, PLACE, "hello") == text + " 5:hello"
    assert write_token(replace(TOKEN, live_epoch=-1), PLACE).startswith(TEXT.replace("@7", ""))


LEFT = replace(TOKEN, handoff=HandOffNote(second_group_mark("billing.catchup"), True, (1_750_000_000,)))


def test_a_token_says_that_its_ranges_are_left_to_jobs_as_the_documentation_says():
    text = write_token(LEFT, PLACE, "hello")
    mark = hashlib.sha256(b"billing.catchup").hexdigest()[:8]
    assert text.startswith(f"{TEXT}handoff=1:{mark}:read_committed:1750000000 ")
    assert text.endswith(" 5:hello")
    found = read_token(85, text, PLACE)
    assert (found.token, found.user, found.foreign) == (LEFT, "hello", "")
    loose = replace(LEFT, handoff=replace(LEFT.handoff, read_committed=False))
    assert ":read_uncommitted:" in write_token(loose, PLACE)


def as_written_before_there_was_a_hand_off_note(metadata):
    """The grammar of the first tokens, word for word: what an aiogroup that is older makes of today's."""
    number = "(?:0|[1-9][0-9]{0,18})"
    ranges = rf"{number}-{number}(?:,{number}-{number})*"
    grammar = rf"aiogroup/1 [0-9a-f]{{16}} live={number}(?:@{number})? pending={ranges} [0-9a-f]{{24}}"
    return metadata.startswith("aiogroup/1 "), re.match(grammar, metadata) is not None


def test_an_older_aiogroup_sees_a_token_that_it_must_not_obey_and_so_starts_at_the_offset():
    assert as_written_before_there_was_a_hand_off_note(write_token(TOKEN, PLACE)) == (True, True)
    assert as_written_before_there_was_a_hand_off_note(write_token(LEFT, PLACE)) == (True, False)


@pytest.mark.parametrize(
    ("note", "why"),
    [
        (replace(LEFT.handoff, since_s=(1, 2)), "2 instants for 1 ranges"),
        (replace(LEFT.handoff, since_s=(2**41,)), "no instant"),
    ],
)
def test_a_hand_off_that_makes_no_sense_is_not_obeyed(note, why):
    found = read_token(85, write_token(replace(LEFT, handoff=note), PLACE), PLACE)
    assert found.token is None
    assert why in found.foreign


@pytest.mark.parametrize("text", ["aiogroup/2 0123456789abcdef anything", "aiogroup/17 ", "aiogroup/01 x"])
def test_a_token_of_another_version_is_reported_and_not_taken_for_the_applications(text):
    found = read_token(85, text, PLACE)
    assert (found.token, found.user) == (None, "")
    assert "version" in found.foreign
    assert is_ours(text)


def test_what_older_versions_wrote_after_a_token_of_one_that_they_could_not_read_is_dropped():
    found = read_token(85, write_token(TOKEN, PLACE, "aiogroup/2 0123456789abcdef what is this"), PLACE)
    assert (found.token, found.user) == (TOKEN, "")


def test_ranges_that_become_one_have_been_waiting_since_the_older_one_has():
    pending = (Range(0, 10), Range(11, 20), Range(1000, 1010))
    token = Token(TOKEN.id, 2000, 7, pending, replace(LEFT.handoff, since_s=(30, 20, 40)))
    text = write_token(token, PLACE, limit_chars=len(write_token(token, PLACE)) - 1)
    read = read_token(0, text, PLACE).token
    assert (read.pending, read.handoff.since_s) == ((Range(0, 20), Range(1000, 1010)), (20, 40))


@settings(max_examples=examples(30), deadline=None)
@given(tokens(), users)
def test_what_was_written_is_read(token, user):
    found = read_token(token.pending[0].start, write_token(token, PLACE, user), PLACE)
    assert (found.token, found.user, found.foreign, found.id) == (token, user, "", token.id)


@settings(max_examples=examples(30), deadline=None)
@given(users)
def test_metadata_of_others_is_no_token_and_given_back(user):
    found = read_token(7, user, PLACE)
    assert (found.token, found.user, found.foreign) == (None, user, "")


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_no_edited_token_is_obeyed(data):
    text = write_token(TOKEN, PLACE)
    at = data.draw(st.integers(len("aiogroup/1 "), len(text)))
    cut = data.draw(st.integers(0, 2))
    edited = text[:at] + data.draw(st.text("0123456789abcdef-,@= \n", max_size=3)) + text[at + cut :]
    found = read_token(85, edited, PLACE)
    assert (found.token is None) == (edited != text)
    assert bool(found.foreign) == (edited != text)


@pytest.mark.parametrize(
    ("offset", "place", "why"),
    [
        (84, PLACE, "checksum"),
        (86, PLACE, "checksum"),
        (85, replace(PLACE, partition=4), "checksum"),
        (85, replace(PLACE, topic_id=UUID(int=8)), "deleted and recreated"),
        (85, replace(PLACE, cluster_id="mirror"), "another cluster or topic"),
        (85, replace(PLACE, topic="source.orders"), "another cluster or topic"),
    ],
)
def test_a_token_counts_where_it_was_written_and_with_its_offset(offset, place, why):
    found = read_token(offset, write_token(TOKEN, PLACE, "mine"), place)
    assert (found.token, found.user, found.id) == (None, "mine", TOKEN.id)
    assert why in found.foreign


def test_only_a_token_of_the_same_name_and_cluster_is_of_a_topic_that_was_deleted():
    text = write_token(TOKEN, PLACE)
    assert read_token(85, text, replace(PLACE, topic_id=UUID(int=8))).is_of_former_topic
    mirrored = replace(PLACE, topic_id=UUID(int=8), cluster_id="mirror")
    assert not read_token(85, text, mirrored).is_of_former_topic
    assert not read_token(86, text, PLACE).is_of_former_topic


def test_a_token_that_was_written_without_its_topic_is_read_and_proves_nothing_of_it():
    text = write_token(TOKEN, PLACE)[:-8]
    assert read_token(85, text, PLACE).token == TOKEN
    found = read_token(85, text, replace(PLACE, topic_id=UUID(int=8)))
    assert (found.token, found.is_of_former_topic) == (None, False)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (replace(TOKEN, live=119), "above live"),
        (replace(TOKEN, pending=(Range(85, 90), Range(89, 120))), "disjoint"),
        (replace(TOKEN, pending=(Range(85, 85),)), "no range"),
        (replace(TOKEN, pending=(Range(85, 90), Range(10, 20))), "ascending"),
        (replace(TOKEN, live=2**63), "out of range"),
        (replace(TOKEN, live_epoch=2**31), "out of range"),
    ],
)
def test_a_checksum_makes_no_sense_of_nonsense(token, why):
    found = read_token(85, write_token(token, PLACE), PLACE)
    assert found.token is None
    assert why in found.foreign


def test_the_offset_must_be_the_first_pending_one_whatever_the_checksum_says():
    def checksum(*parts, chars):
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:chars]

    def sealed(offset):
        body = TEXT.rstrip()
        text = checksum(body, str(offset), PLACE.topic_id.hex, "3", chars=16)
        return f"{body} {text}{checksum('cluster', 'orders', chars=8)}{checksum(PLACE.topic_id.hex, chars=8)}"

    assert sealed(85) == write_token(TOKEN, PLACE)
    found = read_token(84, sealed(84), PLACE)
    assert found.token is None
    assert "the offset is 84" in found.foreign


@pytest.mark.parametrize("tail", [" ", " 5:hell", " 4:hello", " 05:hello", " 0:", "5:hello", " hello", "\n"])
def test_what_stands_after_a_token_must_be_written_as_we_do(tail):
    text = write_token(TOKEN, PLACE) + tail
    found = read_token(85, text, PLACE)
    assert (found.token, found.user) == (None, "")
    assert found.foreign


@settings(max_examples=examples(30), deadline=None)
@given(tokens(), users, st.integers(0, 220))
def test_what_does_not_fit_only_adds_to_what_is_pending(token, user, limit_chars):
    text = write_token(token, PLACE, user, limit_chars)
    assert len(text) <= limit_chars
    read = read_token(token.pending[0].start, text, PLACE).token
    if read is None:
        assert text in (user, "")
        return
    assert offsets(read.pending) >= offsets(token.pending)
    assert read.pending[0].start == token.pending[0].start
    assert read.pending[-1].end == token.pending[-1].end
    assert (read.live, read.id) == (token.live, token.id)


def test_64_ranges_of_the_longest_offsets_fit_after_the_smallest_gaps_were_closed():
    base = 10**18
    pending = r.read((base + 100 * each, base + 100 * each + 100 - each % 9 - 1) for each in range(120))
    token = Token(TOKEN.id, base + 10**6, 7, pending, replace(LEFT.handoff, since_s=(1_750_000_000,) * 120))
    text = write_token(token, PLACE, "u" * (4096 - 512))
    assert len(text) <= 4096
    read = read_token(base, text, PLACE)
    assert read.user == "u" * (4096 - 512)
    assert read.token is not None
    assert r.subtract(pending, read.token.pending) == ()
    first_64 = replace(token, pending=pending[:64], handoff=replace(token.handoff, since_s=token.handoff.since_s[:64]))
    alone = read_token(base, write_token(first_64, PLACE), PLACE).token
    assert alone is not None
    assert alone.pending == pending[:64]


@settings(max_examples=examples(30), deadline=None)
@given(some_ranges(least=1), st.integers(0, 140))
def test_done_ranges_are_never_widened(done, limit_chars):
    text = write_done(DoneRanges(TOKEN.id, done), PLACE, limit_chars)
    assert len(text) <= limit_chars
    read = read_done(text, PLACE)
    assert (read is None) == (text == "")
    if read is not None:
        assert read.id == TOKEN.id
        assert offsets(read.done) <= offsets(done)
    for at_s in (0, 1_750_000_000):
        text = write_done(DoneRanges(TOKEN.id, done, at_s), PLACE)
        assert read_done(text, PLACE) == DoneRanges(TOKEN.id, r.join(done), at_s)


def test_a_job_at_work_that_has_done_nothing_yet_says_when_it_wrote_that():
    text = write_done(DoneRanges(TOKEN.id, (), 1_750_000_000), PLACE)
    assert read_done(text, PLACE) == DoneRanges(TOKEN.id, (), 1_750_000_000)
    assert write_done(DoneRanges(TOKEN.id, (), 1_750_000_000), PLACE, len(text) - 1) == ""
    assert write_done(DoneRanges(TOKEN.id, (Range(85, 100),), 1_750_000_000), PLACE, len(text)) == text
    assert write_done(DoneRanges(TOKEN.id, ()), PLACE) == ""


def test_the_largest_done_ranges_are_those_that_are_kept():
    done = r.read([(0, 5), (10, 1000), (2000, 2001)])
    text = write_done(DoneRanges(TOKEN.id, done), PLACE, limit_chars=80)
    read = read_done(text, PLACE)
    assert read is not None
    assert Range(10, 1000) in read.done
    assert Range(2000, 2001) not in read.done


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_no_edited_progress_is_known(data):
    text = write_done(DoneRanges(TOKEN.id, (Range(85, 100),)), PLACE)
    at = data.draw(st.integers(0, len(text)))
    edited = text[:at] + data.draw(st.text("0123456789abcdef-,= \n", min_size=1, max_size=3)) + text[at + 1 :]
    assert (read_done(edited, PLACE) is None) == (edited != text)
    assert read_done(text, replace(PLACE, partition=4)) is None
    assert read_done(text, replace(PLACE, cluster_id="mirror")) is None


def test_an_id_is_64_random_bits():
    assert make_id(bytes(range(8))) == "0001020304050607"
    with pytest.raises(ValueError, match="8 random bytes"):
        make_id(b"short")
