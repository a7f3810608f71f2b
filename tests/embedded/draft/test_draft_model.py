"""Random sequences of joins, deaths, restarts and moves, against a small model of the draft's rules."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.static_group import SESSION_MS, Scene

REGISTRATION_MS, EXPANSION_MS = 100_000, 30_000
NAMES = ("A", "B", "C", "D", "E", "F")
STEPS = 30


class Model:
    """The group by the rules, if all live processes answer at once. `log` has the generations."""

    def __init__(self):
        self.heard = {}
        """Members in the order of their joins, each with the start of its silence: None while it lives."""
        self.leader = None
        self.waiting = []
        self.count_ends_ms = None
        self.drops = False
        self.round_since_ms = None
        self.generation = 0
        self.log = []

    @property
    def is_stable(self):
        return self.round_since_ms is None

    def next_ms(self):
        """The next instant at which something happens by time."""
        if not self.is_stable:
            return self._round_ends_ms()
        silent = [since + REGISTRATION_MS for since in self.heard.values() if since is not None]
        return min([*silent, *([] if self.count_ends_ms is None else [self.count_ends_ms])], default=None)

    def pass_to(self, now_ms):
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            if not self.is_stable:
                self._end(at_ms)
                continue
            self._expire(at_ms)
            self._begin(at_ms)
        if not self.is_stable:
            self._expire(now_ms)

    def _expire(self, now_ms):
        for name, since in list(self.heard.items()):
            if since is not None and since + REGISTRATION_MS <= now_ms:
                del self.heard[name]
                self.drops = True

    def _begin(self, now_ms):
        for name in self.waiting:
            self.heard[name] = None
        self.waiting, self.count_ends_ms = [], None
        self.round_since_ms = now_ms
        if self._round_ends_ms() <= now_ms:
            self._end(now_ms)

    def _round_ends_ms(self):
        """The end of the round, which does not wait for members that are offline."""
        silent = [since + SESSION_MS for since in self.heard.values() if since is not None]
        return max([self.round_since_ms, *silent])

    def _end(self, now_ms):
        self._expire(now_ms)  # including members whose time ended during the round
        if self.drops:
            self.heard = {name: since for name, since in self.heard.items() if since is None}
        self.round_since_ms, self.drops = None, False
        if self.heard.get(self.leader, 0) is not None:
            self.leader = next((name for name, since in self.heard.items() if since is None), None)
        self.generation += 1
        self.log.append((now_ms, self.generation, tuple(sorted(self.heard))))

    # What happens.

    def join(self, name, now_ms):
        """A process under this name joins without an id: a new process, or a restarted one."""
        if name in self.heard:
            self.heard[name] = None
            if not self.is_stable:
                if self._round_ends_ms() <= now_ms:
                    self._end(now_ms)
            elif name == self.leader:
                self._begin(now_ms)
        elif not self.is_stable or not self.heard:
            self.heard[name] = None
            if self.is_stable:
                self._begin(now_ms)
        elif name not in self.waiting:
            self.waiting.append(name)
            if self.count_ends_ms is None:
                self.count_ends_ms = now_ms + EXPANSION_MS

    def die(self, name, now_ms):
        self.heard[name] = now_ms

    def move(self, now_ms, names):
        """The coordinator moves, and waiting newcomers join again, in this order."""
        self.waiting.sort(key=names.index)
        self.heard = {name: None if since is None else now_ms for name, since in self.heard.items()}
        self.count_ends_ms = now_ms + EXPANSION_MS if self.waiting else None

    def force(self, now_ms):
        self._begin(now_ms)


@pytest.mark.parametrize("seed", range(12))
def test_random_sequences_go_as_the_rules_say(seed):
    rng, scene, model = Random(seed), Scene(), Model()
    living = {}
    for _ in range(STEPS):
        now_ms = scene.now_ms + rng.choice((rng.randrange(1, 4_000), rng.randrange(1, 60_000)))
        scene.at(now_ms)
        model.pass_to(now_ms)
        members = [name for name in living if name in model.heard]
        act = rng.choice(("join", "join", "again", "die", "die", "move", "force"))
        if act == "join" and (absent := [name for name in NAMES if name not in living]):
            name = rng.choice(absent)
            process = living[name] = scene.process(name, registration_ms=REGISTRATION_MS, expansion_ms=EXPANSION_MS)
            process.join()
            model.join(name, now_ms)
        elif act == "again" and living:
            name = rng.choice(sorted(living))
            living[name] = living[name].again()
            model.join(name, now_ms)
        elif act == "die" and members and model.is_stable:
            name = rng.choice(sorted(members))
            living.pop(name).die()
            model.die(name, now_ms)
        elif act == "move" and model.is_stable and model.generation:
            scene.move()
            model.move(now_ms, [each.name for each in scene.processes if each.lives])
        elif act == "force" and members and model.is_stable:
            scene.rebalance()
            model.force(now_ms)
        scene.act()
        assert (scene.generations, scene.names if model.generation else ()) == (model.log, tuple(sorted(model.heard)))
    assert len(model.log) > 3


@pytest.mark.parametrize("seed", range(12))
def test_any_mixture_of_named_and_nameless_processes_settles(seed):
    """The model has no nameless processes, so this checks only the end: all live processes are in one generation, each
    name is held once, and the topic agrees with the group.
    """
    rng, scene = Random(seed), Scene()
    living = []
    for _ in range(40):
        scene.pass_ms(rng.randrange(1, 20_000))
        act = rng.choice(("join", "join", "again", "rename", "die", "leave", "move", "force"))
        if act == "join" and len(living) < 6:
            named = {"registration_ms": REGISTRATION_MS, "expansion_ms": rng.choice((0, EXPANSION_MS))}
            living.append(scene.process(rng.choice((None, *NAMES)), **named))
            living[-1].join()
        elif act == "move" and scene.generations:
            scene.move()
        elif act == "force" and scene.generations and scene.state == "Stable" and scene.names:
            scene.rebalance()
        elif act in ("again", "rename", "die", "leave") and living:
            process = living.pop(rng.randrange(len(living)))
            if act == "again":
                living.append(process.again())
            elif act == "rename":
                living.append(process.again(name=rng.choice((None, *NAMES))))
            process.die()
            if act == "leave" and process.member_id:
                process.leave()
        scene.act()
        living = [each for each in living if each.lives]
    scene.pass_ms(2 * REGISTRATION_MS)
    assert list(scene.cluster.troubles.kept) == []
    assert scene.state == ("Stable" if living else "Empty")
    assert {each.generation for each in living} <= {scene.group.generation}
    names = [each for each in scene.names if each != "-"]
    assert len(names) == len(set(names))
    assert sorted(each.member_id for each in living) == sorted(each.member_id for each in scene.group.members)
    assert sorted((scene.values[-1] or {"members": {}})["members"] if scene.values else ()) == names
