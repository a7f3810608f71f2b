"""Sends requests to the coordinators of groups, for those who are no members: operators, jobs, the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from aiogroup.config import ConsumerConfig
from aiogroup.errors import BrokerError, ConnectionLostError, KafkaTimeoutError, ProtocolError
from aiogroup.membership.remedies import NOT_READY, not_authorized_error
from aiogroup.protocol.errors import ErrorCode, lookup
from aiogroup.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup.protocol.schema import R_co, Request
from aiogroup.runtime.loop.retries import Retries
from aiogroup.runtime.net.link import METADATA, Link

__all__ = ["GroupLink", "check_code", "only_one"]

T = TypeVar("T")


class GroupLink:
    """Finds the coordinator for each request. It retries without a bound, so the caller must set a time-out."""

    def __init__(self, config: ConsumerConfig, link: Link) -> None:
        self._config = config
        self._link = link

    async def ask(
        self, group_id: str, request: Request[R_co], code_of: Callable[[R_co], int], *, at_most: int | None = None
    ) -> R_co:
        """The coordinator's answer. While the coordinator moves, by the code in the answer, it is looked up again.

        Raises:
            ConnectionLostError, KafkaTimeoutError: no bootstrap server was reached.
            GroupAuthorizationError: grant DESCRIBE on the group.
            BrokerError: the look-up was refused.
        """
        retries = Retries(self._config)
        while True:
            try:
                response = await self._link.send(await self.find(group_id), request, METADATA, at_most=at_most)
                if code_of(response) not in NOT_READY:
                    return response
            except (ConnectionLostError, KafkaTimeoutError, ProtocolError):
                if not self._link.cluster.brokers:
                    raise  # no bootstrap server was reached: this error says so
            await retries.back_off()

    async def find(self, group_id: str) -> int:
        """The node that coordinates the group. Raises as `ask`, and ConnectionLostError while there is none."""
        await self._link.fetch_metadata(())
        response = await self._link.ask_any(FindCoordinatorRequest(coordinator_keys=(group_id,)))
        found = only_one(response.coordinators, "coordinator", group_id)
        if found.error_code in NOT_READY:
            raise ConnectionLostError(f"the coordinator of group {group_id!r} is not there yet")
        check_code(found.error_code, group_id, "DESCRIBE")
        return found.node_id


def only_one(answered: Sequence[T], what: str, group_id: str) -> T:
    """The one thing that was asked for.

    Raises:
        BrokerError: the answer has another number of them.
    """
    if len(answered) != 1:
        raise BrokerError(
            -1,
            "UNKNOWN_SERVER_ERROR",
            f"the answer has {len(answered)} times a {what} for {group_id!r} instead of once; ask again",
            retriable=True,
        )
    return answered[0]


def check_code(code: int, group_id: str, operation: str) -> None:
    """Raise the error for a code; `operation` is what the request needs to be granted on the group.

    Raises:
        GroupAuthorizationError: the message says what to grant.
        BrokerError: any other code.
    """
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        raise not_authorized_error(group_id, operation)
    if code:
        row = lookup(code)
        raise BrokerError(code, row.name, f"group {group_id!r}: {row.message}", retriable=row.retriable)
