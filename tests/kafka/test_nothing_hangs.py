"""Every public call of `Consumer` ends within its time-out, whatever the brokers do: frozen, killed, silent, garbage.

What it ends with is the right answer or an error that its docstring names. Beside the calls a ticker sees that the loop
is never blocked; in the end the brokers are well again, and whoever was not stopped goes on with nothing lost.
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aiogroup import Consumer, TopicPartition, errors
from aiogroup.devkafka import Cluster
from aiogroup.testing import Proxy, Rule
from tests.support.kafka import Place, eventually, take
from tests.support.nodes import bring_back
from tests.support.punctuality import lateness
from tests.support.reading import producing

REQUEST_MS = 800
API_MS = 1_200
WAIT_MS = 200
STOP_MS = 1_500
START_MS = 2 * REQUEST_MS + 1_000
"""Metadata, an assignment, and what was started is stopped."""
MARGIN_MS = 1_000
HANGS_MS = 12_000
PATIENCE_S = 120
TICK_S = 0.01
LONGEST_TICK_MS = 500

SETTINGS: dict[str, Any] = {
    "request_timeout_ms": REQUEST_MS,
    "default_api_timeout_ms": API_MS,
    "session_timeout_ms": 20_000,  # a busy machine must not cost it
    "max_poll_interval_ms": 300_000,  # nor the time until all others are prepared, a minute on a busy machine
    "rebalance_timeout_ms": 30_000,
    "heartbeat_interval_ms": 200,
    "metadata_max_age_ms": 300,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 200,
    "auto_commit_interval_ms": 600_000,
}
KINDS: dict[str, dict[str, Any]] = {
    "member": {},
    "cooperative member": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "member with a heartbeat thread": {"heartbeat_thread": True},
    "alone": {"group_id": None},
}


class Observer:
    def on_event(self, event):
        """Keeps nothing."""


COMMITTED, WRITTEN, MORE = 3, 6, ["more", "and more"]


@dataclass
class Case:
    """A consumer and what is known of its topic."""

    what: str
    place: Place
    consumer: Consumer
    seen: list[str] = field(default_factory=list)
    is_sent_back: bool = False
    """By the test itself, to the first record: those that were read at first may come again."""

    @property
    def tp(self) -> TopicPartition:
        return self.place.tp()

    @property
    def grouped(self) -> bool:
        return self.consumer.config.group_id is not None

    def keep(self, *records):
        self.seen += [record.value.decode() for record in records]


@dataclass(frozen=True)
class Call:
    """One call, how long it may take, and whether its answer, if it gives one, is right."""

    run: Callable[[Case], Any]
    limit_ms: int = 0
    is_right: Callable[[Case, Any], bool] = lambda case, answer: True
    only_grouped: bool = False


async def _one(case):
    case.keep(await case.consumer.getone())


async def _iterate(case):
    async for record in case.consumer:
        case.keep(record)


async def _batch(case):
    case.keep(*(await case.consumer.getmany(timeout_ms=WAIT_MS)).all())


async def _poll(case):
    case.keep(*(await case.consumer.poll()).all())


async def _merge(case):
    async for record in case.consumer.merged():
        case.keep(record)


def for_a_moment(call):
    """What waits without a bound is for the caller to end."""

    async def run(case):
        try:
            async with asyncio.timeout(WAIT_MS / 1_000) as limit:
                await call(case)
        except TimeoutError:
            assert limit.expired()

    return run


RECORDS = {
    "getone": Call(for_a_moment(_one), WAIT_MS),
    "getmany": Call(_batch, WAIT_MS),
    "poll": Call(for_a_moment(_poll), WAIT_MS),
    "__anext__": Call(for_a_moment(_iterate), WAIT_MS),
    "merged": Call(for_a_moment(_merge), WAIT_MS),
    "__aiter__": Call(lambda case: aiter(case.consumer)),
    "skip": Call(lambda case: case.consumer.skip()),
}
"""One after the other: two requests at once are refused."""
QUESTIONS = {
    "commit": Call(lambda case: case.consumer.commit(), API_MS, only_grouped=True),
    "committed": Call(
        lambda case: case.consumer.committed(case.tp),
        API_MS,
        lambda case, answer: COMMITTED <= answer <= WRITTEN,
        only_grouped=True,
    ),
    "position": Call(
        lambda case: case.consumer.position(case.tp), API_MS, lambda case, answer: COMMITTED <= answer <= WRITTEN
    ),
    "beginning_offsets": Call(
        lambda case: case.consumer.beginning_offsets([case.tp]), API_MS, lambda case, answer: answer == {case.tp: 0}
    ),
    "end_offsets": Call(
        lambda case: case.consumer.end_offsets([case.tp]), API_MS, lambda case, answer: answer == {case.tp: WRITTEN}
    ),
    "offsets_for_times": Call(
        lambda case: case.consumer.offsets_for_times({case.tp: 1}),
        API_MS,
        lambda case, answer: answer[case.tp].offset == 0,
    ),
    "lag": Call(lambda case: case.consumer.lag(), API_MS, lambda case, answer: 0 <= answer <= WRITTEN - COMMITTED),
    "topics": Call(lambda case: case.consumer.topics(), REQUEST_MS, lambda case, answer: case.place.topic in answer),
    "current_lag": Call(lambda case: case.consumer.current_lag(case.tp)),
    "lags": Call(lambda case: case.consumer.lags(), 0, lambda case, answer: answer.keys() == {case.tp}),
    "lanes": Call(lambda case: case.consumer.lanes(), 0, lambda case, answer: answer == {}),
    "child_consumer_is_alive": Call(
        lambda case: case.consumer.child_consumer_is_alive(), 0, lambda case, answer: answer is False
    ),
    "offsets_for_transaction": Call(
        lambda case: case.consumer.offsets_for_transaction({case.tp: COMMITTED}),
        0,
        lambda case, answer: answer[case.tp].offset == COMMITTED,
        only_grouped=True,
    ),
    "highwater": Call(lambda case: case.consumer.highwater(case.tp), 0, lambda case, answer: answer == WRITTEN),
    "last_stable_offset": Call(lambda case: case.consumer.last_stable_offset(case.tp)),
    "last_poll_timestamp": Call(lambda case: case.consumer.last_poll_timestamp(case.tp)),
    "subscription": Call(lambda case: case.consumer.subscription()),
    "assignment": Call(lambda case: case.consumer.assignment(), 0, lambda case, answer: answer == {case.tp}),
    "pause": Call(lambda case: case.consumer.pause()),
    "resume": Call(lambda case: case.consumer.resume()),
    "paused": Call(lambda case: case.consumer.paused(), 0, lambda case, answer: answer == frozenset()),
    "partitions_for_topic": Call(
        lambda case: case.consumer.partitions_for_topic(case.place.topic), 0, lambda case, answer: answer == {0}
    ),
    "group_metadata": Call(
        lambda case: case.consumer.group_metadata(),
        0,
        lambda case, answer: answer.group_id == case.place.group,
        only_grouped=True,
    ),
    "health": Call(lambda case: case.consumer.health()),
    "metrics": Call(lambda case: case.consumer.metrics()),
    "inside": Call(lambda case: case.consumer.inside()),
    "figures": Call(lambda case: [*case.consumer.figures()]),
    "observe": Call(lambda case: case.consumer.observe(Observer())),
}
"""All at once, beside the requests for records."""
SEEKS = {
    "seek_to_beginning": Call(lambda case: case.consumer.seek_to_beginning(), API_MS),
    "seek_to_end": Call(lambda case: case.consumer.seek_to_end(case.tp), API_MS),
    "seek_to_committed": Call(lambda case: case.consumer.seek_to_committed(), API_MS, only_grouped=True),
    "seek": Call(lambda case: case.consumer.seek(case.tp, COMMITTED)),
}
MOVES = {
    "enforce_rebalance": Call(lambda case: case.consumer.enforce_rebalance("test"), only_grouped=True),
    "commit": QUESTIONS["commit"],  # in the middle of a rebalance that gets nowhere
    "getmany": RECORDS["getmany"],
    "unsubscribe": Call(lambda case: case.consumer.unsubscribe()),
    "assign": Call(lambda case: case.consumer.assign([case.tp])),
    "position": Call(lambda case: case.consumer.position(case.tp), API_MS),
    "subscribe": Call(lambda case: (case.consumer.unsubscribe(), case.consumer.subscribe([case.place.topic]))),
}
"""One after the other, by a consumer that is stopped behind them."""
START = Call(lambda case: case.consumer.start(), START_MS)
STOP = Call(lambda case: case.consumer.stop(timeout_ms=STOP_MS), STOP_MS)
SAME = {"__aenter__": "start", "__aexit__": "stop"}


def test_no_public_call_is_forgotten():
    public = {
        name
        for name, value in vars(Consumer).items()
        if callable(value) and (not name.startswith("_") or re.match(r"__a(?!nnot)", name))
    }
    assert public == {*RECORDS, *QUESTIONS, *SEEKS, *MOVES, "start", "stop", *SAME}


def documented(name: str) -> tuple[type[BaseException], ...]:
    """What a method's docstring says it raises, and those that it says it raises as."""
    text = inspect.getdoc(getattr(Consumer, name)) or ""
    named = {getattr(errors, word, getattr(builtins, word, None)) for word in re.findall(r"\b[A-Z]\w+", text)}
    found = {each for each in named if isinstance(each, type) and issubclass(each, Exception)}
    for other in re.findall(r"[Rr]aises as `(\w+)`", text):
        found.update(documented(other))
    return tuple(found)


