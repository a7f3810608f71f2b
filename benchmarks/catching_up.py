"""One client comes back to a backlog, while new records flow: `python -m benchmarks.catching_up CLIENT ...`.

Prints one JSON line: when the first live record was in hand, how old live records were during and after the catch-up,
and how long the catch-up took. Every record must arrive. Instants are milliseconds since the assignment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from benchmarks.clients import BATCH
from benchmarks.flow import STAMP, has_gaps
from benchmarks.meter import Load, percentile

SETTLE_S = 2.0
"""The pause between the backlog and the steady state, in which the records that came meanwhile are read."""
SAMPLE_MS, BUCKET_MS = 100, 250
LIMIT_S = 240.0
LANES = {"enable_parallel_rebalance": True}
ORDERED = {**LANES, "parallel_order": "ordered"}

AIOKAFKA, PLAIN, TWO_LANES, IN_ORDER = "aiokafka", "aiogroup", "aiogroup, two lanes", "aiogroup, two lanes, ordered"
SETTINGS: dict[str, Mapping[str, Any]] = {AIOKAFKA: {}, PLAIN: {}, TWO_LANES: LANES, IN_ORDER: ORDERED}


class Watch:
    """The records received, and when. A record of the flow begins with a number, one of the backlog with a brace."""

    def __init__(self) -> None:
        self.assigned_at_ns = 0
        self.backlog_count = 0
        self.done_at_ns = 0  # when the last record of the backlog was received
        self.came: list[tuple[int, int, int, bool]] = []  # number, made and received at ns, whether by the live lane
        self.samples: list[tuple[int, int]] = []  # at ms: the number of backlog records so far

    def take(self, records: Sequence[Any]) -> None:
        now_ns = time.monotonic_ns()
        count = 0
        for record in records:
            value = record.value
            if value[0]:
                count += 1
            else:
                number, made_at_ns = STAMP.unpack_from(value)
                if made_at_ns < self.assigned_at_ns:
                    self.done_at_ns = now_ns
                self.came.append((number, made_at_ns, now_ns, getattr(record, "lane", "live") == "live"))
        if count:
            self.backlog_count += count
            self.done_at_ns = now_ns
            at_ms = self.since_ms(now_ns)
            if not self.samples or at_ms - self.samples[-1][0] >= SAMPLE_MS:
                self.samples.append((round(at_ms), self.backlog_count))

    def since_ms(self, at_ns: int) -> float:
        return (at_ns - self.assigned_at_ns) / 1e6

    def result(self, count: int, partitions: int) -> dict[str, Any]:
        """The figures of the run. Records of the flow made before the assignment count as backlog, too."""
        if self.backlog_count != count:
            raise SystemExit(f"{self.backlog_count} records of the backlog came, not {count}")
        if has_gaps(sorted(number for number, *_ in self.came), partitions):
            raise SystemExit("records of the flow are missing or repeated")
        older_count = sum(1 for _, made, *_ in self.came if made < self.assigned_at_ns)
        fresh = [each for each in self.came if each[1] >= self.assigned_at_ns]
        live = [(self.since_ms(made), self.since_ms(came)) for _, made, came, is_live in fresh if is_live]
        done_ms = self.since_ms(self.done_at_ns)
        during = [came - made for made, came in live if made < done_ms]
        steady = [came - made for made, came in live if made >= done_ms + SETTLE_S * 1_000]
        if not during:
            raise SystemExit("the catch-up ended before a live record was made: take more records")
        if not steady:
            raise SystemExit("no record was made in the steady state: take more seconds")
        return {
            "first_live_ms": round(min(came for _, came in live), 1),
            "live_p50_ms": round(percentile(during, 0.5), 2),
            "live_p99_ms": round(percentile(during, 0.99), 2),
            "steady_p50_ms": round(percentile(steady, 0.5), 2),
            "steady_p99_ms": round(percentile(steady, 0.99), 2),
            "catch_up_s": round(done_ms / 1_000, 2),
            "catch_up_per_s": round((count + older_count) / done_ms * 1_000),
            "live_count": len(during),
            "behind_count": len(fresh) - len(live),  # made after the assignment, but below the live lane
            "positions": [*self.samples, (round(done_ms), self.backlog_count)],
            "ages": oldest_by_time(live),
        }


def oldest_by_time(live: Sequence[tuple[float, float]]) -> list[tuple[int, float]]:
    """For each quarter of a second: its beginning, and the greatest lateness of the records made within it."""
    oldest: dict[int, float] = {}
    for made, came in live:
        bucket = int(made // BUCKET_MS) * BUCKET_MS
        oldest[bucket] = max(oldest.get(bucket, 0.0), came - made)
    return [(bucket, round(oldest[bucket], 2)) for bucket in sorted(oldest)]


def consumer_of(client: str, servers: str, group: str) -> Any:
    if client == AIOKAFKA:
        from aiokafka import AIOKafkaConsumer as Kind
    else:
        from aiogroup import Consumer as Kind
    return Kind(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", **SETTINGS[client])


def listener_of(watch: Watch) -> Any:
    from aiokafka import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: object) -> None:
            """Nothing to do: no other member is in the group."""

        def on_partitions_assigned(self, assigned: object) -> None:
            watch.assigned_at_ns = time.monotonic_ns()

    return Listener()


async def batches(consumer: Any, *, is_loop: bool) -> AsyncIterator[Sequence[Any]]:
    if is_loop:
        async for record in consumer:
            yield (record,)
        return
    while True:
        found = await consumer.getmany(timeout_ms=200, max_records=BATCH)
        yield [record for records in found.values() for record in records]


async def run(args: argparse.Namespace) -> dict[str, Any]:
    watch = Watch()
    consumer = consumer_of(args.client, args.servers, args.group)
    consumer.subscribe([args.topic], listener=listener_of(watch))
    load, cpu, began_at = Load(args.ours), time.process_time(), time.monotonic()
    await consumer.start()
    try:
        async for records in batches(consumer, is_loop=args.loop):
            watch.take(records)
            if args.work_us and records:
                await asyncio.sleep(len(records) * args.work_us / 1e6)
            now = time.monotonic()
            is_caught_up = watch.backlog_count >= args.records
            if is_caught_up and now - watch.done_at_ns / 1e9 > SETTLE_S + args.seconds:
                break
            if now - began_at > LIMIT_S:
                raise SystemExit(f"{watch.backlog_count} of {args.records} records in {LIMIT_S:.0f} s")
        cpu_s = time.process_time() - cpu
    finally:
        await consumer.stop()
    result = watch.result(args.records, args.partitions)
    return {"start_ms": round(watch.assigned_at_ns / 1e6 - began_at * 1e3, 1), "cpu_s": cpu_s} | result | load.result()


def profiled(work: Callable[[], dict[str, Any]], path: str) -> dict[str, Any]:
    import cProfile

    with cProfile.Profile() as profile:
        result = work()
    profile.dump_stats(path)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=SETTINGS)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--records", type=int, required=True, help="of the backlog")
    parser.add_argument("--work-us", type=float, default=0.0, help="work on each record, done as a wait")
    parser.add_argument("--seconds", type=float, required=True, help="of the steady state")
    parser.add_argument("--loop", action="store_true", help=f"`async for`, not getmany({BATCH})")
    parser.add_argument("--ours", type=int, action="append", default=[], help="a process that is part of the run")
    parser.add_argument("--profile", metavar="FILE", help="write what cProfile saw")
    args = parser.parse_args()

    def work() -> dict[str, Any]:
        return asyncio.run(run(args))

    print(json.dumps(profiled(work, args.profile) if args.profile else work()))


if __name__ == "__main__":
    main()
