"""Sends requests to the coordinators of groups, for those who are no members: operators, jobs, the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from aiogroup._core.membership.remedies import NOT_READY, not_authorized_error
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.offsets.committed_request import BY_NAME, committed_in, committed_request
from aiogroup._core.protocol.errors import ErrorCode, lookup
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.schema import R_co, Request
from aiogroup._runtime.loop.clock import within_ms
from aiogroup._runtime.loop.retries import Retries
from aiogroup._runtime.net.link import METADATA, Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import BrokerError, ConnectionLostError, KafkaTimeoutError, ProtocolError
from aiogroup.structs import TopicPartition

__all__ = ["GroupLink", "check_code", "from_outside", "only_one"]

T = TypeVar("T")
AGAIN: Final = NOT_READY | {ErrorCode.UNSTABLE_OFFSET_COMMIT}
"""Codes after which to ask again: the coordinator moves, or a transaction is about to commit offsets (KIP-447)."""


@asynccontextmanager
async def from_outside(config: ConsumerConfig) -> AsyncIterator[GroupLink]:
    """Connections of its own for one call about the group `config.group_id`.

    Raises:
        KafkaTimeoutError: the block took longer than `default_api_timeout_ms`.
    """
    limit_ms = config.default_api_timeout_ms
    late = f"group {config.group_id!r}: not done within default_api_timeout_ms={limit_ms}"
    async with Link(config) as link, within_ms(limit_ms, late):
        yield GroupLink(config, link)


class GroupLink:
    """Finds the coordinator for each request. It retries without a bound, so the caller must set a time-out."""

    def __init__(self, config: ConsumerConfig, link: Link) -> None:
        self._config = config
        self.link = link

    async def committed(
        self, group_id: str, tps: Iterable[TopicPartition] | None = None
    ) -> tuple[dict[TopicPartition, Committed], dict[TopicPartition, int]]:
        """What the group has committed, and the error codes of the partitions that the coordinator refused.

        With `tps` it is that of these partitions, once no transaction is about to commit other offsets. Without, it is
        all that there is, as it is now.

        Raises:
            GroupAuthorizationError: grant DESCRIBE on the group.
            BrokerError: the coordinator refused the request as a whole.
            AiogroupError: as `ask`.
        """
        request = committed_request(group_id, tps)
        response = await self.ask(group_id, request, lambda answer: committed_in(answer).codes, at_most=BY_NAME)
        only_one(response.groups, "group", group_id)
        answer = committed_in(response)
        check_code(answer.error_code, group_id, "DESCRIBE")
        return {tp: each for tp, each in answer.found.items() if each is not None}, answer.refused

    async def ask(
        self,
        group_id: str,
        request: Request[R_co],
        codes_of: Callable[[R_co], Iterable[int]],
        *,
        at_most: int | None = None,
    ) -> R_co:
        """The coordinator's answer. While one of its codes is in `AGAIN`, the coordinator is looked up and asked again.

        Raises:
            ConnectionLostError, KafkaTimeoutError: no bootstrap server was reached.
            GroupAuthorizationError: grant DESCRIBE on the group.
            BrokerError: the look-up was refused.
        """

        async def once() -> R_co | None:
            response = await self.link.send(await self.find(group_id), request, METADATA, at_most=at_most)
            return None if AGAIN.intersection(codes_of(response)) else response

        return await self.until_answered(once)

    async def until_answered(self, ask: Callable[[], Awaitable[T | None]]) -> T:
        """What `ask` returns, which is called again, after a backoff, while that is `None` or no broker answers it.

        Raises:
            ConnectionLostError, KafkaTimeoutError: no bootstrap server was reached.
        """
        retries = Retries(self._config)
        while True:
            try:
                if (answer := await ask()) is not None:
                    return answer
            except (ConnectionLostError, KafkaTimeoutError, ProtocolError):
                if not self.link.cluster.brokers:
                    raise  # no bootstrap server was reached: this error says so
            await retries.back_off()

    async def find(self, group_id: str) -> int:
        """The node that coordinates the group. Raises as `ask`, and ConnectionLostError while there is none."""
        await self.link.fetch_metadata(())
        response = await self.link.ask_any(FindCoordinatorRequest(coordinator_keys=(group_id,)))
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
