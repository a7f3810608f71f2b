"""The arguments of `aiogroup members`, and the name it is installed under."""

from __future__ import annotations

import importlib.metadata
import logging
import platform
import tomllib
from pathlib import Path

import pytest

import aiogroup
from aiogroup.__main__ import main


@pytest.fixture(autouse=True)
def aiokafkas_log():
    """The command is alone in its process and turns it down; here others listen to it."""
    log = logging.getLogger("aiokafka")
    level = log.level
    yield
    log.setLevel(level)


WHERE = ["--bootstrap-server", "127.0.0.1:1", "--group", "billing"]


@pytest.mark.parametrize(
    "arguments",
    [["members"], ["members", "add", *WHERE], ["members", "remove", *WHERE], ["members", "list"], ["groups"]],
    ids=" ".join,
)
def test_bad_arguments_are_refused_with_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: aiogroup")


@pytest.mark.parametrize("arguments", [[], ["--version"]], ids=" ".join)
def test_without_arguments_it_says_what_is_installed(arguments, capsys):
    assert main(arguments) == 0
    first, python, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"aiogroup {aiogroup.__version__} in ")
    assert platform.python_version() in python


@pytest.mark.parametrize("arguments", [["--help"], ["members", "--help"], ["members", "list", "--help"]], ids=" ".join)
def test_help_is_given(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
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
    assert main(["members", "list", *WHERE, "--command-config", str(config)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("aiogroup: ")
    assert told in said.err


def test_a_file_that_is_not_there_is_reported(tmp_path, capsys):
    assert main(["members", "list", *WHERE, "--command-config", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err


def test_the_command_has_its_name():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    point = importlib.metadata.EntryPoint("aiogroup", project["scripts"]["aiogroup"], "console_scripts")
    assert point.load() is main
