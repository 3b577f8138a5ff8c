"""Messages of an ordering key are with one call of a group at a time, and in their order: the scripts against a plain model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayq.store import commands, scripts
from delayq.store.commands import Act, Lease, ReceivedEntries, StreamEntry
from delayq.store.keys import KEYS
from reliability.mutants.rules import replace_source
from tests.support.queues import Queue

STREAM, GROUP = "orders", "mail"
OWN_KEYS = KEYS.consumers(STREAM, GROUP)
CALLS = (f"call-{n}" for n in count())
LOOK = 500
ALL = 100


def append(q: Queue, body: str, key: str = "") -> None:
    ordering = {"orderingKey": key} if key else {}
    q.server.admin.xadd(STREAM, {"id": body, "topic": STREAM, "tags": "", "body": body} | ordering)


def receive(
    q: Queue, now: int, most: int = ALL, *, call: str = "", lease: int = 30_000, most_bytes: int = 2_000_000
) -> ReceivedEntries:
    found = q.run(
        commands.receive(OWN_KEYS, GROUP, call or next(CALLS), most, lease, share=(most_bytes, True), now=now)
    )
    assert isinstance(found, ReceivedEntries)
    return found


def bodies(found: ReceivedEntries) -> list[str]:
    return [one.fields["body"].decode() for one in found.entries]


def settle(q: Queue, now: int, *acts: Act) -> list[str]:
    return [one.result for one in q.run(commands.settle_received(OWN_KEYS, GROUP, acts, now=now))]


def test_a_key_is_with_one_call_at_a_time_and_others_pass(q: Queue) -> None:
    for body, key in (("k1", "k"), ("k2", "k"), ("o1", "o"), ("plain", ""), ("k3", "k")):
        append(q, body, key)
    first = receive(q, 1_000, 2)
    assert bodies(first) == ["k1", "k2"]
    second = receive(q, 1_000)
    assert bodies(second) == ["o1", "plain"]
    assert second.next == 1_000 + LOOK, "k3 waits, and may become free before a lease ends"
    k1, k2 = (one.lease for one in first.entries)
    assert settle(q, 2_000, Act("ack", k1)) == ["ok"]
    assert bodies(receive(q, 2_000)) == []
    assert settle(q, 2_000, Act("ack", k2)) == ["ok"]
    assert bodies(receive(q, 2_000)) == ["k3"]


def test_a_message_that_is_handed_back_lets_later_ones_pass_and_comes_when_its_key_is_free(q: Queue) -> None:
    append(q, "k1", "k")
    append(q, "k2", "k")
    (k1,) = receive(q, 1_000, 1).entries
    assert settle(q, 1_000, Act("back", k1.lease, 10_000)) == ["ok"]
    (k2,) = receive(q, 1_000).entries
    assert bodies(receive(q, 11_000)) == [], "its pause has ended, but k2 is leased"
    assert settle(q, 12_000, Act("ack", k2.lease)) == ["ok"]
    (again,) = receive(q, 12_000).entries
    assert (again.fields["body"], again.deliveries, again.hand_backs) == (b"k1", 2, 1)


def test_after_a_dead_consumer_its_messages_come_first_and_its_leases_are_lost(q: Queue) -> None:
    for n in range(1, 4):
        append(q, f"k{n}", "k")
    dead = receive(q, 1_000, 2, lease=1_000)
    assert bodies(receive(q, 1_999)) == []
    assert bodies(receive(q, 2_000, 1)) == ["k1"]
    late = dead.entries[1].lease
    assert settle(q, 2_100, Act("extend", late, 9_000), Act("ack", late), Act("release", late)) == ["lost"] * 3
    assert bodies(receive(q, 2_100, call=late.call)) == [], "the call is repeated, but another one holds its key"


def test_with_a_hundred_messages_that_wait_for_a_key_nothing_new_is_read(q: Queue) -> None:
    for n in range(150):
        append(q, f"k{n}", "k")
    append(q, "plain")
    first = receive(q, 1_000, 1)
    while bodies(receive(q, 1_000, 10)):
        pass
    assert q.server.admin.xpending(STREAM, GROUP)["pending"] < 120
    assert bodies(receive(q, 1_000, 10)) == []
    settle(q, 1_000, Act("ack", first.entries[0].lease))
    assert bodies(receive(q, 1_000)) == [f"k{n}" for n in range(1, 101)]
    assert bodies(receive(q, 1_000)) == ["plain"]


def test_thousands_of_hand_backs_of_a_key_wait_for_it_and_are_received_again(q: Queue) -> None:
    with q.server.admin.pipeline(transaction=False) as many:
        for n in range(9_000):
            many.xadd(STREAM, {"id": f"k{n}", "topic": STREAM, "body": f"k{n}", "orderingKey": "k"})
        many.execute()
    for _ in range(9):
        found = receive(q, 1_000, 1_000)
        settle(q, 1_000, *(Act("back", one.lease, 1_000) for one in found.entries))
    (first,) = receive(q, 3_000, 1).entries
    for _ in range(10):
        assert receive(q, 3_000, 1_000).entries == []
    assert waiting(q) == 8_999
    settle(q, 3_000, Act("ack", first.lease))
    assert bodies(receive(q, 3_000, 1_000)) == [f"k{n}" for n in range(1, 1_001)]


def test_an_entry_of_a_key_that_was_trimmed_is_forgotten(q: Queue) -> None:
    for n in range(1, 4):
        append(q, f"k{n}", "k")
    receive(q, 1_000, 1, lease=1_000)
    receive(q, 1_000)
    q.server.admin.xtrim(STREAM, maxlen=0)
    assert receive(q, 40_000).entries == []
    assert set(q.server.admin.hkeys(OWN_KEYS.consumers)) <= {
        b"filter",
        b"making",
        b"waiting",
        b"handedBack",
        b"inCalls",
    }
    assert waiting(q) == 0
    append(q, "k4", "k")
    assert bodies(receive(q, 40_000)) == ["k4"]


def waiting(q: Queue) -> int:
    return int(q.server.admin.hget(OWN_KEYS.consumers, "waiting") or 0)


@dataclass
class Message:
    """What the model knows of a message. `call` is the last one that leased it, and `until` ends its lease or pause."""

    body: str
    key: str
    state: str = "new"  # new, leased, free, paused, done
    call: str = ""
    until: int = 0
    deliveries: int = 0

    def is_free(self, now: int) -> bool:
        return self.state in ("new", "free") or (self.state in ("leased", "paused") and self.until <= now)

    def is_leased(self, now: int) -> bool:
        return self.state == "leased" and self.until > now


class Group:
    """The model: a consumer group with its messages in the order of the stream."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.holders: dict[str, str] = {}

    def expected(self, now: int) -> list[Message]:
        """All messages that a call with enough room receives."""
        held = {one.key for one in self.messages if one.key and one.is_leased(now)}
        return [one for one in self.messages if one.is_free(now) and one.key not in held]

    def holds(self, one: Message, call: str) -> bool:
        return one.state == "leased" and one.call == call and (not one.key or self.holders[one.key] == call)

    def lease(self, one: Message, call: str, until: int) -> None:
        one.state, one.call, one.until = "leased", call, until
        if one.key:
            self.holders[one.key] = call

    def settle(self, now: int, act: str, one: Message, call: str) -> str:
        """The result of an act of 500 ms."""
        if one.state == "done":
            return "ok" if act == "ack" else "lost"
        if one.call != call:
            return "lost"
        if one.state in ("free", "paused"):
            return "ok" if act in ("back", "release") else "lost"
        if not self.holds(one, call):
            return "lost"
        one.state = {"ack": "done", "back": "paused", "release": "free", "extend": "leased"}[act]
        one.until = now + 500
        one.deliveries -= act == "release"
        return "ok"


