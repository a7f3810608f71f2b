"""Three processes of a service under load for half an hour of faults, on real Kafka: is it seen as it is, and all read?

    python -m benchmarks.enduring [--minutes 30] [--seed 1] [--rate 200] [--folder DIR]

A producer sends numbers. A conductor has the processes restarted in turn, freezes the broker, has a handler hang and a
body raise, and so on, in an order of the seed; beside it somebody does what a kubelet would do by `/livez`. Each half
second the probes, `/metrics` and `/state` of every process are asked for the state. In the end: each number that was
sent was processed; what was processed twice was so in a fault that allows it; no process was restarted but where that
helps; each state was seen by every one of these, in the event log and in `aiogroup events`, within its bound, and they
never had two words for one moment. Three minutes have the shorter faults only. It exits with 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from aiokafka import AIOKafkaProducer

from aiogroup.devkafka import Cluster
from aiogroup.devkafka.ports import free_ports
from benchmarks.enduring_worker import GROUP, LOOP, SETTINGS, STOP_MS, TOKEN, TOPIC

PARTITIONS = 6
LOOK_S, SAME_S, MOMENT_S = 0.5, 1.7, 1.2
"""How often it looks; how far apart two places may see a change, since each keeps what it knows for a second; and
what is so short that another place may not have seen it.
"""
SLACK_S = {"livez": 1.0, "readyz": 1.0, "state": 2.0, "metrics": 2.0, "log": 2.0, "event": 1.0, "log event": 1.0}
PROBE_S, PROBE_LIMIT_S, FAILURES = 2.0, 5.0, 3
"""The platform's probe: its period, its time-out, and how many failures in a row restart a process."""
BOOTSTRAP_S = 10.0
"""How long the first try of a broker takes that says nothing, before there is an event."""
GRACE_S = STOP_MS / 1_000 + 5 + 3
SESSION_S, POLL_S = SETTINGS["session_timeout_ms"] / 1_000, SETTINGS["max_poll_interval_ms"] / 1_000
WELL_S = 150.0
EVENTS = {
    "joining": "rebalance_started",
    "rebalancing": "rebalance_started",
    "catching_up": "catch_up_started",
    "degraded": "topic_missing",
    "parked": "poll_interval_exceeded",
    "unreachable": "session_unanswered",
    "failed": "loop_failed",
    "fenced": "member_failed",
    "starting": "no_broker_yet",
    "stopped": "consumer_stopped",
}
OF_LOOP = ("failed", "fenced", "stopped", "starting")
"""States in which there is no consumer that runs, and so no sample."""
OF_SERVICE = ("loop_failed", "no_broker_yet")
"""Events of the service, which the consumer's own event log does not have."""


def now() -> float:
    return time.time()  # noqa: TID251 (beside the clocks of other processes)


async def get(port: int, path: str, limit_s: float = PROBE_LIMIT_S) -> tuple[int, bytes]:
    """The status and the body; 0 if nobody answers in time."""
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: {TOKEN.decode()}"
                writer.write(f"{head}\r\n\r\n".encode())
                begin, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        return int(begin.split()[1]), body
    except (OSError, TimeoutError, IndexError, ValueError):
        return 0, b""


