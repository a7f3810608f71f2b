"""Where a name leads: its addresses, in which order they are tried, and how a socket to one of them is opened.

A name is looked up for each attempt to connect, since brokers move. The look-up has a thread of its own: it may hang
for as long as the system's resolver likes, and the loop's own threads are the application's. Who needs a name that is
being looked up waits for that same look-up, in whichever loop: so there are never more threads than names.

The addresses of a name take turns, each with its share of the time that the attempt has (KIP-302). An attempt begins
with the address that was connected last, or after the one that failed last. Where a name has addresses of both
families, one of each takes a turn together (happy eyeballs, RFC 8305): many machines have no route for one of them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final, TypeAlias

from aiogroup._runtime.loop.threads import call_in_thread

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Names", "Turn", "open_socket"]

AddrInfo: TypeAlias = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]
"""As `socket.getaddrinfo` has it: family, type, protocol, canonical name, socket address."""
Turn: TypeAlias = tuple[AddrInfo, ...]
"""Addresses that are tried together: one, or one of each family."""

SECOND_FAMILY_AFTER_S: Final = 0.25
"""RFC 8305's delay before the next address is tried beside the one that has not answered."""

KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPALIVE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""After how many seconds of silence the system asks whether the peer is still there, how often, and how many times; the
second name is macOS's for the first. A host that went away sends nothing, and an answer to JoinGroup may take minutes.
"""

_under_way: dict[tuple[int, str], Future[list[AddrInfo]]] = {}
"""The look-ups under way, by process and name: in a forked process those of its parent never end."""


class Names:
    """Remembers for each name with which of its addresses the next attempt begins."""

    def __init__(self) -> None:
        self._first: dict[str, AddrInfo] = {}

    async def turns(self, host: str, port: int) -> list[Turn]:
        """The addresses of `host` in the order in which to try them.

        Raises:
            OSError: the name has no address, or cannot be looked up.
        """
        infos = await _look_up(host, port)
        if (first := self._first.get(host)) in infos:
            at = infos.index(first)
            infos = infos[at:] + infos[:at]
        families: dict[int, list[AddrInfo]] = {}
        for info in infos:
            families.setdefault(info[0], []).append(info)
        return [tuple(filter(None, each)) for each in zip_longest(*families.values())]

    def note_success(self, host: str, turn: Turn, peer: tuple[str, int] | None) -> None:
        """The address `peer`, one of this turn's, was connected: the next attempt begins with it."""
        self._first[host] = next((info for info in turn if peer and info[4][0] == peer[0]), turn[0])

    def note_failure(self, host: str, turns: list[Turn], turn: Turn) -> None:
        """No address of this turn could be connected: the next attempt begins with another one."""
        infos = list(chain.from_iterable(turns))
        self._first[host] = infos[(infos.index(turn[0]) + 1) % len(infos)]


async def open_socket(
    factory: Callable[[], asyncio.BaseProtocol], turn: Turn, host: str, tls: ssl.SSLContext | None
) -> asyncio.WriteTransport:
    """Connect to one of these addresses; TLS expects the certificate of `host`.

    Raises:
        OSError: none could be connected.
    """
    loop = asyncio.get_running_loop()
    server = None if tls is None else host
    if len(turn) == 1:
        at, port, *scope = turn[0][4]
        if any(scope):
            at = f"{at}%{scope[-1]}"
        transport, _ = await loop.create_connection(factory, at, port, ssl=tls, server_hostname=server)
    else:
        from aiohappyeyeballs import start_connection  # noqa: PLC0415 (few names have addresses of two families)

        connected = await start_connection(turn, happy_eyeballs_delay=SECOND_FAMILY_AFTER_S)
        transport, _ = await loop.create_connection(factory, sock=connected, ssl=tls, server_hostname=server)
    if (opened := transport.get_extra_info("socket")) is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEP_ALIVE.items():
            if (option := getattr(socket, name, None)) is not None:
                opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return transport


async def _look_up(host: str, port: int) -> list[AddrInfo]:
    loop = asyncio.get_running_loop()
    if _is_address(host):
        return [(socket.AF_UNSPEC, socket.SOCK_STREAM, 0, "", (host, port))]
    if isinstance(loop, asyncio.BaseEventLoop) and type(loop).getaddrinfo is not asyncio.BaseEventLoop.getaddrinfo:
        own = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # which needs no thread
        return list(own)  # type: ignore[arg-type]
    key = os.getpid(), host
    if (under_way := _under_way.get(key)) is None:
        under_way = _under_way[key] = call_in_thread(f"aiogroup looks up {host}", _ask_system, host, port)
        under_way.add_done_callback(lambda _: _under_way.pop(key, None))
    found = await asyncio.wrap_future(under_way)
    return [(*info[:4], (info[4][0], port, *info[4][2:])) for info in found]


def _ask_system(host: str, port: int) -> list[AddrInfo]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"{host!r} is not the name of a host: {error}") from error
    return list(dict.fromkeys(found))  # type: ignore[arg-type]


def _is_address(host: str) -> bool:
    """Whether this is an address: a name has neither colons nor digits alone."""
    return ":" in host or host.replace(".", "").isdecimal()
