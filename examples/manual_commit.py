"""Commit explicitly after each batch: a batch is committed only after all of it was handled.

    python examples/manual_commit.py

On SIGTERM and Ctrl-C it finishes the batch in hand, commits it and leaves the group.
"""

import asyncio
import os
import signal

from aiogroup import CommitFailedError, Consumer, Records


async def handle(records: Records) -> None:
    """Here: one transaction of your database for the whole batch."""
    for partition, batch in records.items():
        print(
            f"handled {partition.topic}-{partition.partition} {batch[0].offset}..{batch[-1].offset}",
            flush=True,
        )


async def main() -> None:
    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    async with Consumer(
        os.environ.get("KAFKA_TOPIC", "orders"),
        bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"),
        group_id=os.environ.get("KAFKA_GROUP_ID", "manual"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=100,
    ) as consumer:
        while not ending.is_set():
            records = await consumer.getmany(timeout_ms=1_000)
            if not records:
                continue
            await handle(records)
            try:
                await consumer.commit()  # everything that getmany returned
                print(f"committed {records.count}", flush=True)
            except CommitFailedError as error:
                # The group gave these to another member while we worked: it handles their records again.
                print(f"repeated elsewhere: {sorted(error.not_owned)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