@dataclass
class Worker:
    """One process of the service, and what was seen of it and of those that had its name before."""

    name: str
    port: int
    folder: Path
    servers: str
    static: str | None = None
    process: asyncio.subprocess.Process | None = None
    is_wanted: bool = False
    pids: list[int] = field(default_factory=list)
    words: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    codes: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    events: list[dict[str, Any]] = field(default_factory=list)
    lag: int | None = None
    cpu_s: float = 0.0

    async def start(self) -> None:
        given = {"NAME": self.name, "PORT": str(self.port), "FOLDER": str(self.folder), "SERVERS": self.servers}
        environment = {**os.environ, **given, **({"STATIC": self.static} if self.static else {})}
        with (self.folder / f"stderr-{self.name}").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.enduring_worker", stdout=log, stderr=log, env=environment
            )
        self.pids.append(self.process.pid)
        self.is_wanted = True

    async def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """End it as a platform does; the exit code, and how long it took."""
        process, began = self.process, now()
        assert process is not None
        self.is_wanted = False
        self.note_cpu()
        with suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            code = await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            process.kill()
            code = await process.wait()
        return code, now() - began

    def note_cpu(self) -> None:
        with suppress(psutil.Error):
            used = psutil.Process(self.process.pid if self.process else -1).cpu_times()
            self.cpu_s += used.user + used.system

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def word(self) -> str:
        return self.word_since(0)

    def word_since(self, at: float) -> str:
        """What `/livez` said last, if it has answered since then."""
        words = self.words["livez"]
        return words[-1][1] if words and words[-1][0] > at else ""

    async def look(self) -> None:
        """Ask each place once for the state."""
        for source in ("livez", "readyz"):
            status, body = await get(self.port, f"/aiogroup/{source}")
            self.codes[source].append((now(), status))
            self.note(source, json.loads(body)["state"] if body else "")
        after = self.events[-1]["number"] if self.events and self.events[-1]["pid"] == self.pids[-1] else 0
        status, body = await get(
            self.port, f"/aiogroup/state?after={after}&samples_after={time.time_ns() // 1_000_000}"
        )
        if status == 200:
            document = json.loads(body)
            loop = document["loops"][LOOP]
            self.note("state", loop["state"])
            lags = [each["lag"] for each in loop["partitions"]]
            self.lag = None if None in lags else sum(lags)
            self.events += [{**each, "pid": document["pid"]} for each in document["events"]]
        status, body = await get(self.port, "/aiogroup/metrics")
        if status == 200:
            found = re.findall(rb'^aiogroup_state\{[^}]*state="(\w+)"[^}]*\} 1\.0', body, re.MULTILINE)
            self.note("metrics", found[0].decode() if found else "absent")

    def note(self, source: str, word: str) -> None:
        self.words[source].append((now(), word))


@dataclass(frozen=True)
class Expected:
    """A state that a process must be seen in, from `at` on, within so many seconds."""

    worker: str
    state: str
    at: float
    within_s: float


@dataclass
class Span:
    """One fault, from its begin until all was well again."""

    name: str
    begin: float
    repeats: bool
    helps: frozenset[str]
    """The processes of which the platform may restart one, since it helps."""
    raises_count: int = 0
    end: float = 0.0
    is_disturbing: bool = True


Fault = Callable[["Conductor"], Awaitable[None]]


