"""`auto_offset_reset="none"` where partitions come while others leave (KIP-429): its error comes when a seek helps."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import NoOffsetForPartitionError
from aiogroup.assignors import Assignor
from tests.groups.scripted import POLL_MS, TOPIC, sleep_ms
from tests.support.group_members import named, until

A, B = named(TOPIC, 0, 1)


class Script(Assignor):
    """Cooperative, for a group of one: gives what the script says, round by round, in the end the same for ever."""

    name = "script"
    is_cooperative = True

    def __init__(self, *rounds):
        self.rounds = list(rounds)

    def assign(self, members, partitions, racks):
        (member,) = members
        return {member: [self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]]}


async def owner_of_a(group, *rounds, **settings):
    """A member that owns A and has a record of it in hand; nothing is committed of B."""
    settings = {"auto_offset_reset": "none", "partition_assignment_strategy": Script(A, *rounds), **settings}
    group.brokers.append(TOPIC, 0, 3)
    group.brokers.append(TOPIC, 1, 3)
    member = await group.member("m", reads=False, **settings).start()
    member.call("seek", A, 0)
    (await member.do(member.consumer.getone())).ack()
    await member.commit()
    held = await member.do(member.consumer.getone())
    assert held.offset == 1
    return member, held


async def hand_over(member):
    """The second round gives B instead of A. A cannot leave yet, since its record is in hand."""
    await member.do(member.consumer.enforce_rebalance("test"))
    await until(lambda: member.generation >= 2, 60, member.tail)
    await sleep_ms(1_000)
    assert member.consumer.assignment() == {A}


@pytest.mark.parametrize("auto_ack", [True, False])
async def test_the_error_comes_when_a_seek_is_accepted(group, auto_ack):
    member, held = await owner_of_a(group, B, auto_ack=auto_ack)
    consumer = member.consumer
    await hand_over(member)
    seen = []

    async def read():
        while len(seen) < 4:
            try:
                record = await consumer.getone()
                seen.append((record.tp, record.offset))
                if not auto_ack:
                    record.ack()
            except NoOffsetForPartitionError as error:
                seen.append(error.tp)
                assert consumer.assignment() == {B}
                consumer.seek(B, 0)

    reading = asyncio.create_task(member.do(read()))
    await sleep_ms(1_000)
    if not auto_ack:
        assert seen == []
    held.ack()
    await reading
    assert seen == [B, (B, 0), (B, 1), (B, 2)]


async def test_the_error_does_not_outlive_a_generation_that_ends_before(group):
    member, _ = await owner_of_a(group, B, A)
    consumer = member.consumer
    await hand_over(member)
    await sleep_ms(POLL_MS)
    assert consumer.assignment() == frozenset()
    assert (await member.do(consumer.getone())).tp == A  # the second generation never had B
    assert (await member.do(consumer.getone())).tp == A
    with pytest.raises(asyncio.TimeoutError):
        await member.do(asyncio.wait_for(consumer.getone(), 5))
