"""Other projects' own tests of their clients, on the embedded broker or on Kafka.

`python -m tests.support.foreign_suites aiokafka CHECKOUT [--broker real] [what pytest takes]`, and the same with
`confluent` for confluent-kafka-python. CHECKOUT is a clone of the client's repository at the version that is installed.
aiokafka's suite also needs async-timeout, the other one what `confluent-kafka[avro,json,rules]` installs.
docs/embedded.md says which tests pass on which broker.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PROPERTIES = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "6000",  # Kafka's default
}
NAMES = ("collect_garbage", "kafka_server", "loop", "setup_test_class", "setup_test_class_serverless")
BROKER, PARTITIONS = "SUITE_BROKER", "SUITE_PARTITIONS"
SUITES = {
    # Without TLS, SASL and ACLs; the other files need no broker.
    "aiokafka": (
        *(
            f"tests/test_{name}.py"
            for name in ("admin", "client", "conn", "consumer", "coordinator", "pep492", "producer")
        ),
        *("tests/test_sender.py", "tests/test_transactional_consumer.py", "tests/test_transactional_producer.py"),
        *("-m", "not ssl"),
    ),
    # Without the schema registry, share consumers, SCRAM and SASL.
    "confluent": (
        *(f"tests/integration/{name}" for name in ("admin", "producer", "consumer", "serialization")),
        *("--deselect", "tests/integration/admin/test_user_scram_credentials.py"),
        *("--deselect", "tests/integration/admin/test_describe_operations.py"),
    ),
}
CONFTEST = f"from foreign_suites import {', '.join(NAMES)}  # in place of a container\n"
TRIVUP = "class KafkaCluster:\n    pass  # never made: BROKERS names the cluster\n"


def cluster():
    """The broker of this run, not started yet."""
    properties = {**PROPERTIES, "num.partitions": os.environ[PARTITIONS]}
    if os.environ[BROKER] == "real":
        from aiogroup.devkafka import Cluster

        return Cluster(properties=properties)
    from aiogroup.embedded import Broker

    return Broker(properties=properties)


# This file as a plug-in of pytest, in the folder of the suite.


def pytest_sessionstart(session):
    if os.environ.get(BROKER):
        session.config.stash[_CLUSTER] = made = cluster()
        made.__enter__()
        os.environ["BROKERS"] = made.bootstrap_servers


def pytest_sessionfinish(session):
    made = session.config.stash.get(_CLUSTER, None)
    if made is not None:
        made.__exit__(None, None, None)


def pytest_terminal_summary(terminalreporter, config):
    for each in dict.fromkeys(map(str, getattr(config.stash.get(_CLUSTER, None), "troubles", ()))):
        terminalreporter.write_line(f"trouble: {each}")


_CLUSTER = pytest.StashKey()


@pytest.fixture(scope="session")
def kafka_server():
    return os.environ["BROKERS"].split(",")[0]


@pytest.fixture(scope="class")
def loop():
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    made.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def collect_garbage():
    yield
    gc.collect()


@pytest.fixture(scope="class")
def setup_test_class_serverless(request, loop):
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request, loop, kafka_server):
    host, port = kafka_server.split(":")
    request.cls.loop, request.cls.hosts, request.cls.kafka_version = loop, [kafka_server], "4.3.1"
    request.cls.kafka_host, request.cls.kafka_port = host, int(port)


# This file as a command.


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.support.foreign_suites")
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--broker", choices=("embedded", "real"), default="embedded")
    options, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(options.checkout / "tests", Path(folder, "tests"))
        if options.suite == "aiokafka":
            Path(folder, "tests/conftest.py").write_text(CONFTEST)
        trivup = Path(folder, "trivup/clusters")
        trivup.mkdir(parents=True)
        trivup.joinpath("KafkaCluster.py").write_text(TRIVUP)
        Path(folder, "pytest.ini").write_text(
            "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nmarkers = ssl: needs TLS\n"
        )
        here = Path(__file__).parent
        environment = {
            **os.environ,
            BROKER: options.broker,
            PARTITIONS: "2" if options.suite == "aiokafka" else "1",
            "PYTHONPATH": os.pathsep.join((folder, str(here), str(here.parents[1]))),
        }
        command = (sys.executable, "-P", "-m", "pytest", "-p", "foreign_suites", "-p", "no:randomly")
        return subprocess.run(
            [*command, *SUITES[options.suite], *more], cwd=folder, env=environment, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
