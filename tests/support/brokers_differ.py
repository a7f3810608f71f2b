"""The tests of tests/kafka that `make test` runs on real Kafka, with the reason: only there, or there too.

Each is named by its file, its function, or with its parameters.
"""

from __future__ import annotations

ONLY_REAL = {
    "test_devkafka.py": "tests what starts Kafka",
    "test_examples.py::test_the_demo_loses_nothing[kafka]": "starts Kafka itself",
    "test_examples.py::test_the_demo_ends_what_it_started_when_interrupted[kafka]": "starts Kafka itself",
    "test_testing_page.py::test_one_test_runs_on_both": "starts Kafka beside the embedded broker",
    "test_installed.py": "tests what starts Kafka, from an installed package",
    "test_cli_later_protocol.py": "KIP-848, which the embedded broker does not speak",
    "test_coordinator_conformance.py": "compares the embedded broker with Kafka",
    "test_embedded_conformance_admin.py": "compares the embedded broker with Kafka",
    "test_embedded_conformance_logs.py": "compares the embedded broker with Kafka",
    "test_embedded_conformance_reading.py": "compares the embedded broker with Kafka",
    "test_embedded_conformance_transactions.py": "compares the embedded broker with Kafka",
    "test_security.py": "TLS, SASL and accounts, which the embedded broker has not",
    "test_how_to.py::test_sasl_ssl": "TLS, SASL and accounts, which the embedded broker has not",
    "test_members_command.py::test_the_command_takes_the_properties_of_kafkas_tools": "TLS, SASL and accounts",
    "test_spark_drain.py": "Spark reads with Kafka's Java client",
    "test_spark_errors.py": "Spark reads with Kafka's Java client",
    "test_spark_example.py": "Spark reads with Kafka's Java client",
    "test_spark_killed.py": "Spark reads with Kafka's Java client",
    "test_spark_standing.py": "Spark reads with Kafka's Java client",
}
"""What cannot run elsewhere. `make test` runs it on real Kafka."""

JUDGED: dict[str, str] = {
    "test_aiokafka_members.py": "a group whose members are of two kinds",
    "test_cli_beside_kafka.py": "Kafka's own tool beside ours",
    "test_metrics_beside_kafka.py": "Kafka's own tool beside the figures",
    "test_group_assignors.py": "Java's assignors beside ours",
    "test_java_members.py::test_java_and_we_share_a_group[dynamic-cooperative-sticky]": "members of two kinds",
    "test_java_members.py::test_java_and_we_share_a_group[static-range]": "members of two kinds",
    "test_java_members.py::test_members_are_frozen_and_killed": "members of two kinds, whose sessions end",
    "test_recovery_truncation.py": "replicas that lose records",
    "test_service_rolling.py": "what five processes say while one after the other is restarted",
    "test_service_states.py": "what a service says while real nodes stop, stand still, and take long",
    "test_truncation.py": "replicas that lose records",
    "test_verifiable.py::test_a_frozen_member_gives_way_and_comes_back": "a session that ends",
    "test_verifiable.py::test_in_one_group_with_javas": "Java's contract of a consumer",
    "test_verifiable.py::test_the_producers_lines_have_the_shapes_of_javas": "Java's contract of a producer",
}
"""What runs on both, and in `make test` on real Kafka, too: it judges the embedded broker as well as the consumer. One
witness of each behaviour is enough; `make test-kafka` runs all on real Kafka."""
