"""`python -m aiogroup.devkafka up | down | fetch`."""

from __future__ import annotations

import argparse
import signal
import sys

from aiogroup.devkafka import up, warm
from aiogroup.devkafka.cluster import Cluster
from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.devkafka.jars import KAFKA_VERSION, jars, java, spark_jars


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 (a command line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m aiogroup.devkafka", description=f"Apache Kafka {KAFKA_VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start Kafka and keep it until interrupted")
    start.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    start.add_argument("--port", type=int, default=0, help="of the first node; 0 draws a free one")
    start.add_argument("--security", default="PLAINTEXT", choices=("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"))
    start.add_argument("--topic", action="append", default=[], help="make this topic of 4 partitions")
    commands.add_parser("down", help="end everything this user started with up, from other clones too")
    commands.add_parser("fetch", help="download the jars, and make starts quicker")
    return parser


def _up(nodes: int, port: int, security: str, topics: list[str]) -> None:
    ending = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, _frame: object) -> None:
        # The first signal is enough: a second one must not interrupt the cleanup.
        for each in ending:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt(number)

    for number in ending:
        signal.signal(number, interrupt)
    _say(f"starting Kafka {KAFKA_VERSION}, {nodes} node(s) ...")
    users = {"alice": "alice-secret"}
    try:
        with Cluster(nodes, port=port, security=security, users=users) as cluster:
            servers = cluster.bootstrap(security)
            entry = up.record(servers)
            try:
                for topic in topics:
                    cluster.create_topic(topic, 4, replication_factor=nodes)
                    _say(f"topic {topic}: 4 partitions")
                _say(f"bootstrap servers: {servers}")
                if security != "PLAINTEXT":
                    _say(f"{security}: trust {cluster.ca_pem}; without it: PLAINTEXT at {cluster.bootstrap_servers}")
                    _say("user alice, password alice-secret (PLAIN, SCRAM); any unsecured JWS (OAUTHBEARER)")
                _say("Ctrl-C ends it and removes its data; `python -m aiogroup.devkafka down` ends every `up` of yours")
                signal.pause()
            finally:
                entry.path.unlink(missing_ok=True)
    except KeyboardInterrupt:
        _say("ended")


def _down() -> None:
    entries = up.running()
    for entry in entries:
        up.end(entry)
        _say(f"ended {entry.bootstrap_servers}")
    if not entries:
        _say("nothing to end: no `up` of this user runs")


def _fetch() -> None:
    _say(f"Kafka {KAFKA_VERSION}: {len(jars())} jars ready, Java {java()}")
    try:
        _say(f"Spark's Kafka connector: {len(spark_jars())} jars ready")
    except DevKafkaError as error:
        _say(f"Spark will not be tested: {error}")
    try:
        warm.train()
    except DevKafkaError as error:
        _say(f"nodes will start slower, without an ahead-of-time cache: {error}")


def main(arguments: list[str] | None = None) -> int:
    """The exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "up":
            _up(options.nodes, options.port, options.security, options.topic)
        elif options.command == "down":
            _down()
        else:
            _fetch()
    except DevKafkaError as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
