"""`python -m aiogroup.embedded`: the embedded broker in a process of its own, for demos, and for tests elsewhere."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from threading import Event

from aiogroup.embedded.broker import Broker
from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.machine.static.draft import StaticMembership

FIRST_LINE = "The embedded broker of aiogroup: for tests and demos, not for production, and it is not Kafka."
PARTITIONS = 4
MOST = 1_000
LOOK_S = 0.2


def _say(text: str) -> None:
    """Print it. Where nobody reads any more, as after `head`, the broker serves on without a word."""
    try:
        print(text, flush=True)  # noqa: T201 (a command line)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for what Python would write once more at the end
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 1 to {MOST}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m aiogroup.embedded",
        description=f"{FIRST_LINE} All of it is in memory, on 127.0.0.1 alone, and gone when it ends.",
    )
    parser.add_argument("--port", type=_port, default=0, help="of the first node; a free one is drawn if none is given")
    parser.add_argument("--nodes", type=_count, default=1, help="how many; each has a port of its own (1)")
    parser.add_argument("--topic", action="append", default=[], help="make this topic; may be repeated")
    parser.add_argument(
        "--partitions", type=_count, default=PARTITIONS, help=f"of each topic that is made ({PARTITIONS})"
    )
    parser.add_argument(
        "--draft",
        action="store_true",
        help="static membership as draft 41 of KIP-345 has it, not as Kafka has released it",
    )
    return parser


def _interrupt(number: int, _frame: object) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):  # a second one must not interrupt the end
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


def _serve(broker: Broker, topics: list[str], partitions: int) -> None:
    """Serve until a signal comes, and print meanwhile what clients asked for that it does not serve."""
    for topic in topics:
        broker.create_topic(topic, partitions)
        _say(f"topic {topic}: {partitions} partitions")
    _say(f"bootstrap servers: {broker.bootstrap_servers}")
    _say("Ctrl-C ends it.")
    told_count = 0
    never = Event()
    while not never.wait(LOOK_S):
        for trouble in broker.troubles[told_count:]:
            told_count += 1
            _say(str(trouble))


def main(arguments: list[str] | None = None) -> int:
    """The exit code."""
    options = _parser().parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        _say(FIRST_LINE)
        form: StaticMembership = "draft" if options.draft else "kafka"
        with Broker(options.nodes, port=options.port, static_membership=form) as broker:
            if options.draft:
                _say("static membership: draft 41 of KIP-345")
            _serve(broker, options.topic, options.partitions)
    except BrokerRefusal as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _say("ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