async def made(name: str, call: Call, case: Case) -> str | None:
    """Make a call; what is wrong with how it ended."""
    if call.only_grouped and not case.grouped:
        return None
    who, loop = f"{case.what}: {name}()", asyncio.get_running_loop()
    async with lateness() as late:
        began_at = loop.time()
        try:
            async with asyncio.timeout(HANGS_MS / 1_000) as guard:
                answer = call.run(case)
                if inspect.isawaitable(answer):
                    answer = await answer
        except Exception as error:  # noqa: BLE001 (judged)
            if guard.expired():
                return f"{who} hangs"
            if not isinstance(error, documented(name)):
                return f"{who} raised {error!r}, which it does not document"
        else:
            if not call.is_right(case, answer):
                return f"{who} answered {answer!r}"
        took_ms = (loop.time() - began_at) * 1_000
        if took_ms > call.limit_ms + MARGIN_MS + late.ms:
            return f"{who} took {took_ms:.0f} ms"
    return None


async def in_a_row(calls: dict[str, Call], case: Case) -> list[str | None]:
    return [await made(name, call, case) for name, call in calls.items()]


async def at_once(calls: dict[str, Call], case: Case) -> list[str | None]:
    return await asyncio.gather(*(made(name, call, case) for name, call in calls.items()))


