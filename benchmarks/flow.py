"""Records at a steady rate: `python -m benchmarks.flow --rate 1000 ...`. Each holds its number and the instant when it
was made.

It ends when its standard input does, so that it never outlives the process that started it.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Producer

STAMP = struct.Struct("!qq")
SIZE = 100


def number_and_age_ms(value: bytes) -> tuple[int, float]:
    """The number and the age of a record. All processes of a machine share one monotonic clock."""
    number, made_at_ns = STAMP.unpack_from(value)
    return number, (time.monotonic_ns() - made_at_ns) / 1e6


def has_gaps(numbers: Sequence[int], partitions: int) -> bool:
    """Whether records are missing. They went to the partitions in turn, so those of each must be one run, in order."""
    for partition in range(partitions):
        own = [number for number in numbers if number % partitions == partition]
        if own and own != list(range(own[0], own[0] + len(own) * partitions, partitions)):
            return True
    return False


@contextmanager
def flowing(servers: str, topic: str, partitions: int, rate: int) -> Iterator[int]:
    """Run a producer process beside the block; yields its process id."""
    command = [sys.executable, "-m", "benchmarks.flow", "--servers", servers, "--topic", topic]
    command += ["--partitions", str(partitions), "--rate", str(rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
            if process.poll() is not None:
                raise SystemExit("the flow of records ended early")
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True, help="records a second")
    args = parser.parse_args()
    is_over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    # No lingering: the measurement is of the way through the broker and the consumer.
    producer = Producer({"bootstrap.servers": args.servers, "linger.ms": 0, "acks": 1})
    count, since = 0, time.monotonic()
    while not is_over.wait(max(0.0, since + count / args.rate - time.monotonic())):
        stamp = STAMP.pack(count, time.monotonic_ns())
        producer.produce(args.topic, stamp.ljust(SIZE, b"."), partition=count % args.partitions)
        producer.poll(0)
        count += 1
    producer.flush(5)


if __name__ == "__main__":
    main()