class Conductor:
    def __init__(self, cluster: Cluster, folder: Path, seed: int, rate: int, minutes: float) -> None:
        self.cluster, self.folder, self.rate, self.minutes = cluster, folder, rate, minutes
        self.random = random.Random(seed)
        ports = free_ports(4)
        servers = cluster.bootstrap_servers
        statics = (None, None, "c", "c")
        self.all = {
            name: Worker(name, port, folder, servers, static)
            for name, port, static in zip("abcd", ports, statics, strict=True)
        }
        self.workers = [self.all[name] for name in "abc"]
        self.sent: list[int] = []
        self.spans: list[Span] = []
        self.expected: list[Expected] = []
        self.restarts: list[tuple[float, str, str]] = []
        self.wrong: list[str] = []
        self.late: list[tuple[float, float]] = []
        self.is_over = False
        self.frozen_s = 60.0 if minutes >= 10 else 15.0

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    def fail(self, text: str) -> None:
        self.wrong.append(text)
        self.say(f"WRONG: {text}")

    def expect(self, worker: Worker, state: str, within_s: float, at: float | None = None) -> None:
        self.expected.append(Expected(worker.name, state, now() if at is None else at, within_s))

    # Beside the faults.

    async def be_late(self) -> None:
        """Note how late the machine wakes this process: what it shows, the others suffer, too."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.2)
            self.late.append((now(), time.monotonic() - began - 0.2))

    def latest(self, begin: float, end: float) -> float:
        return max((late for at, late in self.late if begin <= at <= end), default=0.0)

    async def produce(self) -> None:
        """Numbers at a steady rate. Only those that the broker took count."""
        settings = {"acks": "all", "enable_idempotence": True, "linger_ms": 20, "request_timeout_ms": 180_000}
        async with AIOKafkaProducer(bootstrap_servers=self.cluster.bootstrap_servers, **settings) as producer:
            number, began = 0, time.monotonic()

            def note(number: int) -> Callable[[asyncio.Future[Any]], None]:
                return lambda taken: None if taken.cancelled() or taken.exception() else self.sent.append(number)

            while not self.is_over:
                taken = await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                taken.add_done_callback(note(number))
                number += 1
                await asyncio.sleep(max(0.0, began + number / self.rate - time.monotonic()))
            await producer.flush()

    async def watch(self, worker: Worker) -> None:
        while True:
            if worker.is_running:
                await worker.look()
            await asyncio.sleep(LOOK_S)

    async def keep(self, worker: Worker) -> None:
        """Restart the process as a kubelet would: when it has ended, and by `/livez`."""
        failures, is_up, pid = 0, False, 0
        while True:
            await asyncio.sleep(PROBE_S)
            if not worker.is_wanted:
                continue
            if pid != worker.pids[-1]:
                failures, is_up, pid = 0, False, worker.pids[-1]
            if not worker.is_running:
                assert worker.process is not None
                self.restarts.append((now(), worker.name, f"it had ended with {worker.process.returncode}"))
            else:
                status, _ = await get(worker.port, "/aiogroup/livez")
                if pid != worker.pids[-1]:
                    continue
                is_up = is_up or status == 200  # as a startup probe
                failures = 0 if status == 200 or not is_up or not worker.is_wanted else failures + 1
                if failures < FAILURES:
                    continue
                self.restarts.append((now(), worker.name, f"/livez: {status}, {worker.word()}"))
                await worker.stop()
            self.say(f"restarted {worker.name}: {self.restarts[-1][2]}")
            await worker.start()

    async def command(self, *words: str, limit_s: float = 60.0) -> tuple[int, str]:
        """`aiogroup WORDS`: its exit code and output. One that takes longer is wrong."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aiogroup", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "AIOGROUP_BOOTSTRAP_SERVERS": self.cluster.bootstrap_servers},
        )
        try:
            out, error = await asyncio.wait_for(process.communicate(), limit_s)
        except TimeoutError:
            self.fail(f"aiogroup {' '.join(words)} did not end within {limit_s} s")
            process.kill()
            await process.wait()
            return -1, ""
        return process.returncode or 0, out.decode() or error.decode()

    # What faults are made of.

    async def until(self, what: str, holds: Callable[[], bool], within_s: float) -> bool:
        until = now() + within_s
        while not holds():
            if now() > until:
                self.fail(f"{self.spans[-1].name if self.spans else 'start'}: not within {within_s:g} s: {what}")
                return False
            await asyncio.sleep(0.1)
        return True

    async def well(self) -> None:
        """All are ready, and near the head."""

        def is_well() -> bool:
            return all(
                each.is_running and each.word() == "ready" and each.lag is not None and each.lag < self.rate
                for each in self.workers
            )

        for _ in range(2):  # and stay so
            await self.until(f"all well: {[(x.name, x.word(), x.lag) for x in self.workers]}", is_well, WELL_S)
            await asyncio.sleep(2)

    async def restart(self, worker: Worker, number: int = signal.SIGTERM) -> None:
        code, took_s = await worker.stop(number)
        if took_s > GRACE_S - 3 or code != -number:
            self.fail(f"{self.spans[-1].name}: {worker.name} took {took_s:.1f} s to end, with {code}")
        await self.begin(worker)

    async def begin(self, worker: Worker) -> None:
        began = now()
        await worker.start()
        await self.until(
            f"the port of {worker.name}",
            lambda: bool(worker.word_since(began)),
            60,
        )

    async def fault(self, worker: Worker, path: str) -> None:
        status, _ = await get(worker.port, path)
        if status != 200:
            self.fail(f"{self.spans[-1].name}: {worker.name} answered {status} to {path}")

    def any_dynamic(self) -> tuple[Worker, Worker, Worker]:
        """A process that is no static member, and the other two."""
        first, second = self.random.sample(self.workers[:2], 2)
        return first, second, self.workers[2]

    # All of it.

    async def run_fault(self, fault: Fault) -> None:
        span = Span(fault.__name__, now(), *FAULTS[fault])
        self.spans.append(span)
        self.say(f"{span.name}")
        await fault(self)
        await self.well()
        span.end = now()
        self.say(f"{span.name}: all well after {span.end - span.begin:.0f} s")
        await self.look_by_commands()

    async def look_by_commands(self) -> None:
        """What the commands say of a group that is well, and the events of one process."""
        worker = self.random.choice(self.workers)
        code, text = await self.command("events", f"http://127.0.0.1:{worker.port}/aiogroup", "--header",
                                        f"Authorization: {TOKEN.decode()}")  # fmt: skip
        told = [json.loads(line) for line in text.splitlines()] if not code else []
        of_now = {each["number"]: each for each in worker.events if each["pid"] == worker.pids[-1]}
        for each in told:
            known = of_now.get(each["number"])
            if known is not None and (known["event"], known["at_ms"]) != (each["event"], each["at_ms"]):
                self.fail(f"events of {worker.name}: {each} beside {known}")
        if code or not told:
            self.fail(f"aiogroup events of {worker.name} ended with {code}: {text[-200:]}")
        code, text = await self.command("describe", GROUP, "-o", "json")
        said = json.loads(text) if not code else {}
        if said.get("state") != "Stable" or said.get("members_count") != len(self.workers):
            self.fail(f"aiogroup describe: {code}, {said.get('state')}, {said.get('members_count')} members")

    async def run(self) -> None:
        began = now()
        self.cluster.create_topic(TOPIC, PARTITIONS)
        spawn = asyncio.get_running_loop().create_task
        beside = [spawn(self.watch(each)) for each in self.all.values()]
        beside += [*(spawn(self.keep(each)) for each in self.workers), spawn(self.be_late())]
        producing = spawn(self.produce())
        for each in self.workers:
            await self.begin(each)
        await self.well()
        faults = [each for each in FAULTS if self.minutes >= 10 or each not in LONG]
        rounds = 0
        while rounds == 0 or now() - began < self.minutes * 60:
            for each in self.random.sample(faults, len(faults)):
                if rounds and now() - began >= self.minutes * 60:
                    break
                await self.run_fault(each)
            rounds += 1
        self.is_over = True
        await producing
        await self.at_the_end()
        for task in beside:
            task.cancel()
        for each in self.all.values():
            if each.is_running:
                code, took_s = await each.stop()
                if code != -signal.SIGTERM or took_s > GRACE_S - 3:
                    self.fail(f"at the end {each.name} took {took_s:.1f} s, with {code}")
        self.judge(now() - began)

    async def at_the_end(self) -> None:
        """Nothing moves any more: everybody says the same of the lag."""
        self.say("the producer has ended")
        await self.until("a lag of 0", lambda: all(each.lag == 0 for each in self.workers), WELL_S)
        await asyncio.sleep(7)  # the last auto-commit
        code, text = await self.command("lag", GROUP, "-o", "json", "--interval-ms", "1000")
        total = json.loads(text)["total"] if not code else text
        lags = []
        for each in self.workers:
            _, body = await get(each.port, "/aiogroup/metrics")
            lags += re.findall(rb"^kafka_consumer_fetch_manager_records_lag\{[^}]*\} (\S+)", body, re.MULTILINE)
        if code or total["lag"] != 0 or total["left_count"] != 0 or [float(x) for x in lags] != [0.0] * PARTITIONS:
            self.fail(f"lag at the end: the command says {total}, figures {lags}")

    # The judgement.

    def judge(self, lasted_s: float) -> None:
        self._judge_records()
        self._judge_restarts()
        self._judge_states()
        self._judge_words()
        own = time.process_time()
        print(f"\n{lasted_s / 60:.1f} minutes, {len(self.spans)} faults: "
              f"{dict(Counter(each.name for each in self.spans))}")  # fmt: skip
        late = sorted(late for _, late in self.late)
        print(f"the conductor took {100 * own / lasted_s:.1f} % of a core, the services "
              f"{100 * sum(each.cpu_s for each in self.all.values()) / lasted_s:.1f} %; the machine woke it "
              f"{1000 * late[len(late) * 99 // 100]:.0f} ms late (p99), {1000 * late[-1]:.0f} ms at most")  # fmt: skip
        print(f"files are in {self.folder}")
        print(f"{len(self.wrong)} things are wrong" + "".join(f"\n- {each}" for each in self.wrong))

    def _judge_records(self) -> None:
        times: dict[int, list[float]] = defaultdict(list)
        for path in self.folder.glob("processed-*"):
            for line in path.read_text().splitlines():
                number, at_ms = line.split()
                times[int(number)].append(int(at_ms) / 1_000)
        lost = sorted(set(self.sent) - times.keys())
        if lost:
            self.fail(f"{len(lost)} records were lost: {lost[:20]}")
        repeats: Counter[str] = Counter()
        for number, all_times in times.items():
            for at in sorted(all_times)[1:]:
                span = next((each for each in self.spans if each.begin <= at <= each.end + 1), None)
                repeats[span.name if span else "between faults"] += 1
                if span is None or not span.repeats:
                    repeats["WRONG"] += 1
                    if repeats["WRONG"] <= 5:
                        self.fail(f"{number} was processed again at {at:.1f} in {span.name if span else 'no fault'}")
        print(f"\n{len(self.sent):,} records sent and taken, {len(times):,} processed, repeats: {dict(repeats)}")

    def _judge_restarts(self) -> None:
        for at, name, why in self.restarts:
            span = next((each for each in self.spans if each.begin <= at <= (each.end or at)), None)
            if span is None or name not in span.helps:
                self.fail(f"{name} was restarted in {span.name if span else 'no fault'}: {why}")
        print(f"restarted by the platform: {[(name, why) for _, name, why in self.restarts]}")
        failed = Counter(each["why"] for worker in self.all.values() for each in worker.events
                         if each["event"] == "loop_failed")  # fmt: skip
        raises = sum(each.raises_count for each in self.spans)
        if failed["body_raised"] != raises or failed.keys() - {"body_raised", "fenced"}:
            self.fail(f"loops failed: {dict(failed)}, and {raises} bodies raised")
        print(f"loops that failed, by why: {dict(failed)}")

    def _judge_states(self) -> None:
        log = self._log()
        seen: dict[str, list[str]] = defaultdict(list)
        for each in self.expected:
            worker = self.all[each.worker]
            places = {source: worker.words[source] for source in ("livez", "readyz", "state", "metrics")}
            if each.state not in OF_LOOP:
                places["log"] = [(at, line["status"]) for at, line in log[each.worker] if line["event"] == "sample"]
            event = EVENTS.get(each.state)
            if event is not None:
                places["event"] = [
                    (line["at_ms"] / 1_000, each.state) for line in worker.events if line["event"] == event
                ]
                if event not in OF_SERVICE:
                    places["log event"] = [(at, each.state) for at, line in log[each.worker] if line["event"] == event]
            for place, words in places.items():
                first = next((at for at, word in words if at >= each.at - 0.3 and word == each.state), None)
                took = None if first is None else first - each.at
                bound = each.within_s + SLACK_S[place]
                bound += BOOTSTRAP_S if (place, event) == ("event", "no_broker_yet") else 0
                bound += 4 * self.latest(each.at, each.at + bound)
                if took is None or took > bound:
                    late = "never" if took is None else f"after {took:.1f} s"
                    when = time.strftime("%H:%M:%S", time.localtime(each.at))
                    self.fail(
                        f"{each.state} of {each.worker} was to be seen within {each.within_s:g} s of {when}, "
                        f"and in {place} was {late}"
                    )
                if took is not None:
                    seen[f"{each.state} in {place}"].append(f"{max(0.0, took):.1f}")
        print("seconds until a state was seen, the worst of each place:")
        for name in sorted(seen):
            print(f"  {name}: {max(map(float, seen[name])):.1f} ({len(seen[name])} times)")

    def _log(self) -> dict[str, list[tuple[float, dict[str, Any]]]]:
        """The lines of the event logs, by process and in order of their time."""
        found: dict[str, list[tuple[float, dict[str, Any]]]] = defaultdict(list)
        for name in self.all:
            for path in self.folder.glob(f"events-{name}-*.jsonl"):
                lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
                found[name] += [(each["at_ms"] / 1_000, each) for each in lines]
            found[name].sort(key=lambda each: each[0])
        return found

    def _judge_words(self) -> None:
        """A word that one place has and no other had at about the same time is a second language."""
        count, strange = 0, Counter[str]()
        for worker in self.all.values():
            probe = worker.words["livez"]
            for source in ("readyz", "state", "metrics"):
                place = 0
                earlier, before = 0.0, ""
                for at, word in worker.words[source]:
                    if word != before:
                        earlier, before = at, word
                    if not word or at - earlier < MOMENT_S:
                        continue
                    while place < len(probe) and probe[place][0] < at - MOMENT_S - SAME_S:
                        place += 1
                    around = set()
                    for when, said in probe[place:]:
                        if when > at + SAME_S:
                            break
                        around.add(said)
                    count += 1
                    if around - {""} and word not in around:
                        strange[f"{worker.name}: {source} says {word}, /livez {'/'.join(sorted(around - {''}))}"] += 1
        for what, times in strange.items():
            self.fail(f"{what} ({times} times)")
        print(f"{count:,} words of /readyz, /state and /metrics were compared with those of /livez")