def flat(found) -> list[str]:
    return [each for part in found for each in (flat(part) if isinstance(part, list) else [part]) if each]


# Three consumers of each case: one stays, one moves and is stopped, one starts in the middle of it.


async def stay(case: Case) -> list[str]:
    found = await asyncio.gather(in_a_row(RECORDS, case), at_once(QUESTIONS, case))
    where = COMMITTED + len(case.seen)
    found += [await at_once(SEEKS, case)]
    if case.tp in case.consumer.assignment():  # a machine that is too busy may have cost the session
        case.consumer.seek(case.tp, where)
    return flat(found)


async def move(case: Case) -> list[str]:
    found = await in_a_row(MOVES, case)
    return flat([*found, await made("stop", STOP, case)])


async def begin(case: Case) -> list[str]:
    return flat([await made("start", START, case), await made("stop", STOP, case)])


async def go_on(case: Case) -> list[str]:
    """The brokers are well again: what is missing comes."""
    wanted = [str(number) for number in range(COMMITTED, WRITTEN)] + MORE
    try:
        async with asyncio.timeout(40):  # a SyncGroup without an answer is waited for as long as JoinGroup may take
            while set(case.seen) < set(wanted):
                case.keep(*(await case.consumer.getmany(timeout_ms=500)).all())
    except (TimeoutError, errors.AiogroupError) as error:
        return [f"{case.what}: {error!r}, and lost {sorted(set(wanted) - set(case.seen))}; {case.consumer.health()}"]
    again = {str(number) for number in range(COMMITTED)} if case.is_sent_back else set()
    first_seen = [each for each in dict.fromkeys(case.seen) if each not in again]
    return [] if first_seen == wanted else [f"{case.what}: {first_seen} instead of {wanted}"]


