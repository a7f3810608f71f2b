"""One cluster for several processes: one of them starts it and lends it, the others find it by a socket.

The lender is the process that starts the others, such as pytest-xdist's controller: the cluster ends with it, in
whatever order the others end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aiogroup.devkafka.cluster import Cluster
from aiogroup.devkafka.config import NodePlan
from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.devkafka.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable

_BACKLOG: Final = 64


class Lender:
    """Starts a cluster when it is first asked for, and lends it until `close`.

    `make` makes the cluster, which is not started.
    """

    def __init__(self, make: Callable[[], Cluster]) -> None:
        self._make = make
        self._cluster: Cluster | None = None
        self._answer: bytes | None = None
        # Only this user may enter the folder, and so connect to the socket in it.
        self._directory = Path(tempfile.mkdtemp(prefix="aiogroup-lent-"))
        self.address = str(self._directory / "socket")
        self._listener = connection.Listener(self.address, family="AF_UNIX", backlog=_BACKLOG)
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name="devkafka lender", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the cluster, if it was started."""
        self._is_closing = True
        with contextlib.suppress(OSError):  # accept() is not woken by closing its socket
            connection.Client(self.address, family="AF_UNIX").close()
        self._thread.join()
        self._listener.close()
        if self._cluster is not None:
            self._cluster.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _serve(self) -> None:
        while True:
            try:
                asking = self._listener.accept()
            except OSError:  # whoever asked has gone already
                continue
            with asking:
                if self._is_closing:
                    return
                if self._answer is None:
                    self._answer = json.dumps(self._start()).encode()
                with contextlib.suppress(OSError):
                    asking.send_bytes(self._answer)

    def _start(self) -> dict[str, Any]:
        cluster = self._make()
        try:
            cluster.start()
        except DevKafkaError as error:
            return {"error": str(error)}
        self._cluster = cluster
        return {
            "cluster_id": cluster.cluster_id,
            "directory": str(cluster.directory),
            "nodes": [node.description() for node in cluster.nodes],
        }


class BorrowedCluster(Cluster):
    """A cluster that another process started, and that ends when that process ends it.

    Its nodes cannot be stopped, killed or paused here, since others use them.

    Raises:
        DevKafkaError: from `with`, when the lender is gone or its cluster did not start; the message says why.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._lent_directory: Path | None = None

    def _lay_out_and_start(self) -> None:
        try:
            with connection.Client(self._address, family="AF_UNIX") as lender:
                answer = json.loads(lender.recv_bytes())
        except (OSError, EOFError) as error:
            raise DevKafkaError(f"the process that shares its cluster is gone: {error}") from error
        if "error" in answer:
            raise DevKafkaError(answer["error"])
        self._cluster_id = answer["cluster_id"]
        self._lent_directory = Path(answer["directory"])
        self.nodes = [_BorrowedNode(**each) for each in answer["nodes"]]

    @property
    def directory(self) -> Path:
        """The lender's folder of data, settings and logs."""
        if self._lent_directory is None:
            raise DevKafkaError("the cluster is not started")
        return self._lent_directory

    def _end_nodes(self) -> None:
        self.nodes.clear()
        self._lent_directory = None


def _refuse(*_: object) -> NoReturn:
    raise DevKafkaError("this cluster is shared with other processes: start one of your own to stop or pause its nodes")


class _BorrowedNode(Node):
    def __init__(self, plan: dict[str, Any], pid: int, log_path: str) -> None:
        super().__init__(NodePlan(**plan), (), Path(log_path), 0, _refuse)
        self._pid = pid

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def is_running(self) -> bool:
        try:
            os.kill(self._pid, 0)
        except OSError:
            return False
        return True

    def start(self, *, wait: bool = True) -> None:
        _refuse(wait)

    def stop(self, timeout_ms: int = 0) -> None:
        _refuse(timeout_ms)

    def kill(self) -> None:
        _refuse()

    def pause(self) -> None:
        _refuse()

    def resume(self) -> None:
        _refuse()
