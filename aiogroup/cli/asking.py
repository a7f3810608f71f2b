"""Questions to the brokers, from outside of any group. Several brokers are asked at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

from aiogroup._core.cluster import Cluster
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.remedies import NOT_READY
from aiogroup._core.offsets.commit_order import Commit
from aiogroup._core.offsets.commit_plan import CommitEntry, Committed
from aiogroup._core.offsets.commit_request import Again, codes_of, commit_request, verdict_of
from aiogroup._core.offsets.committed_request import BY_NAME
from aiogroup._core.protocol.errors import ErrorCode, lookup
from aiogroup._core.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from aiogroup._core.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from aiogroup._runtime.loop.clock import now_ms, within_ms
from aiogroup._runtime.loop.retries import Retries
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.net.group_link import GroupLink, check_code
from aiogroup._runtime.net.link import METADATA, Link
from aiogroup._runtime.offsets.leader_offsets import answers_in, by_leader, list_request
from aiogroup.admin import described
from aiogroup.cli.exits import NotDoneError
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, AuthenticationFailedError, named
from aiogroup.structs import TopicPartition

__all__ = ["Asking", "asked"]

T = TypeVar("T")
PATIENCE_MS: Final = 5_000
"""How long one broker, or one partition without a leader, holds up what is known of the others."""
GONE: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Answers about a partition that waiting does not change."""


@asynccontextmanager
async def asked(settings: Mapping[str, Any]) -> AsyncIterator[Asking]:
    """Connections to the brokers as long as the block runs."""
    config = ConsumerConfig.of(**settings)
    supervisor = Supervisor(lambda _name, _error: None)
    async with Link(config) as link:
        try:
            await supervisor.start()
            yield Asking(config, link, supervisor)
        finally:
            await supervisor.close()


