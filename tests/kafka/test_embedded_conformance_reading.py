"""The embedded broker's reading against a real node: the same raw requests, the same answers to the byte."""

from __future__ import annotations

import pytest

from tests.support.reading_scripts import SCRIPTS, PureReader, RealReader, Script


@pytest.fixture
def real(kafka_cluster):
    host, port = kafka_cluster.bootstrap_servers.split(",")[0].split(":")
    reader = RealReader((host, int(port)))
    yield reader
    reader.close()


@pytest.mark.parametrize("scripted", SCRIPTS, ids=lambda each: each.__name__)
def test_both_give_the_same_answers(real, scripted):
    told, ours = Script(real), Script(PureReader(racks=(None,)))
    scripted(told)
    scripted(ours)
    assert len(ours.transcript) == len(told.transcript)
    differing = [
        f"{number}: {name} {version}\n  real {answer}\n  ours {here}"
        for number, ((name, version, answer), (_, _, here)) in enumerate(
            zip(told.transcript, ours.transcript, strict=True)
        )
        if answer != here
    ]
    assert not differing, "\n".join(differing)
