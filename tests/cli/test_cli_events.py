"""`aiogroup events`: what it prints of a service's state, and what it makes of other answers."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from aiogroup.__main__ import main
from aiogroup._core.telemetry.events import HeartbeatSent, RebalanceStarted
from aiogroup.asgi.page.journal import Journal

EVENTS = [
    {"number": 1, "event": "rebalance_completed", "level": "info", "at_ms": 5, "group": "billing"},
    {"number": 2, "event": "commit_failed", "level": "warning", "at_ms": 6, "error": "\x1b[2J"},
    {"number": 3, "event": "heartbeat_sent", "level": "debug", "at_ms": 7},
]


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Says nothing of a client that hung up: one of another process may still know this port as a broker's."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def service(answer):
    """The place of a service; `answer(path, query, headers)` gives its code and body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            parts = urlsplit(self.path)
            code, body, *more = answer(parts.path, parse_qs(parts.query), self.headers)
            self.send_response(code)
            for name, value in more:
                self.send_header(name, value)
            self.end_headers()
            parts = (
                body if isinstance(body, Iterator) else [body if isinstance(body, bytes) else json.dumps(body).encode()]
            )
            for part in parts:
                self.wfile.write(part)

        def log_message(self, *arguments):
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/aiogroup"
        finally:
            server.shutdown()
            thread.join()


def run(capsys, *arguments):
    code = main(["events", *arguments])
    told = capsys.readouterr()
    return code, [json.loads(line) for line in told.out.splitlines()], told.err


def remembered(path, query, headers):
    assert path == "/aiogroup/state"
    after = int(query.get("after", ["0"])[0])
    return 200, {"state": "ready", "events": [each for each in EVENTS if each["number"] > after]}


@pytest.mark.parametrize(("level", "numbers"), [("debug", [1, 2, 3]), ("warning", [2]), ("error", [])])
def test_what_the_service_remembers(capsys, level, numbers):
    with service(remembered) as url:
        code, lines, told = run(capsys, url, "--level", level)
    assert (code, told) == (0, "")
    assert [each["number"] for each in lines] == numbers
    assert all(each["command"] == "events" and each["version"] == 1 for each in lines)


def test_who_else_connects_to_the_port_and_hangs_up_leaves_no_trace(capsys):
    with service(remembered) as url:
        for _ in range(10):
            with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as foreign:
                foreign.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        code, lines, told = run(capsys, url)
    assert (code, len(lines), told) == (0, 3, "")


def test_what_the_journal_of_a_service_has(capsys):
    journal = Journal()
    for generation in (1, 2):
        journal.note("audit", "billing", "pay", RebalanceStarted("joining", generation))
    journal.note("audit", "billing", "pay", HeartbeatSent(2))

    def answer(path, query, headers):
        texts = journal.events(int(query.get("after", ["0"])[0]))
        return 200, f'{{"state": "ready", "events": [{", ".join(texts)}]}}'.encode()

    with service(answer) as url:
        code, lines, told = run(capsys, url)
    assert (code, told) == (0, "")
    assert [(each["number"], each["event"], each["generation"]) for each in lines] == [
        (1, "rebalance_started", 1),
        (2, "rebalance_started", 2),
    ]
    assert all((each["loop"], each["group"], each["level"]) == ("audit", "billing", "info") for each in lines)


def test_headers_are_sent_along(capsys):
    def answer(path, query, headers):
        return (200, {"events": EVENTS}) if headers["Authorization"] == "Bearer s3cret" else (403, b"")

    with service(answer) as url:
        assert run(capsys, url, "--header", "Authorization: Bearer s3cret")[0] == 0
        code, lines, told = run(capsys, url, "--header", "Authorization: Bearer wr0ng")
    assert (code, lines) == (1, [])
    assert "answered 403: access is closed to you" in told
    assert "without access=" in told, "no header opens that"
    assert "wr0ng" not in told


def test_a_redirect_is_not_followed_with_the_callers_headers(capsys):
    seen = []

    def elsewhere(path, query, headers):
        seen.append(headers["Authorization"])
        return 200, {"events": EVENTS}

    with service(elsewhere) as other, service(lambda *_: (302, b"", ("Location", f"{other}/state"))) as url:
        code, lines, told = run(capsys, url, "--header", "Authorization: Bearer s3cret")
    assert (code, lines, seen) == (1, [], [])
    assert "answered 302" in told


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "did not answer with JSON"),
        ({"events": None}, "has no list of events"),
        ([], "has no list of events"),
        ({"events": [{"event": "x"}]}, "has no number"),
    ],
)
def test_what_is_no_service_of_ours_is_told(capsys, body, why):
    with service(lambda *_: (200, body)) as url:
        code, lines, told = run(capsys, url)
    assert (code, lines) == (1, [])
    assert why in told


