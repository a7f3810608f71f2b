"""Asks the coordinator for the offsets that the group has committed."""

from __future__ import annotations

from collections.abc import Collection

from aiogroup._core.membership.remedies import Remedy, Rpc, not_authorized_error, remedy_for
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.offsets.committed_request import BY_NAME, committed_in, committed_request
from aiogroup._core.protocol.errors import lookup
from aiogroup._runtime.coordinator import CoordinatorLine
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.loop.retries import Retries
from aiogroup._runtime.net.link import COMMIT, Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    AiogroupError,
    BrokerError,
    ConnectionLostError,
    KafkaTimeoutError,
    TopicAuthorizationError,
)
from aiogroup.structs import TopicPartition

__all__ = ["CommittedOffsets"]


class CommittedOffsets:
    def __init__(self, config: ConsumerConfig, link: Link, coordinator: CoordinatorLine) -> None:
        self._config = config
        self._link = link
        self._coordinator = coordinator

    async def fetch(
        self, tps: Collection[TopicPartition] | None, until_ms: int
    ) -> dict[TopicPartition, Committed | None]:
        """The committed offsets, `None` where there is none. An error never counts as "nothing committed". Without
        `tps` all that the group has, as they are now: also while a transaction is about to commit others.

        Raises:
            AiogroupError: the coordinator did not answer until `until_ms`, or refused.
        """
        retries = Retries(self._config, until_ms)
        while True:
            try:
                found, last = await self._fetch_once(tps, until_ms)
                if last is None:
                    return found
            except (ConnectionLostError, KafkaTimeoutError) as error:
                last = error
            if not await retries.back_off():
                raise retries.last_error("the look-up of committed offsets", last)

    async def _fetch_once(
        self, tps: Collection[TopicPartition] | None, until_ms: int
    ) -> tuple[dict[TopicPartition, Committed | None], AiogroupError | None]:
        group_id = self._coordinator.identity.group_id
        ids = {tp.topic: self._link.cluster.topic_id(tp.topic) for tp in tps or ()}
        request = committed_request(group_id, tps, ids)
        limit_ms = max(1, min(until_ms - now_ms(), self._config.request_timeout_ms))
        at_most = BY_NAME if tps is None or None in ids.values() else None
        response = await self._coordinator.exchange(COMMIT, limit_ms, lambda: request, at_most=at_most)
        assert response is not None
        answer = committed_in(response, ids)
        if answer.error_code:
            return {}, self._mend(answer.error_code, f"committed offsets of {group_id!r}")
        for tp, code in answer.refused.items():
            if remedy_for(Rpc.OFFSET_FETCH, code) is Remedy.REFRESH:
                await self._link.look_again(ids, limit_ms)
            return {}, self._mend(code, f"the committed offset of {tp}", tp.topic)
        if missing := set(tps or ()) - answer.found.keys():
            return {}, BrokerError(-1, "UNKNOWN_SERVER_ERROR", f"the answer lacks {sorted(missing)}", retriable=True)
        return answer.found, None

    def _mend(self, code: int, what: str, topic: str = "") -> AiogroupError:
        """The error for `code`, if the request can be tried again; any other error is raised."""
        row = lookup(code)
        match remedy_for(Rpc.OFFSET_FETCH, code):
            case Remedy.REDISCOVER:
                self._coordinator.lose(f"{what}: {row.name}")
            case Remedy.RETRY | Remedy.REFRESH:
                pass
            case Remedy.NOT_AUTHORIZED:
                raise not_authorized_error(self._coordinator.identity.group_id, "DESCRIBE")
            case Remedy.REFUSE_PARTITION:
                raise TopicAuthorizationError([topic])
            case _:
                raise BrokerError(code, row.name, f"{what}: {row.message}")
        return BrokerError(code, row.name, f"{what}: {row.message}", retriable=True)
