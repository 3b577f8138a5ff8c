"""Every script may be repeated: the same call once more leaves everything as it is, and says the same.

Each script is run in each of its outcomes, and then again. What differs the second time says why that is no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from delayq.domain.codec import DUE_HEAD_LENGTH, due_head, encode
from delayq.domain.message import Limits, Message
from delayq.store import commands, scripts
from delayq.store.commands import (
    Act,
    Census,
    Change,
    Command,
    GroupRecord,
    Known,
    KnownTopics,
    Lease,
    Listed,
    Retention,
    SlotRequest,
    Tally,
)
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, Layout
from tests.support.queues import EPOCH, NEW_EPOCH, OLD_EPOCH, Queue, row, schedule_command
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE

NOW = 20_000
CENSUS = Census(NOW, {"orders": {"due": Tally(1, 99, [1])}})
ORDERS = Known("orders", "orders")


@dataclass(frozen=True)
class Case:
    """What makes the call, once the outcome is prepared. `answers` and `changes` say why what differs is no harm."""

    call: Callable[[Queue], Command[Any]]
    answers: str = ""
    changes: str = ""


GROUP = KEYS.consumers("stream", "mail")
RECORD = GroupRecord(topic="orders", group="mail", stream="stream", queues=(16, 31))
MORE = GroupRecord(topic="orders", group="mail", stream="stream", queues=(0, 15))
ENTRY = '100 100000 {"actor":"admin","action":"deleteGroup"}'
GONE = "it reports whether this call deleted something"
CONTENT = encode(Message(topic="t", expect_date=1), Limits(), due_head(1))[DUE_HEAD_LENGTH:]


def leased(q: Queue) -> None:
    """Two of three entries of a stream are leased."""
    for id in ("1-1", "1-2", "1-3"):
        q.admin.xadd("stream", {"id": id}, id=id)
    q.run(commands.receive(GROUP, "mail", "a", 1, 1_000, now=NOW))
    q.run(commands.receive(GROUP, "mail", "b", 1, 60_000, now=NOW))


def leased_together(q: Queue) -> None:
    """One call has three entries."""
    for id in ("1-1", "1-2", "1-3"):
        q.admin.xadd("stream", {"id": id}, id=id)
    q.run(commands.receive(GROUP, "mail", "a", 3, 60_000, now=NOW))


def acknowledge(ids: str, _: Queue) -> Command[Any]:
    return commands.settle_received(GROUP, "mail", [Act("ack", Lease(ids, "a"))], now=NOW)


def unread(q: Queue) -> None:
    """A group has received nothing of a stream."""
    q.admin.xadd("stream", {"id": "a", "due": "1000"}, id="1-1")
    q.admin.xgroup_create("stream", "mail", "0")


def recorded(q: Queue) -> None:
    q.run(commands.record_group(KEYS, RECORD, now=NOW))


def settle(kind: Any, _: Queue) -> Command[Any]:
    leases = [Lease("1-1", "a"), Lease("1-2", "a"), Lease("9-9", "a")]
    return commands.settle_received(GROUP, "mail", [Act(kind, one, 5_000, "no stock") for one in leases], now=NOW)


def give_up(q: Queue, id: str) -> Command[Any]:
    return commands.give_up(q.keys, [(id, CONTENT, 3, "no stock", b"")], now=NOW)


def three(q: Queue) -> list[Any]:
    """Three messages that were pulled."""
    q.given(*(row(id, at=NOW, given=True, keys=("k",)) for id in "abc"))
    return q.take(now=NOW)


def parked(q: Queue) -> None:
    q.park("t:x", *three(q))


def release_set(most: int | None, begin: float = 0) -> Callable[[Queue], Command[Any]]:
    return after(parked, lambda q: commands.release_set(q.keys, EPOCH, "t:x", most, begin=begin, now=NOW))


def resumed(q: Queue) -> None:
    """Three were set aside by a pause that is over."""
    q.given(*(row(id, at=NOW) for id in "abc"))
    q.pause("orders", version="1", now=NOW)
    q.pull(version="1")
    q.pause(version="2")


def release(most: int, *known: Known, version: str = "2") -> Callable[[Queue], Command[Any]]:
    return after(
        resumed,
        lambda q: commands.release(
            q.keys, EPOCH, {"orders": [(NOW + 1, most)] if known else most},
            known=KnownTopics.of(q.keys, known or [Known("orders")]), upto=None, now=NOW, version=version,
        ),
    )  # fmt: skip


def unheld(q: Queue) -> Command[Any]:
    known = KnownTopics.of(q.keys, [Known("orders")])
    return commands.release(q.keys, EPOCH, {"orders": 1}, known=known, upto=None, now=NOW)


def development(q: Queue) -> None:
    """The server is one whose time can be moved."""
    q.admin.hset(KEYS.meta, "advanced", 0)


def retrying(q: Queue) -> None:
    q.given(row("a", at=NOW))
    q.retry((q.take_one(now=NOW), NOW + 9_000))


def held(q: Queue) -> None:
    """One is set aside by a pause, one waits."""
    parked(q)
    q.given(row("d", at=NOW + 9_000))
    q.run(commands.apply_policies(q.keys, "0000000001.0000000001", ["orders"], now=NOW))


def dead(q: Queue, *, id: str = "a") -> None:
    q.given(row(id, at=NOW, given=True, keys=("k",)))
    q.bury(*q.take(now=NOW))


def ended(q: Queue) -> None:
    """One was forwarded, one cancelled for certain, one removed in flight, one is dead."""
    q.given(row("forwarded", at=NOW, given=True), row("removed", at=NOW, given=True), row("cancelled", at=NOW + 9_000))
    messages = {one.id: one for one in q.take(now=NOW)}
    q.ack(messages["forwarded"])
    q.cancel("cancelled", "removed")
    dead(q, id="dead")


def after(prepare: Callable[[Queue], object], call: Callable[[Queue], Command[Any]]) -> Callable[[Queue], Command[Any]]:
    def both(q: Queue) -> Command[Any]:
        prepare(q)
        return call(q)

    return both


def outdated(call: Callable[[Queue], Command[Any]]) -> Callable[[Queue], Command[Any]]:
    """A newer epoch begins before the call."""

    def both(q: Queue) -> Command[Any]:
        command = call(q)
        q.pull(epoch=NEW_EPOCH)
        return command

    return both


def ack(q: Queue) -> Command[Any]:
    return commands.ack(q.keys, EPOCH, three(q), now=NOW)


def gone(q: Queue) -> Command[Any]:
    command = ack(q)
    q.cancel("a", "b", "c")
    return command


def retry(q: Queue) -> Command[Any]:
    a, b, c = three(q)
    q.cancel("c")
    return commands.retry(q.keys, EPOCH, [(a, NOW + 500), (b, None), (c, NOW + 500)])


def changed(q: Queue) -> Command[Any]:
    messages = three(q)
    q.retry(*((one, NOW + 1) for one in messages))
    return commands.retry(q.keys, EPOCH, [(one, NOW + 500) for one in messages])


def bury(q: Queue) -> Command[Any]:
    a, b, c = three(q)
    q.cancel("b")
    q.retry((c, NOW + 1))
    return commands.bury(q.keys, EPOCH, [(one, 1, "broken  and  why") for one in (a, b, c)], now=NOW)


def park(q: Queue) -> Command[Any]:
    a, b, c = three(q)
    q.cancel("b")
    return commands.park(q.keys, EPOCH, "t:x", [a, b, c])


def pull(q: Queue, *known: Known) -> Command[Any]:
    q.given(row("a", at=NOW, given=True, keys=("k",)), row("b", at=NOW + 1, given=True), row("c", at=NOW + 9_000))
    q.park("t:x", *q.take(now=NOW))
    told = KnownTopics.of(q.keys, known)
    return commands.pull(q.keys, EPOCH, offset=0, room=10, now=NOW + 1, node_now=NOW + 1, known=told, listed=Listed.ALL)


def orphans(q: Queue) -> Command[Any]:
    command = pull(q)
    q.admin.delete(q.keys.pool)
    return command


def cancelled_at_the_head(q: Queue) -> Command[Any]:
    parked(q)
    q.cancel("a", "b")
    return commands.release_set(q.keys, EPOCH, "t:x", 1, now=NOW)


def tickets_lost(q: Queue) -> Command[Any]:
    three(q)
    q.admin.delete(q.keys.queue)
    q.admin.hset(q.keys.pool, "damaged", "x")
    return commands.repair(q.keys, [], "0", entry=ENTRY, now=NOW)


def missing(q: Queue) -> Command[Any]:
    three(q)
    q.admin.hdel(q.keys.pool, "a")
    return commands.write_off(q.keys, entry=ENTRY)


def silent(q: Queue) -> Command[Any]:
    q.admin.hset(KEYS.nodes, "gone", '{"seen":1}')
    q.admin.hset(KEYS.nodes, "there", f'{{"seen":{NOW}}}')
    return commands.forget_silent(KEYS, "0", 5_000, now=NOW)


def scheduled(q: Queue) -> Command[Any]:
    return schedule_command(q.keys, row("a", at=NOW), row("b", after=500, given=True, keys=("k",)), now=10_000)


def past(q: Queue) -> Command[Any]:
    ended(q)
    rows = (row("forwarded", at=NOW + 1), row("cancelled", at=NOW + 1), row("dead", at=NOW, given=True, keys=("k",)))
    return schedule_command(q.keys, *rows, row("late", spec=f"p{NOW - 5}"), row("x", spec="ax"), now=NOW)


def closed(q: Queue) -> bool:
    return q.run(commands.close(q.keys))


def take_slots(call: str, *names: str) -> Command[Any]:
    """Take two of the three slots of each name, and return one that is no longer there."""
    requests = [SlotRequest(name, 3, 60_000, 2, call, ["other:1"]) for name in names or ("x",)]
    return commands.take_slots(KEYS, requests, now=NOW)


IDS = ("a", "dead", "forwarded", "removed", "cancelled", "nobody")
REMOVES = "it counts what this call removed; its owner asks only whether it is fenced"
TOLD = "it says `live`, with the due that it has: the caller is told that an earlier call made it"
LOOKS = "it counts what this call has mended"

BREAK = [Change("pause:orders.*", "{}"), Change("policy:sms", "")]


def paused(q: Queue) -> Command[Any]:
    q.run(commands.apply_policies(q.keys, "0000000002.0000000001", ["orders.*"], now=NOW))
    return commands.apply_policies(q.keys, "0000000003.0000000001", ["orders.*", "sms.*"], now=NOW + 500)


def by_other_policies(q: Queue) -> Command[Any]:
    command = pull(q)
    q.run(paused(q))
    return command


#: Why a `release` may move more the second time.
SENT_ONCE = "the store does not send an owner's call again, and the owner's next incarnation fences it"

#: By script its outcomes; by the first one it does as much as any.
CASES: dict[str, dict[str, Case]] = {
    "ack": {
        "ok": Case(ack, answers=REMOVES),
        "an older epoch": Case(outdated(ack), answers=REMOVES),
        "gone": Case(gone),
    },
    "apply_policies": {
        "ok": Case(paused),
        "earlier than what is there": Case(
            after(paused, lambda q: commands.apply_policies(q.keys, "0000000001.0000000001", [], now=NOW))
        ),
    },
    "asked": {
        "ok": Case(
            after(
                lambda q: q.given(row("a.ab12", at=NOW, given=True, ordering_key="k")),
                lambda q: commands.asked(q.keys, ["a", "nobody"]),
            )
        )
    },
    "advance": {
        "moved": Case(after(development, lambda q: commands.advance(KEYS, 60_000))),
        "refused": Case(lambda q: commands.advance(KEYS, 60_000)),
    },
    "barrier": {"ok": Case(lambda q: Command("barrier", (q.keys.state,), (), lambda reply: reply))},
    "bump_era": {
        "ok": Case(
            lambda q: commands.bump_era(KEYS, 0, entry=ENTRY),
            "the era before is another one",
            "one era more is as good: the latest of all",
        )
    },
    "bury": {
        "ok, gone and changed": Case(bury),
        "fenced": Case(outdated(bury)),
    },
    "cancel": {
        "certain": Case(
            after(lambda q: q.given(row("a", at=NOW)), lambda q: commands.cancel(q.keys, ["a"], now=10_000))
        ),
        "whatever has ended": Case(after(ended, lambda q: commands.cancel(q.keys, IDS, now=NOW))),
        "in flight": Case(after(three, lambda q: commands.cancel(q.keys, ["a", "b"], now=NOW))),
        "parked": Case(after(parked, lambda q: commands.cancel(q.keys, ["a", "b"], now=NOW))),
        "moved": Case(after(closed, lambda q: commands.cancel(q.keys, ["a"], now=NOW))),
        "of another topic": Case(after(three, lambda q: commands.cancel(q.keys, ["a"], topics=["other"], now=NOW))),
    },
    "census_slice": {"ok": Case(after(three, lambda q: commands.census_slice(q.keys, "0", 10, None, now=NOW)))},
    "claim": {
        "ok": Case(after(parked, lambda q: commands.claim(q.keys, NEW_EPOCH))),
        "fenced": Case(after(parked, lambda q: commands.claim(q.keys, OLD_EPOCH))),
    },
    "close": {"ok": Case(lambda q: commands.close(q.keys, entry=ENTRY), answers="it says whether this call closed it")},
    "counts": {"ok": Case(after(three, lambda q: commands.counts(q.keys, "", [0, NOW, None])))},
    "dead_letters": {"ok": Case(after(ended, lambda q: commands.dead_letters(q.keys, 10)))},
    "discard": {
        "ok": Case(after(dead, lambda q: commands.discard(q.keys, ["a", "nobody"], now=NOW))),
        "moved": Case(after(closed, lambda q: commands.discard(q.keys, ["a"], now=NOW))),
    },
    "find_by_key": {"ok": Case(after(three, lambda q: commands.find_by_key(q.keys, "k", 10)))},
    "forget_silent": {"ok": Case(silent)},
    "get": {"ok": Case(after(ended, lambda q: commands.get(q.keys, IDS, now=NOW)))},
    "glance": {"ok": Case(lambda q: commands.glance(KEYS, now=NOW))},
    "lacking": {"ok": Case(lambda _: Command("lacking", (), ("1", "1", "delayq:meta", "delayq:wake", "hset"), list))},
    "layout": {"first": Case(lambda q: commands.layout(KEYS, 16))},
    "keep_census": {
        "ok": Case(after(three, lambda q: commands.keep_census(q.keys, EPOCH, CENSUS))),
        "fenced": Case(outdated(lambda q: commands.keep_census(q.keys, EPOCH, CENSUS))),
    },
    "letters": {"ok": Case(after(ended, lambda q: commands.letters(q.keys, IDS)))},
    "page": {"ok": Case(after(three, lambda q: commands.page(q.keys, now=NOW)))},
    "park": {
        "ok and gone": Case(park),
        "nothing": Case(after(three, lambda q: commands.park(q.keys, EPOCH, "t:x", []))),
        "fenced": Case(outdated(park)),
    },
    "publish_node": {
        "ok": Case(lambda _: commands.publish_node(KEYS, "a", b"line"), answers="it returns the line before")
    },
    "pull": {
        "for targets": Case(pull),
        "into a stream": Case(
            lambda q: pull(q, ORDERS),
            answers="what was appended is gone; the owner needs no more of it than that",
        ),
        "without records": Case(orphans, answers="what was dropped is not there to be looked at"),
        "by other policies": Case(by_other_policies),
        "fenced": Case(
            after(lambda q: q.pull(epoch=NEW_EPOCH), lambda q: commands.pull(q.keys, EPOCH, offset=0, room=1))
        ),
    },
    "redrive": {
        "ok": Case(after(dead, lambda q: commands.redrive(q.keys, ["a", "nobody"], now=NOW))),
        "moved": Case(after(closed, lambda q: commands.redrive(q.keys, ["a"], now=NOW))),
    },
    "set_policies": {
        "ok": Case(
            lambda q: commands.set_policies(KEYS, BREAK, maker="0000000001", seen=0, now=NOW),
            answers="it says whether this call changed it",
        ),
        "beyond": Case(
            lambda q: commands.set_policies(KEYS, [], maker="0000000001", beyond="0000000007.0000000002", now=NOW),
            answers="it says whether this call changed it",
        ),
        "another version": Case(lambda q: commands.set_policies(KEYS, BREAK, maker="0000000001", seen=3, now=NOW)),
    },
    "set_layouts": {
        "ok": Case(
            after(
                lambda q: q.run(commands.layout(KEYS, 16)),
                lambda q: commands.set_layouts(KEYS, [Layout(16)], [Layout(32)], entry=ENTRY),
            )
        ),
        "another list": Case(
            after(
                lambda q: q.run(commands.layout(KEYS, 8)),
                lambda q: commands.set_layouts(KEYS, [Layout(16)], [Layout(32)]),
            )
        ),
    },
    "deliver_now": {
        "one that waits": Case(
            after(lambda q: q.given(row("a", at=NOW)), lambda q: commands.deliver_now(q.keys, ["a"], now=10_000))
        ),
        "one that is tried again": Case(after(retrying, lambda q: commands.deliver_now(q.keys, ["a"], now=NOW + 1))),
        "parked": Case(after(parked, lambda q: commands.deliver_now(q.keys, ["a"], held=["orders"], now=NOW))),
        "by force": Case(after(held, lambda q: commands.deliver_now(q.keys, ["a", "d"], force=True, now=NOW))),
        "held": Case(after(held, lambda q: commands.deliver_now(q.keys, ["a", "d"], now=NOW))),
        "in flight": Case(after(three, lambda q: commands.deliver_now(q.keys, ["a"], now=NOW))),
        "whatever has ended": Case(after(ended, lambda q: commands.deliver_now(q.keys, IDS, now=NOW))),
        "moved": Case(after(closed, lambda q: commands.deliver_now(q.keys, ["a"], now=NOW))),
    },
    "repair": {"ok": Case(tickets_lost, answers=LOOKS)},
    "reschedule": {
        "absolute": Case(
            after(lambda q: q.given(row("a", at=NOW)), lambda q: commands.reschedule(q.keys, "a", "a30000", now=10_000))
        ),
        "by a delay": Case(
            after(lambda q: q.given(row("a", at=NOW)), lambda q: commands.reschedule(q.keys, "a", "r500", now=10_000))
        ),
        "in flight": Case(after(three, lambda q: commands.reschedule(q.keys, "a", "a30000", now=NOW))),
        "dead": Case(after(dead, lambda q: commands.reschedule(q.keys, "a", "a30000", now=NOW))),
        "moved": Case(after(closed, lambda q: commands.reschedule(q.keys, "a", "a30000", now=NOW))),
        "invalid": Case(lambda q: commands.reschedule(q.keys, "a", "a", now=NOW)),
    },
    "is_drained": {
        "done with": Case(after(closed, lambda q: commands.is_drained(q.keys, now=NOW))),
        "not yet": Case(after(lambda q: (three(q), closed(q)), lambda q: commands.is_drained(q.keys, now=NOW))),
    },
    "retry": {
        "ok and gone": Case(retry),
        "changed": Case(changed),
        "fenced": Case(outdated(retry)),
    },
    "schedule": {
        "new": Case(scheduled, answers=TOLD),
        "ended, past and invalid": Case(past),
        "moved": Case(after(closed, scheduled)),
        "conflict": Case(after(three, lambda q: schedule_command(q.keys, row("a", at=NOW + 5, given=True), now=NOW))),
    },
    "find_by_property": {
        "ok": Case(after(three, lambda q: commands.find_by_property(q.keys, "0", 10, "name", "value")))
    },
    "held_topics": {"ok": Case(after(parked, lambda q: commands.held_topics(q.keys, "0", "*", 10)))},
    "spend": {
        "ok": Case(
            lambda q: commands.spend(KEYS, "job", 10, 8, 5, now=NOW),
            "the bucket has less, or the job has to wait longer",
            "what was granted twice is slower, never faster",
        )
    },
    "stats": {"ok": Case(after(ended, lambda q: commands.stats(q.keys, now=NOW)))},
    "receive": {
        "new and ended": Case(after(leased, lambda q: commands.receive(GROUP, "mail", "c", 5, 1_000, now=NOW + 2_000))),
        "nothing": Case(lambda q: commands.receive(GROUP, "mail", "c", 5, 1_000, now=NOW)),
        "another filter": Case(
            after(leased, lambda q: commands.receive(GROUP, "mail", "c", 5, 1_000, tags=("x",), now=NOW))
        ),
    },
    "held_calls": {"ok": Case(after(leased, lambda q: commands.held_calls([(GROUP, "a"), (GROUP, "none")])))},
    "settle_received": {
        kind: Case(after(leased, partial(settle, kind))) for kind in ("ack", "extend", "back", "release", "skip")
    }
    | {
        "ack of a call": Case(after(leased_together, partial(acknowledge, "1-1 1-2 1-3"))),
        "ack of a part": Case(after(leased_together, partial(acknowledge, "1-1 1-3"))),
    },
    "record_group": {
        "new": Case(lambda q: commands.record_group(KEYS, RECORD, now=NOW)),
        "more queues": Case(after(recorded, lambda q: commands.record_group(KEYS, MORE, now=NOW))),
        "full": Case(lambda q: commands.record_group(KEYS, RECORD, most=0, now=NOW)),
    },
    "group_lags": {
        "ok": Case(after(unread, lambda q: commands.group_lags(KEYS, "stream", ["mail", "other"], now=NOW)))
    },
    "destroy_group": {
        "there": Case(after(leased, lambda q: commands.destroy_group(GROUP, "mail")), GONE),
        "not there": Case(lambda q: commands.destroy_group(GROUP, "mail")),
    },
    "forget_group": {
        "there": Case(
            after(
                recorded, lambda q: commands.forget_group(KEYS, [replace(RECORD, since=NOW)], ["new  "], entry=ENTRY)
            ),
            GONE,
        ),
        "not there": Case(lambda q: commands.forget_group(KEYS, [replace(RECORD, since=NOW)], ["new  "], entry=ENTRY)),
    },
    "give_up": {
        "dead": Case(lambda q: give_up(q, "new")),
        "taken": Case(after(three, lambda q: give_up(q, "a"))),
        "moved": Case(after(closed, lambda q: give_up(q, "new"))),
    },
    "take_slots": {
        "ok": Case(lambda q: take_slots("first")),
        "too few": Case(after(lambda q: q.run(take_slots("first")), lambda q: take_slots("second"))),
        "of several limits": Case(
            after(lambda q: q.run(take_slots("first", "y")), lambda q: take_slots("second", "x", "y"))
        ),
    },
    "trim": {
        "all": Case(
            after(leased, lambda q: commands.trim("stream", None, 1, 10, force=True, now=NOW)),
            "nobody counts what was removed",
        ),
        "one step": Case(
            after(leased, lambda q: commands.trim("stream", 1, None, 2, force=True, now=NOW)),
            "there is less left to remove",
            "the next step would have removed it",
        ),
        "no stream": Case(lambda q: commands.trim("stream", 1, 1, 10, now=NOW)),
    },
    "takes": {
        "yes": Case(lambda q: commands.takes("orders")),
        "no": Case(
            after(
                lambda q: q.admin.xadd("orders", {"a": "b"}, "18446744073709551615-18446744073709551615"),
                lambda q: commands.takes("orders"),
            )
        ),
    },
    "release": {
        "some": Case(release(1), answers=SENT_ONCE, changes=SENT_ONCE),
        "all": Case(release(10), answers=SENT_ONCE),
        "into a stream": Case(release(10, Known("orders", "orders")), answers=SENT_ONCE),
        "other policies": Case(release(1, version="1")),
        "fenced": Case(after(lambda q: q.pull(epoch=NEW_EPOCH), unheld)),
        "some of a set": Case(release_set(1), answers=SENT_ONCE, changes=SENT_ONCE),
        "from within": Case(release_set(1, 0.6), answers=SENT_ONCE, changes=SENT_ONCE),
        "a whole set": Case(release_set(10), answers=SENT_ONCE),
        "into the sets of topics": Case(release_set(None), answers=SENT_ONCE),
        "cancelled ones": Case(cancelled_at_the_head, answers=SENT_ONCE),
        "nothing there": Case(lambda q: commands.release_set(q.keys, EPOCH, "t:x", 10, now=NOW)),
    },
    "time": {"ok": Case(lambda _: Command("time", (), (NOW,), list))},
    "write_off": {"ok": Case(missing, answers="nothing is missing any more")},
}


# -- the same call again, when something has become of the message --------------------------------------------------------

LATER = NOW + 10


def deliver_all(q: Queue) -> object:
    return q.ack(*q.take(now=LATER))


def bury_all(q: Queue) -> object:
    return q.bury(*q.take(now=LATER))


def forget_all(q: Queue) -> None:
    deliver_all(q)
    q.admin.delete(q.keys.final)


MEANWHILE: dict[str, Callable[[Queue], object]] = {
    "in flight": lambda q: q.take(now=LATER),
    "tried": lambda q: q.retry(*((one, NOW + 99_000) for one in q.take(now=LATER))),
    "parked": lambda q: q.park("t:x", *q.take(now=LATER)),
    "delivered": deliver_all,
    "delivered, and the queue is closed": lambda q: (deliver_all(q), closed(q)),
    "cancelled": lambda q: q.cancel("a", now=NOW - 1),
    "removed in flight": lambda q: (q.take(now=LATER), q.cancel("a", now=LATER)),
    "dead": bury_all,
    "discarded": lambda q: (bury_all(q), q.discard("a", now=LATER)),
    "forgotten": forget_all,
}
Again = Callable[[Queue, int, str], Any]
CALLS: dict[str, Again] = {
    "to a date": lambda q, now, call: q.reschedule("a", f"a{NOW}", now=now, call=call),
    "by a delay": lambda q, now, call: q.reschedule("a", "r5000", now=now, call=call),
    "to the past": lambda q, now, call: q.reschedule("a", "a1", now=now, call=call),
    "now": lambda q, now, call: q.run(commands.deliver_now(q.keys, ["a"], call=call, now=now))[0],
    "now by force": lambda q, now, call: q.run(commands.deliver_now(q.keys, ["a"], force=True, call=call, now=now))[0],
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("change", CALLS)
def test_a_repeated_call_gets_the_first_answer_as_long_as_the_id_is_known(
    q: Queue, change: str, meanwhile: str
) -> None:
    q.given(row("a", at=NOW + 60_000, given=True))
    first = CALLS[change](q, NOW - 5_000, "one")
    assert first in (("scheduled", NOW), ("scheduled", NOW - 5_000))
    MEANWHILE[meanwhile](q)
    left = everything(q.admin)
    again = CALLS[change](q, LATER, "one")
    assert again == (("notFound", None) if meanwhile == "forgotten" else first)
    assert everything(q.admin) == left
    assert q.reschedule("a", "r5000", now=LATER)[0] != "scheduled", (
        "a call without a name is told what has become of it"
    )
    assert q.reschedule("a", "r5000", now=LATER, call="two")[0] != "scheduled", "another call, too"


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("change", CALLS)
def test_a_call_without_a_name_is_told_what_has_become_of_the_message(q: Queue, change: str, meanwhile: str) -> None:
    q.given(row("a", at=NOW + 60_000, given=True))
    CALLS[change](q, NOW - 5_000, "")
    MEANWHILE[meanwhile](q)
    tried_now = meanwhile in ("tried", "parked") and change.startswith("now")
    assert (CALLS[change](q, LATER, "")[0] == "scheduled") == tried_now
    assert not q.admin.exists(q.keys.moves)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_a_repeated_redrive_gets_the_first_answer_as_long_as_the_id_is_known(q: Queue, meanwhile: str) -> None:
    q.given(row("a", at=NOW, given=True))
    q.bury(*q.take(now=NOW))
    assert q.redrive("a", now=NOW, call="one") == ["scheduled"]
    MEANWHILE[meanwhile](q)
    left = everything(q.admin)
    answer = "notDead" if meanwhile == "forgotten" else "scheduled"
    assert q.redrive("a", now=LATER, call="one") == [answer], "also if it is dead again"
    assert everything(q.admin) == left


def test_a_late_copy_of_a_call_does_not_move_a_message_that_another_call_has_moved_since(q: Queue) -> None:
    q.given(row("a", at=NOW, given=True))
    assert q.reschedule("a", "r5000", now=10_000, call="one") == ("scheduled", 15_000)
    assert q.reschedule("a", "r5000", now=12_000, call="two") == ("scheduled", 17_000)
    assert q.reschedule("a", "r5000", now=12_000, call="one") == ("scheduled", 15_000)
    assert q.state().queue == {"a": 17_000}


def test_a_call_with_the_name_of_another_one_gets_the_answer_of_that_one(q: Queue) -> None:
    q.given(row("a", at=NOW, given=True), row("b", at=NOW, given=True))
    assert q.reschedule("a", "r5000", now=10_000, call="one") == ("scheduled", 15_000)
    assert q.run(commands.deliver_now(q.keys, ["a", "b"], call="one", now=11_000)) == [
        ("scheduled", 15_000), ("scheduled", 11_000),
    ], "a name counts for each id by itself"  # fmt: skip


def test_a_call_that_found_a_message_due_already_gets_the_same_answer_after_its_delivery(q: Queue) -> None:
    q.given(row("a", at=NOW, given=True))
    assert q.run(commands.deliver_now(q.keys, ["a"], call="now", now=NOW)) == [("scheduled", NOW)]
    deliver_all(q)
    assert q.run(commands.deliver_now(q.keys, ["a"], call="now", now=LATER)) == [("scheduled", NOW)]
    assert q.run(commands.deliver_now(q.keys, ["a"], call="another", now=LATER)) == [("delivered", None)]


@pytest.mark.parametrize("way", ["to a target", "into a stream", "into a stream after a pause"])
def test_an_id_that_delayq_made_is_remembered_after_the_delivery_if_a_named_call_moved_it(q: Queue, way: str) -> None:
    q.given(*(row(id, at=NOW + 60_000, keys=keys) for id, keys in (("a", ()), ("b", ("k",)), ("c", ()))))
    for id in "ab":
        assert q.reschedule(id, "r40000", now=NOW, call="one") == ("scheduled", NOW + 40_000)
    later = NOW + 60_000
    if way == "to a target":
        q.ack(*q.take(now=later))
    elif way == "into a stream":
        q.run(
            commands.pull(
                q.keys, EPOCH, offset=0, room=10, now=later, node_now=later, known=KnownTopics.of(q.keys, [ORDERS])
            )
        )
    else:
        q.pause("orders", version="1", now=NOW)
        q.pull(version="1", now=later)
        q.pause(version="2")
        known = KnownTopics.of(q.keys, [ORDERS])
        q.run(commands.release(q.keys, EPOCH, {"orders": 9}, known=known, upto=None, now=later, version="2"))
    assert q.state().final.keys() == {"a", "b"}
    assert q.state().ended == {"a": [], "b": ["k"]}
    for id in "ab":
        assert q.reschedule(id, "r40000", now=later, call="one") == ("scheduled", NOW + 40_000)
    assert q.reschedule("c", "r40000", now=later, call="one") == ("notFound", None)


def test_the_calls_of_an_id_are_forgotten_with_it_and_when_it_is_scheduled_again(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(*(row(id, at=NOW, given=True) for id in "abc"))
    for id in "abc":
        q.reschedule(id, "r5000", now=10_000, call="one")
    q.cancel("a", now=10_000)
    assert q.admin.hkeys(q.keys.moves) == [b"a", b"b", b"c"]
    q.given(row("a", at=NOW, spec=f"B{NOW}", given=True), now=11_000)
    assert q.admin.hkeys(q.keys.moves) == [b"b", b"c"], "the new message has had no call"
    assert q.reschedule("a", "r6000", now=11_000, call="one") == ("scheduled", 17_000)
    q.ack(*q.take(now=NOW))
    assert q.reschedule("b", "r5000", now=NOW + 1_000, call="one") == ("scheduled", 15_000)
    assert q.reschedule("b", "r5000", now=NOW + 1_001, call="one") == ("notFound", None), "though Redis has it yet"
    q.pull(now=NOW + 1_001)
    assert not q.admin.exists(q.keys.moves)


def test_the_last_sixteen_calls_of_a_message_are_remembered(q: Queue) -> None:
    q.given(row("a", at=NOW + 60_000, given=True))
    for number in range(40):
        q.reschedule("a", f"a{NOW + number}", now=10_000, call=f"call-{number}")
    told = [q.reschedule("a", "r99000", now=10_000, call=f"call-{number}") for number in (24, 25, 39)]
    assert told == [("scheduled", NOW + 24), ("scheduled", NOW + 25), ("scheduled", NOW + 39)]
    assert q.admin.hget(q.keys.moves, "a").count(b"\n") == 16
    assert q.reschedule("a", "r99000", now=10_000, call="call-23") == ("scheduled", 109_000), "a call of its own again"


def group_of(admin: Any, key: bytes, group: dict[str, Any]) -> tuple[Any, list[bytes]]:
    """A group of a stream, and what it has not acknowledged."""
    return group, [one["message_id"] for one in admin.xpending_range(key, group["name"], "-", "+", 99)]


def everything(admin: Any) -> dict[bytes, Any]:
    """All that the server holds."""
    read = {
        b"string": admin.get,
        b"hash": admin.hgetall,
        b"zset": lambda key: admin.zrange(key, 0, -1, withscores=True),
        b"stream": lambda key: (admin.xrange(key), [group_of(admin, key, one) for one in admin.xinfo_groups(key)]),
    }
    return {key: read[admin.type(key)](key) for key in admin.scan_iter()}


def test_every_script_is_repeated_here() -> None:
    assert CASES.keys() == set(scripts.NAMES)


@pytest.mark.parametrize(
    ("script", "outcome"), [(script, outcome) for script, outcomes in CASES.items() for outcome in outcomes]
)
def test_the_same_call_again_changes_nothing_and_says_the_same(
    valkey: ServerUnderTest, script: str, outcome: str
) -> None:
    case = CASES[script][outcome]
    store = Store(valkey.url, timeout=PATIENCE)
    try:
        called = case.call(Queue(store, valkey))
        assert called.script == script
        command: Command[Any] = Command(script, called.keys, called.args, lambda reply: reply)
        first = store.run(command)
        left = everything(valkey.admin)
        again = store.run(command)
        assert (again == first) == (not case.answers), f"{first} and then {again}"
        assert (everything(valkey.admin) == left) == (not case.changes)
    finally:
        store.close()
