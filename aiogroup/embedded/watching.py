"""Calls that look at the broker: requests, refusals and the state of groups; and calls that wait for a condition."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TypeAlias

from aiogroup.embedded.conditions import Condition
from aiogroup.embedded.hints import hints
from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.faults.rules import Api
from aiogroup.embedded.machine.faults.watch import Seen
from aiogroup.embedded.machine.refusals import BrokerRefusal, Trouble, group_named
from aiogroup.embedded.running import Running
from aiogroup.embedded.shell.waiting import LOOK_AT_BROKER_S, LOOK_S, Bell
from aiogroup.embedded.views import ByPartition, CommittedOffset, GroupView, committed_of, group_ids_of, lag_of, view_of

__all__ = ["Watching"]

Look: TypeAlias = "Condition | Callable[[], object]"
EXCHANGES_TOLD = 10
MOST_CHARS = 300
"""The length limit for one exchange in an error's message."""


class Watching(Running):
    """The calls of `Broker` that change nothing."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._bell = Bell()
        cluster.observers.all.append(self._bell)

    # Groups.

    def group(self, group_id: str) -> GroupView:
        """The group with its members as it is now. An unknown group is Dead, and has no members."""
        group_named(group_id)
        return self._call(lambda now_ms: view_of(self._cluster, group_id, now_ms))

    def groups(self) -> tuple[str, ...]:
        """The ids of all groups that have members or have committed."""
        return self._call(lambda _now_ms: group_ids_of(self._cluster))

    def committed(self, group_id: str) -> ByPartition[CommittedOffset]:
        """The offsets that the group has committed: `broker.committed("billing")["orders", 0]`. Each is an int with
        `.metadata` and `.leader_epoch`.
        """
        group_named(group_id)
        return self._call(lambda _now_ms: committed_of(self._cluster, group_id))

    def lag(self, group_id: str) -> ByPartition[int]:
        """How many offsets are left, for each partition that the group has committed and for all partitions of its
        members' topics. Without a commit, all offsets of the partition count.
        """
        group_named(group_id)
        return self._call(lambda now_ms: lag_of(self._cluster, group_id, now_ms))

    # What went on.

    def requests(self, api: Api | None = None, *, group: str | None = None, client_id: str | None = None) -> list[Seen]:
        """The last 10,000 exchanges, without their records. Filters: one API, a group that is named, one client. They
        can be read after the broker was closed, too.

        Raises:
            BrokerRefusal: there is no such API.
        """
        return self._look_back(lambda: self._cluster.watch.requests(api, group=group, client_id=client_id))

    def count(self, api: Api | None = None, node_id: int | None = None) -> int:
        """How many requests have come: of one API or of all, for one node or for all. It can be asked after the broker
        was closed, too.

        Raises:
            BrokerRefusal: there is no such API.
        """
        return self._look_back(lambda: self._cluster.watch.count(api, node_id))

    def unread(self, topic: str, *, client_id: str | None = None) -> tuple[int, ...]:
        """The partitions of a topic that no connected client fetches. If `client_id` is given, only clients with this
        id count.

        Raises:
            BrokerRefusal: there is no such topic.
        """

        def look(_now_ms: int) -> tuple[int, ...]:
            positions = self._cluster.fetching.positions(topic, client_id)
            return tuple(each.index for each in self._topic(topic).partitions if each.index not in positions)

        return self._call(look)

    @property
    def troubles(self) -> list[Trouble]:
        """The requests that the broker refused to serve, each with advice. They can be read after the broker was
        closed, too.
        """
        return list(self._cluster.troubles.kept)

    def log_tail(self, lines: int = 40) -> str:
        """The state of each node, the refusals, and then the last exchanges, a line each. It can be read after the
        broker was closed, too.
        """
        nodes = (
            f"--- node {each.node_id} ({'paused' if each.is_paused else 'running' if each.is_up else 'down'})"
            for each in self._cluster.nodes
        )
        exchanges = (str(each)[:MOST_CHARS] for each in self._cluster.watch.last(lines))
        return "\n".join([*nodes, *map(str, self.troubles[-lines:]), *exchanges])

    # Waiting.

    def wait(self, condition: Look, timeout_s: float = 10) -> None:
        """Block this thread until a condition holds, or a function returns something true.

        Args:
            condition: one of `stable`, `reading`, `committed`, `caught_up`, `asked`, or a function without arguments;
                it is checked after each exchange, and every 5 ms (a condition every 50 ms).
            timeout_s: how long, in seconds.

        Raises:
            TimeoutError: the condition did not come true; the message has the state of groups and the last requests.
            BrokerRefusal: the broker runs in this thread's loop, which this call would stop: `await until(...)`.
        """
        __tracebackhide__ = True  # pytest shows the line of the test that waits
        self._running().check_process()
        if self._running().is_here():
            raise BrokerRefusal("wait() would stop the loop in which the broker runs: `await broker.until(...)`")

        _look_at(condition)
        _look_at_limit(timeout_s)

        def holds() -> bool:
            found = condition.holds(self) if isinstance(condition, Condition) else condition()
            if inspect.isawaitable(found):
                if inspect.iscoroutine(found):
                    found.close()
                raise BrokerRefusal("wait() cannot await what the function returns: `await broker.until(...)`")
            return bool(found)

        if not self._bell.wait(holds, timeout_s, _look_s(condition)):
            raise TimeoutError(self._why_not(condition, timeout_s, is_blocking=True))

    async def until(self, condition: Look, timeout_s: float = 10) -> None:
        """As `wait`, but without blocking the loop. The function may be a coroutine function."""
        __tracebackhide__ = True
        self._running().check_process()
        _look_at(condition)
        _look_at_limit(timeout_s)

        async def holds() -> bool:
            found = condition.holds(self) if isinstance(condition, Condition) else condition()
            return bool(await found if inspect.isawaitable(found) else found)

        if not await self._bell.until(holds, timeout_s, _look_s(condition)):
            raise TimeoutError(self._why_not(condition, timeout_s, is_blocking=False))

    def _why_not(self, condition: Look, timeout_s: float, *, is_blocking: bool) -> str:
        group_id = condition.group_id if isinstance(condition, Condition) else None
        lines = [f"after {timeout_s:g} s still not {_named(condition)}"]
        if is_blocking and _is_in_a_loop():
            lines.append(
                "wait() blocked a running event loop, so that nothing in it went on: `await broker.until(...)`"
            )
        for each in self.groups() if group_id is None else (group_id,):
            lines.append(str(self.group(each)))
            lags = ", ".join(f"{tp.topic}-{tp.partition} {lag}" for tp, lag in self.lag(each).items())
            lines.append(f"    lag: {lags or 'of nothing'}")
        if isinstance(condition, Condition) and (more := condition.detail(self)):
            lines.append(more)
        lines += [f"trouble: {each}" for each in self.troubles[-EXCHANGES_TOLD:]]
        lines += hints(self.requests())
        last = self._call(lambda _now_ms: [str(each)[:MOST_CHARS] for each in self._cluster.watch.last(EXCHANGES_TOLD)])
        lines += [f"the last {len(last)} exchanges:", *last] if last else ["nobody has asked anything"]
        return "\n  ".join(lines)


def _look_at_limit(timeout_s: object) -> None:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s >= 0:
        raise BrokerRefusal(f"timeout_s={timeout_s!r}: a number of seconds")


def _look_at(condition: object) -> None:
    if not isinstance(condition, Condition) and not callable(condition):
        raise BrokerRefusal(f"{condition!r} cannot be waited for: pass stable(...) or another condition, or a function")


def _look_s(condition: object) -> float:
    return LOOK_AT_BROKER_S if isinstance(condition, Condition) else LOOK_S


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _named(condition: object) -> str:
    """The condition, or where the function stands."""
    if isinstance(condition, Condition):
        return str(condition)
    code = getattr(condition, "__code__", None)
    if code is None:
        return repr(condition)
    return f"{condition.__qualname__} ({code.co_filename}:{code.co_firstlineno})"  # type: ignore[attr-defined]
