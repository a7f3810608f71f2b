"""`python -m aiogroup.embedded`: the embedded broker in a process of its own, for demos, and for tests elsewhere."""

from __future__ import annotations

import argparse
import sys
from threading import Event

from aiogroup._command.broker import add_topics, count, end_at_signals, ended, port, say, say_topics, tell, topics_of
from aiogroup.embedded.broker import Broker
from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.machine.static.draft import StaticMembership

FIRST_LINE = "The embedded broker of aiogroup: for tests and demos, not for production, and it is not Kafka."
LOOK_S = 0.2
PROG = "python -m aiogroup.embedded"


def make_parser(prog: str = PROG) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description=f"{FIRST_LINE} All of it is in memory, on 127.0.0.1 alone, and gone when it ends.",
    )
    parser.add_argument("--nodes", type=count, default=1, metavar="N", help="how many; each has a port of its own: 1")
    parser.add_argument("--port", type=port, default=0, metavar="N", help="of the first node; a free one without it")
    add_topics(parser)
    parser.add_argument(
        "--draft",
        action="store_true",
        help="static membership as draft 41 of KIP-345 has it, not as Kafka has released it",
    )
    return parser


def _serve(broker: Broker, topics: list[tuple[str, int]]) -> None:
    """Serve until a signal comes. Print requests that the broker does not serve."""
    for topic, partitions in topics:
        broker.create_topic(topic, partitions)
    say_topics(topics)
    say(f"bootstrap servers: {broker.bootstrap_servers}")
    say("Ctrl-C ends it.")
    told_count = 0
    never = Event()
    while not never.wait(LOOK_S):
        for trouble in broker.troubles[told_count:]:
            told_count += 1
            say(str(trouble))


def main(arguments: list[str] | None = None, prog: str = PROG) -> int:
    """The exit code."""
    given = make_parser(prog).parse_args(arguments)
    end_at_signals()
    try:
        say(FIRST_LINE)
        form: StaticMembership = "draft" if given.draft else "kafka"
        with Broker(given.nodes, port=given.port, static_membership=form) as broker:
            if given.draft:
                say("static membership: draft 41 of KIP-345")
            _serve(broker, topics_of(given))
    except BrokerRefusal as error:
        tell(str(error))
        return 1
    except KeyboardInterrupt as interrupt:
        return ended(interrupt)
    return 0


if __name__ == "__main__":
    sys.exit(main())
