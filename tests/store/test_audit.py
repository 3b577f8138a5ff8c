"""What is changed by hand is written down by the script that changes it: both, or neither."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from delayq import Client, InvalidMessage, Message, Scheduled
from delayq.base.errors import StoreUnavailable
from delayq.care.undo_run import undo
from delayq.client.audit import By, entry_of, new_act
from delayq.domain.message import RUN_PROPERTY
from delayq.store import commands
from delayq.store.commands import Audited, Change, Command, Retention
from delayq.store.keys import KEYS, Layout
from tests.support.proxy import FaultProxy
from tests.support.queues import EPOCH, Queue, row, taken

RETENTION = Retention(audit_most=1_000, audit_window=60_000)
ENTRY = entry_of(By(actor="shop", key="5f3a", address="10.0.0.5", reason="a test"), "repair", RETENTION)
NOW = 20_000


def entries(q: Queue, stream: str = "") -> list[Audited]:
    return q.run(commands.audited(stream or q.keys.audit, 100))


def dead(q: Queue) -> None:
    q.given(row("a", at=NOW, topic="orders", keys=("k1", "k2")), row("b", at=NOW))
    q.bury(*q.take(now=NOW))


def pending(q: Queue) -> None:
    q.given(row("a", at=90_000, topic="orders", keys=("k1", "k2"), reserved=("delayq:from:shop",)))


def without_tickets(q: Queue) -> None:
    pending(q)
    q.admin.delete(q.keys.queue)


#: Each script that changes messages, on an `a` that it changes and an `x` that nobody knows.
CHANGES: dict[str, tuple[Callable[[Queue], None], Callable[..., Command[Any]]]] = {
    "cancel": (pending, lambda q, **more: commands.cancel(q.keys, ["x", "a"], now=q.now, **more)),
    "reschedule": (pending, lambda q, **more: commands.reschedule(q.keys, "a", "a95000", now=q.now, **more)),
    "deliver_now": (pending, lambda q, **more: commands.deliver_now(q.keys, ["x", "a"], now=q.now, **more)),
    "redrive": (dead, lambda q, **more: commands.redrive(q.keys, ["x", "a"], now=NOW, **more)),
    "discard": (dead, lambda q, **more: commands.discard(q.keys, ["a", "x"], now=NOW, **more)),
    "repair": (without_tickets, lambda q, **more: commands.repair(q.keys, [], "0", now=NOW, **more)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_written_down_once_with_what_it_really_changed(q: Queue, name: str) -> None:
    prepare, call = CHANGES[name]
    q.run(call(q, entry=ENTRY))  # which finds nothing to change
    assert not q.admin.exists(q.keys.audit)
    prepare(q)
    changed: list[str] = []
    command = call(q, entry=ENTRY, **({} if name == "repair" else {"changed": changed}))
    assert command.script == call(q, entry="").script
    answer = q.run(command)
    (entry,) = entries(q)
    assert (entry.actor, entry.key, entry.address, entry.action, entry.reason) == (
        "shop", "5f3a", "10.0.0.5", "repair", "a test",
    )  # fmt: skip
    assert [(one.id, one.topic, one.keys) for one in entry.messages] == [("a", "orders", ("k1", "k2"))]
    assert 0 < q.admin.pttl(q.keys.audit) <= 60_000
    again = q.run(command)  # whose reply was lost, perhaps
    assert len(entries(q)) == 1
    if name != "repair":
        assert (changed, again, len(answer)) == (["a"], answer, 2)  # the answer is the same as without an entry
    q.server.flush()
    prepare(q)
    q.run(call(q, entry=""))
    assert not q.admin.exists(q.keys.audit)


def test_what_cannot_be_read_is_written_down_by_its_id_and_only_so_many_entries_are_kept(q: Queue) -> None:
    dead(q)
    q.admin.hset(q.keys.pool, "a", "garbled")
    q.run(commands.discard(q.keys, ["a"], entry=ENTRY, now=NOW))
    q.admin.xadd(q.keys.audit, {"by": "by hand"})
    by_hand, entry = entries(q)
    assert [(one.id, one.topic) for one in entry.messages] == [("a", "")]
    assert (by_hand.actor, by_hand.messages) == ("", ())
    few = entry_of(By(actor="shop"), "repair", Retention(audit_most=100))
    for number in range(400):
        q.given(row(f"m{number}", at=90_000))
        q.run(commands.cancel(q.keys, [f"m{number}"], entry=few, now=q.now))
    assert 100 <= q.admin.xlen(q.keys.audit) < 300


def test_what_concerns_the_whole_is_written_down_with_what_it_became(q: Queue) -> None:
    q.run(commands.layout(KEYS, 16))
    q.run(commands.bump_era(KEYS, 4, entry=ENTRY))
    q.run(commands.set_layouts(KEYS, (Layout(16),), (Layout(16), Layout(64, 16)), entry=ENTRY))
    q.run(commands.set_layouts(KEYS, (Layout(16),), (Layout(16), Layout(32, 16)), entry=ENTRY))  # too late
    pause = [Change("pause:orders.*", '{"reason":"down"}')]
    for _ in range(2):
        q.run(commands.set_policies(KEYS, pause, maker="0000000001", entry=ENTRY))
    assert [one.detail for one in reversed(entries(q, KEYS.audit))] == [
        "0 5",
        "16 64@16",
        'pause:orders.* {"reason":"down"}',
    ]
    pending(q)
    for _ in range(2):
        q.run(commands.close(q.keys, entry=ENTRY))
    q.admin.hdel(q.keys.pool, "a")
    q.run(commands.write_off(q.keys, entry=ENTRY))
    assert [one.detail for one in reversed(entries(q))] == ["closed", "1"]


# -- both, or neither ------------------------------------------------------------------------------------------------------


def test_a_change_of_which_nobody_hears_is_written_down_all_the_same(proxy: FaultProxy) -> None:
    with Client(proxy.url) as client:
        client.schedule(Message(topic="a.b", id="a", delay_time=3_600_000))
        proxy.drop_reply("cancel", times=2)  # that of the call, and that of its repetition by the store
        assert isinstance(client.cancel_many(["a"], by=By(actor="shop"))[0], StoreUnavailable)
        found = client.get("a")
        assert found is not None and found.state == "cancelled"
        topics = ("a.b", "a?b", "a*", "b*")
        assert [len(client.audit(topic=topic).entries) for topic in topics] == [1, 1, 1, 0]


def test_an_invalid_audit_is_refused(client: Client) -> None:
    senseless: list[tuple[str, dict[str, Any]]] = [
        ("limit", {"limit": 0}), ("limit", {"limit": -1}), ("id", {"id": ""}), ("key", {"key": ""}),
        ("topic", {"topic": "[a]"}), ("action", {"action": "foo"}), ("from", {"from_": -1}),
        ("to", {"from_": 5, "to": 4}), ("pageToken", {"token": "MSAyIDM"}),
    ]  # fmt: skip
    for field, wanted in senseless:
        with pytest.raises(InvalidMessage) as refused:
            client.audit(**wanted)
        assert refused.value.field == field


# -- one act is one entry --------------------------------------------------------------------------------------------------


def many(client: Client, count: int, **fields: Any) -> list[str]:
    """Messages in all queues."""
    wanted = [Message(topic="orders", id=f"m{number}", **{"delay_time": 3_600_000} | fields) for number in range(count)]
    return [one.id for one in client.schedule_many(wanted) if isinstance(one, Scheduled)]


def died(client: Client, count: int) -> list[str]:
    ids = many(client, count, delay_time=0)
    for queue in range(16):
        pulled = taken(client.store.run(commands.pull(KEYS.queue(queue), EPOCH, offset=0, room=500)))
        client.store.run(commands.bury(KEYS.queue(queue), EPOCH, [(one, 1, "no") for one in pulled]))
    return ids


def undone(client: Client) -> None:
    many(client, 300, properties={RUN_PROPERTY: "r1"})
    for _ in undo(client.store, client.context(), "r1", By(actor="shop")):
        pass


#: What people do to many messages by one call.
ACTS: dict[str, Callable[[Client], object]] = {
    "cancel": lambda client: client.cancel_many(many(client, 300), by=By(actor="shop")),
    "cancel by key": lambda client: (many(client, 300, keys=("k",)), client.cancel_by_key("k", by=By(actor="shop"))),
    "deliver now": lambda client: client.deliver_now_many(many(client, 300), by=By(actor="shop")),
    "deliver now by key": lambda client: (
        many(client, 300, keys=("k",)),
        client.deliver_now_by_key("k", by=By(actor="shop")),
    ),
    "redrive": lambda client: client.redrive(died(client, 300), by=By(actor="shop")),
    "discard": lambda client: client.discard_many(died(client, 300), by=By(actor="shop")),
    "undo": undone,
}


@pytest.mark.parametrize("name", ACTS)
def test_what_somebody_does_to_many_messages_is_one_entry(client: Client, name: str) -> None:
    client.context()
    before = By(actor="before")
    client.schedule(Message(topic="orders", id="other", delay_time=3_600_000))
    client.cancel("other", by=before)
    ACTS[name](client)
    ACTS[name](client) if name in ("redrive", "discard") else None  # which changes nothing more, or is another act
    page = client.audit(limit=1)
    (entry,) = page.entries
    assert (entry.queue, entry.change.actor, entry.change.count) == (None, "shop", 300)
    assert entry.change.run == ("r1" if name == "undo" else "")
    if name not in ("redrive", "discard"):
        assert page.next_token is not None
        rest = client.audit(limit=10, token=page.next_token)
        assert [one.change.actor for one in rest.entries] == ["before"]


def test_an_act_that_takes_several_scripts_is_one_entry_of_a_stream_and_bounded_in_bytes(q: Queue) -> None:
    entry = entry_of(By(actor="shop", act=new_act()), "cancel", RETENTION)
    for first in range(0, 1_500, 500):
        ids = [f"m{number}-{'x' * 90}" for number in range(first, first + 500)]
        q.given(*(row(id, at=90_000, keys=("k1", "k2")) for id in ids))
        q.run(commands.cancel(q.keys, ids, entry=entry, now=q.now))
    (one,) = entries(q)
    assert (one.count, one.messages[0].id[:3], len(one.messages)) == (1_500, "m0-", len(one.messages))
    assert 20 < len(one.messages) < 60
    ((_, fields),) = q.admin.xrange(q.keys.audit)
    assert sum(map(len, (*fields, *fields.values()))) < 4_400
    # A message of which much is to be said stands there, too, and another act is another entry.
    long = row("l" * 128, at=90_000, topic="t" * 255, keys=tuple(f"{number:02}{'k' * 250}" for number in range(16)))
    q.given(long)
    q.run(commands.cancel(q.keys, ["l" * 128], entry=ENTRY, now=q.now))
    assert [(one.count, len(one.messages[0].keys)) for one in entries(q)] == [(1, 16), (1_500, 2)]


def test_acts_beside_each_other_are_told_one_by_one_whatever_the_pages(client: Client) -> None:
    acts = {name: By(actor=name, act=new_act()) for name in ("a", "b", "c")}
    for number in range(30):
        for name, by in acts.items():
            client.schedule(Message(topic="orders", id=f"{name}{number}", delay_time=3_600_000))
            client.cancel(f"{name}{number}", by=by)
        client.schedule(Message(topic="orders", id=f"alone{number}", delay_time=3_600_000))
        client.cancel(f"alone{number}", by=By(actor="alone"))
    for limit in (1, 2, 7, 100):
        told: list[tuple[str, int]] = []
        token = None
        while True:
            page = client.audit(limit, token)
            told += ((one.change.actor, one.change.count) for one in page.entries)
            token = page.next_token
            if token is None:
                break
        assert sorted(told) == [("a", 30)] + [("alone", 1)] * 30 + [("b", 30), ("c", 30)]


def test_nobody_has_a_part_in_the_act_of_another(client: Client) -> None:
    act = new_act()
    for number, actor in enumerate(("shop", "other", "shop")):
        client.schedule(Message(topic="orders", id=f"m{number}", delay_time=3_600_000))
        client.cancel(f"m{number}", by=By(actor=actor, act=act))
    assert sorted((one.change.actor, one.change.count) for one in client.audit().entries) == [("other", 1), ("shop", 2)]


def test_who_ended_a_message_is_told_also_of_an_act_that_took_a_while(client: Client) -> None:
    by = By(actor="shop", act=new_act())
    for number in range(3):
        client.schedule(Message(topic="orders", id=f"m{number}.0000", delay_time=3_600_000))
        client.cancel(f"m{number}.0000", by=by)
        time.sleep(0.03)  # the entry of the act is later than the ends that it names
    assert [found.ended_by for number in range(3) if (found := client.get(f"m{number}.0000"))] == ["shop"] * 3
