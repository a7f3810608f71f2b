"""Bugs that the simulation must find: each changes a few words of one function of the library, with seeds that find it.

A bug whose words are gone fails its test: somebody changed what the function does, and the bug must be planted again.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYOUT = {tokenize.COMMENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.INDENT, tokenize.NEWLINE, tokenize.NL}


@dataclass(frozen=True)
class Bug:
    """In `place`, a file and a name in it, the words `old` become `new`. How they are laid out is no matter.

    `seeds` are tried first, then others of these profiles.
    """

    name: str
    place: str
    old: str
    new: str
    profiles: tuple[str, ...] = ()  # where to look, everywhere if none is named
    seeds: tuple[int, ...] = ()
    more: tuple[tuple[str, str, str], ...] = ()  # other places that would make up for it
    tests: str = ""  # who finds it in place of the simulation, on the embedded broker

    def applied(self):
        """The texts with the bug, by module.

        Raises:
            LookupError: the place is not there, or the words are not there, or not once.
        """
        texts = {}
        for place, old, new in ((self.place, self.old, self.new), *self.more):
            path, name = place.split(":")
            module = path.removesuffix(".py").replace("/", ".")
            text = texts.get(module) or (ROOT / path).read_text()
            texts[module] = replaced(text, name, old, new, f"{self.name}: {old!r} in {place}")
        return texts


def replaced(text, name, old, new, what):
    first, last = _lines(text, name)
    own = [each for each in _words(text) if first <= each.start[0] <= last]
    wanted = [each.string for each in _words(old)]
    strings = [each.string for each in own]
    found = [at for at in range(len(own)) if wanted and strings[at : at + len(wanted)] == wanted]
    if len(found) != 1:
        raise LookupError(f"{what}: found {len(found)} times")
    lines = text.splitlines(keepends=True)
    (from_line, begin), (to_line, end) = own[found[0]].start, own[found[0] + len(wanted) - 1].end
    indent = lines[from_line - 1][: len(lines[from_line - 1]) - len(lines[from_line - 1].lstrip())]
    before, after = lines[from_line - 1][:begin], lines[to_line - 1][end:]
    changed = before + new.replace("\n", "\n" + indent) + after
    return "".join((*lines[: from_line - 1], changed, *lines[to_line:]))


@cache
def _words(text):
    return [each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type not in LAYOUT]


def _lines(text, name):
    """The first and the last line of the function or the class with this dotted name, or of what is assigned to it."""
    nodes = ast.parse(text).body
    for part in name.split("."):
        node = next((each for each in nodes if part in _names(each)), None)
        if node is None:
            raise LookupError(f"no {name}")
        nodes = getattr(node, "body", [])
    return node.lineno, node.end_lineno


def _names(node):
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {getattr(node, "name", None), *(each.id for each in targets if isinstance(each, ast.Name))}


class _Loader(SourceFileLoader):
    text = ""

    def get_code(self, fullname):
        return compile(self.text, self.path, "exec", dont_inherit=True)


class _Finder:
    def __init__(self, bug):
        self._texts = bug.applied()

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self._texts:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        spec.loader = _Loader(fullname, spec.origin)
        spec.loader.text = self._texts[fullname]
        return spec


def plant(bug):
    """Before anything of aiogroup is imported."""
    assert not any(name == "aiogroup" or name.startswith("aiogroup.") for name in sys.modules)
    sys.meta_path.insert(0, _Finder(bug))


CLASSIC = "aiogroup/_core/membership/classic/machine.py"
REMEDIES = "aiogroup/_core/membership/remedies.py"
COMMIT_ATTEMPT = "aiogroup/_core/offsets/commit_attempt.py"
COORDINATOR = "aiogroup/_runtime/coordinator.py"
REBALANCE = "aiogroup/_runtime/membership/rebalance.py"
OWNERSHIP = "aiogroup/_runtime/membership/ownership.py"
NAMED_OFFSETS = "aiogroup/_runtime/offsets/named_offsets.py"

BUGS = (
    Bug(
        "lets a second task read on",
        "aiogroup/_runtime/delivery/holders.py:Holders._check",
        "for tp, holder in self._of_others(only, who):",
        "for tp, holder in ():",
        seeds=(0,),
    ),
    Bug(
        "an iterator does not look who steps it",
        "aiogroup/_core/delivery/source.py:SliceSource.__init__",
        "self.cursor = Cursor(is_shared=not in_hand.auto_ack)",
        "self.cursor = Cursor(is_shared=True)",
        seeds=(3,),
    ),
    Bug(
        "goes on after it was fenced",
        f"{CLASSIC}:ClassicMembership._on_fenced",
        "self._refuse(Remedy.FENCED, ErrorCode.FENCED_INSTANCE_ID)",
        'self._lose_generation(self.identity.forgotten(), "fenced")',
        ("aimed",),
        (49,),
    ),
    Bug(
        "commits a partition that was lost and came back",
        "aiogroup/_core/fetching/assignment.py:Assignment.is_owned_since",
        "return partition is not None and partition.ownership == ownership",
        "return partition is not None",
        ("outlived",),
        (239,),
        more=(
            # It waits for the next generation instead of being dropped with the old one.
            (
                f"{COMMIT_ATTEMPT}:CommitAttempt._drop_not_owned",
                "is_lost = not commits.must_wait and",
                "if commits.must_wait:\n    return\nis_lost =",
            ),
            (
                f"{COMMIT_ATTEMPT}:Commits.must_wait",
                "return self.is_held_back or",
                "return not self.membership.identity.is_member or",
            ),
        ),
    ),
    Bug(
        "JoinGroup overtakes a commit in flight",
        f"{REBALANCE}:Rebalance._settle_commits",
        "if not await committer.settled(config.request_timeout_ms):",
        "if False:",
        ("quick", "late", "aimed"),
        (120,),
    ),
    Bug(
        "drops its member id on ILLEGAL_GENERATION",
        f"{CLASSIC}:ClassicMembership._on_news",
        "self._lose_generation(self.identity.without_generation(), why)",
        "self._lose_generation(self.identity.forgotten(), why)",
        ("aimed",),
        (199,),
    ),
    Bug(
        "accepts a late answer of an older generation",
        f"{CLASSIC}:ClassicMembership._on_news",
        "if fact.identity != self.identity or not self.may_heartbeat:",
        "if not self.may_heartbeat:",
        ("late",),
        (129,),
    ),
    Bug(
        "hands out while no heartbeat is answered",
        "aiogroup/_runtime/group.py:Group.may_deliver",
        "if now >= self._liveness.answered_until_ms:",
        "if False:",
        ("unheard",),
        (198,),
    ),
    Bug(
        "stops its heartbeats during callbacks",
        "aiogroup/_core/membership/states.py:HEARTBEATING",
        "frozenset({MemberState.PREPARING, MemberState.SYNCING, MemberState.ADOPTING, MemberState.STABLE})",
        "frozenset({MemberState.SYNCING, MemberState.STABLE})",
        ("calm",),
        (6,),
    ),
    Bug(
        "holds the lock while JoinGroup is unanswered",
        f"{COORDINATOR}:CoordinatorLine.exchange",
        "answer = connection.write(message, at_most=at_most)",
        "answer = connection.write(message, at_most=at_most)\nawait connection.answer(answer, timeout)",
        ("calm",),
        (23,),
    ),
    Bug(
        "takes an error of OffsetFetch for nothing committed",
        "aiogroup/_runtime/offsets/committed.py:CommittedOffsets._fetch_once",
        'return {}, self._mend(answer.error_code, f"committed offsets of {group_id!r}")',
        "return dict.fromkeys(tps), None",
        ("brokers",),
        (116,),
    ),
    Bug(
        "hands over while a record is in hand",
        f"{OWNERSHIP}:Ownership._wait_for_hand_over",
        "while still() and not self._skips_hand_over and delivery.is_in_hand(wanted):",
        "while False:",
        ("quick", "calm"),
        (67,),
    ),
    Bug(
        "joins before it commits",
        f"{OWNERSHIP}:Ownership._revoke",
        "await self._commits.commit_processed(leaving, until_ms - now_ms())",
        "await self._commits.commit_processed([], until_ms - now_ms())",
        ("quick", "late"),
        (9,),
    ),
    Bug(
        "commits the record in hand, too",
        "aiogroup/_core/offsets/ledger.py:Ledger.committable",
        "return self._runs[0][self._done_count] if self._runs else self.position",
        "return self.position",
        ("calm",),
        (36,),
    ),
    Bug(
        "passes over a gap in what is acknowledged",
        "aiogroup/_core/offsets/ledger.py:Ledger.ack",
        "self._acked.add(offset)",
        "self._acked.update(each for run in self._runs for each in run if each <= offset)",
        ("calm",),
        (18,),
    ),
    Bug(
        "keeps what was fetched before a seek",
        "aiogroup/_core/fetching/asking/answers.py:take",
        "is_current = (target.changes_count, target.offset) == (asked.changes_count, asked.fetch_offset)",
        "is_current = True",
        ("quick", "calm"),
        (294,),
    ),
    Bug(
        "starts a new partition at its end",
        "aiogroup/_core/membership/first_sight.py:FirstSight.policy_of",
        "return self._of_new if is_new else self._default",
        "return ResetPolicy('latest') if is_new else self._default",
        ("quick", "calm"),
        (10,),
    ),
    Bug(
        "does not notice that the topic grew",
        "aiogroup/_core/membership/classic/leadership.py:Leadership.why_stale",
        "if grown := sorted(topic for topic, count in self._counts.items() if now.get(topic, count) != count):",
        "if grown := ():",
        ("quick",),
        (220,),
    ),
    Bug(
        "asks a coordinator that moved again and again",
        f"{REMEDIES}:_COORDINATOR",
        "E.NOT_COORDINATOR: Remedy.REDISCOVER",
        "E.NOT_COORDINATOR: Remedy.RETRY",
        ("brokers",),
        (91,),
    ),
    Bug(
        "keeps its generation after UNKNOWN_MEMBER_ID",
        f"{CLASSIC}:ClassicMembership._on_news",
        "self._lose_generation(self._removed(why), why)",
        "pass",
        ("outlived",),
        (29,),
    ),
    Bug(
        "ignores that the group rebalances",
        f"{CLASSIC}:ClassicMembership._on_news",
        "self._on_group_rebalances(now_ms)",
        "pass",
        ("quick",),
        (55,),
    ),
    Bug(
        "forgets a member id that it was told to take",
        f"{CLASSIC}:ClassicMembership._on_join",
        "self.identity = self.identity.with_member_id(answer.member_id)",
        'self._join_again("forgot its id", now_ms, backoff=True)',
        ("quick", "calm", "network"),
        (4,),
    ),
    Bug(
        "commits outside of a generation",
        f"{COMMIT_ATTEMPT}:CommitAttempt._drop_not_owned",
        "is_lost = not commits.must_wait and not commits.identity.is_member",
        "is_lost = False",
        ("aimed",),
        (469,),
    ),
    Bug(
        "commits while it joins",
        f"{COMMIT_ATTEMPT}:Commits.must_wait",
        "return self.is_held_back or self.membership.commits_as is None",
        "return False",
        ("quick",),
        (101,),
    ),
    Bug(
        "never gives up a JoinGroup that nobody answers",
        f"{CLASSIC}:ClassicMembership._on_request_lost",
        "self._join_again(fact.why, now_ms, backoff=True)",
        "pass",
        ("network", "brokers"),
        (71,),
    ),
    Bug(
        "does not leave when it stops",
        "aiogroup/_runtime/departure.py:Departure.leave",
        'await stages.run("LeaveGroup", self._coordinator.leave(leave))',
        "pass",
        ("quick",),
        (612,),
    ),
    Bug(
        "loses a record when a request is cancelled",
        "aiogroup/_runtime/delivery/requests.py:Requests.one",
        "record = await self._wait(take, None)",
        "record = await self._wait(take, None)\nawait asyncio.sleep(0.02)",
        ("quick", "calm"),
        (6,),
    ),
    Bug(
        "takes an offset of an earlier ownership for one of this",
        f"{NAMED_OFFSETS}:NamedOffsets.decided",
        "waiting = self.undecided(bound)",
        "waiting = []",
        ("lanes",),
        (1_000_014,),
        more=((f"{NAMED_OFFSETS}:NamedOffsets._entry", "or self._positions.is_undecided(partition):", "or False:"),),
    ),
    Bug(
        "commits by name what was read of a topic that is deleted",
        f"{COMMIT_ATTEMPT}:CommitAttempt.at_most",
        "return None if self.commit.pending.keys() <= self.commit.topic_ids.keys() else BY_NAME",
        "return BY_NAME",
        ("recreated",),
        (74,),
    ),
    Bug(
        "goes on in a topic that was recreated where it stood in the old one",
        "aiogroup/_runtime/fetching/positions.py:Positions.follow_topics",
        "self._start_over(partition, former_id, topic_id)",
        "partition.topic_id = topic_id",
        ("recreated",),
        (14,),
    ),
    Bug(
        "takes an offset of the old topic for one of the new",
        "aiogroup/_core/fetching/partition.py:Partition.is_of_former_log",
        "return (self.position or 0) < offset <= self.former_end",
        "return False",
        ("recreated",),
        (194,),
    ),
    Bug(
        "goes by the policy where retention passed what was committed",
        "aiogroup/_runtime/fetching/lane_rules.py:LiveRules.on_out_of_range",
        "policy = FROM_EARLIEST if is_low_water else TO_NEAREST if is_nearest else self._policy",
        "policy = FROM_EARLIEST if is_low_water else self._policy",
        ("latest",),
        (2_000_003,),
    ),
    Bug(
        "takes a partition that was added before it came for an old one",
        "aiogroup/_core/membership/first_sight.py:FirstSight.policy_of",
        "is_new = self._had_commits.get(tp.topic, False) or tp",
        "is_new = tp",
        ("latest",),
        (2_000_004,),
    ),
    Bug(
        "tells nobody that the membership moved",
        f"{COORDINATOR}:CoordinatorLine._on_changed",
        "self._changes.tell(Change.MEMBER)",
        "pass",
        seeds=(0,),
    ),
)
TESTED_BUGS = (
    Bug(
        "keeps the connections to a node that has moved",
        "aiogroup/_runtime/net/link.py:Link._take",
        "slot.move_to((broker.host, broker.port))",
        "pass",
        tests="tests/groups/test_moved_nodes.py",
    ),
    Bug(
        "the heartbeat thread keeps the addresses that it began with",
        "aiogroup/_runtime/membership/heartbeat_thread.py:HeartbeatThread.run",
        "self._link.on_brokers = self.publish",
        "pass",
        tests="tests/kafka/test_moved_addresses.py",
    ),
    Bug(
        "gives a partition up before what was begun to be committed is settled",
        f"{OWNERSHIP}:Ownership._revoke",
        "await self._commits.committer.settled(until_ms - now_ms())",
        "pass",
        more=((f"{OWNERSHIP}:Ownership._revoke", "await self._commits.let_commit(leaving)", "pass"),),
        tests="tests/kafka/test_acks_then_commit.py",
    ),
    Bug(
        "does not fetch on what a late result has left of a range",
        "aiogroup/_core/fetching/lane.py:Lane.drop_buffer",
        "self.tally.changes.tell(Change.FETCHABLE)",
        "pass",
        tests="tests/kafka/test_handoff.py",
    ),
)
"""Found by tests on the embedded broker: other threads, jobs, and who commits by hand are not simulated."""
