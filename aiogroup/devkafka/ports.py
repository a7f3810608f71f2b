"""Ports that stay free while a node is down."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from aiogroup.devkafka.errors import DevKafkaError

HOST = "127.0.0.1"
_LOWEST = 15_000
_TRIES = 500


def _below_ephemeral() -> int:
    """The end of the range to draw from.

    A port of the ephemeral range may be taken by any outgoing connection while its node is stopped, and a
    client that keeps reconnecting to it can even connect to itself (TCP simultaneous open).
    """
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = 32_768
    return lowest if lowest - _LOWEST >= _TRIES else 49_152


def is_free(port: int) -> bool:
    """Whether a broker could listen on `port` now."""
    with socket.socket() as probe:
        # As in Java: connections of a former listener that are still in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, taken: frozenset[int] = frozenset()) -> list[int]:
    """`count` different ports, none in `taken`; random, so that clusters starting together rarely meet."""
    found: list[int] = []
    end = _below_ephemeral()
    for _ in range(_TRIES):
        if len(found) == count:
            return found
        port = random.randrange(_LOWEST, end)  # noqa: S311 (not a secret)
        if port not in found and port not in taken and is_free(port):
            found.append(port)
    raise DevKafkaError(f"no {count} free ports between {_LOWEST} and {end}")
