"""Kafka's own console tools, each once, against any broker: what they print and how they end.

Their output for Kafka 4.3.1 is kept in tests/kafka/golden_tools.json; `python -m tests.support.java_tools` records it
again. Left out: addresses, ids, instants, and measured times.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "kafka" / "golden_tools.json"
LIMIT_S = 120
PACKAGE = "org.apache.kafka.tools"
TOPICS = f"{PACKAGE}.TopicCommand"
GROUPS = f"{PACKAGE}.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = f"{PACKAGE}.GetOffsetShell"
CONSUMER = f"{PACKAGE}.consumer.ConsoleConsumer"
PRODUCER = f"{PACKAGE}.ConsoleProducer"
PERFORMANCE = f"{PACKAGE}.ProducerPerformance"
VERIFIABLE_PRODUCER = f"{PACKAGE}.VerifiableProducer"
VERIFIABLE_CONSUMER = f"{PACKAGE}.VerifiableConsumer"
HIDDEN = (
    (re.compile(r"(?:127\.0\.0\.1|localhost):\d+"), "SERVERS"),
    (re.compile(r"127\.0\.0\.1"), "HOST"),
    (re.compile(r"(?<=TopicId: )[\w-]{22}"), "ID"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r'(?<="timestamp":)\d+'), "NOW"),
    (re.compile(r'(?<="avg_throughput":)[\d.E+-]+'), "MEASURED"),
    (re.compile(r'(?<="logDir":")[^"]*'), "FOLDER"),
    (re.compile(r"(?<=CreateTime:)\d+"), "NOW"),
    (re.compile(r"\d+(?:\.\d+)?(?= (?:records/sec|MB/sec|ms))"), "N"),
    (re.compile(r"(?<=\()\d+\.\d+(?= MB/sec)"), "N"),
    (re.compile(r"(?<=in )\d+ ms"), "N ms"),
    (re.compile(r"\d+(?=\s+CompleteCommit)"), "ID"),
)
MASKED = re.compile(r"(?<=:)(NOW|MEASURED)\b")
LOGGED = re.compile(r"\[?20\d\d-|\tat |\s*$|Picked up|log4j|The consumer rebalance protocol")
"""What Java or its logger say."""

TRIES = 20


def steps(mark, directory):
    """(name, tool, arguments, standard input). Every name ends with `mark`, so that runs on one cluster do not
    interfere.
    """
    topic, group = f"tools-{mark}", f"group-{mark}"
    deletions = directory / "delete.json"
    place = {"topic": topic, "partition": 0, "offset": 1}
    deletions.write_text(json.dumps({"partitions": [place], "version": 1}))
    of_topic, of_group, of_one = ("--topic", topic), ("--group", group), ("--topic", f"{topic}:1")
    on_topic = ("--entity-type", "topics", "--entity-name", topic)
    on_nodes = ("--entity-type", "brokers", "--entity-default")
    shown = [
        argument
        for name in ("key", "partition", "offset", "timestamp")
        for argument in ("--formatter-property", f"print.{name}=true")
    ]
    lines = "".join(f"key{number}:value{number}\n" for number in range(12))
    return (
        ("create", TOPICS, ("--create", *of_topic, "--partitions", "3", "--config", "retention.ms=3600000"), None),
        ("create again", TOPICS, ("--create", *of_topic), None),
        ("create with a wrong name", TOPICS, ("--create", "--topic", f"no/name-{mark}"), None),
        ("list", TOPICS, ("--list", *of_topic), None),
        ("add partitions", TOPICS, ("--alter", *of_topic, "--partitions", "4"), None),
        ("remove partitions", TOPICS, ("--alter", *of_topic, "--partitions", "2"), None),
        (
            "set",
            CONFIGS,
            ("--alter", *on_topic, "--add-config", "cleanup.policy=[compact,delete],max.message.bytes=2000"),
            None,
        ),
        ("set wrongly", CONFIGS, ("--alter", *on_topic, "--add-config", "retention.ms=never"), None),
        ("set what is not there", CONFIGS, ("--alter", *on_topic, "--add-config", "no.name=1"), None),
        ("settings", CONFIGS, ("--describe", *on_topic), None),
        ("unset", CONFIGS, ("--alter", *on_topic, "--delete-config", "max.message.bytes"), None),
        ("all settings", CONFIGS, ("--describe", "--all", *on_topic), None),
        ("set for all", CONFIGS, ("--alter", *on_nodes, "--add-config", "log.cleaner.delete.retention.ms=5"), None),
        ("settings of all", CONFIGS, ("--describe", *on_nodes), None),
        ("unset for all", CONFIGS, ("--alter", *on_nodes, "--delete-config", "log.cleaner.delete.retention.ms"), None),
        ("describe", TOPICS, ("--describe", *of_topic), None),
        (
            "produce",
            PRODUCER,
            (*of_topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
            lines,
        ),
        ("ends", OFFSETS, of_topic, None),
        (
            "consume",
            CONSUMER,
            (*of_topic, *of_group, "--from-beginning", "--max-messages", "12", "--timeout-ms", "60000", *shown),
            None,
        ),
        ("list groups", GROUPS, ("--list", "--state"), None),
        ("list all kinds of groups", f"{PACKAGE}.GroupsCommand", ("--list",), None),
        ("describe group", GROUPS, ("--describe", *of_group), None),
        ("describe state", GROUPS, ("--describe", *of_group, "--state"), None),
        ("describe members", GROUPS, ("--describe", *of_group, "--members"), None),
        ("describe no group", GROUPS, ("--describe", "--group", f"none-{mark}"), None),
        ("look back", GROUPS, ("--reset-offsets", *of_group, *of_topic, "--to-earliest", "--dry-run"), None),
        (
            "go back",
            GROUPS,
            ("--reset-offsets", *of_group, *of_one, "--shift-by", "-1", "--execute"),
            None,
        ),
        (
            "go to a time",
            GROUPS,
            ("--reset-offsets", *of_group, *of_topic, "--to-datetime", "2020-01-01T00:00:00.000", "--execute"),
            None,
        ),
        ("delete offsets", GROUPS, ("--delete-offsets", *of_group, "--topic", f"{topic}:2"), None),
        ("describe what is left", GROUPS, ("--describe", *of_group), None),
        ("delete group", GROUPS, ("--delete", *of_group), None),
        ("delete group again", GROUPS, ("--delete", *of_group), None),
        ("delete records", f"{PACKAGE}.DeleteRecordsCommand", ("--offset-json-file", str(deletions)), None),
        ("begins", OFFSETS, (*of_topic, "--time", "earliest"), None),
        (
            "elect",
            f"{PACKAGE}.LeaderElectionCommand",
            ("--election-type", "preferred", *of_topic, "--partition", "0"),
            None,
        ),
        ("sizes", f"{PACKAGE}.LogDirsCommand", ("--describe", "--topic-list", topic), None),
        ("create another", TOPICS, ("--create", "--topic", f"verified-{mark}"), None),
        (
            "verifiable producer",
            VERIFIABLE_PRODUCER,
            ("--topic", f"verified-{mark}", "--max-messages", "5"),
            None,
        ),
        (
            "verifiable consumer",
            VERIFIABLE_CONSUMER,
            ("--topic", f"verified-{mark}", "--group-id", f"verified-{mark}", "--max-messages", "5"),
            None,
        ),
        (
            "measure",
            PERFORMANCE,
            ("--topic", f"verified-{mark}", "--num-records", "500", "--record-size", "100", "--throughput", "-1"),
            None,
        ),
        (
            "measure in transactions",
            PERFORMANCE,
            (
                *(
                    "--topic",
                    f"verified-{mark}",
                    "--num-records",
                    "500",
                    "--record-size",
                    "100",
                    "--throughput",
                    "2000",
                ),
                *("--transactional-id", f"measured-{mark}", "--transaction-duration-ms", "50"),
            ),
            None,
        ),
        (
            "consume what is committed",
            CONSUMER,
            (
                *("--topic", f"verified-{mark}", "--from-beginning", "--isolation-level", "read_committed"),
                *("--max-messages", "1005", "--timeout-ms", "60000", "--formatter-property", "print.value=false"),
            ),
            None,
        ),
        ("list transactions", f"{PACKAGE}.TransactionsCommand", ("list",), None),
        ("delete", TOPICS, ("--delete", *of_topic), None),
        ("describe what is gone", TOPICS, ("--describe", *of_topic), None),
        ("api versions", f"{PACKAGE}.BrokerApiVersionsCommand", (), None),
    )


def run(jvm, cluster, tool, arguments, given=None):
    """(exit code, lines of standard output and, with a mark, of standard error)."""
    everything = ("--bootstrap-server", cluster.bootstrap_servers, *arguments)
    if tool in (VERIFIABLE_PRODUCER, VERIFIABLE_CONSUMER):
        code, output, errors = in_a_jvm_of_its_own(cluster, tool, everything)
    else:
        code, output, errors = jvm.run(tool, everything, given)
    return code, [*output.splitlines(), *(f"! {line}" for line in errors.splitlines())]


def in_a_jvm_of_its_own(cluster, tool, arguments):
    process = cluster.java(tool, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, errors = process.communicate(timeout=LIMIT_S)
    return process.returncode, output, errors


def printed(lines, mark):
    """The lines without what differs from run to run. They are sorted, because parallel answers come in any order."""
    found = []
    for line in lines:
        told = line
        for pattern, shown in HIDDEN:
            told = pattern.sub(shown, told)
        if told.startswith('{"brokers"'):
            found += sizes_in(told)
        elif not LOGGED.match(told.removeprefix("! ")):
            found.append(told)
    return sorted(with_sorted_keys(" ".join(line.replace(f"-{mark}", "").split())) for line in found)


def with_sorted_keys(line):
    """Sort the keys of JSON objects: their order depends on how this JVM lists the methods of a class."""
    if not line.startswith("{"):
        return line
    return json.dumps(json.loads(MASKED.sub(r'"\1"', line)), sort_keys=True, separators=(",", ":"))


def sizes_in(line):
    """Replace the sizes of partitions, which depend on how Java divides records into batches."""
    for node in json.loads(line)["brokers"]:
        for folder in node["logDirs"]:
            for each in folder["partitions"]:
                yield f"{node['broker']} {folder['logDir']} {each['partition']} {each['size'] > 0} {each['offsetLag']}"


def run_all(jvm, cluster, mark, directory, tell=lambda _line: None):
    """The output of each tool, by the name of its step."""
    found = {}
    for name, tool, arguments, given in steps(mark, directory):
        code, lines = run(jvm, cluster, tool, arguments, given)
        for _ in range(TRIES if name == "settings of all" else 0):  # the node learns of the change a moment later
            if any("log.cleaner.delete.retention.ms" in line for line in lines):
                break
            code, lines = run(jvm, cluster, tool, arguments, given)
        if name.startswith("list"):
            lines = [line for line in lines if mark in line]
        elif name == "measure":
            lines = [line for line in lines if "99.9th" in line]  # on a busy machine it prints its progress, too
        found[name] = [code, *printed(lines, mark)]
        tell(f"{name}: {found[name]}")
    return found


def golden():
    """The recorded output of the tools for Kafka."""
    return json.loads(GOLDEN.read_text())


def record():
    """Record the tools' output for Kafka again."""
    from aiogroup.devkafka import Cluster
    from tests.support.one_jvm import one_jvm

    with Cluster() as cluster, one_jvm() as jvm:
        found = run_all(
            jvm, cluster, f"{time.time_ns():x}", cluster.directory, lambda line: sys.stderr.write(line + "\n")
        )
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    record()
