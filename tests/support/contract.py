"""What Kafka's system tests assert about a verifiable client's lines, written from the contract alone.

One `Member` judges the lines of one process (eager assignors: an assignment replaces the one before), or an
`IncrementalMember` (cooperative assignors: an assignment adds to the present one); `member_for` chooses. One `Group`
judges the offsets of all of them in the order in which their lines came, and `one_owner` judges afterwards which member
had which partition when.
"""

from __future__ import annotations

import json

COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"

SHAPES = {
    "startup_complete": {},
    "shutdown_requested": {},
    "shutdown_complete": {},
    "partitions_assigned": {"partitions": [{"topic": str, "partition": int}]},
    "partitions_revoked": {"partitions": [{"topic": str, "partition": int}]},
    "records_consumed": {
        "count": int,
        "partitions": [{"topic": str, "partition": int, "count": int, "minOffset": int, "maxOffset": int}],
    },
    "record_data": {"key": (str, type(None)), "value": str, "topic": str, "partition": int, "offset": int},
    "offsets_committed": {"offsets": [{"topic": str, "partition": int, "offset": int}], "success": bool},
}


class ContractError(AssertionError):
    """A line that the harness would refuse."""


def require(holds, why, event):
    if not holds:
        raise ContractError(f"{why}: {event}")


def named(each):
    return each["topic"], each["partition"]


def parse(line):
    """One JSON object, with the time and a known name, and the fields of that name."""
    try:
        event = json.loads(line)
    except ValueError as error:
        raise ContractError(f"no JSON: {line!r}") from error
    require(isinstance(event, dict) and type(event.get("timestamp")) is int, "no timestamp", event)
    require(event.get("name") in SHAPES, "unknown event", event)
    fields = {**SHAPES[event["name"]]}
    if event.get("success") is False:
        fields["error"] = str
    fits(fields, {key: value for key, value in event.items() if key not in ("timestamp", "name")}, event)
    return event


def fits(expected, found, event):
    if isinstance(expected, dict):
        require(isinstance(found, dict) and found.keys() == expected.keys(), "wrong fields", event)
        for key, inner in expected.items():
            fits(inner, found[key], event)
    elif isinstance(expected, list):
        require(isinstance(found, list), "no list", event)
        for each in found:
            fits(expected[0], each, event)
    else:
        kinds = expected if isinstance(expected, tuple) else (expected,)
        require(type(found) in kinds, "wrong type", event)


def shape(event):
    """The event with types for values, to be compared with another tool's.

    Its keys are sorted: Java's keys come in the order of reflection, which depends on whether its class cache is used.
    """
    if isinstance(event, dict):
        return tuple((key, value if key == "name" else shape(value)) for key, value in sorted(event.items()))
    if isinstance(event, list):
        return ("list", *sorted({shape(each) for each in event}))
    return type(event).__name__


def told_of(tp, changes):
    """(milliseconds, member, what) of a partition, in order of time."""
    return [
        (at, index, event["name"])
        for at, _, index, _, event in sorted(changes, key=lambda change: change[:4])
        if tp in map(named, event.get("partitions", ())) or "partitions" not in event
    ]


def one_owner(*histories):
    """Check that no partition is given to a member before another gave it up. Each history has the events of one
    process.

    A member reports a revocation before it joins again, and an assignment after all members have joined. So the times
    of one clock can be compared across processes. For a killed or frozen process the test adds an event "lost".
    """
    changes = []
    for index, events in enumerate(histories):
        for place, event in enumerate(events):
            if event["name"] in ("partitions_assigned", "partitions_revoked", "shutdown_complete", "lost"):
                changes.append((event["timestamp"], event["name"] == "partitions_assigned", index, place, event))
    owners = {}
    for *_, index, _, event in sorted(changes, key=lambda change: change[:4]):
        if event["name"] in ("shutdown_complete", "lost"):
            owners = {tp: owner for tp, owner in owners.items() if owner != index}
            continue
        for tp in map(named, event["partitions"]):
            if event["name"] == "partitions_assigned":
                both = f"{tp} has two owners, {owners.setdefault(tp, index)} and {index}"
                if owners[tp] != index:
                    require(False, f"{both}; of it they told {told_of(tp, changes)}", event)
            elif owners.get(tp) == index:
                del owners[tp]


