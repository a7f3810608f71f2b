"""Runs an assignor, and refuses an answer that members could not act on."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiogroup.assignors.assignor import topic_sets
from aiogroup.errors import AssignorError
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiogroup.assignors.assignor import Assignor, MemberSubscription, Racks

Assignment = dict[str, list["TopicPartition"]]
MOST_NAMED = 5
"""The greatest number of members or partitions that a message names."""


def run(
    assignor: Assignor, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int], racks: Racks
) -> Assignment:
    """Every member's partitions.

    Raises:
        AssignorError: the assignor failed; or its answer gives a partition to two members, to a member that did not
            subscribe to the topic, or to another member while its owner still holds it; or the answer names a member or
            a partition that does not exist.
    """
    try:
        assignment = _as_lists(assignor.assign(members, partitions, racks))
        _check(assignment, members, partitions)
    except AssignorError as error:
        raise AssignorError(f"assignor {assignor.name!r} {error}") from None
    except Exception as error:
        raise AssignorError(f"assignor {assignor.name!r} failed: {error!r}") from error
    if assignor.is_cooperative and (moved := _moved_at_once(assignment, members)):
        raise AssignorError(
            f"assignor {assignor.name!r} is cooperative and gave partitions to one member that another still owns: "
            f"{_named(moved)}; leave such a partition out until its owner no longer reports it"
        )
    return assignment


def _check(assignment: Assignment, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]) -> None:
    if strangers := assignment.keys() - members.keys():
        raise AssignorError(f"gave partitions to members that are not in the group: {_named(strangers)}")
    owners: dict[TopicPartition, str] = {}
    subscribed = topic_sets(members)
    for member, tps in assignment.items():
        for tp in tps:
            if not isinstance(tp, TopicPartition):
                raise AssignorError(f"gave {tp!r} to {member!r}: a TopicPartition is needed")
            if tp.topic not in subscribed[member]:
                raise AssignorError(f"gave {_name(tp)} to {member!r}, which did not subscribe to that topic")
            if not 0 <= tp.partition < partitions.get(tp.topic, 0):
                raise AssignorError(f"gave {_name(tp)} to {member!r}: there is no such partition")
            if tp in owners:
                raise AssignorError(f"gave {_name(tp)} twice, to {owners[tp]!r} and to {member!r}")
            owners[tp] = member


def _moved_at_once(assignment: Assignment, members: Mapping[str, MemberSubscription]) -> set[TopicPartition]:
    """Partitions that one member loses and another gets (ConsumerCoordinator.validateCooperativeAssignment)."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, subscription in members.items():
        owned, assigned = set(subscription.owned), set(assignment.get(member, ()))
        added |= assigned - owned
        revoked |= owned - assigned
    return added & revoked


def _as_lists(answer: object) -> Assignment:
    if not isinstance(answer, Mapping):
        raise AssignorError(f"returned {_said(answer)}, not a mapping of members to partitions")
    return {member: list(tps) for member, tps in answer.items()}


def _said(answer: object) -> str:
    if inspect.iscoroutine(answer):
        answer.close()  # else Python warns later that it was never awaited
        return "a coroutine (assign is not async)"
    return "None" if answer is None else f"a {type(answer).__name__}"


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def _named(things: Iterable[object]) -> str:
    names = sorted(_name(each) if isinstance(each, tuple) else repr(each) for each in things)  # type: ignore[arg-type]
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
