"""The README's loop: print the records of a topic as a member of a group.

    python examples/hello_group.py      # again in a second terminal: the two share the partitions

Ctrl-C and SIGTERM commit what was printed and leave the group.
"""

import asyncio
import contextlib
import os
import signal

from aiogroup import Consumer


async def main() -> None:
    consumer = Consumer(
        os.environ.get("KAFKA_TOPIC", "orders"),
        bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"),
        group_id=os.environ.get("KAFKA_GROUP_ID", "hello"),
        auto_offset_reset="earliest",
    )
    # The loop below ends when the consumer is stopped. The record in hand is finished first.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asyncio.create_task(consumer.stop()))
    async with consumer:
        async for record in consumer:  # asking for the next record says that this one is processed
            print(f"{record.topic}-{record.partition} @{record.offset}: {record.value!r}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
