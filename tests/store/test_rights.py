"""Scripts for somebody who may touch messages of certain topics: what has another topic by now is left alone."""

from __future__ import annotations

from delayq.store import commands
from tests.support.queues import Queue, row

NOW = 10_000


def given(q: Queue) -> None:
    q.given(row("mine", at=20_000, topic="orders", keys=("k",)), row("theirs", at=20_000, topic="reviews", keys=("k",)))


def test_messages_are_cancelled_whose_topic_is_the_one_named(q: Queue) -> None:
    def cancel(*topics: str) -> list[str]:
        return q.run(commands.cancel(q.keys, ["mine", "theirs", "nobody"], topics=topics, now=NOW))

    given(q)
    before = q.state()
    for topic in ("reviews", "order", "ordersx", "ORDERS", "*", "o*", ""):  # compared as a whole
        assert cancel(topic, "orders", "orders") == ["notFound"] * 3
    assert q.state() == before
    for _ in range(2):  # what has ended is told to whoever expects that
        assert cancel("orders", "orders", "orders") == ["cancelled", "notFound", "notFound"]
    assert cancel("", "", "") == ["cancelled", "notFound", "notFound"]
    assert set(q.state().queue) == {"theirs"}


def test_a_message_gets_another_due_if_its_topic_is_the_one_named(q: Queue) -> None:
    given(q)
    before = q.state()
    assert q.run(commands.reschedule(q.keys, "theirs", "a30000", topic="orders", now=NOW)) == ("notFound", None)
    assert q.state() == before
    assert q.run(commands.reschedule(q.keys, "mine", "a30000", topic="orders", now=NOW)) == ("scheduled", 30_000)


def test_dead_letters_are_put_back_and_deleted_if_their_topic_is_the_one_named(q: Queue) -> None:
    given(q)
    q.bury(*q.take(now=20_000))
    before = q.state()
    assert q.run(commands.redrive(q.keys, ["mine", "theirs"], topics=["x", "orders"], now=NOW)) == ["notDead"] * 2
    assert q.run(commands.discard(q.keys, ["mine", "theirs"], topics=["x", "orders"])) == [False, False]
    assert q.state() == before
    assert q.run(commands.discard(q.keys, ["mine", "theirs"], topics=["orders", "orders"])) == [True, False]
    assert q.run(commands.redrive(q.keys, ["mine", "theirs"], topics=["reviews"] * 2, now=NOW)) == [
        "notDead",
        "scheduled",
    ]
