"""aiogroup: an asyncio Kafka consumer-group client."""
