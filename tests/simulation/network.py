"""The virtual network of a simulation: it tells processes apart, its weather changes, and requests are lost."""

from __future__ import annotations

from aiogroup.embedded.shell.virtual_network import VirtualNetwork
from tests.simulation.loop import PROCESS


class Network(VirtualNetwork):
    """`weather` is the share of messages that are late, `late_ms` how late they may be."""

    def __init__(self, cluster, loop, rng):
        super().__init__(cluster, loop, rng)
        self.checker = None
        self.weather = 0.0
        self.late_ms = 0
        self.lost = {}  # (process, API key): until then such a request makes its connection deaf
        self.processes = {}  # by connection: whose it is, or was
        self._deaf = set()  # lines: nothing of what is written arrives any more, and nobody learns it

    def client(self):
        return PROCESS.get()

    @property
    def open_lines(self):
        return list(self.lines.values())

    async def connect(self, *where):
        line, protocol = await super().connect(*where)
        self.processes[line.connection] = line.client
        return line, protocol

    def delay_ms(self):
        delay_ms = super().delay_ms()
        if self.weather and self.draw.random() < self.weather:
            delay_ms += self.draw.randrange(self.late_ms)
        return delay_ms

    def send_up(self, line, data):
        key = int.from_bytes(data[4:6])
        self.checker.on_write(line.client, key, self._unanswered(line.client))
        if self.loop.time() < self.lost.get((line.client, key), 0.0):
            self._deaf.add(line)
        super().send_up(line, data)

    def arrives(self, line, data):
        if line not in self._deaf:
            super().arrives(line, data)

    def _unanswered(self, process):
        return {key for line in self.lines.values() if line.client is process for key in line.unanswered.values()}

    # Faults.

    def block_nodes(self, process, nodes, duration_ms):
        for node_id in nodes:
            self.block(process, node_id, duration_ms)

    def lose(self, process, request_types, duration_ms):
        """What the process writes of these is lost for so long, and what it writes behind it on the same connection."""
        for each in request_types:
            self.lost[process, each.API_KEY] = self.loop.time() + duration_ms / 1000

    def heal(self):
        super().heal()
        self.weather = 0.0
        self.lost.clear()
