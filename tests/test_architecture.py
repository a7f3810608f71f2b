"""The rules of the design, held against the sources: floors, one home for tasks and for seconds, sizes, words."""

from __future__ import annotations

import ast
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import committed_files, sources

ROOMS = {"protocol", "assignors", "offsets", "fetching", "delivery", "membership", "recovery"}
"""The ground floor: they decide and speak, without an event loop, a clock or a log."""
UPSTAIRS = (
    "telemetry",
    "loop",
    "net",
    "inbox",
    "coordinator",
    "metadata",
    "offsets",
    "fetching",
    "recovery",
    "membership",
    "delivery",
)
"""The rooms of `_runtime/` from the lowest to the highest: each may import those before it."""
BELOW = {
    "words": set(),
    "protocol": {"words"},
    "assignors": {"words"},
    "_command": {"words", "assignors"},
    "offsets": {"words", "protocol", "membership"},
    "membership": {"words", "protocol", "assignors"},
    "fetching": {"words", "protocol", "offsets"},
    "delivery": {"words", "protocol", "offsets", "fetching"},
    "recovery": {"words", "protocol", "offsets", "fetching"},
    **{
        f"runtime/{room}": {"words", *ROOMS, *(f"runtime/{each}" for each in UPSTAIRS[:n])}
        for n, room in enumerate(UPSTAIRS)
    },
    "runtime": {"words", *ROOMS, *(f"runtime/{room}" for room in UPSTAIRS)},
    "face": {"words", *ROOMS, "runtime", *(f"runtime/{room}" for room in UPSTAIRS)},
    "edge": {"words", *ROOMS, "_command", "runtime", "face", *(f"runtime/{room}" for room in UPSTAIRS)},
    # What judges the rest must not stand on it.
    "devkafka": {"words", "_command"},
    "embedded": {"words", "protocol", "_command"},
    "testing": {"words", "protocol", "embedded"},
}
WORDS = {"config", "records", "errors", "listener", "settings", "structs"}
"""What applications name. What `_core/` has beside its rooms are words, too."""
FACE = {"consumer", "__init__"}
ROOMS_AT_THE_TOP = {"assignors", "devkafka", "embedded", "testing"}
EDGES = {
    "__main__",
    "admin",
    "asgi",
    "cli",
    "dead_letters",
    "eventlog",
    "faststream",
    "figures",
    "otel",
    "prometheus",
    "schemas",
    "spark",
    "verifiable",
}
PRIVATE = {"_command", "_core", "_runtime"}
TWIN = "aiogroup/_core/native/pure.py"
"""The C of the cursor reads the clock and asks for the running task, and so does its twin in Python."""
IMPURE = {"asyncio", "anyio", "socket", "time", "random", "logging", "structlog", "threading", "datetime", "selectors"}
LOW_LEVEL = {"client", "conn", "consumer", "producer", "cluster", "util", "helpers", "protocol"}
"""What of aiokafka opens connections or makes tasks."""
CONNECTS = {f"aiogroup/_runtime/net/{each}.py" for each in ("link", "connection", "authentication", "names")}
TASKS = {"create_task", "ensure_future", "TaskGroup", "create_task_group", "gather", "wait_for", "Runner"}
THREADS = {"to_thread", "run_in_executor", "ThreadPoolExecutor"}
"""The threads of the loop are the application's, which may keep all of them busy."""
TASKS_AT_HOME = {"aiogroup/_runtime/loop/supervisor.py"}
THREADS_AT_HOME = {"aiogroup/_runtime/loop/threads.py"}
SECONDS = {
    "aiogroup/_runtime/loop/clock.py": "the clock",
    "aiogroup/_runtime/delivery/turn.py": "time.monotonic on the per-record path: the loop's clock costs more",
    "aiogroup/otel/metering.py": "OpenTelemetry counts durations in seconds",
    "aiogroup/_core/native/pure.py": "the same path: the cursor compares the instant at which the turn ends",
    "aiogroup/_runtime/net/link.py": "asyncio.wait takes seconds: 0.2 for sockets that close",
}
LONG_FILES = {
    "aiogroup/consumer.py": "the public docstrings are half of it",
    "aiogroup/_core/telemetry/events.py": "a list: one short class for each event, found by its name",
}
LONG_FUNCTIONS: dict[str, str] = {}
BANNED = {"utils", "util", "helpers", "helper", "common", "manager", "base"}


