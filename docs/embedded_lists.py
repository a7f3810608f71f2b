"""`python docs/embedded_lists.py` writes the lists of docs/embedded.md: what the embedded broker serves and refuses,
and which settings it knows. They are made from its code.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
if not __package__:
    sys.path.insert(0, str(ROOT))

from aiogroup.embedded.machine.refusals import REFUSALS  # noqa: E402 (the clone need not be installed)
from aiogroup.embedded.machine.settings import BROKER, TOPIC, WITHOUT_EFFECT  # noqa: E402
from aiogroup.embedded.messages.ranges import LATER, RANGES, REFUSED_PRODUCE  # noqa: E402

PAGE = Path(__file__).with_name("embedded.md")

NOT_SERVED = {
    "SASL": {17: "SaslHandshake", 36: "SaslAuthenticate"},
    "markers between brokers": {27: "WriteTxnMarkers"},
    "access control": {29: "DescribeAcls", 30: "CreateAcls", 31: "DeleteAcls"},
    "delegation tokens": {
        38: "CreateDelegationToken",
        39: "RenewDelegationToken",
        40: "ExpireDelegationToken",
        41: "DescribeDelegationToken",
    },
    "moves of replicas": {34: "AlterReplicaLogDirs", 45: "AlterPartitionReassignments"},
    "quotas and SCRAM's credentials": {
        48: "DescribeClientQuotas",
        49: "AlterClientQuotas",
        50: "DescribeUserScramCredentials",
        51: "AlterUserScramCredentials",
    },
    "the controllers' quorum, and features": {
        55: "DescribeQuorum",
        57: "UpdateFeatures",
        64: "UnregisterBroker",
        80: "AddRaftVoter",
        81: "RemoveRaftVoter",
    },
    "share groups": {
        76: "ShareGroupHeartbeat",
        77: "ShareGroupDescribe",
        78: "ShareFetch",
        79: "ShareAcknowledge",
        83: "InitializeShareGroupState",
        84: "ReadShareGroupState",
        85: "WriteShareGroupState",
        86: "DeleteShareGroupState",
        87: "ReadShareGroupStateSummary",
        90: "DescribeShareGroupOffsets",
        91: "AlterShareGroupOffsets",
        92: "DeleteShareGroupOffsets",
    },
    "Streams groups": {88: "StreamsGroupHeartbeat", 89: "StreamsGroupDescribe"},
}
"""What a broker of Kafka 4.3.1 offers and the embedded broker does not, by subject and API key."""


def served() -> str:
    """The requests, by API key, with lowest and highest version."""
    lines = ["| request | key | versions |", "|---|---|---|"]
    for request, (lowest, highest) in sorted(RANGES.items(), key=lambda each: each[0].API_KEY):
        versions = f"{lowest} to {highest}" if lowest != highest else f"{lowest}"
        if request.api_name() == "Produce":
            versions += f"; 0 to {REFUSED_PRODUCE} are offered and break the connection, as in Kafka"
        lines.append(f"| {request.api_name()} | {request.API_KEY} | {versions} |")
    return "\n".join(lines)


def not_served() -> str:
    """The requests that Kafka offers beside those."""
    lines = ["| subject | requests (key) |", "|---|---|"]
    if LATER:
        later = sorted((request.API_KEY, request.api_name()) for request in LATER)
        lines.append(f"| not yet | {', '.join(f'{name} ({key})' for key, name in later)} |")
    for subject, requests in NOT_SERVED.items():
        lines.append(f"| {subject} | {', '.join(f'{name} ({key})' for key, name in requests.items())} |")
    return "\n".join(lines)


def refusals() -> str:
    """What is kept in `troubles`, by name."""
    lines = ["| name | the client sees | what helps |", "|---|---|---|"]
    lines += [f"| `{each.name}` | {each.seen} | {each.helps} |" for each in REFUSALS.values()]
    return "\n".join(lines)


def settings() -> str:
    """The names that `Broker(properties=...)` takes, and those that a topic has of its own."""
    own = sorted(name for name, (_, default) in TOPIC.items() if default is None and name not in WITHOUT_EFFECT)
    taken = sorted(name for name in BROKER if not any(name == TOPIC[each][1] for each in WITHOUT_EFFECT))
    by_reason: dict[str, list[str]] = {}
    for name, why in WITHOUT_EFFECT.items():
        by_reason.setdefault(why, []).append(name)
    reasons = "\n".join(f"- {_listed(names)}: {why}." for why, names in by_reason.items())
    return (
        f"`Broker(properties=...)` knows {_listed(taken)}.\n\n"
        f"Only a topic has {_listed(own)}: `create_topic(name, cleanup_policy=...)` or CreateTopics.\n\n"
        f"A topic also accepts these, as on any broker; they are reported, and have no effect:\n\n{reasons}"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


LISTS = {"served": served, "not served": not_served, "refusals": refusals, "settings": settings}


def filled(page: str) -> str:
    """The page with its lists made anew; each stands between two comments that name it."""
    for name, make in LISTS.items():
        begin, end = f"<!-- {name}: made by docs/embedded_lists.py -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(f"{begin}\n")
        _, is_whole, after = rest.partition(end)
        if not is_whole:
            raise SystemExit(f"{PAGE.name} has no place for the list {name!r}")
        page = f"{before}{begin}\n{make()}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
