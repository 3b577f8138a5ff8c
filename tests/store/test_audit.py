"""What is changed by hand is written down by the script that changes it: both, or neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq import Client, InvalidMessage, Message
from delayq.client.audit import By, entry_of
from delayq.errors import StoreUnavailable
from delayq.store import commands
from delayq.store.commands import Audited, Change, Command, Retention
from delayq.store.keys import AUDIT, Layout
from tests.support.proxy import FaultProxy
from tests.support.queues import Queue, row

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
    q.run(commands.layout(16))
    q.run(commands.bump_era(4, entry=ENTRY))
    q.run(commands.set_layouts((Layout(16),), (Layout(16), Layout(64, 16)), entry=ENTRY))
    q.run(commands.set_layouts((Layout(16),), (Layout(16), Layout(32, 16)), entry=ENTRY))  # too late
    pause = [Change("pause:orders.*", '{"reason":"down"}')]
    for _ in range(2):
        q.run(commands.set_policies(pause, maker="0000000001", entry=ENTRY))
    assert [one.detail for one in reversed(entries(q, AUDIT))] == [
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
        ("topic", {"topic": "[a]"}), ("action", {"action": "foo"}), ("since", {"since": -1}),
        ("until", {"since": 5, "until": 4}), ("pageToken", {"token": "MSAyIDM"}),
    ]  # fmt: skip
    for field, wanted in senseless:
        with pytest.raises(InvalidMessage) as refused:
            client.audit(**wanted)
        assert refused.value.field == field