def everywhere(check, folder="aiogroup"):
    """One test over every file of the folder: a test per file would cost more than what it looks at."""

    def test():
        broken = []
        for source in sources(folder):
            try:
                check(source)
            except AssertionError as error:
                broken.append(f"{source.path}: {error}")
        assert not broken, "\n".join(broken)

    test.__name__ = check.__name__
    return test


def in_every_test(check):
    return everywhere(check, "tests")


def room_of(module):
    """The room of `aiogroup.x.y`. `_core/` and `_runtime/` have rooms of the same names, on two storeys."""
    part, below = (*module.split(".")[1:3], "", "")[:2] if "." in module else ("__init__", "")
    if part == "_core":
        return below if below in ROOMS else "words"
    if part == "_runtime":
        return f"runtime/{below}" if below in UPSTAIRS else "runtime"
    if part in WORDS:
        return "words"
    if part in FACE:
        return "face"
    return part if part in BELOW else "edge"


def room_of_file(source):
    parts = Path(source.path).with_suffix("").parts
    return room_of(".".join(parts))


def is_own(name):
    return name == "aiogroup" or name.startswith("aiogroup.")


def is_development(source):
    """Starts processes, or stands in front of them, on the real clock and outside of any consumer."""
    return room_of_file(source) in ("devkafka", "testing") or source.path.startswith("aiogroup/embedded/shell/")


def is_the_embedded_machine(source):
    """The broker without its sockets, threads and loops."""
    return source.path.startswith(("aiogroup/embedded/machine/", "aiogroup/embedded/messages/"))


@everywhere
def test_imports_point_down(source):
    room = room_of_file(source)
    for name in filter(is_own, source.imports()):
        target = room_of(name)
        assert target == room or target in BELOW[room], f"{source.path} ({room}) imports {name} ({target})"


def test_what_has_no_underscore_is_public():
    """A new name at the top is a promise to applications: docs/stability.md says which of them it may be."""
    found = {Path(source.path).with_suffix("").parts[1] for source in sources()}
    assert found == WORDS | FACE | EDGES | PRIVATE | ROOMS_AT_THE_TOP


@pytest.mark.parametrize(("room", "door"), [("cli", {"aiogroup/__main__.py"}), ("verifiable", set())])
def test_nothing_stands_on_a_tool_but_its_door(room, door):
    standing = {
        source.path
        for source in sources()
        if not source.path.startswith(f"aiogroup/{room}/")
        and any(name.startswith(f"aiogroup.{room}") for name in source.imports())
    }
    assert standing == door


def imported_modules():
    """Of each module of aiogroup those that it imports."""
    modules = {
        ".".join(Path(source.path).with_suffix("").parts).removesuffix(".__init__"): source for source in sources()
    }
    return {
        name: {
            found
            for each in source.imports()
            if (found := each if each in modules else each.rpartition(".")[0]) in modules and found != name
        }
        for name, source in modules.items()
    }


def circles(imports):
    """Modules that import themselves by way of others, found by taking out those that import nothing that is left."""
    left = {name: set(each) for name, each in imports.items()}
    while done := {name for name, each in left.items() if not each & left.keys()}:
        left = {name: each for name, each in left.items() if name not in done}
    while unused := left.keys() - set().union(*left.values()):
        left = {name: each for name, each in left.items() if name not in unused}
    return sorted(left)


def test_no_module_imports_itself_by_way_of_others():
    assert circles(imported_modules()) == []


def test_a_circle_is_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()}) == ["b", "c"]


@everywhere
def test_what_decides_knows_no_loop_no_clock_and_no_log(source):
    decides = room_of_file(source) in ROOMS or source.path.startswith("aiogroup/_core/")
    if (decides and source.path != TWIN) or is_the_embedded_machine(source):
        assert {name.split(".")[0] for name in source.imports()} & IMPURE == set()