def test_a_service_that_is_not_there_is_told(capsys):
    code, lines, told = run(capsys, "http://127.0.0.1:1/aiogroup", "--timeout-ms", "1000")
    assert (code, lines) == (1, [])
    assert told.count("\n") == 1, told


def test_the_events_of_a_service_that_has_started_again_are_all_printed(capsys):
    anew = [{"number": number, "event": "rebalance_started", "level": "info"} for number in range(1, 13)]

    def answers(*given):
        """A service whose n-th answer is of this process, with these events; it knows only its own numbers."""
        rest = iter(given)

        def answer(path, query, headers):
            process, events = next(rest, (None, None))
            if events is None:
                return 503, b""
            after = int(query.get("after", ["0"])[0]) if query.get("process") == [process] else 0
            return 200, {"process": process, "events": [each for each in events if each["number"] > after]}

        return answer

    with service(answers(("a", EVENTS), ("b", anew), ("b", anew))) as url:
        _, lines, _ = run(capsys, url, "-f", "--timeout-ms", "500")
    assert [each["number"] for each in lines] == [1, 2, 3, *range(1, 13)]
    with service(answers(("a", EVENTS), ("b", anew[:2]), ("a", EVENTS), ("b", anew[:3]))) as url:
        _, lines, _ = run(capsys, url, "-f", "--timeout-ms", "500")
    assert [each["number"] for each in lines] == [1, 2, 3, 1, 2, 3], "of two workers that answer in turn"


def test_a_service_that_hangs_is_given_up_after_the_time_out(capsys):
    asked, is_over = [], Event()

    def answer(path, query, headers):
        asked.append(path)
        if len(asked) > 1:
            is_over.wait(60)
        return remembered(path, query, headers)

    with service(answer) as url:
        code, _, _ = run(capsys, url, "-f", "--timeout-ms", "1200")
        is_over.set()
    assert (code, len(asked)) == (1, 2)


def test_a_reader_that_has_had_enough_ends_it_also_where_no_event_comes():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "aiogroup", "events", "-f"]
    with service(remembered) as url, subprocess.Popen([*command, url], **pipes) as running:
        try:
            assert len([running.stdout.readline() for _ in EVENTS]) == len(EVENTS)
            running.stdout.close()
            assert running.wait(60) == 0
            assert running.stderr.read() == ""
        finally:
            running.kill()


def test_a_service_that_answers_byte_by_byte_is_given_up_after_the_time_out(capsys):
    is_over = Event()

    def drip():
        for _ in range(40):
            if is_over.wait(0.1):
                return
            yield b" "
        yield json.dumps({"events": EVENTS}).encode()

    with service(lambda *_: (200, drip())) as url:
        code, lines, told = run(capsys, url, "--timeout-ms", "500")
        is_over.set()
    assert (code, lines) == (1, [])
    assert told.endswith("/state did not answer within --timeout-ms 500\n")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["http://127.0.0.1/", "--header", "X: \u043a\u043b\u044e\u0447"], "a header is ASCII"),
        (["http://127.0.0.1/", "--header", "X Y: hunter2"], "a header is written 'NAME: VALUE'"),
        (["http://127.0.0.1/\u043a"], "percent-encode"),
        (["http://\u043a.example/"], "IDNA"),
        (["http://bob:hunter2@127.0.0.1/"], "pass --header 'Authorization: ...'"),
        (["ftp://bob:hunter2@127.0.0.1/"], "pass --header 'Authorization: ...'"),
        (["http://127.0.0.1/aiogroup?token=hunter2"], "not the URL of a service"),
        (["http://127.0.0.1:hunter2/"], "not the URL of a service"),
        (["http://127.0.0.1/a b"], "not the URL of a service"),
    ],
)
def test_what_cannot_be_asked_is_told_without_its_secrets(capsys, arguments, why):
    with pytest.raises(SystemExit) as ended:
        main(["events", *arguments])
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert why in told.splitlines()[-1]
    assert "hunter2" not in told


def test_a_host_that_no_name_can_have_is_told(capsys):
    code, _, told = run(capsys, f"http://{'a' * 64}.example/")
    assert code == 1
    assert "cannot be asked" in told


def test_new_events_are_followed_until_the_service_is_gone_for_the_time_out(capsys):
    asked = []

    def answer(path, query, headers):
        asked.append(query.get("after"))
        return remembered(path, query, headers) if len(asked) == 1 else (503, b"")

    with service(answer) as url:
        code, lines, told = run(capsys, url, "-f", "--timeout-ms", "500")
    assert (code, [each["number"] for each in lines]) == (1, [1, 2, 3])
    assert asked[:2] == [None, ["3"]]
    assert "asking again" in told