Steps = list[tuple[Any, ...]]
#: What one act names of the messages of a call: all, but for some at the begin and at the end; turned around; or one twice.
SOME = st.sampled_from([slice(None), slice(None), slice(1, None), slice(None, -1), slice(None, None, -1), None])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(["", "k", "k", "o"])),
        st.tuples(st.just("receive"), st.sampled_from([1, 2, 3, ALL]), st.sampled_from([100, 1_000])),
        st.tuples(st.just("receive"), st.sampled_from([3, ALL]), st.just(100), st.sampled_from([0, 26, 40])),
        st.tuples(st.just("repeat"), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.sampled_from([1, 99, 100, 500, 1_000])),
        st.tuples(st.sampled_from(["ack", "extend", "back", "release"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["ack", "ack", "extend", "back", "release"]), st.integers(0, 5), SOME),
    ),
    max_size=50,
)


def live(q: Queue, steps: Steps) -> None:
    """Take the steps with the scripts and with the model, and compare them."""
    q.server.flush()
    now, group, leases, calls = 10_000, Group(), list[tuple[Message, Lease]](), list[tuple[ReceivedEntries, int, int]]()
    for name, *values in steps:
        if name == "append":
            group.messages.append(Message(f"m{len(group.messages)}", values[0]))
            append(q, group.messages[-1].body, values[0])
        elif name == "wait":
            now += values[0]
        elif name == "receive":
            most, life, *most_bytes = values
            found = receive_others(q, group, now, next(CALLS), most, life, leases, *most_bytes)
            calls += [(found, most, life)] if found.entries else []
        elif name == "repeat" and calls:
            found, most, life = calls[-1 - values[0] % len(calls)]
            call = found.entries[0].lease.call
            still = [one for entry in found.entries if group.holds(one := by_body(group, entry.fields), call)]
            if still:
                assert bodies(receive(q, now, most, call=call, lease=life)) == [one.body for one in still]
            else:
                others = receive_others(q, group, now, call, most, life, leases)
                if others.entries:
                    calls[-1 - values[0] % len(calls)] = others, most, life
            for one in still:
                one.until = now + life
        elif len(values) == 2 and calls:
            found, *_ = calls[-1 - values[0] % len(calls)]
            entries = found.entries + found.entries[:1] if values[1] is None else found.entries[values[1]]
            if entries:
                lease = Lease(" ".join(one.lease.entries for one in entries), entries[0].lease.call)
                expected = [group.settle(now, name, by_body(group, one.fields), lease.call) for one in entries]
                assert settle(q, now, Act(name, lease, 500)) == expected
        elif name in ("ack", "extend", "back", "release") and leases:
            one, lease = leases[-1 - values[0] % len(leases)]
            assert settle(q, now, Act(name, lease, 500)) == [group.settle(now, name, one, lease.call)]
        check_state(q)
    for _ in group.messages:  # everything arrives in the end
        now += 5_000
        found = receive(q, now)
        check_received(group, now, found, ALL)
        for entry in found.entries:
            by_body(group, entry.fields).state = "done"
        assert set(settle(q, now, *(Act("ack", entry.lease) for entry in found.entries))) <= {"ok"}
    assert {one.state for one in group.messages} <= {"done"}
    assert set(q.server.admin.hkeys(OWN_KEYS.consumers)) <= {
        b"filter",
        b"making",
        b"waiting",
        b"handedBack",
        b"inCalls",
    }