@everywhere
def test_the_embedded_broker_shares_no_code_with_a_consumer_but_the_protocol(source):
    if room_of_file(source) == "embedded":
        own = {name.removeprefix("aiogroup.") for name in source.imports() if name.startswith("aiogroup.")}
        # structs: TopicPartition, which is aiokafka's. broker: what its command shares with devkafka's.
        shared = ("embedded", "_core.protocol", "errors", "_core.values", "structs", "_command.broker")
        assert [name for name in own if not name.startswith(shared)] == []


@everywhere
def test_only_the_link_opens_connections(source):
    if source.path in CONNECTS or is_development(source):
        return
    theirs = {name.split(".")[1] for name in source.imports() if name.startswith("aiokafka.")}
    assert theirs & LOW_LEVEL == set()
    assert "socket" not in {name.split(".")[0] for name in source.imports()}
    assert "open_connection" not in set(source.names())


@everywhere
def test_the_classes_shared_with_aiokafka_are_imported_from_one_module(source):
    """Imported from aiokafka they would be `Any` to the type checkers of applications."""
    if source.path != "aiogroup/structs.py":
        assert {name for name in source.imports() if name.startswith(("aiokafka.structs", "aiokafka.abc"))} == set()


@everywhere
def test_tasks_are_born_in_one_place(source):
    if source.path not in TASKS_AT_HOME and not is_development(source):
        assert set(source.names()) & TASKS == set()


@everywhere
def test_threads_that_compute_are_born_in_one_place_too(source):
    if source.path.startswith("aiogroup/_runtime/") and source.path not in THREADS_AT_HOME:
        assert set(source.names()) & THREADS == set()


def seconds_in(source):
    for name in source.imports():
        if name.split(".")[0] == "time":
            yield "import time"
    for called, node in source.calls():
        waits_for_nothing = called == "asyncio.sleep" and ast.unparse(node.args[0]) == "0"
        if called in ("asyncio.sleep", "anyio.sleep") and not waits_for_nothing:
            yield called
        if called in ("asyncio.timeout", "asyncio.timeout_at", "anyio.move_on_after", "anyio.fail_after"):
            yield called
        if called.endswith((".call_later", ".call_at")):
            yield called
        if called == "asyncio.wait" and any(keyword.arg == "timeout" for keyword in node.keywords):
            yield called


@everywhere
def test_seconds_are_known_in_one_place(source):
    if source.path not in SECONDS and not is_development(source):
        assert list(seconds_in(source)) == []


def test_every_exception_for_seconds_is_needed():
    assert {source.path for source in sources() if list(seconds_in(source)) and not is_development(source)} == {
        *SECONDS
    }


@everywhere
def test_only_command_lines_print(source):
    if not source.path.endswith("__main__.py"):
        assert "print" not in [called for called, _ in source.calls()]


@everywhere
def test_files_are_short(source):
    if source.path not in LONG_FILES:
        assert len(source.text.splitlines()) <= 600


def length(function):
    return function.end_lineno - function.lineno + 1


@everywhere
def test_functions_are_short(source):
    long = {f"{source.path}:{each.name}" for each in source.functions() if length(each) > 70}
    assert long - LONG_FUNCTIONS.keys() == set()


def test_every_exception_for_length_is_needed():
    long = {source.path for source in sources() if len(source.text.splitlines()) > 600}
    assert long == LONG_FILES.keys()
    functions = {
        f"{source.path}:{each.name}" for source in sources() for each in source.functions() if length(each) > 70
    }
    assert functions == LONG_FUNCTIONS.keys()


def writing_properties(functions):
    """Those that set an attribute or an item, bring the ledgers up to date, or wake somebody."""
    for each in functions:
        if not any(ast.unparse(decorator).endswith("property") for decorator in each.decorator_list):
            continue
        for node in ast.walk(each):
            is_set = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
            acts = isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".settle", ".pulse"))
            if is_set or acts:
                yield f"{each.name}: {ast.unparse(node)}"


@everywhere
def test_to_read_a_property_changes_nothing(source):
    assert list(writing_properties(source.functions())) == []


