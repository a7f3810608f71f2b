"""A large group at the embedded broker: `python -m benchmarks.embedded_groups [--members 200] [--rounds 5]`.

Seconds of CPU for one round of a group, and for the heartbeats of all its members at Kafka's interval of 3 s. The
machine alone is without sockets; the rest goes over TCP to a broker in a thread, whose CPU alone counts.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from random import Random

from aiogroup._core.protocol.framing import decode_response, encode_request
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from aiogroup.embedded import Broker
from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.settings import Settings

NOW_MS = 1_800_000_000_000
BEATS = 20
INTERVAL_S = 3
METADATA = b"m" * 100


class Pure:
    """Connections to a machine without sockets."""

    def __init__(self):
        self.cluster = Cluster(Settings.of({}), Random(1))
        self.answers = {}

    def cpu_s(self):
        return time.process_time()

    def connect(self):
        return self.cluster.connect(1, NOW_MS)

    def send(self, connection, frame):
        connection.receive(frame, NOW_MS)
        for answered, buffers in self.cluster.take_output():
            self.answers[answered.number] = b"".join(buffers)

    def answer(self, connection):
        return self.answers.pop(connection.number)[4:]

    def close(self):
        pass


class Tcp:
    """Connections to a broker in a thread; the CPU of its thread is told by the thread itself."""

    def __init__(self):
        self.broker = Broker().__enter__()
        self.thread = next(each for each in threading.enumerate() if "embedded" in each.name)
        self.peers = []

    def cpu_s(self):
        return time.clock_gettime(time.pthread_getcpuclockid(self.thread.ident))

    def connect(self):
        self.peers.append(socket.create_connection(("127.0.0.1", self.broker.nodes[0].port)))
        return self.peers[-1]

    def send(self, connection, frame):
        connection.sendall(frame)

    def answer(self, connection):
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        return connection.recv(size, socket.MSG_WAITALL)

    def close(self):
        for each in self.peers:
            each.close()
        self.broker.close()


def framed(request, version):
    frame = encode_request(request, version, 1, "benchmark")
    return len(frame).to_bytes(4, "big") + frame


def joining(number, member_id=""):
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        group_instance_id=f"m{number}",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol("range", METADATA),),
    )


def measure(place, count):
    """CPU of a whole round, and of one heartbeat."""
    lines = [place.connect() for _ in range(count)]
    place.send(lines[0], framed(joining(0), 9))
    ids = [decode_response(JoinGroupRequest, 9, place.answer(lines[0]))[1].member_id]
    begin_s = place.cpu_s()
    for number in range(1, count):
        place.send(lines[number], framed(joining(number), 9))
    time.sleep(0.2 if isinstance(place, Tcp) else 0)  # the leader's own join ends the round: it must be the last
    place.send(lines[0], framed(joining(0, ids[0]), 9))
    joined = [decode_response(JoinGroupRequest, 9, place.answer(line))[1] for line in lines]
    generation = joined[0].generation_id
    if any(each.error_code or each.generation_id != generation for each in joined):
        raise RuntimeError("not all of them are in one generation")
    given = tuple(SyncGroupRequestAssignment(each.member_id, METADATA) for each in joined)
    for line, each in zip(lines, joined, strict=True):
        shares = given if each is joined[0] else ()
        place.send(line, framed(SyncGroupRequest("g", generation, each.member_id, assignments=shares), 3))
    for line in lines:
        if decode_response(SyncGroupRequest, 3, place.answer(line))[1].error_code:
            raise RuntimeError("SyncGroup was refused")
    round_s = place.cpu_s() - begin_s
    beats = [framed(HeartbeatRequest("g", generation, each.member_id), 4) for each in joined]
    begin_s = place.cpu_s()
    for _ in range(BEATS):
        for line, frame in zip(lines, beats, strict=True):
            place.send(line, frame)
            if decode_response(HeartbeatRequest, 4, place.answer(line))[1].error_code:
                raise RuntimeError("a heartbeat was refused")
    beat_s = (place.cpu_s() - begin_s) / (BEATS * count)
    place.close()
    return round_s, beat_s


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for kind in (Pure, Tcp):
        runs = [measure(kind(), options.members) for _ in range(options.rounds)]
        round_s, beat_s = min(run[0] for run in runs), min(run[1] for run in runs)
        share = beat_s * options.members / INTERVAL_S
        print(
            f"{kind.__name__}, {options.members} members: a round {round_s:.3f} s, a heartbeat {beat_s * 1e6:.0f} us, "
            f"heartbeats of all {share:.2%} of a core"
        )


if __name__ == "__main__":
    main()
