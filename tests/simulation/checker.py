"""What must hold in every simulation. Told by the applications, the consumers' events and the coordinator's log."""

from __future__ import annotations

from collections import defaultdict

from aiokafka.structs import TopicPartition

from aiogroup._core.protocol.consumer_protocol import decode_assignment
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup._core.recovery.ranges import find
from aiogroup._core.recovery.token import read_token
from aiogroup._core.telemetry import events
from aiogroup.embedded.machine.groups.group import GroupState
from aiogroup.records import CATCH_UP

REFUSED = (25, 82)
JOIN, SYNC = JoinGroupRequest.API_KEY, SyncGroupRequest.API_KEY
COMMIT, HEARTBEAT = OffsetCommitRequest.API_KEY, HeartbeatRequest.API_KEY
TROUBLE = (
    events.CoordinatorLost,
    events.HeartbeatMissed,
    events.RebalanceFailed,
    events.CommitFailed,
    events.MetadataFailed,
    events.MemberFailed,
    events.MemberRemoved,
    events.PartitionsLost,
)
"""Nothing of this is told while nothing is wrong."""


class Checker:
    """Violations are kept, not raised: they are seen in the loop's callbacks. The first one ends the run."""

    def __init__(self, loop, tell):
        self.loop = loop
        self.tell = tell
        self.place = None  # of a partition: what its tokens are bound to
        self.name_of = None  # of a topic, by its id
        self.violations = []
        self.processed = defaultdict(set)  # by partition: what somebody's application has processed
        self.gap_free = defaultdict(int)  # the highest offset below which all of that is
        self.committed = {}
        self.floor = {}  # what was committed when the generation began
        self.moved = set()  # partitions whose position an application moved: commits may go back
        self.owners = {}  # (generation, partition) -> who adopted it
        self.keeps = False  # the protocol is cooperative
        self.both_give_ms = 0  # for so long two members may hand out records of one partition
        self.given = defaultdict(dict)  # by partition: (process, which ownership) -> granted when, first record when
        self.granted_at = {}  # by process: when the coordinator told it its assignment
        self.blind_at = {}  # by process: when a coordinator that was loading last answered its heartbeat
        self.thawed_at = {}  # by process: it was given what it sees in this instant before, and heard nothing since
        self.is_over = False  # processes are cleared away, the dead too: what they say then is no finding
        self.is_calm = False  # the whole simulation is without faults, stalls and crashes
        self.processes = {}  # by member id: who spoke under it last
        self.ids = {}  # by process: the member id under which it spoke last
        self.unsettled = set()  # processes that could not wait any longer for a commit to be answered
        self.joining = set()  # processes that keep partitions, and commit in their generation, until SyncGroup
        self.may_be_late = set()  # those whose last commit was written meanwhile: the next generation may have begun
        self.slow = set()  # processes that make the group wait: it goes on without them
        self.away = Away(loop)
        self.is_exact = True  # nothing that is processed comes again
        self.may_repeat = set()  # (partition, offset): a stop has told that its application still held it
        self.begins = {}  # where retention has moved the beginning of a log
        self.let_go = {None}  # member ids that somebody was refused under, or gave up himself
        self.made_counts = {}  # by topic: how often it was recreated; records say it as their timestamp
        self.excused = set()  # processes that may fall silent: they end, or their application stalls

    def now(self):
        return round(self.loop.time() * 1000) - 1_000_000

    def fail(self, why):
        if self.is_over:
            return
        self.tell("VIOLATION", why)
        self.violations.append(f"{why} (at {self.now()} ms)")

    # On the wire.

    def on_write(self, process, key, unanswered):
        """`unanswered`: what the process waits for on its open connections."""
        name = process.name
        if key == JOIN and COMMIT in unanswered and not self.keeps and name not in self.unsettled:
            self.fail(f"{name} writes JoinGroup, and waits for the answer to a commit")
        if key in (COMMIT, HEARTBEAT) and JOIN in unanswered and not self.keeps:
            self.fail(f"{name} speaks for a generation that it has left: JoinGroup is unanswered")
        if key == COMMIT:
            (self.may_be_late.add if name in self.joining else self.may_be_late.discard)(name)
        if key == JOIN:
            self.unsettled.discard(name)
            if self.keeps:
                self.joining.add(name)
        if key == SYNC:
            self.joining.discard(name)

    # Offsets.

    def on_deleted(self, topic):
        """What was processed and committed of it is of a log that is gone."""
        self.made_counts[topic] = self.made_counts.get(topic, 0) + 1
        for by_partition in (self.processed, self.gap_free, self.committed, self.floor):
            for tp in [tp for tp in by_partition if tp.topic == topic]:
                del by_partition[tp]
        self.moved = {tp for tp in self.moved if tp.topic != topic}
        self.may_repeat = {each for each in self.may_repeat if each[0].topic != topic}

    def is_of_former(self, record):
        """Its topic was deleted since it was written: who has not heard of it may be given it still."""
        return record.timestamp < self.made_counts.get(record.topic, 0)

    def note_processed(self, tp, offset):
        self.processed[tp].add(offset)
        reached = self.gap_free[tp]
        while reached in self.processed[tp]:
            reached += 1
        self.gap_free[tp] = reached

    def on_expired_records(self, tp, to_offset):
        """Retention has removed what is below: nobody is to process it."""
        self.begins[tp] = max(to_offset, self.begins.get(tp, 0))
        self.may_repeat |= {(tp, each) for each in range(to_offset)}  # who has fetched it hands it out
        for offset in range(self.gap_free[tp], to_offset):
            self.note_processed(tp, offset)

    def on_given(self, who, granted_at, tp):
        """A record, to (process, which of its ownerships of the partition, and that granted when).

        Of two owners the coordinator has replaced the one that it granted the partition to first. Neither the order of
        their callbacks nor that of their first records says which one that is: the one that was replaced may be late
        with both, and the other one rightly goes on after it has been fenced.
        """
        now, given = self.loop.time(), self.given[tp]
        given.setdefault(who, (granted_at, now))
        thawed_at = self.thawed_at.get(who[0], 0.0)
        if now == thawed_at:
            return
        heard_nothing_until = max(thawed_at, self.blind_at.get(who[0], 0.0))
        for (other, _), (other_granted_at, first_at) in given.items():
            both_ms = (now - max(first_at, heard_nothing_until)) * 1000
            if other != who[0] and other_granted_at > granted_at and both_ms > self.both_give_ms:
                self.fail(f"{who[0]} is given {tp} {both_ms:.0f} ms after {other}, which has it now")

    def on_blind_answer(self, process):
        """While it loads, a coordinator answers every heartbeat with no error, also a replaced member's."""
        self.blind_at[process.name] = self.loop.time()

    def on_generation(self, group):
        if group.state is not GroupState.EMPTY:
            self.tell("coordinator", f"generation {group.generation}, {len(group.members)} members")
        self.floor = dict(self.committed)

    def on_answers(self, answers):
        """What the brokers say in one go: (process, request, response) each."""
        for process, request, response in answers:
            if getattr(response, "error_code", 0) in REFUSED or isinstance(request, LeaveGroupRequest):
                self.let_go.add(self.ids.get(process.name))
            if isinstance(response, SyncGroupResponse) and not response.error_code:
                self.granted_at[process.name] = self.loop.time()

    def on_request(self, process, request, response):
        """`response` is `None` as long as there is none."""
        match request:
            case OffsetCommitRequest():
                self._on_commit(process, request, response)
            case SyncGroupRequest() if request.assignments:
                self._on_assignments(request)

    def _on_commit(self, process, request, response):
        if request.generation_id_or_member_epoch < 0:
            self.fail(f"{process.name} commits outside of a generation")
        codes = {
            (topic.name or self.name_of(topic.topic_id), each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        for topic in request.topics:
            name = topic.name or self.name_of(topic.topic_id)
            for each in topic.partitions:
                tp, offset = TopicPartition(name, each.partition_index), each.committed_offset
                code = codes[tp]
                self.tell(process.name, f"commits {tp.topic}-{tp.partition} = {offset}: {int(code)}")
                is_late = code in (22, 27) and process.name in self.may_be_late
                if code in (22, 25, 27) and self.is_calm and not is_late and process.name not in self.slow:
                    self.fail(f"{process.name}: a commit is refused, and nothing was wrong")
                if code:
                    continue
                self._check_token(process, tp, offset, each.committed_metadata or "")
                if offset > self.gap_free[tp]:
                    self.fail(f"{process.name} committed {tp} = {offset}; processed without a gap: {self.gap_free[tp]}")
                if offset < self.floor.get(tp, 0) and tp not in self.moved:
                    self.fail(f"{process.name} committed {tp} = {offset}, below {self.floor[tp]} where it began")
                self.committed[tp] = offset

    def _check_token(self, process, tp, offset, metadata):
        """What is neither pending nor from the live lane on is processed (KIP-333)."""
        token = read_token(offset, metadata, self.place(tp)).token if metadata else None
        if token is None:
            return
        said = {at for at in range(offset, token.live) if find(token.pending, at) is None}
        if left := sorted(said - self.processed[tp]):
            self.fail(f"{process.name} committed {tp} = {offset}, {metadata!r}: {left} are not processed")

    def _on_assignments(self, request):
        seen = {}
        for each in request.assignments:
            for topic in decode_assignment(each.assignment).assigned_partitions:
                for number in topic.partitions:
                    tp = TopicPartition(topic.topic, number)
                    if tp in seen:
                        self.fail(f"generation {request.generation_id} gives {tp} to {seen[tp]} and {each.member_id}")
                    seen[tp] = each.member_id

    # Members.

    def before_request(self, process, request, groups):
        """Who forgets an id that the coordinator knows makes the group wait for a member that is none."""
        before = self.ids.get(process.name)
        if member_id := getattr(request, "member_id", ""):
            self.processes[member_id] = process.name
            self.ids[process.name] = member_id
        if not isinstance(request, JoinGroupRequest) or request.member_id or before is None or before in self.let_go:
            return
        if request.group_id in groups and before in groups[request.group_id].members:
            self.fail(f"{process.name} joins as a newcomer, and {before} is a member")

    def on_expired(self, member_id):
        self.tell("coordinator", f"{member_id} is expired")
        self.let_go.add(member_id)  # the next coordinator may know it again, by what it has loaded
        if self.is_calm and self.processes.get(member_id) not in self.excused:
            self.fail(f"{member_id} was expired, and nothing was wrong with it")

    def on_event(self, member, event):
        match event:
            case events.RebalanceCompleted():
                for tp in event.partitions:
                    owner = self.owners.setdefault((event.generation, tp), member.owner)
                    if owner != member.owner:
                        self.fail(f"generation {event.generation}: {tp} is {owner}'s and {member.owner}'s")
            case events.PollIntervalExceeded() | events.MemberFailed():
                self.let_go.add(self.ids.get(member.process.name))
            case events.RebalanceFailed(why="a commit did not settle before JoinGroup"):
                self.unsettled.add(member.process.name)
            case events.TaskFailed():
                self.fail(f"{member.process.name}: the task {event.task} died: {event.error}")
            case events.HeartbeatMissed(why="ILLEGAL_GENERATION"):
                pass  # the answer to one that JoinGroup overtook: what it does, if anything, is seen by the loss
            case events.PartitionsLost(why="the consumer is stopped") if member.is_stopping:
                member.given_up.update(event.partitions)  # `stop_member` sees whether that was right
            case _ if self.is_calm and isinstance(event, TROUBLE) and not member.is_slow:
                self.fail(f"{member.process.name}: {event}, and nothing was wrong")


class Away:
    """For whom the group waits: who is being stopped, and whose static name stays in it until somebody has it again."""

    def __init__(self, loop):
        self.loop = loop
        self.until = {}  # by name

    def left(self, name):
        self.until[name] = float("inf")

    def back(self, name):
        if name in self.until:
            self.until[name] = self.loop.time()

    def since(self, began_at, *, besides=None):
        """Whether anybody was, at or after this instant."""
        return any(until >= began_at for name, until in self.until.items() if name != besides)


class Ownerships:
    """One member's view: what is delivered belongs to it, comes in order and without a gap."""

    def __init__(self, checker, name):
        self.checker = checker
        self.name = name
        self.next = {}  # by owned partition: the next offset, None: any
        self.reached = {}  # by partition: behind what was delivered last
        self.granted_at = {}  # by partition: when the coordinator told of the assignment with it
        self.logs = {}  # by partition: of which topic of that name that was
        self.numbers = defaultdict(int)  # by partition: which ownership of it this is

    def assigned(self, tps):
        for tp in tps:
            self.numbers[tp] += 1
            self.granted_at[tp] = self.checker.granted_at[self.name]
            self.next.setdefault(tp, None)

    def revoked(self, tps):
        for tp in tps:
            self.next.pop(tp, None)

    def moved(self, tp):
        self.next[tp] = None

    def moved_if_owned(self, tp):
        if tp in self.next:
            self.next[tp] = None

    def delivered(self, record, *, is_again=False):
        tp = TopicPartition(record.topic, record.partition)
        self.reached[tp] = record.offset + 1
        if tp not in self.next:
            self.checker.fail(f"{self.name} was given {tp}@{record.offset}, which it does not own")
            return
        checker = self.checker
        checker.on_given((self.name, self.numbers[tp]), self.granted_at[tp], tp)
        self.logs[tp] = record.timestamp
        if checker.is_of_former(record):
            self.next[tp] = record.offset + 1
            return
        is_told = tp in checker.moved or (tp, record.offset) in checker.may_repeat
        if checker.is_exact and record.offset in checker.processed[tp] and not is_told:
            checker.fail(f"{self.name} was given {tp}@{record.offset} again, and nothing was wrong")
        if record.lane == CATCH_UP:
            return  # its ranges may lie apart
        expected = self.next[tp]
        if is_again:
            expected = None
        # What was fetched before retention removed it is handed out; what was not is passed over.
        next_ones = None if expected is None else {expected, max(expected, checker.begins.get(tp, 0))}
        if next_ones is not None and record.offset not in next_ones:
            self.checker.fail(f"{self.name} was given {tp}@{record.offset} where {expected} was next")
        self.next[tp] = record.offset + 1