# The faults. Each says which states are to be seen.


async def rolling_restart(on: Conductor) -> None:
    for worker in on.workers:
        await on.restart(worker)
        on.expect(worker, "ready", SESSION_S + 15)
        await on.well()
    for at, status in [
        each for worker in on.workers for each in worker.codes["readyz"] if each[0] >= on.spans[-1].begin
    ]:
        others = [x for w in on.workers for when, x in w.codes["readyz"] if abs(when - at) <= 1.2]
        if status != 200 and 200 not in others:
            on.fail(f"nobody was ready at {at:.1f}, in a rolling restart")
            break


async def frozen_broker(on: Conductor) -> None:
    [node] = on.cluster.nodes
    restarted, _, _ = on.any_dynamic()
    await asyncio.to_thread(node.pause)
    frozen = now()
    for each in on.workers:
        on.expect(each, "unreachable", SESSION_S + 1, frozen)
    code, text = await on.command("lag", GROUP, "--timeout-ms", "4000")
    if code != 1:
        on.fail(f"aiogroup lag of a frozen broker ended with {code}: {text[-200:]}")
    await asyncio.sleep(max(SESSION_S + 3, on.frozen_s / 2) - (now() - frozen))
    await on.restart(restarted)
    on.expect(restarted, "starting", 3)
    await asyncio.sleep(max(BOOTSTRAP_S + 2, on.frozen_s - (now() - frozen)))
    await asyncio.to_thread(node.resume)
    for each in on.workers:
        if any(status == 503 for at, status in each.codes["livez"] if at >= frozen):
            on.fail(f"/livez of {each.name} failed while the broker was frozen")
        on.expect(each, "ready", 40)


