"""`python -m aiogroup.devkafka up | down | fetch`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys

from aiogroup._command.broker import add_topics, end_at_signals, ended, port, say, say_topics, tell, topics_of
from aiogroup.devkafka import up, warm
from aiogroup.devkafka.cluster import Cluster
from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.devkafka.jars import KAFKA_VERSION, jars, java, spark_jars

USERS = {"alice": "alice-secret"}
PROG = "python -m aiogroup.devkafka"


def make_parser(prog: str = PROG) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=f"Apache Kafka {KAFKA_VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start Kafka and keep it until interrupted")
    start.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="how many: 1")
    start.add_argument("--port", type=port, default=0, metavar="N", help="of the first node; a free one without it")
    add_topics(start)
    start.add_argument(
        "--security",
        default="PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"),
        help="the security protocol at that port",
    )
    commands.add_parser("down", help="end everything this user started with up, from other clones too")
    commands.add_parser("fetch", help="download the jars, and make starts quicker")
    return parser


def _up(given: argparse.Namespace) -> int:
    end_at_signals()
    say(f"starting Kafka {KAFKA_VERSION}, {given.nodes} node(s) ...")
    topics = topics_of(given)
    try:
        with Cluster(given.nodes, port=given.port, security=given.security, users=USERS) as cluster:
            servers = cluster.bootstrap(given.security)
            entry = up.record(servers)
            try:
                for topic, partitions in topics:
                    cluster.create_topic(topic, partitions, replication_factor=given.nodes)
                say_topics(topics)
                say(f"bootstrap servers: {servers}")
                if given.security != "PLAINTEXT":
                    _say_security(cluster, given.security, servers)
                say("Ctrl-C ends it and removes its data; `python -m aiogroup.devkafka down` ends every `up` of yours")
                signal.pause()
            finally:
                entry.path.unlink(missing_ok=True)
    except KeyboardInterrupt as interrupt:
        return ended(interrupt)
    return 0


def _say_security(cluster: Cluster, protocol: str, servers: str) -> None:
    """Print what a client needs to connect there, also as the environment variables of aiogroup's own commands."""
    properties = {"bootstrap.servers": servers, "security.protocol": protocol}
    if protocol.endswith("SSL"):
        say(f"authority to trust: {cluster.ca_pem}")
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(cluster.ca_pem)}
    if protocol.startswith("SASL"):
        ((user, password),) = USERS.items()
        say(f"user {user}, password {password} (PLAIN, SCRAM); any unsecured JWS (OAUTHBEARER)")
        properties |= {"sasl.mechanism": "PLAIN", "sasl.plain.username": user, "sasl.plain.password": password}
    variables = (f"AIOGROUP_{key.upper().replace('.', '_')}={shlex.quote(text)}" for key, text in properties.items())
    say(f"with this aiogroup's commands find it:\n  export {' '.join(variables)}")
    say(f"without security: {cluster.bootstrap_servers}")


def _down() -> None:
    entries = up.running()
    for entry in entries:
        up.end(entry)
        say(f"ended {entry.bootstrap_servers}")
    if not entries:
        say("nothing to end: no `up` of this user runs")


def _fetch() -> None:
    say(f"Kafka {KAFKA_VERSION}: {len(jars())} jars ready, Java {java()}")
    try:
        say(f"Spark's Kafka connector: {len(spark_jars())} jars ready")
    except DevKafkaError as error:
        say(f"Spark will not be tested: {error}")
    try:
        warm.train()
    except DevKafkaError as error:
        say(f"nodes will start slower, without an ahead-of-time cache: {error}")


def main(arguments: list[str] | None = None, prog: str = PROG) -> int:
    """The exit code."""
    given = make_parser(prog).parse_args(arguments)
    try:
        if given.command == "up":
            return _up(given)
        if given.command == "down":
            _down()
        else:
            _fetch()
    except DevKafkaError as error:
        tell(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
