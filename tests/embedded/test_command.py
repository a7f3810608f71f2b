"""`python -m aiogroup.embedded`: its output, its clients, its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiogroup._core.protocol.framing import decode_response, encode_request
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup.embedded.__main__ import FIRST_LINE, main
from aiogroup.embedded.messages.producer_ids import InitProducerIdRequest

ROOT = Path(__file__).parents[2]
LIMIT_S = 60


@contextmanager
def command(*arguments):
    """The running command, and the lines that it prints until it serves."""
    running = subprocess.Popen(
        [sys.executable, "-m", "aiogroup.embedded", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,  # a Ctrl-C during these tests must not reach it
    )
    with running:
        try:
            lines = []
            while (line := running.stdout.readline()) and not line.startswith("Ctrl-C"):
                lines.append(line.rstrip("\n"))
            yield running, lines
        finally:
            running.kill()


def ask(port, frame):
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as peer:
        peer.sendall(len(frame).to_bytes(4, "big") + frame)
        with peer.makefile("rb") as stream:
            return stream.read(int.from_bytes(stream.read(4), "big"))


def test_it_serves_on_and_ends_in_order_where_nobody_reads_what_it_prints():
    with command() as (running, lines):
        port = int(lines[-1].rpartition(":")[2])
        running.stdout.close()
        assert ask(port, b"\0\x24\0\1\0\0\0\1\0\4mine") == b""  # which the command would print
        answer = ask(port, encode_request(MetadataRequest(topics=None), 12, 1, "mine"))
        assert decode_response(MetadataRequest, 12, answer)[1].topics == ()
        running.send_signal(signal.SIGTERM)
        assert running.wait(LIMIT_S) == 0


def test_it_serves_until_sigterm_and_tells_what_is_asked_in_vain():
    with command("--topic", "orders:2", "--topic", "bills", "--nodes", "3", "--partitions", "7") as (running, lines):
        first, *topics, address = lines
        assert first == FIRST_LINE
        assert {"not for production", "not Kafka", "tests and demos"} == {
            each for each in ("not for production", "not Kafka", "tests and demos") if each in first
        }
        assert topics == ["TOPIC   PARTITIONS", "orders           2", "bills            7"]
        port = int(re.fullmatch(r"bootstrap servers: 127\.0\.0\.1:(\d+)(?:,127\.0\.0\.1:\d+){2}", address)[1])

        answer = ask(port, encode_request(MetadataRequest(topics=None), 12, 1, "mine"))
        told = {each.name: len(each.partitions) for each in decode_response(MetadataRequest, 12, answer)[1].topics}
        assert told == {"orders": 2, "bills": 7}

        assert ask(port, b"\0\x24\0\1\0\0\0\1\0\4mine") == b""  # SASL's second step
        assert re.match("the embedded broker: mine asked for what is not offered", running.stdout.readline())

        taken = subprocess.run(
            [sys.executable, "-m", "aiogroup.embedded", "--port", str(port)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert taken.returncode == 1
        assert taken.stderr == f"aiogroup: node 1 cannot have the port {port}: Address already in use\n"

        running.send_signal(signal.SIGTERM)
        assert running.stdout.read() == "ended\n"
        assert running.wait(LIMIT_S) == 0


def test_a_producer_that_outlives_the_broker_shares_its_id_with_nobody():
    # Its sequence numbers go on from its last batch. With an unused id it is taken for a producer whose records were
    # deleted.
    request = encode_request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000), 4, 1, "mine")
    ids = []
    for _ in range(2):
        with command() as (_, lines):
            answer = ask(int(lines[-1].rpartition(":")[2]), request)
            ids.append(decode_response(InitProducerIdRequest, 4, answer)[1].producer_id)
    first, second = ids
    assert abs(first - second) > 1_000


def test_it_ends_at_ctrl_c_while_clients_are_connected():
    with socket.socket() as drawn:
        drawn.bind(("127.0.0.1", 0))
        port = drawn.getsockname()[1]
    with command("--port", str(port), "--draft") as (running, lines):
        assert lines[1:] == ["static membership: draft 41 of KIP-345", f"bootstrap servers: 127.0.0.1:{port}"]
        named = ApiVersionsRequest(client_software_name="mine", client_software_version="1")
        features = decode_response(ApiVersionsRequest, 4, ask(port, encode_request(named, 4, 1, "mine")))[1]
        assert "static.membership.draft" in {each.name for each in features.supported_features}
        with socket.create_connection(("127.0.0.1", port)) as peer:
            running.send_signal(signal.SIGINT)
            assert running.stdout.read() == "ended\n"
            assert running.wait(LIMIT_S) == 130
            assert peer.recv(1) == b""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--port", "70000"], "argument --port: '70000' is no port: a number from 0 to 65535"),
        (["--port", "kafka"], "argument --port: 'kafka' is no port: a number from 0 to 65535"),
        (["--host", "0.0.0.0"], "unrecognized arguments: --host 0.0.0.0"),
        (["--topic"], "argument --topic: expected one argument"),
        (["--nodes", "0"], "argument --nodes: '0': a number from 1 to 1000"),
        (["--topic", "orders:none"], "argument --topic: 'none': a number from 1 to 1000"),
        (["--partitions", "many"], "argument --partitions: 'many': a number from 1 to 1000"),
    ],
)
def test_bad_arguments_are_named(capsys, arguments, why):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert why in capsys.readouterr().err


def test_a_topic_that_cannot_be_is_named(capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["--topic", "or ders"]) == 1
    assert re.search("^aiogroup: .*or ders", capsys.readouterr().err, re.MULTILINE)
    assert main(["--topic", "orders", "--topic", "orders"]) == 1
    assert "aiogroup: the topic orders is there already" in capsys.readouterr().err
