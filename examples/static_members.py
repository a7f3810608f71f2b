"""Static members as draft 41 of KIP-345 has them: its scale-down and its scale-up, minutes of which pass in seconds.

    python examples/static_members.py

It needs Python alone: the broker lives in this process, and the clock is virtual. Each table has the draft's rows, and
what the group did at that time.
"""

import asyncio
import logging
import warnings

from aiogroup import Consumer
from aiogroup.embedded import Broker, run_virtual

MINUTE_MS = 60_000
REGISTRATION_MS, EXPANSION_MS = 15 * MINUTE_MS, 5 * MINUTE_MS
SESSION_MS, HEARTBEAT_MS = 10_000, 3_000
SETTLING_S = 5
"""Members hear of a rebalance with their next heartbeat."""
ROW = "{:<26} {:<6} {:<10} {}"


class Fleet:
    """The processes of one application, each with a name of its own."""

    def __init__(self, broker, **settings):
        self._broker = broker
        self._settings = settings
        self._running = {}

    async def start(self, name):
        consumer = Consumer(
            "orders",
            bootstrap_servers=self._broker.bootstrap_servers,
            group_id="billing",
            member_name=name,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=10_000,
            **self._settings,
        )
        await consumer.start()
        self._running[name] = consumer, asyncio.create_task(self._work(consumer))

    async def stop(self, name):
        """A static member does not leave: it is offline until it comes back, or for too long."""
        consumer, task = self._running.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await consumer.stop()

    async def stop_all(self):
        for name in list(self._running):
            await self.stop(name)

    @staticmethod
    async def _work(consumer):
        async for _record in consumer:
            pass


class Table:
    """Prints a row for each event: its time, the time from which is counted, and whether the group has rebalanced."""

    def __init__(self, broker, title, counted):
        self._broker = broker
        self._generation = broker.group("billing").generation
        self._began_ms = broker.clock.now_ms
        print(f"\n{title}\n")
        print(ROW.format("event", "time", counted, "action"))

    async def at(self, minutes):
        await self._broker.clock.pass_s((self._began_ms + minutes * MINUTE_MS - self._broker.clock.now_ms) / 1_000)

    def row(self, event, minutes, counted_from=None):
        group = self._broker.group("billing")
        rounds = group.generation - self._generation
        self._generation = group.generation
        names = ", ".join(sorted(member.name for member in group.members))
        action = {0: "none", 1: f"one rebalance: {names}"}.get(rounds, f"{rounds} rebalances: {names}")
        since = "" if counted_from is None else f"00:{counted_from:02}"
        print(ROW.format(event, f"00:{minutes:02}", since, action))


async def scale_down():
    async with Broker(seed=1, static_membership="draft") as broker:
        broker.create_topic("orders", 4)
        fleet = Fleet(broker, registration_timeout_ms=REGISTRATION_MS)
        for name in ("leader", "A", "B"):
            await fleet.start(name)
            await broker.clock.pass_s(SETTLING_S)
        table = Table(broker, "Scale down: registration time-out 15 minutes", "earliest")
        await fleet.stop("A")
        table.row("member A dropped", 0, 0)
        await table.at(10)
        await fleet.stop("B")
        table.row("member B dropped", 10, 0)
        await table.at(14)
        await fleet.start("A")
        await broker.clock.pass_s(SETTLING_S)
        table.row("member A back online", 14, 10)
        await table.at(25)
        await broker.clock.pass_s(SETTLING_S)
        table.row("B gone for too long", 25, 10)
        await fleet.stop_all()


async def scale_up():
    async with Broker(seed=1, static_membership="draft") as broker:
        broker.create_topic("orders", 4)
        fleet = Fleet(broker, registration_timeout_ms=REGISTRATION_MS, expansion_timeout_ms=EXPANSION_MS)
        await fleet.start("leader")
        await broker.clock.pass_s(SETTLING_S)
        table = Table(broker, "Scale up: expansion time-out 5 minutes", "count from")
        await fleet.start("A")
        table.row("new member A joins", 0, 0)
        await table.at(3)
        await fleet.start("B")
        table.row("new member B joins", 3, 0)
        await table.at(5)
        await broker.clock.pass_s(SETTLING_S)
        table.row("expansion time-out", 5)
        await table.at(6)
        await fleet.start("C")
        table.row("new member C joins", 6, 6)
        await table.at(11)
        await broker.clock.pass_s(SETTLING_S)
        table.row("expansion time-out", 11)
        await fleet.stop_all()


def main():
    logging.getLogger("aiogroup").setLevel(logging.ERROR)
    # A Kafka broker would drop newcomers that wait for so long. The draft's form has no such limit.
    warnings.filterwarnings("ignore", message="expansion_timeout_ms")
    run_virtual(scale_down())
    run_virtual(scale_up())


if __name__ == "__main__":
    main()