class Scene:
    """One situation: in each of some kinds a consumer that stays, one that moves and one that starts meanwhile."""

    def __init__(
        self, cluster: Cluster, servers: str, name: Callable[[str], str], kinds: dict[str, dict[str, Any]]
    ) -> None:
        self.cluster = cluster
        self._servers = servers
        self._name = name
        self.stays = [self._case(f"{what}, who stays", each) for what, each in kinds.items()]
        self.moves = [self._case(f"{what}, who moves", each) for what, each in kinds.items()]
        self.begins = [self._case(f"{what}, who starts", each) for what, each in kinds.items()]

    def _case(self, what: str, settings: dict[str, Any]) -> Case:
        place = Place(self.cluster, self._name("hangs"), self._name("group"))
        given = {"bootstrap_servers": self._servers, **SETTINGS, **settings}
        case = Case(what, place, place.unsubscribed(**given))
        if case.grouped:
            case.consumer.subscribe([place.topic])
        else:
            case.consumer.assign([case.tp])
        return case

    async def play(self) -> list[str]:
        """Every call, while the brokers are unwell."""
        works: list[Awaitable[list[str]]] = [stay(case) for case in self.stays]
        works += [move(case) for case in self.moves]
        works += [begin(case) for case in self.begins]
        return flat(await asyncio.gather(*works))

    async def go_on(self) -> list[str]:
        return flat(await asyncio.gather(*(go_on(case) for case in self.stays)))

    async def stop(self) -> list[str]:
        return flat(await asyncio.gather(*(made("stop", STOP, case) for case in self.stays)))


async def produce(scenes: list[Scene], values: Iterable[object]) -> None:
    """The same records into the topic of each consumer."""
    async with producing(scenes[0].cluster.bootstrap_servers) as producer:
        for scene in scenes:
            for case in [*scene.stays, *scene.moves, *scene.begins]:
                for value in values:
                    await producer.send(case.place.topic, str(value).encode(), partition=0)
        await producer.flush()


