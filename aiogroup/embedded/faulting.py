"""Calls that make requests fail: error codes in a handler's answer, and rules about whole requests and answers."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Self

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.exchange import Exchange
from aiogroup.embedded.machine.faults.faults import Fault, Place
from aiogroup.embedded.machine.faults.moments import Ambush, Moment
from aiogroup.embedded.machine.faults.rules import Api, Damage, Outcome, Rule, Rules, Settable, api_name
from aiogroup.embedded.machine.faults.sites import look_at_site
from aiogroup.embedded.machine.refusals import BrokerRefusal, whole_number
from aiogroup.embedded.running import Running
from aiogroup.embedded.views import MemberView

__all__ = ["Faulting", "Handle"]


class Handle:
    """One fault or rule that a test has asked for: `with broker.error(...) as refused:`."""

    def __init__(self, running: Running, remove: Callable[[], None], used: Callable[[], int]) -> None:
        self._running = running
        self._remove = remove
        self._used = used

    @property
    def used_count(self) -> int:
        """How often it was used. Each partition that it refused counts, and each request or answer that it changed."""
        return self._used()

    def remove(self) -> None:
        """End the fault or rule; answers that it holds are sent. A second call does nothing, and neither does a call
        after the broker was closed.
        """
        self._running.change(self._remove)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class Faulting(Running):
    """The calls of `Broker` that make requests fail. If several rules match an exchange, the newest applies. If several
    error codes match, the oldest that is not used up applies.
    """

    def error(
        self,
        api: Api,
        code: int | str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        member: str | MemberView | None = None,
        node: int | None = None,
        times: int | None = 1,
        when: Callable[[Exchange], bool] | None = None,
        after: bool = False,
    ) -> Handle:
        """Answer with an error code where a handler would. Other partitions of the request are served. What is refused
        is not done: a refused Produce appends nothing.

        Args:
            api: `"OffsetCommit"`, `OffsetCommitRequest` or 8.
            code: Kafka's number or name: `ErrorCode.NOT_COORDINATOR`, 16, `"NOT_COORDINATOR"`.
            topic: only for this topic. By default the code is set for the whole request if the API has a field for that
                (OffsetCommit, OffsetFetch, and Fetch for the codes of sessions), else for the next partition.
            partition: only for the partition with this number.
            group: only in requests of this group.
            member: only in requests of this member: an id, or one of `broker.group(...).members`.
            node: only by the node with this id.
            times: how often; each partition that gets the code counts. `None`: until it is removed.
            when: a predicate that is called with the exchange if everything else matches. It is called in the broker's
                thread, and must not block. `exchange.request` is the request.
            after: carry out the request, and answer that it failed.

        Raises:
            BrokerRefusal: there is no such API, code or node, or the API's answer has no such place.
        """
        name = api_name(api)
        place = Place(topic, partition, group, member.member_id if isinstance(member, MemberView) else member)
        look_at_site(name, place, after=after)
        if partition is not None and whole_number("partition", partition) < 0:
            raise BrokerRefusal(f"partition={partition}: partitions are counted from 0")
        if times is not None and whole_number("times", times) < 1:
            raise BrokerRefusal(f"times={times}: an error is said at least once; None: until it is removed")
        self._look_for_node(node)
        fault = Fault(name, _error_code(code), place, node, times, self._guarded(name, when), after)
        faults = self._cluster.faults
        self._call(lambda _now_ms: faults.add(fault))
        return Handle(self, lambda: faults.remove(fault), lambda: fault.used_count)

    def _guarded(self, api: str, when: Callable[[Exchange], bool] | None) -> Callable[[Exchange], bool] | None:
        if when is None:
            return None
        if not callable(when):
            raise BrokerRefusal(f"when= is a function of the exchange, not {when!r}")
        if inspect.iscoroutinefunction(when):
            raise BrokerRefusal("when= is called in the broker's thread, and cannot be a coroutine function")

        def asked(exchange: Exchange) -> bool:
            try:
                return bool(when(exchange))
            except Exception as error:  # noqa: BLE001 (the test's own code)
                what = f"when= of an error for {api} raised {type(error).__name__}: {error}"
                self._cluster.troubles.note("rule", what, self._cluster.now_ms)
                return False

        return asked

    # Rules.

    def delay(self, *apis: Api, ms: int, node_id: int | None = None, times: int | None = None) -> Handle:
        """Delay answers by `ms` milliseconds. Without `apis` a rule applies to all APIs; this holds for every kind of
        rule.
        """
        return self._rule(lambda rules: rules.delay(*apis, ms=ms, node_id=node_id, times=times), node_id)

    def hold(
        self, *apis: Api, until: Settable | None = None, node_id: int | None = None, times: int | None = None
    ) -> Handle:
        """Hold answers until the rule is removed, or an event is set (it is looked at every 5 ms)."""
        return self._rule(lambda rules: rules.hold(*apis, until=until, node_id=node_id, times=times), node_id)

    def cut(self, *apis: Api, before: bool = False, node_id: int | None = None, times: int | None = None) -> Handle:
        """Close the connection instead of answering; with `before` the request is not handled."""
        return self._rule(lambda rules: rules.cut(*apis, before=before, node_id=node_id, times=times), node_id)

    def drop(self, *apis: Api, before: bool = False, node_id: int | None = None, times: int | None = None) -> Handle:
        """Send no answer, and keep the connection; with `before` the request is not handled."""
        return self._rule(lambda rules: rules.drop(*apis, before=before, node_id=node_id, times=times), node_id)

    def corrupt(
        self, *apis: Api, how: Damage | None = None, node_id: int | None = None, times: int | None = None
    ) -> Handle:
        """Corrupt answers.

        "bytes": random bytes after the correlation id. "truncated": a frame with half of the answer. "unfinished": half
        of a frame, then silence. "length": an absurd length. "correlation_id": a wrong one. `None`: any of these.
        """
        return self._rule(lambda rules: rules.corrupt(*apis, how=how, node_id=node_id, times=times), node_id)

    def rewrite(
        self, api: Api, change: Callable[[Exchange], Outcome], *, node_id: int | None = None, times: int | None = None
    ) -> Handle:
        """Answer with the result of `change(exchange)`, which is called in the broker's thread and must not block.

        It returns a response (say `dataclasses.replace(exchange.response, error_code=25)`), a frame's bytes without its
        size, `Raw(bytes)`, `CUT`, `DROPPED`, or `None` to leave the answer alone. An error that it raises closes the
        connection, and is kept among the troubles.
        """
        if inspect.iscoroutinefunction(change):
            raise BrokerRefusal(
                "rewrite() calls its function in the broker's thread: it cannot be a coroutine function"
            )
        return self._rule(lambda rules: rules.rewrite(api, change, node_id=node_id, times=times), node_id)

    def throttle(self, *apis: Api, ms: int, node_id: int | None = None, times: int | None = None) -> Handle:
        """Answer at once that the client is over its quota, and handle none of its requests for `ms` ms (KIP-219)."""
        return self._rule(lambda rules: rules.throttle(*apis, ms=ms, node_id=node_id, times=times), node_id)

    def when(
        self, moment: Moment, act: Callable[[], object], *, group: str | None = None, times: int | None = 1
    ) -> Handle:
        """Call a function at a critical moment of a group: `broker.when("generation", broker.disconnect)`.

        It is called in the broker's thread, before the broker's answers of that moment are sent. It may make every call
        of the broker that does not wait. An error that it raises is kept among the troubles.

        Args:
            moment: `"generation"`: one begins, or the group is empty now; `"assignment"`: the leader has handed it in;
                `"expired"`: a member's session has expired, and it is removed.
            act: the function, without arguments.
            group: only of this group.
            times: how often. `None`: until it is removed.

        Raises:
            BrokerRefusal: there is no such moment, or `act` is not such a function.
        """
        ambush = Ambush(moment, act, group, times)
        moments = self._cluster.moments
        self._call(lambda _now_ms: moments.add(ambush))
        return Handle(self, lambda: moments.remove(ambush), lambda: ambush.used_count)

    def clear(self) -> None:
        """Remove every error code, every rule and every function that waits for its moment. Answers that are held are
        sent.
        """

        def clear(_now_ms: int) -> None:
            self._cluster.faults.clear()
            self._cluster.rules.clear()
            self._cluster.moments.clear()

        self._call(clear)

    def _rule(self, make: Callable[[Rules], Rule], node_id: int | None) -> Handle:
        self._look_for_node(node_id)
        rule = self._call(lambda _now_ms: make(self._cluster.rules))
        return Handle(self, rule.remove, lambda: rule.used_count)


def _error_code(code: int | str) -> ErrorCode:
    known = {name: each for each in ErrorCode for name in (each.value, each.name)}
    found = known.get(code)
    if found is None:
        near = difflib.get_close_matches(str(code), ErrorCode.__members__, n=1)
        raise BrokerRefusal(f"Kafka has no error code {code!r}{f': did you mean {near[0]}?' if near else ''}")
    if found is ErrorCode.NONE:
        raise BrokerRefusal("NONE is no error: name the code that is to be said")
    return found