def receive_others(
    q: Queue,
    group: Group,
    now: int,
    call: str,
    most: int,
    life: int,
    leases: list[tuple[Message, Lease]],
    most_bytes: int | None = None,
) -> ReceivedEntries:
    """Receive by a call that holds nothing, and lease the messages in the model, too."""
    if most_bytes is None:
        found = receive(q, now, most, call=call, lease=life)
    else:  # fewer fit, but always one
        found = receive(q, now, most, call=call, lease=life, most_bytes=most_bytes)
        assert len(found.entries) < 2 or sum(map(size, found.entries)) <= most_bytes
        most = len(found.entries) or most
    check_received(group, now, found, most)
    for entry in found.entries:
        one = by_body(group, entry.fields)
        group.lease(one, call, now + life)
        one.deliveries += 1
        assert entry.deliveries == one.deliveries
        leases.append((one, entry.lease))
    return found


def size(entry: StreamEntry) -> int:
    return sum(len(value) for name, value in entry.fields.items() if name not in ("id", "topic"))


def by_body(group: Group, fields: dict[str, bytes]) -> Message:
    return group.messages[int(fields["body"][1:])]


def check_received(group: Group, now: int, found: ReceivedEntries, most: int) -> None:
    """As many as fit are received, and of each key the earliest, in their order."""
    expected = [one.body for one in group.expected(now)]
    assert len(bodies(found)) == min(most, len(expected))
    assert set(bodies(found)) <= set(expected)
    for key in ("k", "o"):
        got = [by_body(group, entry.fields) for entry in found.entries]
        of_key = [one.body for one in got if one.key == key]
        first = [one.body for one in group.expected(now) if one.key == key and one.state != "paused"]
        back = [one.body for one in group.expected(now) if one.key == key and one.state == "paused"]
        assert [one for one in of_key if one not in back] == first[: len([one for one in of_key if one not in back])]


