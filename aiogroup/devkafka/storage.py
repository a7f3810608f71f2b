"""The storage that a node begins with: Kafka's own tool formats it once, and then it is copied.

The tool writes the first records of the cluster's metadata. Except for the ids they are the same for each node, and
depend only on the version of Kafka. A copy saves each start of a cluster a second of JVM time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, Final

from aiogroup.devkafka.jars import KAFKA_VERSION, artifacts, cache_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CHECKPOINT: Final = "bootstrap.checkpoint"
_DECISIVE: Final = ("unstable.", "log.dir", "metadata.log.dir", "node.id", "process.roles", "controller.quorum.")
"""Settings with these prefixes change what the tool writes, or where."""


def kept_checkpoint(properties: Mapping[str, str]) -> Path | None:
    """The file that keeps the first records for these user settings; None if only the tool can make them."""
    if any(name.startswith(_DECISIVE) for name in properties):
        return None
    key = hashlib.sha256("\n".join(artifacts()).encode()).hexdigest()[:12]
    return cache_dir() / f"kafka-{KAFKA_VERSION}-{key}.checkpoint"


def first_records(kept: Path | None) -> bytes | None:
    """The first records, if they are kept."""
    try:
        return kept.read_bytes() or None if kept is not None else None
    except FileNotFoundError:
        return None


def keep(data: Path, kept: Path | None) -> bytes:
    """The records that the tool wrote in `data`, a node's folder. They are kept for later clusters if the cache is
    writable.
    """
    records = (data / CHECKPOINT).read_bytes()
    if kept is not None:
        draft = kept.with_suffix(f".{os.urandom(4).hex()}")
        with contextlib.suppress(OSError):
            draft.write_bytes(records)
            draft.replace(kept)
    return records


def write(data: Path, records: bytes, cluster_id: str, node_id: int, directory_id: str) -> None:
    """Write a node's folder as the tool would."""
    data.mkdir()
    (data / CHECKPOINT).write_bytes(records)
    (data / "meta.properties").write_text(
        f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={directory_id}\n"
    )
