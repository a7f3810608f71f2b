"""Kafka's classes, loaded and linked ahead of time: nodes and tools start in half the time (JEP 514, Java 25 on)."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

from aiogroup.devkafka import jvm
from aiogroup.devkafka.cluster import Cluster
from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.devkafka.jars import aot_cache, classpath, java

if TYPE_CHECKING:
    from pathlib import Path

_TRAINING_MS: Final = 120_000
_TRAINING: Final = "org.apache.kafka.tools.EndToEndLatency"
"""A tool that produces, consumes, and sends administrators' requests."""
_TOPIC: Final = "training"


def train() -> None:
    """Make the caches unless they exist, or this Java does not support any.

    Raises:
        DevKafkaError: the training run failed. Nothing depends on the caches: everything starts without them too.
    """
    of_nodes, of_tools = (aot_cache(java(), classpath(), what) for what in ("nodes", "tools"))
    if of_nodes is None or of_tools is None:
        return
    drafts = {each: each.with_suffix(f".{os.getpid()}") for each in (of_nodes, of_tools) if not each.exists()}
    if not drafts:
        return
    try:
        # A JVM writes the cache when it ends in order, and ends only after that.
        with Cluster(java_options=_output(drafts.get(of_nodes))) as cluster:
            cluster.create_topic(_TOPIC)
            if (for_tools := drafts.get(of_tools)) is not None:
                use_tools(cluster.bootstrap_servers, for_tools)
            cluster.nodes[0].stop(_TRAINING_MS)
        for target, draft in drafts.items():
            if not draft.exists():
                raise DevKafkaError("Java wrote no ahead-of-time cache")
            draft.replace(target)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def _output(draft: Path | None) -> list[str]:
    return [] if draft is None else [f"-XX:AOTCacheOutput={draft}"]


def use_tools(servers: str, draft: Path, timeout_ms: int = _TRAINING_MS) -> None:
    """Write the tools' cache to `draft`, from a tool that runs to its end.

    Raises:
        DevKafkaError: it failed, or did not end in `timeout_ms`.
    """
    sizes = ("--num-records", "20", "--producer-acks", "1", "--record-size", "100")
    options = (*jvm.quick(java(), classpath(), "tools"), *_output(draft))
    command = [*jvm.run(java(), classpath(), "256m", *options), _TRAINING]
    try:
        ended = subprocess.run(  # noqa: S603
            [*command, "--bootstrap-server", servers, "--topic", _TOPIC, *sizes],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_ms / 1000,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DevKafkaError("the training of the tools did not end") from error
    if ended.returncode:
        raise DevKafkaError(f"the training of the tools failed: {ended.stderr.strip()}")
