"""Differences between the embedded broker and real Kafka: tests in tests/kafka that `make test` does not run on the
embedded broker (but on real Kafka, or not at all), and the versions that the embedded broker does not offer.

A test is listed by its file, its function, or its function with parameters.
"""

from __future__ import annotations

HIGHER_VERSIONS = {"AddPartitionsToTxn": 5, "EndTxn": 5, "TxnOffsetCommit": 5, "ListTransactions": 2}
"""Kafka's highest versions of APIs for which the embedded broker offers only lower ones: it serves the first protocol
of transactions, and ListTransactions without a filter by regular expression.
"""

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
    "test_public_reports.py::test_a_member_of_the_later_protocol_comes_and_goes": "KIP-848",
    "test_message_tables.py": "reads the schemas in Kafka's jars",
    "test_kerberos.py": "SASL, which the embedded broker has not",
    "test_reauthentication.py": "SASL, which the embedded broker has not",
    "test_security.py": "TLS, SASL and accounts, which the embedded broker has not",
    "test_how_to.py::test_sasl_ssl": "TLS, SASL and accounts, which the embedded broker has not",
    "test_members_command.py::test_the_command_takes_the_properties_of_kafkas_tools": "TLS, SASL and accounts",
    "test_spark_drain.py": "Spark reads with Kafka's Java client",
    "test_spark_errors.py": "Spark reads with Kafka's Java client",
    "test_spark_example.py": "Spark reads with Kafka's Java client",
    "test_spark_killed.py": "Spark reads with Kafka's Java client",
    "test_spark_standing.py": "Spark reads with Kafka's Java client",
}
"""Tests that run only on real Kafka. `make test` runs them there."""

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
"""Tests that run on both brokers, and that `make test` runs on real Kafka too: they judge the embedded broker as well
as the consumer. One such test for each behaviour is enough; `make test-kafka` runs all tests on real Kafka.
"""

THOROUGH = {
    "test_fetching_records.py::test_a_slow_consumer_over_a_long_backlog_stays_within_its_bound": "test_bound.py",
    "test_foreign_clients.py::test_java_and_the_others_read_each_other[@java_tools-gzip]": "[@java_tools-zstd]",
    "test_foreign_clients.py::test_java_and_the_others_read_each_other[@java_tools-lz4]": "[@java_tools-zstd]",
    "test_foreign_clients.py::test_java_and_the_others_read_each_other[@java_tools-snappy]": "[@java_tools-zstd]",
    "test_installed.py::test_fetch_makes_ready_what_up_starts": "test_fetch_finds_ready_what_is_there",
    "test_java_members.py::test_a_rolling_change_from_java_to_ours_and_back": "test_members_are_frozen_and_killed",
    "test_java_members.py::test_java_and_we_share_a_group[dynamic-default]": "[dynamic-cooperative-sticky]",
    "test_java_members.py::test_java_and_we_share_a_group[dynamic-range]": "[static-range]",
    "test_java_members.py::test_java_and_we_share_a_group[dynamic-roundrobin]": "[dynamic-cooperative-sticky]",
    "test_java_members.py::test_java_and_we_share_a_group[dynamic-sticky]": "[dynamic-cooperative-sticky]",
    "test_java_members.py::test_java_and_we_share_a_group[static-cooperative-sticky]": "[dynamic-cooperative-sticky]",
    "test_java_members.py::test_java_and_we_share_a_group[static-default]": "[static-range]",
    "test_java_members.py::test_java_and_we_share_a_group[static-roundrobin]": "[static-range]",
    "test_java_members.py::test_java_and_we_share_a_group[static-sticky]": "[static-range]",
    "test_spark_drain.py::test_a_compacted_topic": "test_ranges_are_read_exactly",
    "test_spark_drain.py::test_two_drivers_share_the_partitions": "tests/recovery/test_nothing_is_skipped.py",
    "test_spark_errors.py::test_a_function_that_raises_is_one_line": "test_spark_drain.py",
    "test_spark_errors.py::test_a_session_without_the_connector": "test_what_the_command_cannot_do_is_one_line",
    "test_spark_errors.py::test_executors_need_nothing_but_the_connector": "test_spark_drain.py",
    "test_spark_event_log.py::test_a_topic_of_lines_is_read": "test_what_a_consumer_wrote_is_what_the_analysis_reads",
    "test_spark_example.py": "test_spark_drain.py",
    "test_spark_killed.py::test_a_driver_frozen_past_its_session_commits_nothing": "[half-written]",
    "test_spark_liveness.py::test_a_rerun_replaces_its_days_and_leaves_the_others_alone": "tests/spark",
    "test_spark_tune_timeouts.py": "tests/spark/test_liveness_advice.py",
    "test_system_scenarios.py::test_a_broker_fails[clean]": "[killed]",
    "test_system_scenarios.py::test_conflicting_names[all-2]": "[all-1]",
    "test_system_scenarios.py::test_conflicting_names[stable-1]": "[stable-2]",
    "test_system_scenarios.py::test_consumers_bounce[dynamic but one-all]": "[static but one-all]",
    "test_system_scenarios.py::test_consumers_bounce[dynamic but one-rolling]": "[dynamic-rolling]",
    "test_system_scenarios.py::test_consumers_bounce[dynamic-all]": "[dynamic-rolling]",
    "test_system_scenarios.py::test_consumers_bounce[static but one-rolling]": "[dynamic-rolling]",
}
"""Tests that take long, each with a shorter test of the same behaviour; they get the marker `thorough`. `make test`
leaves them out, `make test-kafka` runs them on real Kafka, and `make test test-kafka` on both brokers. Some parameters
have the marker where they are listed.
"""
