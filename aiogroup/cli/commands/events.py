"""`aiogroup events`: the events of a running service, from its `/state`."""

from __future__ import annotations

import argparse
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future
from http.client import HTTPException, HTTPMessage
from threading import Event, Thread
from typing import IO, Any, Final
from urllib.parse import urlencode, urlsplit

from aiogroup._command.printable import document
from aiogroup._runtime.loop.clock import steady_ms
from aiogroup.cli.exits import Exit, NotDoneError
from aiogroup.cli.printing import check_reader, say_on, tell

__all__ = ["add"]

LEVELS: Final = ("debug", "info", "warning", "error")
LOOK_S: Final = 1.0
MOST_BYTES: Final = 8 * 1024 * 1024
"""The service keeps at most 1 MB of events and samples."""
NO_URL: Final = "this is not the URL of a service, such as http://host:8000/aiogroup"
HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("url", type=_url, metavar="URL", help="where the service is mounted: http://host:8000/aiogroup")
    parser.add_argument("-f", dest="follow", action="store_true", help="go on with new events, until Ctrl-C")
    parser.add_argument("--level", choices=LEVELS, default="debug", help="only events of this level and above")
    parser.add_argument(
        "--header",
        action="append",
        type=_header,
        default=[],
        metavar="'NAME: VALUE'",
        help="sent along, as 'Authorization: Bearer ...'; may be repeated",
    )
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the events that the service remembers, one a line, and with `-f` those that come."""
    never, service = Event(), _Service(given)
    is_known = False
    silent_at_ms: int | None = None
    while True:
        asked_at_ms = steady_ms()
        try:
            for each in service.news():
                if _is_wanted(each, given.level):
                    say_on(
                        document("events", **{key: of for key, of in each.items() if key not in ("command", "version")})
                    )
            is_known, silent_at_ms = True, None
        except NotDoneError as error:
            if silent_at_ms is None:
                silent_at_ms = asked_at_ms
            if not given.follow or not is_known or steady_ms() - silent_at_ms >= given.timeout_ms:
                raise
            if silent_at_ms == asked_at_ms:
                tell(f"{error}; asking again")
        if not given.follow:
            return Exit.DONE
        never.wait(LOOK_S)
        check_reader()


class _Service:
    """The service that is asked. Each of its processes numbers its own events, and the next one begins anew."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._process = ""
        self._last: dict[str, int] = {}

    def news(self) -> Iterator[dict[str, Any]]:
        """The events that were not seen yet."""
        given, query = self._given, {}
        if self._process in self._last:
            query = {"after": self._last[self._process], "process": self._process}
        url = f"{given.url}/state" + (f"?{urlencode(query)}" if query else "")
        state = _state(url, dict(given.header), given.timeout_ms)
        events = state.get("events") if isinstance(state, dict) else None
        if not isinstance(state, dict) or not isinstance(events, list):
            raise NotDoneError(f"{given.url}/state has no list of events: is aiogroup's Service mounted there?")
        self._process = str(state.get("process", ""))
        for each in events:
            number = _number(each)
            if number > self._last.get(self._process, 0):
                self._last[self._process] = number
                yield each


def _state(url: str, headers: dict[str, str], timeout_ms: int) -> object:
    request = urllib.request.Request(url, headers={"Accept": "application/json", **headers})  # noqa: S310 (checked)
    try:
        body = _body(request, timeout_ms / 1_000)
    except urllib.error.HTTPError as error:
        error.close()
        why = {
            401: "pass --header 'Authorization: ...'",
            403: "access is closed to you: pass --header; a service without access= shows this to nobody",
        }
        raise NotDoneError(f"{url} answered {error.code}: {why.get(error.code, error.reason)}") from None
    except TimeoutError:
        raise NotDoneError(f"{url} did not answer within --timeout-ms {timeout_ms}") from None
    except (OSError, HTTPException) as error:
        raise NotDoneError(f"{url} did not answer: {getattr(error, 'reason', None) or error}") from None
    except ValueError as error:
        raise NotDoneError(f"{url} cannot be asked: {error}") from None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise NotDoneError(f"{url} did not answer with JSON: is aiogroup's Service mounted there?") from None


def _body(request: urllib.request.Request, limit_s: float) -> bytes:
    """The body of the answer; a `TimeoutError` when it is not there in time.

    A socket's time-out bounds the wait for each next byte, so the whole answer is read by a thread. One that is given
    up ends with the server's answer, or with this process.
    """
    answered: Future[bytes] = Future()

    def ask() -> None:
        try:
            with _opener().open(request, timeout=limit_s) as answer:
                answered.set_result(answer.read(MOST_BYTES))
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            answered.set_exception(error)

    Thread(target=ask, name="aiogroup events", daemon=True).start()
    return answered.result(limit_s)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: urllib would send the caller's headers, and so its secrets, to the other place."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirects)


def _number(event: object) -> int:
    number = event.get("number") if isinstance(event, dict) else None
    if not isinstance(number, int):
        raise NotDoneError("an event of the service has no number: it is of another version")
    return number


def _is_wanted(event: dict[str, Any], level: str) -> bool:
    known = event.get("level")
    return known not in LEVELS or LEVELS.index(known) >= LEVELS.index(level)


def _url(text: str) -> str:
    """The URL; no error repeats it, since it may hold a password."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise argparse.ArgumentTypeError(NO_URL) from None
    if "@" in parts.netloc:
        raise argparse.ArgumentTypeError(
            "a user and a password are not sent from a URL: leave them out, and pass --header 'Authorization: ...'"
        )
    if not text.isascii():
        raise argparse.ArgumentTypeError("a URL is ASCII: percent-encode its path, and write its host with xn-- (IDNA)")
    is_good = parts.scheme in ("http", "https") and bool(host) and port != 0
    if not is_good or parts.query or parts.fragment or not text.isprintable() or " " in text:
        raise argparse.ArgumentTypeError(NO_URL)
    return text.rstrip("/").removesuffix("/state")


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not text.isascii():
        raise argparse.ArgumentTypeError("a header is ASCII: encode its value as the service expects it")
    if not separator or not HEADER_NAME.fullmatch(name.strip()) or not text.isprintable():
        raise argparse.ArgumentTypeError("a header is written 'NAME: VALUE'")
    return name.strip(), value.strip()
