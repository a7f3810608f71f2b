"""One or three nodes of Apache Kafka in KRaft mode, which leave no trace when their parent process ends."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from aiogroup.devkafka import jars, jvm, keeper, security, storage, wire
from aiogroup.devkafka.config import CONTROLLER, PLAINTEXT, NodePlan, render, server_properties
from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.devkafka.node import Node
from aiogroup.devkafka.ports import free_ports, is_free
from aiogroup.devkafka.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

_CREATE_MS: Final = 30_000
_HIGHEST_PORT: Final = 65_535
_SECURITY: Final = (PLAINTEXT, *security.SECURE_LISTENERS)
# REQUEST_TIMED_OUT, NOT_CONTROLLER, and INVALID_REPLICATION_FACTOR while a restarted broker is still fenced.
_RETRIABLE_CREATE: Final = frozenset({7, 38, 41})
_TOPIC_ALREADY_EXISTS: Final = 36
_HEAP: Final = "512m"
_BENCHMARK_HEAP: Final = "1g"
"""As in Kafka's own start script. With half of it, a broker whose clients have thousands of partitions collects garbage
instead of answering them.
"""


def _uuid() -> str:
    # Kafka's ids are 16 bytes in URL-safe base64; one that starts with a dash would read as an option.
    while (text := base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()).startswith("-"):
        pass
    return text


class Cluster:
    """Real Kafka for the length of a `with` block (`async with` does the same and keeps the loop free).

    Args:
        nodes: 1, or 3 (replication factor 3, min.insync.replicas 2: two nodes must be up).
        port: the port of the first node's listener of `security`. The ports of the other nodes follow; other listeners
            draw theirs. With 0 all ports are drawn.
        properties: broker settings over the defaults, for every node.
        listeners: more listeners, name -> security protocol.
        advertised_ports: listener name -> one port per node, for a proxy in front of the nodes.
        security: "PLAINTEXT", or any other protocol: then SSL, SASL_SSL and SASL_PLAINTEXT listen as well.
        users: name -> password for PLAIN and SCRAM.
        benchmark: let the JVM optimise fully, with the memory that Kafka's own script gives a broker; nodes start
            slower.
        java_options: options for the nodes' JVMs, after devkafka's own.
        start_timeout_ms: for all nodes together.

    Raises:
        DevKafkaError: from `with`, when a node does not come up; the message has the ends of the logs.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        advertised_ports: Mapping[str, Sequence[int]] | None = None,
        security: str = PLAINTEXT,
        users: Mapping[str, str] | None = None,
        benchmark: bool = False,
        java_options: Sequence[str] = (),
        start_timeout_ms: int = 60_000,
    ) -> None:
        if nodes not in (1, 3):
            raise DevKafkaError(f"nodes={nodes}: 1 or 3, the smallest cluster that survives a node")
        if not 0 <= port <= _HIGHEST_PORT - nodes:
            raise DevKafkaError(f"port={port}: 0, or so low that {nodes} fit up to {_HIGHEST_PORT}")
        if security not in _SECURITY:
            raise DevKafkaError(f"security={security!r}: one of {', '.join(_SECURITY)}")
        self._count = nodes
        self._port = port
        self._properties = dict(properties or {})
        self._protocols = {PLAINTEXT: PLAINTEXT, **(listeners or {})}
        self._advertised = dict(advertised_ports or {})
        self._security = security
        self._secure = security != PLAINTEXT
        self._users = dict(users or {"alice": "alice-secret"}) if self._secure else {}
        self._benchmark = benchmark
        self._java_options = tuple(java_options)
        self._start_timeout_ms = start_timeout_ms
        self._keeper: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None
        self._tools: list[subprocess.Popen[Any]] = []
        self._cluster_id = _uuid()
        self.nodes: list[Node] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.log_tail())
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` of the PLAINTEXT listeners."""
        return self.bootstrap(PLAINTEXT)

    def bootstrap(self, listener: str) -> str:
        """`host:port,...` of the named listener, one for each node whether it runs or not."""
        return ",".join(node.address(listener) for node in self.nodes)

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id."""
        return self._cluster_id

    @property
    def directory(self) -> Path:
        """The folder of data, settings and logs until the cluster closes."""
        if self._directory is None:
            raise DevKafkaError("the cluster is not started")
        return self._directory

    @property
    def ca_pem(self) -> Path:
        """The certificate authority to trust on SSL and SASL_SSL."""
        if not self._secure:
            raise DevKafkaError("this cluster has no certificates: start it with security='SASL_SSL'")
        return self.directory / "ca.pem"

    def start(self) -> None:
        """Start the nodes, as `with` does at its beginning."""
        if self._directory is not None:
            raise DevKafkaError("the cluster is started already")
        self._directory = Path(tempfile.mkdtemp(prefix="aiogroup-devkafka-"))
        try:
            self._keeper = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", keeper.__file__, str(os.getpid()), str(self._directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                process_group=0,
            )
            self._lay_out_and_start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the nodes, as `with` does at its end: everything started here is gone when it returns. May be called
        twice.
        """
        for tool in self._tools:
            tool.kill()
            tool.wait()
            for pipe in (tool.stdin, tool.stdout, tool.stderr):
                if pipe is not None:
                    pipe.close()
        self._tools.clear()
        self._end_nodes()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        if self._keeper is not None:
            # The keeper is killed last: if this process dies before, the keeper finishes the work. The whole group is
            # killed, since an interrupted start may have left a JVM that was not noted.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._keeper.pid, signal.SIGKILL)
            if self._keeper.stdin is not None:
                self._keeper.stdin.close()
            self._keeper.wait()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._keeper = None
        self._directory = None

    def await_ready(self) -> None:
        """Return when every running node that is not paused lists all such nodes in its metadata."""
        self._await_ready()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic. Returns when every live node knows a leader for each partition, and the live leaders serve.

        Raises:
            DevKafkaError: the broker refuses (the message quotes the broker's), or no leader serves within 30 s.
        """
        refusal = "no live node"
        unsure = False

        def made() -> bool:
            nonlocal refusal, unsure
            for node in self._live():
                try:
                    code, text = wire.create_topic(node.port, name, partitions, replication_factor, config or {})
                except wire.WireError as error:
                    refusal, unsure = str(error), True
                    continue
                if code == 0 or (code == _TOPIC_ALREADY_EXISTS and unsure):
                    return True
                refusal = f"error {code}: {text}"
                if code not in _RETRIABLE_CREATE:
                    raise DevKafkaError(f"topic {name!r} was refused, {refusal}")
                unsure = unsure or code == 7
            return False

        def led() -> bool:
            views = [self._view(node, (name,)) for node in self._live()]
            known = [view.leaders.get(name, {}) for view in views if view is not None]
            is_known = len(known) == len(views) > 0 and all(len(leaders) == partitions for leaders in known)
            return is_known and served(known[0])

        def served(leaders: Mapping[int, int]) -> bool:
            """Whether the leaders serve. Metadata names a leader a moment before it has opened the new logs; until then
            it refuses requests.
            """
            ports = {node.node_id: node.port for node in self._live()}
            try:
                return all(
                    wire.serves(ports[leader], name, [each for each in leaders if leaders[each] == leader])
                    for leader in ports.keys() & leaders.values()
                )
            except wire.WireError:
                return False

        wait_until(made, _CREATE_MS, lambda: f"topic {name!r} made; {refusal}")
        wait_until(led, _CREATE_MS, lambda: f"a leader that serves each partition of {name!r}\n{self.log_tail()}")

    def log_tail(self, lines: int = 40) -> str:
        """The end of each node's log, with its state."""
        parts = []
        for node in self.nodes:
            state = "paused" if node.is_paused else "running" if node.is_running else f"ended {node.exit_code()}"
            parts.append(f"--- node {node.node_id} ({state}), last {lines} lines\n{node.log_tail(lines)}")
        return "\n".join(parts)

    def java(self, main_class: str, *args: str, **popen: Any) -> subprocess.Popen[Any]:  # noqa: ANN401 (Popen's own)
        """Run a tool of Kafka's jars, for example `org.apache.kafka.tools.VerifiableConsumer`; it ends with the
        cluster.

        `popen` goes to `subprocess.Popen`. Standard input is empty unless named there.
        """
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("process_group", self._group())
        command = jvm.tool(main_class, *args, is_quick=not self._benchmark)
        tool: subprocess.Popen[Any] = subprocess.Popen(command, **popen)  # noqa: S603
        self._tools.append(tool)
        return tool

    def _lay_out_and_start(self) -> None:
        self._lay_out(jars.java(), jars.classpath())
        for node in self.nodes:
            node.start(wait=False)
        self._await_ready(*self.nodes)

    def _end_nodes(self) -> None:
        for node in self.nodes:
            node.kill()

    def _group(self) -> int:
        if self._keeper is None:
            raise DevKafkaError("the cluster is not started")
        return self._keeper.pid

    def _lay_out(self, java: Path, classpath: str) -> None:
        extra: dict[str, str] = {}
        if self._secure:
            security.check_users(self._users)
            self._protocols |= {name: name for name in security.SECURE_LISTENERS}
            extra |= security.security_properties(security.make_certificates(self.directory), self._users)
        heap, options = (_BENCHMARK_HEAP, []) if self._benchmark else (_HEAP, jvm.quick(java, classpath, "nodes"))
        plans = self._plans()
        voters = {plan.node_id: plan.ports[CONTROLLER] for plan in plans}
        for plan in plans:
            home = self.directory / f"node-{plan.node_id}"
            home.mkdir()
            settings = server_properties(plan, voters, str(home / "data"), {**extra, **self._properties})
            (home / "server.properties").write_text(render(settings))
            command = [*jvm.run(java, classpath, heap, *options, *self._java_options), "kafka.Kafka"]
            command.append(str(home / "server.properties"))
            self.nodes.append(Node(plan, command, home / "broker.log", self._group(), self._await_ready))
        self._format()

    def _plans(self) -> list[NodePlan]:
        names = [*self._protocols, CONTROLLER]
        fixed = [self._port + i if self._port else 0 for i in range(self._count)]
        for port in filter(None, fixed):
            if not is_free(port):
                raise DevKafkaError(f"port {port} is taken; name another or 0")
        drawn = iter(free_ports(self._count * len(names), frozenset(fixed)))
        plans = []
        for i in range(self._count):
            ports = {name: next(drawn) for name in names}
            if fixed[i]:
                ports[self._security] = fixed[i]
            advertised = {name: ports_of[i] for name, ports_of in self._advertised.items()}
            plans.append(NodePlan(i + 1, ports, dict(self._protocols), advertised))
        return plans

    def _format(self) -> None:
        """Write each node's storage. Kafka's tool, a JVM of its own, is run only if its result is not known."""
        places = [(node, self.directory / f"node-{node.node_id}" / "data") for node in self.nodes]
        kept = None if self._users else storage.kept_checkpoint(self._properties)
        records = storage.first_records(kept)
        if records is None:
            self._run_storage_tool(places[0][1].with_name("server.properties"))
            if not (places[0][1] / storage.CHECKPOINT).exists():
                return  # the user's settings have put it elsewhere
            records = storage.keep(places.pop(0)[1], kept)
        for node, data in places:
            storage.write(data, records, self._cluster_id, node.node_id, _uuid())

    def _run_storage_tool(self, settings: Path) -> None:
        done = subprocess.run(  # noqa: S603
            jvm.tool(
                *("kafka.tools.StorageTool", "format", "-t", self._cluster_id),
                *("-c", str(settings), *security.scram_arguments(self._users)),
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            process_group=self._group(),
        )
        if done.returncode:
            raise DevKafkaError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")

    def _live(self) -> list[Node]:
        return [node for node in self.nodes if node.is_running and not node.is_paused]

    def _view(self, node: Node, topics: tuple[str, ...] = ()) -> wire.BrokerView | None:
        try:
            return wire.metadata(node.port, topics)
        except wire.WireError:
            return None

    def _await_ready(self, *required: Node) -> None:
        def ready() -> bool:
            for node in required:
                if not node.is_running:
                    raise DevKafkaError(f"node {node.node_id} ended while starting\n{self.log_tail()}")
            live = self._live()
            ids = {node.node_id for node in live}
            views = [self._view(node) for node in live]
            seen = all(v is not None and v.broker_ids >= ids and v.cluster_id == self._cluster_id for v in views)
            if not seen:
                return False
            try:
                return all(wire.api_versions(node.port) for node in live)
            except wire.WireError:
                return False

        wait_until(ready, self._start_timeout_ms, lambda: f"every node listed by every other\n{self.log_tail()}")
