"""The arguments of `aiogroup`, and the name it is installed under."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import re
import tomllib
from pathlib import Path

import pytest

import aiogroup
from aiogroup.__main__ import main
from aiogroup._command.properties import load_properties
from aiogroup.cli.arguments import count_of, duration_ms, instant_ms, partitions, positive
from aiogroup.cli.commands.events import add as add_events
from aiogroup.cli.connecting import settings_of
from aiogroup.cli.parser import make_parser
from aiogroup.errors import ConfigError

WHERE = ["--bootstrap-server", "127.0.0.1:1"]
GROUP = [*WHERE, "--group", "billing"]
COMMANDS = [
    *(["groups"], ["describe"], ["lag"], ["ranges"], ["tail"], ["reset"], ["events"]),
    *(["members"], ["members", "list"], ["members", "remove"]),
]
BAD = [
    ["members"],
    ["members", "add", *GROUP],
    ["members", "remove", *GROUP],
    ["members", "remove", "one", *GROUP, "--group", "audit"],
    ["members", "list"],
    ["nothing"],
    ["groups"],
    ["groups", "--bootstrap-server", "127.0.0.1:99999"],
    ["groups", "--bootstrap-server", ","],
    ["groups", "--bootstrap-server", "me:secret@host:9092"],
    ["groups", *WHERE, "--state", "Sleepy"],
    ["groups", *WHERE, "--timeout-ms", "0"],
    ["groups", *WHERE, "-o", "yaml"],
    ["describe", *WHERE],
    ["describe", "billing", "--group", "billing", *WHERE],
    ["describe", "--group", "billing", "--group", "audit", *WHERE],
    ["tail", "--topic", "orders", "--topic", "bills", *WHERE],
    ["reset", "billing", *WHERE, "--from-file", "/nowhere/offsets.csv"],
    ["lag", "billing", *WHERE, "--max-lag", "-1"],
    ["lag", "billing", *WHERE, "--interval-ms", "soon"],
    ["tail", *WHERE],
    ["tail", "no/name", *WHERE],
    ["tail", "orders", *WHERE, "--from", "yesterday"],
    ["tail", "orders", *WHERE, "--from", "@yesterday"],
    ["tail", "orders", *WHERE, "-n", "0"],
    ["tail", "orders", *WHERE, "-p", "a"],
    ["reset", "billing", *WHERE, "--topic", "orders"],
    ["reset", "billing", *WHERE, "--to-earliest"],
    ["reset", "billing", *WHERE, "--topic", "orders", "--to-earliest", "--to-latest"],
    ["reset", "billing", *WHERE, "--topic", "orders", "--from-file", "x.csv"],
    ["reset", "billing", *WHERE, "--topic", "orders:x", "--to-earliest"],
    ["reset", "billing", *WHERE, "--topic", "orders", "--to-offset", "-1"],
    ["reset", "billing", *WHERE, "--topic", "orders", "--to-datetime", "now"],
    ["reset", "billing", *WHERE, "--topic", "orders", "--by-duration", "P"],
    ["reset", "billing", *WHERE, "--topic", "orders", "--to-latest", "--execute", "--dry-run"],
    ["reset", "billing", *WHERE, "--topic", "orders", "--to-latest", "--export", "-o", "json"],
    ["events"],
    ["events", "ftp://127.0.0.1/"],
    ["events", "file:///etc/passwd"],
    ["events", "http://127.0.0.1/aiogroup?a=b"],
    ["events", "http://127.0.0.1/", "--header", "Authorization"],
    ["events", "http://127.0.0.1/", "--header", "A: b\r\nC: d"],
]


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_arguments_are_refused_with_the_usage(arguments, capsys):
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    told = capsys.readouterr()
    assert (told.out, told.err.startswith("usage: aiogroup")) == ("", True)
    assert "secret" not in told.err


NAMING = [
    ["describe"],
    ["lag"],
    ["ranges"],
    ["reset"],
    ["members", "list"],
    ["members", "remove", "one", "--group"],
]


@pytest.mark.parametrize("command", NAMING, ids=" ".join)
@pytest.mark.parametrize(
    ("name", "why"),
    [("pay\udcff", "its character 3 is no Unicode"), ("x" * 40_000, "40000 bytes as UTF-8 are more than a request")],
    ids=["not UTF-8", "too long"],
)
def test_a_name_that_no_request_can_carry_is_refused(command, name, why, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, name, *WHERE])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--version"]], ids=" ".join)
def test_without_arguments_it_says_what_is_installed(arguments, capsys):
    assert main(arguments) == 0
    first, python, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"aiogroup {aiogroup.__version__} in ")
    assert platform.python_version() in python


@pytest.mark.parametrize("arguments", [[], *COMMANDS], ids=" ".join)
def test_help_is_given(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: aiogroup")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n", "sasl_mechanism='PLAIN'"),
        ("security.protocol=TLS\n", "'TLS'"),
    ],
)
def test_what_the_file_asks_for_in_vain_is_reported(content, told, tmp_path, capsys):
    config = tmp_path / "client.properties"
    config.write_text(content)
    assert main(["members", "list", *GROUP, "--command-config", str(config)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.startswith("usage: aiogroup members list")) == ("", True)
    assert told in said.err.splitlines()[-1]


@pytest.mark.parametrize("command", [["members", "list", "--group", "g"], ["groups"], ["tail", "orders"]], ids=" ".join)
def test_a_file_that_is_not_there_is_reported(command, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*command, *WHERE, "--command-config", str(tmp_path / "none")])
    assert re.search("argument --command-config: .* No such file .*none", capsys.readouterr().err)


@pytest.mark.parametrize("command", [["members", "list", "--group", "g"], ["groups"], ["lag", "g"]], ids=" ".join)
def test_a_cluster_that_is_not_there_is_reported(command, capsys):
    assert main([*command, *WHERE, "--timeout-ms", "2000"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), "127.0.0.1:1" in said.err) == ("", 1, True)


def test_the_command_has_its_name():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    point = importlib.metadata.EntryPoint("aiogroup", project["scripts"]["aiogroup"], "console_scripts")
    assert point.load() is main


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["describe"], "group"),
        (["lag"], "group"),
        (["ranges"], "group"),
        (["reset", "--all-topics", "--to-latest"], "group"),
        (["members", "list"], "group"),
        (["tail"], "topic"),
    ],
)
def test_groups_and_topics_may_be_named_as_in_kafkas_tools(command, what):
    parser = make_parser()
    for named in (["billing"], [f"--{what}", "billing"], [f"--{what}=billing"]):
        for arguments in ([*named, *WHERE], [*WHERE, *named]):
            assert getattr(parser.parse_args([*command, *arguments]), what) == "billing"


# How the cluster is reached.


def given(**more):
    return argparse.Namespace(**{"bootstrap_server": None, "command_config": None, "timeout_ms": 30_000, **more})


def test_an_option_counts_before_the_file_and_the_file_before_the_environment(tmp_path):
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=file:1\nsasl.mechanism=PLAIN\nauto.offset.reset=latest\n")
    environment = {
        "AIOGROUP_BOOTSTRAP_SERVERS": "variable:1",
        "AIOGROUP_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "AIOGROUP_SASL_MECHANISM": "SCRAM-SHA-256",
        "AIOGROUP_SASL_JAAS_CONFIG": 'ScramLoginModule required username="alice" password="s3cret";',
        "AIOGROUP_PURE_PYTHON": "1",
        "BOOTSTRAP_SERVERS": "nobody:1",
    }
    found = settings_of(given(), environment)
    assert found.pop("default_api_timeout_ms") == 30_000
    assert found.pop("request_timeout_ms") == 10_000
    assert found == {
        "bootstrap_servers": "variable:1",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "s3cret",
    }
    by_file = settings_of(given(command_config=load_properties(config)), environment)
    assert (by_file["bootstrap_servers"], by_file["sasl_mechanism"]) == ("file:1", "PLAIN")
    assert "auto_offset_reset" not in by_file
    by_option = settings_of(given(command_config=load_properties(config), bootstrap_server="option:1"), environment)
    assert by_option["bootstrap_servers"] == "option:1"


def test_a_password_may_be_a_variable():
    environment = {
        "AIOGROUP_BOOTSTRAP_SERVERS": "variable:1",
        "AIOGROUP_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "AIOGROUP_SASL_MECHANISM": "PLAIN",
        "AIOGROUP_SASL_PLAIN_USERNAME": "alice",
        "AIOGROUP_SASL_PLAIN_PASSWORD": "s3cret",
    }
    found = settings_of(given(), environment)
    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("alice", "s3cret")


def test_without_a_broker_it_says_how_to_name_one():
    with pytest.raises(ConfigError, match="--bootstrap-server HOST:PORT, or set AIOGROUP_BOOTSTRAP_SERVERS"):
        settings_of(given(), {})


# Values.


@pytest.mark.parametrize(
    ("text", "in_ms"),
    [
        ("90s", 90_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
    ],
)
def test_durations(text, in_ms):
    assert duration_ms(text) == in_ms


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T00:00:00", 0),
        ("2026-11-23T20:15:00", 1_795_464_900_000),
        ("2026-11-23T20:15:00.123Z", 1_795_464_900_123),
        ("2026-11-23T22:15:00+02:00", 1_795_464_900_000),
    ],
)
def test_instants_are_in_utc_unless_they_name_their_zone(text, at_ms):
    assert instant_ms(text) == at_ms


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((duration_ms, text) for text in ("", "1", "h", "1w", "-1h", "PT", "P1Y")),
        *((instant_ms, text) for text in ("", "now", "1969-12-31T23:59:59", "2026-13-01T00:00:00")),
        *((count_of, text) for text in ("", "-1", "1.5", "\u0663", "1e3")),
        *((positive, text) for text in ("0", str(2**31))),
        *((partitions, text) for text in ("", "1,", "-1", "a")),
    ],
)
def test_what_is_no_such_value_is_refused(read, text):
    with pytest.raises(argparse.ArgumentTypeError):
        read(text)


def test_several_partitions_are_named_once_each():
    assert partitions("2,0,2") == (2, 0)


def test_the_place_of_a_service_may_be_its_state():
    parser = argparse.ArgumentParser()
    add_events(parser)
    for text in ("http://127.0.0.1:8000/aiogroup", "http://127.0.0.1:8000/aiogroup/state"):
        assert parser.parse_args([text]).url == "http://127.0.0.1:8000/aiogroup"


@pytest.mark.parametrize(
    ("words", "prog"),
    [
        (["kafka", "up"], "aiogroup kafka up"),
        (["broker"], "aiogroup broker"),
        (["spark", "drain"], "aiogroup spark drain"),
    ],
)
def test_the_other_command_lines_can_be_called_as_commands(words, prog, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {prog} [-h]")