@pytest.mark.parametrize("line", ["self.count += 1", "self.seen[0] = 1", "del self.last", "self.owner.settle()"])
def test_a_property_that_writes_is_seen(line):
    text = f"@property\ndef size(self):\n    {line}\n    return 1"
    assert list(writing_properties(ast.parse(text).body))


def words_of(name):
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@everywhere
def test_names_say_something(source):
    classes = [node.name for node in source.nodes if isinstance(node, ast.ClassDef)]
    for name in (*Path(source.path).with_suffix("").parts, *classes):
        assert words_of(name) & BANNED == set(), name


@everywhere
def test_every_module_and_public_class_says_what_it_is_for(source):
    if source.text.strip():
        assert ast.get_docstring(source.tree)


@pytest.mark.parametrize("folder", ["aiogroup", "tests", "benchmarks", "examples"])
def test_nothing_is_left_to_do(folder):
    left = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!.*#\d+)")
    assert [source.path for source in sources(folder) if left.search(source.text)] == []


# One way to change the state.


def assigns_state(nodes):
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr == "state":
                yield ast.unparse(target.value)


def test_membership_state_changes_through_one_function():
    machine = next(source for source in sources() if source.path == "aiogroup/_core/membership/classic/machine.py")
    changing = {each.name for each in machine.functions() if list(assigns_state(ast.walk(each)))}
    assert changing == {"__init__", "_move"}


@everywhere
def test_nobody_else_changes_a_members_state(source):
    assert not [owner for owner in assigns_state(source.nodes) if "membership" in owner]


CLASSIC = ("aiogroup._core.membership.classic", "aiogroup._runtime.membership.classic")
KNOW_THE_CLASSIC_PROTOCOL = {"aiogroup/_runtime/build.py": "it chooses the protocol"}


WRITTEN_FROM_ANOTHER_ROOM = {
    "end": "the next slice is cut from a piece in the step that hands it out",
    "handed_out_count": "counted where records are handed out, without a call for each",
    "index": "how much of a slice is handed out: the cursor in C writes it for each record",
    "lateness_ms": "a record of a merge learns how late it is when it is handed out",
    "newest_timestamp": "noted where records are handed out, and taken once for a slice",
    "size_bytes": "as end",
    "slice": "as end",
    "sought": "the offset of a seek, in the step that moves the position",
    "committed": "recovery knows the committed offset before the positions do, and when it holds no longer",
    "delivered": "a range that is read anew goes on where the application was",
    "former": "the order of a partition's ranges",
    "lanes": "recovery, where it is there at all, puts its lanes in the place of OneLane",
    "was_applied": "as committed",
    "has_news": "set while there is a heartbeat thread: the coordinator does not know whether there is one",
    "leave_by": "as has_news",
    "on_brokers": "as has_news",
    "on_changed": "as has_news",
    "inflating": "the task says which piece its thread is at work on",
    "is_heartbeat_late": "the link stands below the heartbeat to which it gives way",
    "on_metadata": "the link stands below the validator that follows leaders",
    "type": "values.py makes a field of dataclasses",
    "wait": "the cursor in C calls the request that waits, which stands above it",
}
"""What one room writes of another room's objects, and why."""


def stores(tree: ast.AST) -> Iterator[ast.Attribute]:
    yield from (each for each in ast.walk(tree) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store))


def is_of_itself(store: ast.Attribute) -> bool:
    return isinstance(store.value, ast.Name) and store.value.id in ("self", "cls")


def written_from_another_room() -> set[str]:
    """The attributes that code outside of the room (and of the one above or below it) with their class writes."""
    owners, others = defaultdict(set), defaultdict(set)
    for source in sources():
        _, storey, *rest = Path(source.path).parts
        if storey not in ("_core", "_runtime"):
            continue
        room = rest[0] if len(rest) > 1 else storey
        for store in stores(source.tree):
            (owners if is_of_itself(store) else others)[store.attr].add(room)
        for line in ast.walk(source.tree):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                owners[line.target.id].add(room)
    return {name for name, rooms in others.items() if owners[name] and rooms - owners[name]}


