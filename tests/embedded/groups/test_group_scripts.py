"""Each script of the coordinator again, through frames, connections and the checks in front of it."""

from __future__ import annotations

import pytest

from tests.support.embedded_clients import Machine
from tests.support.group_scripts import SCRIPTS, PureCoordinator, Script


class WholeMachine:
    """A machine of one node, with a connection for each actor; a new one while a request of it waits."""

    def __init__(self):
        self.machine = Machine()
        self.machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 1, now_ms))
        self._clients = {}
        self._parked = {}

    def send(self, who, request, version):
        if who in self._parked or who not in self._clients:
            self._clients[who] = self.machine.client()
        client = self._clients[who]
        answer = client.ask(request, version)
        if answer is None:
            self._parked[who] = client
        return answer

    def late(self, who):
        return self._parked.pop(who).answer()

    def pass_ms(self, duration_ms):
        self.machine.pass_ms(duration_ms)


@pytest.mark.parametrize("scripted", SCRIPTS, ids=lambda each: each.__name__)
def test_the_machine_answers_as_the_coordinator_alone(scripted):
    whole, alone = Script(WholeMachine(), "billing", "orders"), Script(PureCoordinator(), "billing", "orders")
    scripted(whole)
    scripted(alone)
    assert whole.transcript == alone.transcript
    assert whole.coordinator.machine.cluster.troubles.kept == []
