"""What a policy has put into a message: who follows an older one is refused, and an honest repeat never is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delayq.domain.codec import BY_POLICY, with_policy
from delayq.store import commands
from delayq.store.commands import Answers, Known
from tests.support.queues import Queue, Row, row

V1, V2, V3 = (f"000000000{number}.0000000000" for number in (1, 2, 3))


def by_policy(one: Row, *, expire_after: int | None = None, spread: int = 0, keys: tuple[bytes, ...] = ()) -> Row:
    """The row as one sends it who follows such a policy."""
    body = with_policy(one.spec[1:].encode().rjust(13, b"0") + b"0" + one.content, keys, expire_after, spread)
    return replace(one, content=body)  # with its head


def schedule(q: Queue, *rows: Row, now: int = 10_000, policies: str = V1) -> Answers:
    kinds, ids = "".join(one.spec[:1] for one in rows), [one.id for one in rows]
    bodies = [one.content for one in rows]
    return q.run(commands.schedule(q.keys, kinds, ids, bodies, policies=policies, now=now))


def test_who_follows_older_policies_than_the_queue_has_is_told_and_nothing_is_done(q: Queue) -> None:
    for named in ("", V1):
        assert schedule(q, by_policy(row(f"new{named}", at=20_000)), policies=named) == Answers(10_000, {})
    q.run(commands.apply_policies(q.keys, V2, (), now=5_000))
    before = q.fields(), q.state()
    for named in ("", V1):
        assert schedule(q, by_policy(row("a", at=20_000)), policies=named) == Answers(10_000, {}, V2)
    assert (q.fields(), q.state()) == before
    for named in (V2, V3):
        assert schedule(q, by_policy(row(f"new{named}", at=20_000)), policies=named) == Answers(10_000, {})


@pytest.mark.parametrize(
    ("at", "given"), [(20_000, False), (20_000, True), (9_000, True), (9_950, False)]
)  # ahead; past; past, but not its spread due
def test_a_policy_that_comes_changes_or_goes_makes_no_conflict_of_a_repeat(q: Queue, at: int, given: bool) -> None:
    call = row("a", at=at, keys=("k",), given=given, max_attempts=3)
    ways = [
        by_policy(call, spread=100, expire_after=60_000, keys=(b"delayq:topic:orders",)),
        by_policy(call),
        by_policy(call, spread=700, expire_after=5),
        by_policy(call, expire_after=70_000),
    ]
    for first in ways:
        assert schedule(q, first).others == {}
        record = q.record("a")
        assert (record.first_asked, record.keys, record.max_attempts) == (at, ("k",), 3)
        assert record.asked == max(10_000, int(first.content[:13]))
        assert record.own_expire_after is None and bool(record.expires_at) == bool(record.flags & BY_POLICY)
        assert [schedule(q, again).others for again in ways] == [{0: ("live", record.asked)}] * 4
        others = [row("a", at=at + 1, keys=("k",), max_attempts=3), row("a", at=at, keys=("k",), expire_after=60_000)]
        assert [schedule(q, by_policy(other, spread=100)).others for other in others] == [
            {0: ("conflict", record.asked)}
        ] * 2
        now = record.asked
        if given:
            q.ack(q.take_one(now=now))
        else:  # its id is remembered, too: it was due soon
            q.pull(now=now, known=[Known("orders", "orders", per_queue=True)])
        assert [schedule(q, again, now=now).others for again in ways] == [{0: ("delivered", None)}] * 4
        assert schedule(q, by_policy(others[0]), now=now).others == {0: ("conflict", None)}
        q.server.admin.flushall()


def test_a_relative_due_stays_relative_and_its_own_expiry_comes_before_that_of_a_policy(q: Queue) -> None:
    schedule(q, by_policy(row("a", after=500), spread=100))
    assert (q.record("a").asked, q.record("a").first_asked) == (10_600, 10_600)
    assert schedule(q, by_policy(row("a", after=500), spread=7)).others == {0: ("live", 10_600)}
    own, none = row("own", at=20_000, expire_after=900), row("none", at=20_000)
    schedule(q, by_policy(own, expire_after=5), by_policy(none, expire_after=500), by_policy(none, expire_after=500))
    assert [q.record(id).expires_at for id in ("own", "none")] == [20_900, 20_500]
    q.pull(now=20_500, known=[Known("orders", "orders", per_queue=True)])
    assert q.state().dead == {"none": 20_500}  # a policy buries as well