def test_a_room_writes_its_own_attributes():
    assert written_from_another_room() == WRITTEN_FROM_ANOTHER_ROOM.keys()


def test_one_place_names_the_group_protocol():
    """Another one is then a folder beside this one: the rest stands on `Membership` and `GroupProtocol`."""
    knowing = {
        source.path
        for source in sources()
        if not source.path.replace("/", ".").startswith(CLASSIC)
        and any(name.startswith(CLASSIC) for name in source.imports())
    }
    assert knowing == KNOW_THE_CLASSIC_PROTOCOL.keys()


def test_one_place_knows_that_static_membership_has_two_forms():
    """The machine and the runtime ask `StaticForm` what to do, and never which form it is."""
    knowing = {
        source.path
        for source in sources()
        if source.path.startswith(("aiogroup/_core/", "aiogroup/_runtime/"))
        and any("draft" in word.lower() for node in source.nodes for word in identifiers(node))
    }
    assert knowing == {"aiogroup/_core/membership/classic/forms.py"}


def identifiers(node):
    return [getattr(node, each) for each in ("id", "attr", "arg", "name") if isinstance(getattr(node, each, None), str)]


def enums():
    for source in sources():
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and {"Enum", "StrEnum"} & {ast.unparse(each) for each in node.bases}:
                members = [
                    each.targets[0].id
                    for each in node.body
                    if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
                ]
                yield node.name, members


def test_every_member_of_an_enum_is_used():
    used = {
        (ast.unparse(node.value).split(".")[-1], node.attr)
        for source in sources()
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr.isupper()
    }
    known = {(name, member) for name, members in enums() for member in members}
    assert len(known) > 30
    assert known - used == set()


# Tests.


REAL_CLOCK = {
    "tests/protocol/golden/record_broker.py": "records answers of real Kafka; run manually",
    "tests/test_readme.py": "runs the README's program as a process and waits for its lines",
}


@in_every_test
def test_fast_tests_never_wait_for_the_real_clock(source):
    if source.path in REAL_CLOCK or source.path.startswith(
        ("tests/kafka/", "tests/support/", "tests/runtime/", "tests/simulation/", "tests/groups/")
    ):
        return  # real Kafka, what its tests use, and virtual loops
    if "sleep" not in source.text:
        return  # a tree is made of what may break the rule: half a second less
    for called, node in source.calls():
        assert called != "time.sleep"
        if called == "asyncio.sleep":
            assert ast.unparse(node.args[0]) == "0"


def test_no_two_files_of_tests_share_a_name():
    """A run that collects both would import one for the other: no folder of tests is a package."""
    names = Counter(Path(path).name for path in committed_files() if Path(path).name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


@in_every_test
def test_tests_reach_into_nothing_private(source):
    if not re.search(r"\.\s*_(?!_)|(?<!\w)_[a-zA-Z]", source.text):
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr[1:2] != "_":
            assert ast.unparse(node.value) in ("self", "cls", "super()"), ast.unparse(node)
    private = [
        name for name in source.imports() if is_own(name) and re.search(r"\._(?!_|core\b|runtime\b|command\b)", name)
    ]
    assert private == []


@in_every_test
def test_what_tests_share_has_one_name(source):
    """pytest puts `tests/` on the path too: `support.x` would be a second module beside `tests.support.x`."""
    if re.search(r"\b(?:from\s+|import\b[^\n]*\b)support\b", source.text):
        assert [name for name in source.imports() if name.startswith("support.")] == []


# What is committed.


def test_no_machine_and_no_place_on_it_is_named_in_what_is_committed():
    if not committed_files():
        pytest.skip("not a git checkout")
    places = re.compile(rf"/(?:work|root|Users)/\w|/home/(?!runner\b)\w|\b{re.escape(socket.gethostname())}\b")
    named = []
    for path in committed_files():
        if path.suffix in (".bin", ".png", ".jks", ".p12"):
            continue
        text = path.read_text(errors="replace")
        named += [f"{path.name}: {found.group()}" for found in places.finditer(text)]
    assert named == []
