"""Writes ten records for the other examples, with aiokafka's producer (aiogroup has none).

python examples/produce.py
"""

import asyncio
import os

from aiokafka import AIOKafkaProducer


async def main() -> None:
    topic = os.environ.get("KAFKA_TOPIC", "orders")
    producer = AIOKafkaProducer(bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
    async with producer:
        for number in range(10):
            await producer.send_and_wait(topic, f"order {number}".encode())
    print(f"wrote 10 records to {topic}")


if __name__ == "__main__":
    asyncio.run(main())