async def patiently(call: Callable[[], Awaitable[None]]) -> None:
    """What a busy machine may keep from ending within such time-outs, before anything is wrong."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(errors.KafkaTimeoutError):
                return await call()


@asynccontextmanager
async def prepared(scenes: list[Scene]):
    """Each has read and committed some records, and more are there; in the end all are stopped, come what may."""
    few = asyncio.Semaphore(4)  # what is prepared with such time-outs must not be held up by the others

    async def make(case: Case) -> None:
        async with few:
            await asyncio.to_thread(case.place.cluster.create_topic, case.place.topic)

    async def ready(case: Case) -> None:
        async with few:
            await patiently(case.consumer.start)
            await take(case.consumer, COMMITTED, within_s=PATIENCE_S)
            if case.grouped:
                await patiently(case.consumer.commit)

    async def told_of_all(case: Case) -> None:
        """`highwater()` asks no broker: the answer to a fetch must have brought it."""
        await eventually(lambda: case.consumer.highwater(case.tp) == WRITTEN, PATIENCE_S)

    cases = [case for scene in scenes for case in [*scene.stays, *scene.moves]]
    begins = [case for scene in scenes for case in scene.begins]
    try:
        await asyncio.gather(*(make(case) for case in [*cases, *begins]))
        await produce(scenes, range(COMMITTED))
        await asyncio.gather(*(ready(case) for case in cases))
        await produce(scenes, range(COMMITTED, WRITTEN))
        await asyncio.gather(*(told_of_all(case) for case in cases))
        yield
    finally:
        await asyncio.gather(*(case.consumer.stop(timeout_ms=STOP_MS) for case in [*cases, *begins]))


def starved_ms() -> dict[str, float]:
    """For how long each thread would have run and no processor was free: no bound of the library's can keep that.

    Also the other threads, as one of them may have the interpreter's lock then: the embedded broker's, for example.
    """
    found = {}
    for thread in Path("/proc/self/task").glob("*"):
        with suppress(OSError):  # it has ended
            found[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1_000_000
    return found


def starved_since(before: dict[str, float]) -> float:
    return sum(ms - before.get(thread, 0.0) for thread, ms in starved_ms().items())


@asynccontextmanager
async def ticking():
    """For how many ms the loop did not come round, each time."""

    async def tick():
        while True:
            at, starved = time.perf_counter(), starved_ms()
            await asyncio.sleep(TICK_S)
            gaps.append((time.perf_counter() - at - TICK_S) * 1_000 - starved_since(starved))

    gaps: list[float] = []
    ticker = asyncio.create_task(tick())
    try:
        yield gaps
    finally:
        ticker.cancel()


async def seen_through(
    scenes: list[Scene], fall_ill: Callable[[], object], get_well: Callable[[], Awaitable[None]]
) -> None:
    """All calls of all scenes at once; then the brokers are well again and the consumers go on, and are stopped."""
    async with prepared(scenes), ticking() as gaps:
        fall_ill()
        found = flat(await asyncio.gather(*(scene.play() for scene in scenes)))
        await get_well()
        await produce(scenes, MORE)
        found += flat(await asyncio.gather(*(scene.go_on() for scene in scenes)))
        found += flat(await asyncio.gather(*(scene.stop() for scene in scenes)))
    assert not found, "\n".join(found)
    assert max(gaps) < LONGEST_TICK_MS


@pytest.mark.parametrize("how", ["pause", "kill"])
async def test_when_all_brokers_are_frozen_or_killed(cluster_1, unique_name, how):
    (node,) = cluster_1.nodes

    async def get_well():
        await asyncio.to_thread(bring_back, cluster_1)

    scene = Scene(cluster_1, cluster_1.bootstrap_servers, unique_name, KINDS)
    try:
        await seen_through([scene], getattr(node, how), get_well)
    finally:
        await get_well()


APIS = (
    "ApiVersions", "Metadata", "FindCoordinator", "ListOffsets", "Fetch", "OffsetFetch", "OffsetCommit", "Heartbeat",
    "JoinGroup", "SyncGroup", "LeaveGroup", "OffsetForLeaderEpoch",
)  # fmt: skip


async def used(apis: tuple[str, ...], rule: Rule, proxy: Proxy, scene: Scene) -> None:
    """Nobody was well by chance: on a busy machine a call may have ended before it asked what its rule is about."""
    (case, *_) = scene.stays

    async def soon(condition: Callable[[], Any]) -> None:
        with suppress(AssertionError):
            await eventually(lambda: rule.used_count or condition(), 3)

    async def commit_with_an_epoch() -> None:
        """An epoch is known of what was read; a position that is taken up with one is checked."""
        case.is_sent_back = True
        case.consumer.seek(case.tp, 0)
        await take(case.consumer, COMMITTED, within_s=3)
        await case.consumer.commit({case.tp: COMMITTED})
        await case.consumer.seek_to_committed()

    calls = (
        commit_with_an_epoch,
        lambda: case.consumer.commit({case.tp: COMMITTED}),
        lambda: case.consumer.committed(case.tp),
        lambda: case.consumer.end_offsets([case.tp]),
        lambda: soon(lambda: False),  # Heartbeat: the members of these scenes are left alone for a while
        lambda: case.consumer.enforce_rebalance("test"),
    )

    async def ask() -> bool:
        if not rule.used_count:
            proxy.disconnect()
            await soon(lambda: case.tp in case.consumer.assignment())
            for call in calls:
                if not rule.used_count:
                    with suppress(errors.AiogroupError, TimeoutError):
                        await call()
            if case.grouped and not rule.used_count:
                case.consumer.unsubscribe()
                await soon(lambda: False)  # LeaveGroup
                case.consumer.subscribe([case.place.topic])
        return rule.used_count > 0

    try:
        await eventually(ask, 40)
    except AssertionError as error:
        raise AssertionError(f"nobody asked for {apis or 'anything'}") from error


ILL = {
    "all at once": [()],
    "each of six": [(api,) for api in APIS[:6]],
    "each of the rest": [(api,) for api in APIS[6:]],
}
"""Which answers: some of these at a time, or a busy machine has no time left for so many consumers in one process."""


@pytest.mark.parametrize("which", ILL)
@pytest.mark.parametrize("how", ["corrupt", "drop", "cut"])
async def test_when_answers_are_garbage_or_never_come_or_connections_are_cut(kafka_cluster, unique_name, how, which):
    """Of one API, for each of them, and of all."""
    async with AsyncExitStack() as stack:
        proxies = {apis: await stack.enter_async_context(Proxy(kafka_cluster.bootstrap_servers)) for apis in ILL[which]}
        scenes = []
        for apis, proxy in proxies.items():
            kinds = {
                f"{how} {', '.join(apis) or 'all'}, {kind}": KINDS[kind] for kind in (["member"] if apis else KINDS)
            }
            scenes.append(Scene(kafka_cluster, proxy.bootstrap_servers, unique_name, kinds))

        rules = {}

        def fall_ill():
            for apis, proxy in proxies.items():
                rules[apis] = getattr(proxy, how)(*apis)
                if not apis or apis[0] in ("ApiVersions", "FindCoordinator"):  # asked on new connections only
                    proxy.disconnect()

        async def get_well():
            there = zip(rules, rules.values(), proxies.values(), scenes, strict=True)
            await asyncio.gather(*(used(*each) for each in there))
            for proxy in proxies.values():
                proxy.clear()

        await seen_through(scenes, fall_ill, get_well)


@pytest.mark.parametrize("says", [b"", b"\0\0\0\0\0\0", b"\0\0\xff\xff\xff\xf0", b"\0\x23\0\0\0\0"])
async def test_a_broker_that_serves_nothing_is_asked_again(kafka_cluster, unique_name, says):
    """Random bytes may read as an answer to ApiVersions without a single API."""
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        scene = Scene(kafka_cluster, proxy.bootstrap_servers, unique_name, {"member": {}})
        (case,) = scene.stays
        async with prepared([scene]):
            with proxy.rewrite("ApiVersions", lambda exchange: exchange.answered[:4] + says) as rule:
                proxy.disconnect()
                await eventually(lambda: rule.used_count >= 5)
            await produce([scene], MORE)
            assert await go_on(case) == []


ASKS = {
    "commit": "OffsetCommit",
    "committed": "OffsetFetch",
    "end_offsets": "ListOffsets",
    "topics": "Metadata",
    "seek_to_beginning": "ListOffsets",
    "seek_to_committed": "OffsetFetch",
}


async def test_a_call_ends_by_itself_when_nothing_else_ends_its_connection(kafka_cluster, unique_name):
    """No refresh, no other call and no lost coordinator comes in between."""
    async with AsyncExitStack() as stack:
        scenes, proxies = {}, {}
        for name in ASKS:
            proxy = proxies[name] = await stack.enter_async_context(Proxy(kafka_cluster.bootstrap_servers))
            kinds = {"quiet": {"metadata_max_age_ms": 600_000}}
            scene = scenes[name] = Scene(kafka_cluster, proxy.bootstrap_servers, unique_name, kinds)
            scene.moves.clear()
            scene.begins.clear()
        async with prepared(list(scenes.values())):
            rules = {name: proxies[name].drop(api) for name, api in ASKS.items()}
            for scene in scenes.values():
                assert (
                    len(await scene.stays[0].consumer.getmany(timeout_ms=10_000)) == 1
                )  # there is something to commit
            calls = {**QUESTIONS, **SEEKS}
            found = await asyncio.gather(*(made(name, calls[name], scenes[name].stays[0]) for name in ASKS))
            assert flat(found) == []
            assert [name for name, rule in rules.items() if not rule.used_count] == []