async def handler_hangs_and_comes_back(on: Conductor) -> None:
    worker, *_ = on.any_dynamic()
    began = now()
    await on.fault(worker, f"/fault?hang_s={POLL_S + 10}")
    on.expect(worker, "parked", POLL_S + 1, began)
    on.expect(worker, "ready", 15, began + POLL_S + 10)
    await asyncio.sleep(POLL_S + 10)


async def handler_hangs_for_ever(on: Conductor) -> None:
    worker, *_ = on.any_dynamic()
    began, pid = now(), worker.pids[-1]
    await on.fault(worker, "/fault?hang_s=3600")
    on.expect(worker, "parked", POLL_S + 1, began)
    helped_s = POLL_S + 60 + PROBE_S * (FAILURES + 1) + GRACE_S
    await on.until("a restart by /livez", lambda: worker.pids[-1] != pid, helped_s + 10)
    on.expect(worker, "ready", helped_s + 20, began + POLL_S + 60)


async def body_raises(on: Conductor) -> None:
    worker = on.random.choice(on.workers)
    on.expect(worker, "failed", 1)
    on.spans[-1].raises_count = 1
    await on.fault(worker, "/fault?raises_count=1")
    await asyncio.sleep(3)
    on.expect(worker, "ready", 25)


async def body_raises_always(on: Conductor) -> None:
    worker, *_ = on.any_dynamic()
    pid = worker.pids[-1]
    on.expect(worker, "failed", 1)
    await on.fault(worker, "/fault?raises_count=100")
    await on.until("a restart by /livez", lambda: worker.pids[-1] != pid, 150)
    on.expect(worker, "ready", 30)
    on.spans[-1].raises_count = sum(
        each["event"] == "loop_failed" and each["at_ms"] / 1_000 >= on.spans[-1].begin for each in worker.events
    )


