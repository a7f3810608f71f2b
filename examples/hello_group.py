"""The ten-line loop: print the records of a topic as a member of a group.

    python examples/hello_group.py      # again in a second terminal: the two share the partitions

Ctrl-C commits what was printed and leaves the group.
"""

import asyncio
import contextlib
import os

from aiogroup import Consumer


async def main() -> None:
    async with Consumer(
        os.environ.get("KAFKA_TOPIC", "orders"),
        bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"),
        group_id=os.environ.get("KAFKA_GROUP_ID", "hello"),
        auto_offset_reset="earliest",
    ) as consumer:
        async for record in consumer:  # asking for the next record says that this one is processed
            print(f"{record.topic}-{record.partition} @{record.offset}: {record.value!r}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