class Asking:
    """Asks, and tries again while brokers move: `within` bounds it all."""

    def __init__(self, config: ConsumerConfig, link: Link, supervisor: Supervisor) -> None:
        self.config = config
        self._link = link
        self._groups = GroupLink(config, link)
        self._supervisor = supervisor

    async def within(self, what: str, work: Awaitable[T]) -> T:
        """The result of `work`, in the time of one call.

        Raises:
            KafkaTimeoutError: it was not done in that time.
        """
        limit_ms = self.config.default_api_timeout_ms
        async with within_ms(limit_ms, f"{what}: not done within --timeout-ms {limit_ms}"):
            return await work

    # What there is.

    async def cluster(self, topics: Iterable[str] = ()) -> Cluster:
        """The brokers and these topics as they are now; its `errors` has the topics that were not described."""
        snapshot = await self._link.fetch_metadata(topics)
        return Cluster(snapshot.brokers, snapshot.topics, snapshot.errors, snapshot.cluster_id)

    async def partitions(self, wanted: Iterable[tuple[str, Collection[int]]]) -> frozenset[TopicPartition]:
        """The partitions with these numbers of these topics; without numbers all of the topic.

        Raises:
            NotDoneError: there is no such topic, or it has no such partition.
        """
        topics = [*wanted]
        cluster = await self.cluster({name for name, _ in topics})
        found: set[TopicPartition] = set()
        for name, numbers in topics:
            there = cluster.partitions_of(name)
            if not there:
                raise NotDoneError(f"there is no topic {name!r}, or this principal may not describe it")
            asked_for = {TopicPartition(name, number) for number in numbers} or there
            if unknown := asked_for - there:
                raise NotDoneError(f"topic {name!r} has {len(there)} partitions, and not {named(unknown)}")
            found |= asked_for
        return frozenset(found)

    async def listed(
        self, states: Collection[str]
    ) -> tuple[dict[int, tuple[ListedGroup, ...]], dict[int, AiogroupError]]:
        """The groups by the node that coordinates them, and the nodes that did not answer."""
        brokers = (await self.cluster()).brokers
        return await self._at_once({node: partial(self._list, node, tuple(states)) for node in brokers})

    async def _list(self, node_id: int, states: tuple[str, ...]) -> tuple[ListedGroup, ...]:
        retries = Retries(self.config, now_ms() + self._patience_ms)
        while True:
            response = await self._link.send(node_id, ListGroupsRequest(states_filter=states), METADATA)
            if response.error_code not in NOT_READY or not await retries.back_off():
                check_code(response.error_code, "", "DESCRIBE")
                return response.groups

    async def members_counts(
        self, groups: Mapping[int, Collection[str]]
    ) -> tuple[dict[int, dict[str, int]], dict[int, AiogroupError]]:
        """How many members each classic group has, by coordinator; groups that cannot be described are left out."""
        return await self._at_once({node: partial(self._count, node, names) for node, names in groups.items() if names})

    async def _count(self, node_id: int, names: Collection[str]) -> dict[str, int]:
        response = await self._link.send(node_id, DescribeGroupsRequest(groups=tuple(names)), METADATA)
        return {each.group_id: len(each.members) for each in response.groups if not each.error_code}

    async def described(self, group_id: str) -> DescribedGroup | str:
        """The group, or why there is no such group of the classic protocol."""
        return await described(self._groups, group_id)

    async def listed_at(self, node_id: int, group_id: str) -> ListedGroup | None:
        """How its coordinator lists the group, of whatever protocol; `None` if there is none that may be seen."""
        return next((each for each in await self._list(node_id, ()) if each.group_id == group_id), None)

    async def coordinator(self, group_id: str) -> int:
        """The node that coordinates the group."""
        return await self._groups.find(group_id)

    # Offsets.

    async def committed(self, group_id: str) -> tuple[dict[TopicPartition, Committed], dict[TopicPartition, str]]:
        """All that the group has committed, and the errors of the partitions that the coordinator refused."""
        found, refused = await self._groups.committed(group_id)
        return found, {tp: lookup(code).name for tp, code in refused.items()}

    async def offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """The first offset at or after each timestamp (or EARLIEST, LATEST), -1 where there is none; why not, else."""
        retries = Retries(self.config, now_ms() + self._patience_ms)
        found: dict[TopicPartition, int] = {}
        why: dict[TopicPartition, str] = {}
        given_up: set[TopicPartition] = set()
        while True:
            left = {tp: at for tp, at in wanted.items() if tp not in found and tp not in given_up}
            await self._ask_leaders(left, found, why, given_up)
            if not left.keys() - found.keys() - given_up or not await retries.back_off():
                return found, {tp: why[tp] for tp in wanted if tp not in found}
            await self._link.look_again({tp.topic for tp in left}, self._patience_ms)

    async def _ask_leaders(
        self,
        wanted: Mapping[TopicPartition, int],
        found: dict[TopicPartition, int],
        why: dict[TopicPartition, str],
        given_up: set[TopicPartition],
    ) -> None:
        parts = by_leader(wanted, self._link.cluster)
        why.update(dict.fromkeys(parts.pop(-1, ()), "it has no leader now"))
        answers, failures = await self._at_once(
            {node: partial(self._ask_leader, node, part) for node, part in parts.items()}
        )
        for node_id, failure in failures.items():
            why.update(dict.fromkeys(parts[node_id], str(failure)))
        for node_id, answered in answers.items():
            why.update(dict.fromkeys(parts[node_id], "the answer lacks it"))
            for tp, (code, offset) in answered.items():
                if not code:
                    found[tp] = offset
                why[tp] = lookup(code).name
                if code in GONE:
                    given_up.add(tp)

    async def _ask_leader(
        self, node_id: int, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        request = list_request(wanted, self._link.cluster)
        response = await self._link.send(node_id, request, METADATA, self._patience_ms)
        return {tp: (each.error_code, each.offset) for tp, each in answers_in(response)}

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, int], cluster: Cluster
    ) -> dict[TopicPartition, AiogroupError]:
        """Commit these offsets for a group that has no members; why not, by partition.

        The topics' ids of `cluster` are sent along, so that a topic which was recreated since is refused.
        """
        commit = Commit({tp: CommitEntry(offset, "", -1) for tp, offset in offsets.items()})
        commit.is_member = False
        ids = {tp: cluster.topic_id(tp.topic) for tp in offsets}
        commit.topic_ids = {tp: topic_id for tp, topic_id in ids.items() if topic_id is not None}
        at_most = None if len(commit.topic_ids) == len(ids) else BY_NAME
        retries = Retries(self.config, now_ms() + self._patience_ms)
        refused: dict[TopicPartition, AiogroupError] = {}
        while True:
            commit.sent = dict(commit.pending)
            answer = await self._groups.ask(
                group_id,
                commit_request(commit, Identity(group_id)),
                lambda answer: codes_of(answer, commit).values(),
                at_most=at_most,
            )
            codes = codes_of(answer, commit)
            last: dict[TopicPartition, AiogroupError] = {}
            for tp in commit.sent:
                if not (code := codes.get(tp, -1)):
                    del commit.pending[tp]
                    continue
                verdict = verdict_of(code, tp, group_id, is_member=False, is_gone=False)
                if isinstance(verdict, Again):
                    last[tp] = verdict.error
                else:
                    del commit.pending[tp]
                    refused[tp] = verdict.error
            if not commit.pending or not await retries.back_off():
                return refused | last

    # Brokers.

    @property
    def _patience_ms(self) -> int:
        return max(1, min(PATIENCE_MS, self.config.default_api_timeout_ms // 3))

    async def _at_once(
        self, work: Mapping[int, Callable[[], Awaitable[T]]]
    ) -> tuple[dict[int, T], dict[int, AiogroupError]]:
        """The results by node, and what the other nodes failed with."""
        answers = {node: self._supervisor.begin(f"node {node}", each) for node, each in work.items()}
        if answers:
            await asyncio.wait(answers.values())
        results, failures = {}, {}
        for node_id, answer in answers.items():
            try:
                results[node_id] = answer.result()
            except AuthenticationFailedError:
                raise
            except AiogroupError as error:
                failures[node_id] = error
        return results, failures