async def two_have_one_name(on: Conductor) -> None:
    older, newer = on.workers[2], on.all["d"]
    await on.begin(newer)
    await on.until("the newer is ready", lambda: newer.word() == "ready", 30)
    if not await on.until("the older is fenced", lambda: older.word() == "fenced", 10):
        return
    began = next(each["at_ms"] for each in older.events[::-1] if each["event"] == "loop_failed") / 1_000
    on.expect(older, "fenced", 1, began)
    await asyncio.sleep(10)
    if any(status != 200 for at, status in older.codes["livez"] if at > began):
        on.fail("a fenced process fails /livez")
    await newer.stop()
    await asyncio.sleep(5)
    if older.word() != "fenced":
        on.fail(f"a fenced process became {older.word()} by itself")
    await on.restart(older)
    on.expect(older, "ready", SESSION_S + 15)


async def topic_is_missing(on: Conductor) -> None:
    worker, *_ = on.any_dynamic()
    await on.fault(worker, "/subscribe?also=missing")
    on.expect(worker, "degraded", 10)
    await asyncio.sleep(10)
    await on.fault(worker, "/subscribe")
    on.expect(worker, "ready", 10)
    await asyncio.sleep(3)


async def hand_over_is_slow(on: Conductor) -> None:
    slow, restarted, other = on.any_dynamic()
    await on.fault(slow, "/fault?hang_s=13")
    await asyncio.sleep(0.5)
    began = now()
    await restarted.stop()
    on.expect(other, "rebalancing", 3, began)
    started = now()
    await on.begin(restarted)
    if now() - began < 10:  # the process was there while the others still waited
        on.expect(restarted, "joining", now() - started + 3, started)
    on.expect(restarted, "ready", 25)
    on.expect(other, "ready", 20, began + 13)