class Group:
    """Checks that `minOffset` is never below the group's commit, and that nobody commits backwards or past what was
    consumed.
    """

    def __init__(self):
        self.position = {}
        self.committed = {}

    def feed(self, event):
        if event["name"] == "records_consumed":
            for each in event["partitions"]:
                tp = named(each)
                require(self.committed.get(tp, 0) <= each["minOffset"], "behind the group's commit", event)
                self.position[tp] = each["maxOffset"] + 1
        elif event["name"] == "offsets_committed" and event["success"]:
            for each in event["offsets"]:
                tp = named(each)
                require(self.position.get(tp, 0) >= each["offset"], "ahead of the group's position", event)
                require(self.committed.get(tp, 0) <= each["offset"], "behind the group's commit", event)
                self.committed[tp] = each["offset"]


class Member:
    """Checks the states (dead, started, joined, rebalancing), the positions since the last revocation, and that commits
    stay within them.
    """

    def __init__(self, group):
        self.group = group
        self.state = "dead"
        self.assignment = set()
        self.position = {}
        self.owing = None  # offsets that were reported as consumed, and whose commit was not reported yet
        self.commits = True
        self.may_be_fenced = False  # Java then reports no commit, gives everything up and ends
        self.is_fenced = False
        self.is_overdue = False  # it reports the records that it had in hand when frozen long after others went on
        self.total_consumed = 0
        self.assigned_count = 0
        self.revoked_count = 0

    def feed(self, line):
        event = parse(line)
        require((self.state == "dead") == (event["name"] == "startup_complete"), f"while {self.state}", event)
        require(not self.is_fenced or event["name"] == "shutdown_complete", "goes on when fenced", event)
        getattr(self, "on_" + event["name"], lambda _: None)(event)
        self.is_overdue = self.is_overdue and event["name"] != "partitions_revoked"
        if not self.is_overdue:
            self.group.feed(event)
        return event

    def on_startup_complete(self, _):
        self.state = "started"

    def on_shutdown_complete(self, event):
        self.settled(event)
        self.on_killed()

    def on_killed(self):
        self.state, self.assignment, self.position, self.owing = "dead", set(), {}, None

    def on_partitions_assigned(self, event):
        self.settled(event)
        self.state = "joined"
        self.assigned_count += 1
        self.assignment = {named(each) for each in event["partitions"]}

    def on_partitions_revoked(self, event):
        self.is_fenced = self.may_be_fenced and self.owing is not None
        self.settled(event)
        require({named(each) for each in event["partitions"]} == self.assignment, "eager revokes everything", event)
        self.state, self.position = "rebalancing", {}
        self.revoked_count += 1

    def on_records_consumed(self, event):
        self.settled(event)
        require(self.state == "joined", f"records while {self.state}", event)
        require(event["count"] == sum(each["count"] for each in event["partitions"]), "counts differ", event)
        for each in event["partitions"]:
            tp = named(each)
            require(tp in self.assignment, "records of a partition that is not assigned", event)
            require(each["minOffset"] == self.position.get(tp, each["minOffset"]), "not the next offset", event)
            require(each["count"] == each["maxOffset"] - each["minOffset"] + 1, "a gap", event)
            self.position[tp] = each["maxOffset"] + 1
        self.total_consumed += event["count"]
        if self.commits:
            self.owing = {named(each): each["maxOffset"] + 1 for each in event["partitions"]}

    def on_offsets_committed(self, event):
        offsets = {named(each): each["offset"] for each in event["offsets"]}
        require(self.commits, "a commit with auto-commit", event)
        require(offsets == self.owing, "not what was consumed", event)
        self.owing = None  # so every offset belongs to an assigned partition, and is not past its position

    def settled(self, event):
        """Check the order: the commit of a batch must be reported before anything else happens to the partitions."""
        require(self.owing is None or self.is_fenced, "the commit of the last batch was not told before", event)


class IncrementalMember(Member):
    """Cooperative: an assignment adds partitions, a revocation takes some of the member's, and the others go on."""

    def on_partitions_assigned(self, event):
        self.settled(event)
        given = {named(each) for each in event["partitions"]}
        require(not given & self.assignment, "assigned what it has", event)
        self.state = "joined"
        self.assigned_count += 1
        self.assignment |= given

    def on_partitions_revoked(self, event):
        self.is_fenced = self.may_be_fenced and self.owing is not None
        self.settled(event)
        taken = {named(each) for each in event["partitions"]}
        require(taken <= self.assignment, "revoked what it does not have", event)
        self.state = "rebalancing"
        self.revoked_count += 1
        self.assignment -= taken
        self.position = {tp: offset for tp, offset in self.position.items() if tp not in taken}


def member_for(strategy, group):
    """The judge for a strategy. A list that also has an eager assignor makes a member eager: the group uses the
    protocol that all assignors support.
    """
    return (IncrementalMember if strategy == COOPERATIVE else Member)(group)
