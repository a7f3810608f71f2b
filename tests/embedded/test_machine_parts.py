"""Timers, settings, and what the machine may import."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from aiogroup.embedded.machine.refusals import REFUSALS, BrokerRefusal, Troubles
from aiogroup.embedded.machine.settings import BROKER, TOPIC, WITHOUT_EFFECT, Settings
from aiogroup.embedded.machine.timers import Timers
from tests.support.sources import sources

IMPURE = {"asyncio", "anyio", "socket", "time", "random", "threading", "logging", "datetime", "selectors", "concurrent"}
MAY = (
    "aiogroup._core.protocol",
    "aiogroup._core.values",
    "aiogroup.embedded.machine",
    "aiogroup.embedded.messages",
)
RECORDS = "aiokafka.record"
NOT_FOLLOWED = {
    "aiogroup.errors": "what the errors stand on is theirs: the types of aiokafka and of records, which they name",
    "aiogroup._core.native": "reads and writes bytes for the protocol; the cursor in Python needs asyncio",
}


def test_acts_of_one_instant_run_in_the_order_in_which_they_were_planned():
    timers, seen = Timers(), []
    for name, at_ms in (("late", 20), ("first", 10), ("second", 10)):
        timers.at(at_ms, lambda at_ms, name=name: seen.append((name, at_ms)))
    assert timers.next_at_ms == 10
    timers.run(100)
    assert seen == [("first", 10), ("second", 10), ("late", 20)]
    assert (timers.next_at_ms, timers.now_ms) == (None, 100)


def test_an_act_that_another_one_plans_runs_in_the_same_turn_at_its_own_instant():
    timers, seen = Timers(), []
    timers.at(10, lambda at_ms: timers.at(at_ms + 5, seen.append))
    timers.run(15)
    assert seen == [15]


def test_what_is_cancelled_does_not_run_and_is_not_waited_for():
    timers, seen = Timers(), []
    timer = timers.at(10, seen.append)
    timer.cancel()
    timer.cancel()
    assert timers.next_at_ms is None
    timers.run(10)
    assert seen == []


def test_a_postponed_act_runs_once_after_the_acts_planned_meanwhile():
    timers, seen = Timers(), []
    timer = timers.at(10, lambda at_ms: seen.append(("postponed", at_ms)))
    timers.at(30, lambda at_ms: seen.append(("planned", at_ms)))
    timers.postpone(timer, 20)
    assert timers.next_at_ms == 20
    timers.postpone(timer, 30)
    timers.run(29)
    assert seen == []
    timers.run(30)
    assert seen == [("planned", 30), ("postponed", 30)]
    with pytest.raises(ValueError, match="has run"):
        timers.postpone(timer, 40)


def test_instants_never_run_back():
    timers, seen = Timers(), []
    timers.run(100)
    timers.at(50, seen.append)
    timers.run(20)
    assert (seen, timers.now_ms) == ([], 100)
    timers.run(101)
    assert seen == [100]


def test_settings_have_kafkas_defaults_and_types():
    settings = Settings.of({"num.partitions": "7", "group.max.size": "3", "min.insync.replicas": "2"})
    assert (settings["num.partitions"], settings.groups().max_size, settings["message.max.bytes"]) == (7, 3, 1_048_588)
    assert settings.groups().initial_rebalance_delay_ms == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [("log.dirs", "/tmp"), ("num.partitions", "0"), ("num.partitions", "two"), ("auto.create.topics.enable", "yes")],
)
def test_a_setting_that_is_not_there_or_not_valid_is_refused(name, text):
    with pytest.raises(BrokerRefusal, match=name.replace(".", r"\.")):
        Settings.of({name: text})


def test_every_default_is_a_valid_value():
    assert len(BROKER) > 20
    for name, kind in BROKER.items():
        shown = ",".join(kind.default) if isinstance(kind.default, tuple) else str(kind.default).lower()
        if isinstance(kind.default, str):
            shown = kind.default
        assert kind.read(shown) == kind.default, name


def asked_for():
    """The settings that the machine reads: in brackets, as an argument, or as a named constant."""
    for source in sources("aiogroup/embedded/machine"):
        for node in ast.walk(source.tree):
            given = (
                node.args
                if isinstance(node, ast.Call)
                else [getattr(node, {ast.Subscript: "slice", ast.Assign: "value"}.get(type(node), ""), None)]
            )
            yield from (each.value for each in given if isinstance(each, ast.Constant))


def test_each_setting_is_asked_for_or_listed_as_one_without_effect():
    found = frozenset(asked_for())
    own = BROKER.keys() - {default for _, default in TOPIC.values()}
    assert sorted(TOPIC.keys() - found) == sorted(WITHOUT_EFFECT)
    assert sorted(own - found) == []
    assert WITHOUT_EFFECT.keys() <= TOPIC.keys()


@pytest.mark.parametrize("name", ["log.cleaner.delete.retention.ms", "unclean.leader.election.enable"])
def test_settings_without_effect_are_refused(name):
    with pytest.raises(BrokerRefusal, match=f"{name} has no effect on the embedded broker: .*Leave it out"):
        Settings.of({name: str(BROKER[name].default)})


def test_troubles_are_bounded_and_say_what_helps():
    troubles = Troubles()
    for number in range(Troubles.BOUND + 5):
        troubles.note("api", f"client {number} asked", number)
    assert (len(troubles.kept), troubles.lost_count) == (Troubles.BOUND, 5)
    assert REFUSALS["api"].helps in str(troubles.kept[0])


def module_of(path):
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


def imported(start):
    """Every module that these import, directly or through aiogroup's own modules, each with its importer."""
    by_module = {module_of(source.path): source for source in sources("aiogroup")}
    found, left = {}, [name for name in by_module if name.startswith(start)]
    while left:
        importer = left.pop()
        for name in by_module[importer].imports():
            module = name if name in by_module or not name.startswith("aiogroup") else name.rpartition(".")[0]
            if module in found:
                continue
            found[module] = importer
            if module in by_module and module not in NOT_FOLLOWED:
                left.append(module)
    return found


def test_the_machine_imports_the_protocol_records_and_what_is_pure_of_the_standard_library():
    """Only import statements count. The package's own `__init__`, which Python runs too, is left out."""
    found = imported(("aiogroup.embedded.machine", "aiogroup.embedded.messages"))
    assert {"aiogroup._core.protocol.codec", "heapq.heappush"} <= found.keys()
    for module, importer in found.items():
        top = module.split(".")[0]
        if top == "aiogroup":
            assert module.startswith((*MAY, *NOT_FOLLOWED)), f"{importer} imports {module}"
        elif top == "aiokafka":
            assert module.startswith((RECORDS, "aiokafka.errors")), f"{importer} imports {module}"
        elif top != "cramjam":  # aiokafka's records decompress with it
            assert top in sys.stdlib_module_names, f"{importer} imports {module}"
            assert top not in IMPURE, f"{importer} imports {module}"


def test_every_module_says_what_it_is_for():
    for source in sources("aiogroup/embedded"):
        assert ast.get_docstring(source.tree), source.path