def check_state(q: Queue) -> None:
    """Each message that was read and not acknowledged has an end of its lease or pause, or waits for its key."""
    admin = q.server.admin
    if admin.exists(OWN_KEYS.consumers):
        pending = admin.xpending(STREAM, GROUP)["pending"]
        assert waiting(q) == pending - admin.zcard(OWN_KEYS.leases)
        states = [state for id, state in admin.hgetall(OWN_KEYS.consumers).items() if id[:1].isdigit()]
        held = Counter(state.split()[1] for state in states if state[:1] == b"L")
        left = {id[5:]: int(count) for id, count in admin.hgetall(OWN_KEYS.consumers).items() if id[:5] == b"left:"}
        assert left == held
        assert set(left) == {id[9:] for id in admin.hkeys(OWN_KEYS.consumers) if id[:9] == b"received:"}
        records = [
            record.split()[1:] for name, record in admin.hgetall(OWN_KEYS.consumers).items() if name[:5] == b"call:"
        ]
        assert int(admin.hget(OWN_KEYS.consumers, "inCalls") or 0) == sum(len(ids) - 1 for ids in records)
        assert int(admin.hget(OWN_KEYS.consumers, "handedBack") or 0) == sum(state[:1] == b"H" for state in states)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_random_life_of_a_group_with_keys_is_that_of_the_model(q: Queue, steps: Steps) -> None:
    live(q, steps)


K = ("append", "k")
ONE, REST = ("receive", 1, 100), ("receive", ALL, 1_000)
#: Rules of the scripts: what removes each of them, and steps that show it.
MUTANTS: dict[str, tuple[str, str, Steps]] = {
    "a key is with one call": ("if fits and (#lane.ids == 0 or lane.is_own) then", "if true then", [K, K, ONE, REST]),
    "a free one waits while its key is leased": (
        "lane.is_held = is_held(lane)",
        "lane.is_held = false",
        [K, K, ("receive", 2, 100), ("extend", 0), ("wait", 100), REST],
    ),
    "the earliest is received first": (
        "local one = lane.ids[at]",
        "local one = lane.ids[#lane.ids + 1 - at]",
        [K, K, ("receive", 2, 100), ("wait", 100), ONE],
    ),
    "one that has no room is free for the next call": (
        "      set_end(id, name, digits(now))",
        "",
        [K, ("append", "o"), ("receive", ALL, 100, 0), REST],
    ),
    "no call has the key of one that has no room": (
        "if fits and (#lane.ids == 0 or lane.is_own) then",
        "if #lane.ids == 0 or lane.is_own then",
        [K, ("append", "o"), ("receive", ALL, 100, 0), REST],
    ),
    "the next one becomes free": (
        "if lane.changed and lane.ids[1] then",
        "if false then",
        [K, K, ONE, REST, ("ack", 0), REST],
    ),
    "a hand-back lets later ones pass": (
        "if act == 'back' and lane ~= '' then",
        "if false then",
        [K, K, ONE, REST, ("back", 0), REST],
    ),
    "a lost key cannot be extended": (
        "or lane ~= '' and lane_of(lane).holder ~= call then",
        "then",
        [K, K, ("receive", 2, 100), ("wait", 100), ONE, ("extend", 1)],
    ),
    "a lost key is not received by a repeated call": (
        "and (lane == '' or lane_of(lane).holder == call)",
        "",
        [K, K, ("receive", 2, 100), ("wait", 100), ONE, ("repeat", 1)],
    ),
    "one that was handed back has its place in its key again": (
        "join_lane(lane, id) -- it is",
        "-- it is",
        [K, K, ONE, ("back", 0), REST, ("wait", 500), REST, ("ack", 0), REST],
    ),
    "one that waits has no lease that ends": (
        "waiting = waiting + redis.call('ZREM', leases, id)",
        "waiting = waiting + 1",
        [K, K, ("receive", 2, 100), ("extend", 0), ("wait", 100), REST],
    ),
}


@pytest.mark.parametrize("rule", MUTANTS)
def test_without_a_rule_the_life_of_a_group_differs_from_the_model(
    q: Queue, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands, instead, steps = MUTANTS[rule]
    live(q, steps)
    real, changed = scripts.source, set[str]()

    def mutated(name: str) -> str:
        text = real(name)
        if stands in text:
            changed.add(name)
        return text.replace(stands, instead)

    replace_source(mutated, monkeypatch)
    with pytest.raises(AssertionError):
        live(q, steps)
    assert changed
