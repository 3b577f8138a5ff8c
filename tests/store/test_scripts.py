"""What holds for every script: the keys that it touches, its head, its flags when memory is full."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from delayq.base.errors import StoreFull
from delayq.store import commands, scripts
from delayq.store.commands import Known
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from tests.support.queues import EPOCH, NEW_EPOCH, Queue, row
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE

WITHOUT_KEY = ("TIME", "PUBLISH")
READ_ONLY = {
    "asked",
    "dead_letters",
    "find_by_key",
    "get",
    "glance",
    "group_lags",
    "held_calls",
    "held_topics",
    "lacking",
    "letters",
    "census_slice",
    "counts",
    "page",
    "find_by_property",
    "stats",
    "time",
}
REFUSED_WHEN_FULL = {"advance", "give_up", "keep_census", "schedule", "reschedule", "deliver_now", "redrive"}


def code(name: str) -> str:
    """A script with its includes, without comments."""
    return re.sub(r"--[^\n]*", "", scripts.source(name))


def split(arguments: str) -> list[str]:
    """The arguments of a call, cut at the commas between them."""
    parts, depth = [""], 0
    for character in arguments:
        depth += character in "([{"
        depth -= character in ")]}"
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def calls(text: str, function: str) -> list[list[str]]:
    """The arguments of each call of a function."""
    found = re.finditer(rf"(?<![\w.:])(?<!function ){re.escape(function)}\(", text)
    return [split(text[match.end() :]) for match in found]


def names_bound_to_keys(text: str) -> set[str]:
    """Variables that hold a key, or a table of keys: assigned from KEYS, or from such a variable."""
    bound = {"KEYS"}
    assignments = re.findall(r"(?:local )?([\w, ]+?(?:\[[^\]]+\])?) = ([^\n]+)", text)
    while True:
        before = len(bound)
        for left, right in assignments:
            # What is put together with .. or read from Redis is no key that was given.
            if not re.search(r"redis\.call|\.\.", right) and re.search(rf"\b({'|'.join(bound)})\b", right):
                bound.update(re.findall(r"(?:^|,)\s*([a-z]\w*)", left))
        if len(bound) == before:
            return bound


def test_the_server_parses_no_comments_and_no_indents() -> None:
    for name in scripts.NAMES:
        lines = scripts.load(name).text.splitlines()
        assert [line for line in lines if line.startswith((" ", "--"))] == []


def test_scripts_touch_only_the_keys_that_they_are_given() -> None:
    for name in scripts.NAMES:
        check_keys(name, code(name))


#: How the script that pulls makes the key of a topic's set, in the slot of its queue.
MADE = "sub(state, 1, -6) .. 'parked:h:' .. topic"


def check_keys(name: str, text: str) -> None:
    """Every key that the script passes to a command comes from KEYS."""
    bound = names_bound_to_keys(text)
    if name in ("pull", "release"):  # its caller cannot know the topics, so it makes the names of their sets
        assert text.count(MADE) == text.count("'parked:h:'") - text.count("state, 'parked:h:'") == 2
        bound.add("set")
    if name == "held_topics":  # its caller asks for topics that it does not know
        assert text.count(MADE) == 1
        bound.add("set")
    parameters = {
        function: [one.strip() for one in names.split(",")]
        for function, names in re.findall(r"local function (\w+)\(([^)]*)\)", text)
    }
    taking_keys: set[tuple[str, int]] = set()

    def check(key: str, where: str) -> None:
        functions = [(one, names.index(key)) for one, names in parameters.items() if key in names]
        taking_keys.update(functions)
        assert functions or key.split("[")[0] in bound, f"{name}: {where} touches {key}, which is not one of its KEYS"

    for words in calls(text, "redis.call"):
        if words == ["unpack(entry"] or words == ["unpack(entry)"]:
            assert "local entry = { 'XADD', stream }" in text
            check("stream", "XADD")
            continue
        assert re.fullmatch(r"'[A-Z]+'", words[0]), f"{name}: {words[0]} is no plain command"
        if words[0] == "'XREADGROUP'":
            check(words[-2].strip(), words[0])
        elif words[0] == "'XINFO'":
            check(words[2], words[0])
        elif words[0].strip("'") not in WITHOUT_KEY:
            check(words[1], words[0])
    for function, place in sorted(taking_keys):
        for words in calls(text, function):
            assert words[place].split("[")[0] in bound | set(parameters.get(function, [])), (
                f"{name}: {function} is given {words[place]} as a key"
            )


def test_scripts_build_no_key_names_and_begin_with_the_same_kind_of_head() -> None:
    for name in scripts.NAMES:
        assert not re.search(r"delayq(?!:')|\{'?\s*\.\.|['\"]\{", code(name)), name
        head = re.match(r"(-- [^\n]+\n)+", scripts.written(name))
        assert head is not None, name
        assert re.match(r"-- [A-Z][^\n]+(\n-- [^\n]+)*?\n-- KEYS: [^\n]+", head.group()), name
        assert re.search(r"\n-- ARGV: ", head.group()), name
        assert re.search(r"\n-- Returns: ", head.group()), name
    assert len({scripts.load(name).sha for name in scripts.NAMES}) == len(scripts.NAMES)


def test_the_heads_name_what_is_promised_to_callers_what_is_fenced_and_what_empties_a_full_redis() -> None:
    loaded = {name: scripts.load(name) for name in scripts.NAMES}
    promised = {name for name, script in loaded.items() if script.promise}
    changes = {"schedule", "cancel", "reschedule", "deliver_now", "redrive", "discard"}
    consuming = {"receive", "settle_received", "give_up", "record_group", "forget_group", "destroy_group"}
    assert promised == changes | consuming | {"set_layouts", "close", "set_policies", "apply_policies"}
    fenced = {name for name, script in loaded.items() if script.fenced}
    assert fenced == {"ack", "bury", "claim", "keep_census", "park", "pull", "release", "retry"}
    empties = {name for name, script in loaded.items() if script.empties}
    assert empties == {
        "ack",
        "apply_policies",
        "bury",
        "cancel",
        "claim",
        "destroy_group",
        "discard",
        "park",
        "pull",
        "receive",
        "release",
        "retry",
        "settle_received",
        "trim",
    }
    assert scripts.stopped_when_full() == []


def test_the_flags_say_what_a_script_does() -> None:
    heads = {name: scripts.load(name).text.partition("\n")[0] for name in scripts.NAMES}
    assert {name for name, head in heads.items() if head == "#!lua flags=no-writes"} == READ_ONLY
    assert {name for name, head in heads.items() if head == "#!lua"} == REFUSED_WHEN_FULL
    assert set(heads.values()) == {"#!lua flags=no-writes", "#!lua", "#!lua flags=allow-oom"}


# -- when memory is full -------------------------------------------------------------------------------------------------


@pytest.fixture
def q(server: ServerUnderTest) -> Iterator[Queue]:
    """A queue whose server may reach its maxmemory."""
    store = Store(server.url, timeout=PATIENCE)
    yield Queue(store, server)
    server.admin.config_set("maxmemory", "0")
    store.close()


def test_a_full_server_takes_nothing_new_until_memory_is_free_again(q: Queue) -> None:
    q.given(row("a", at=20_000), row("dead", at=15_000))
    q.bury(*q.take(now=15_000))
    before = q.state(), q.fields()
    q.admin.config_set("maxmemory", "1")
    for call in (
        lambda: q.schedule(row("b", at=20_000)),
        lambda: q.reschedule("a", "a30000"),
        lambda: q.redrive("dead"),
    ):
        with pytest.raises(StoreFull, match="maxmemory"):
            call()
    assert (q.state(), q.fields()) == before
    q.run(commands.publish_node(KEYS, "worker-1", b"line"))  # or a pause would not know of the worker
    q.admin.config_set("maxmemory", "0")
    assert q.schedule(row("b", at=20_000)).others == {}


def test_a_full_server_goes_on_to_deliver_and_to_cancel(q: Queue) -> None:
    """E13 (dead-letter store full): A full Redis still takes dead letters.

    A refused one is kept, not sent, and buried later.
    """
    names = ("acked", "buried", "cancelled", "parked", "retried", "streamed")
    q.given(*(row(name, at=20_000, topic="news" if name == "streamed" else "orders", keys=("k",)) for name in names))
    q.admin.config_set("maxmemory", "1")
    assert q.run(commands.layout(KEYS, 16)).queues == 16
    assert q.run(commands.bump_era(KEYS, 0)) == (0, 1)
    assert q.run(commands.claim(q.keys, EPOCH)).ok
    pulled = q.pull(now=20_000, known=[Known("news", "news")])
    assert (len(pulled.tickets), pulled.appended) == (5, 1)
    messages = {one.id: one for one in q.take()}
    assert q.ack(messages["acked"]) == (True, 1)
    assert q.retry((messages["retried"], 30_000)) == ["ok"]
    assert q.bury(messages["buried"]) == ["ok"]
    parked = q.park("t:kafka", messages["parked"])
    assert parked is not None
    assert parked.head == (20_000, messages["parked"].ticket)
    assert q.cancel("cancelled") == ["inFlight"]
    assert q.state_of("retried") == "retrying"
    assert q.find("k") == ["buried", "parked", "retried"]
    assert q.stats().dead == 1
    assert [one.id for one in q.dead_letters()] == ["buried"]
    assert q.discard("buried") == [True]
    assert q.release_set("t:kafka") is not None
    assert q.run(commands.trim("news", None, 0, 10, force=True)).removed == 1
    q.admin.delete(q.keys.queue)
    assert q.repair() == (2, 0)
    assert q.run(commands.claim(q.keys, NEW_EPOCH)).ok