async def all_are_away(on: Conductor) -> None:
    ended = await asyncio.gather(*(each.stop() for each in on.workers))
    if any(code != -signal.SIGTERM or took_s > GRACE_S - 3 for code, took_s in ended):
        on.fail(f"all away: {ended}")
    await asyncio.sleep(20)
    began = now()
    await asyncio.gather(*(on.begin(each) for each in on.workers))
    for each in on.workers:
        on.expect(each, "catching_up", SESSION_S + 15 + now() - began, began)


async def application_stops_it(on: Conductor) -> None:
    worker, *_ = on.any_dynamic()
    await on.fault(worker, "/fault?hang_s=5")
    await asyncio.sleep(0.5)
    began = now()
    await on.fault(worker, "/stop")
    on.expect(worker, "stopping", 1, began)
    await asyncio.sleep(8)
    on.expect(worker, "stopped", 6, began)
    await on.restart(worker)


async def loop_is_blocked(on: Conductor) -> None:
    worker = on.random.choice(on.workers)
    await on.fault(worker, "/fault?block_s=8")
    await asyncio.sleep(10)
    if not any(
        each["event"] == "event_loop_blocked" and each["at_ms"] / 1_000 > on.spans[-1].begin for each in worker.events
    ):
        on.fail(f"a blocked loop of {worker.name} was no event")


async def process_is_killed(on: Conductor) -> None:
    worker, *_ = on.any_dynamic()
    worker.note_cpu()
    assert worker.process is not None
    worker.process.kill()
    killed, pid = now(), worker.pids[-1]
    await on.until("another process", lambda: worker.pids[-1] != pid and worker.word_since(killed) != "", 60)
    on.expect(worker, "ready", SESSION_S + 15)


NOBODY, A_OR_B = frozenset(""), frozenset("ab")
FAULTS: dict[Fault, tuple[bool, frozenset[str]]] = {
    rolling_restart: (False, NOBODY),
    frozen_broker: (True, NOBODY),
    handler_hangs_and_comes_back: (True, NOBODY),
    handler_hangs_for_ever: (True, A_OR_B),
    body_raises: (True, NOBODY),
    body_raises_always: (True, A_OR_B),
    two_have_one_name: (True, NOBODY),
    topic_is_missing: (True, NOBODY),  # a subscribe of the application does not wait for the record in its hand
    hand_over_is_slow: (False, NOBODY),
    all_are_away: (False, NOBODY),
    application_stops_it: (False, NOBODY),
    loop_is_blocked: (True, NOBODY),
    process_is_killed: (True, A_OR_B),
}
"""Whether records may be processed again, and which processes the platform may restart."""
LONG = (handler_hangs_for_ever, body_raises_always, rolling_restart, all_are_away)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", default="", help="names of faults, with commas between them")
    given = parser.parse_args()
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="enduring-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for each in [x for x in FAULTS if given.only and x.__name__ not in given.only.split(",")]:
        del FAULTS[each]
    with Cluster() as cluster:
        conductor = Conductor(cluster, folder, given.seed, given.rate, given.minutes)
        try:
            asyncio.run(conductor.run())
        finally:
            for each in conductor.all.values():
                if each.is_running and each.process is not None:
                    with suppress(ProcessLookupError):
                        each.process.kill()
    sys.exit(bool(conductor.wrong))


if __name__ == "__main__":
    main()
