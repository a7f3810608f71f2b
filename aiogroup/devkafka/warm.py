"""Kafka's classes, loaded and linked ahead of time: nodes start in half the time (JEP 514, Java 25 on)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from aiogroup.devkafka.cluster import Cluster
from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.devkafka.jars import aot_cache, classpath, java

if TYPE_CHECKING:
    from pathlib import Path

_TRAINING_STOP_MS: Final = 120_000


def train() -> Path | None:
    """Make the cache unless it exists; None if this Java does not support one.

    Raises:
        DevKafkaError: the training run failed. Nothing depends on the cache: nodes start without it.
    """
    target = aot_cache(java(), classpath())
    if target is None or target.exists():
        return target
    draft = target.with_suffix(f".{os.getpid()}")
    try:
        # The JVM writes the cache during an orderly end, and waits for that.
        with Cluster(java_options=[f"-XX:AOTCacheOutput={draft}"]) as cluster:
            cluster.create_topic("training")
            cluster.nodes[0].stop(_TRAINING_STOP_MS)
        if not draft.exists():
            raise DevKafkaError("Java wrote no ahead-of-time cache")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target
