"""The census: what a look through a pool counts, how it is kept, and what counts and forecasts make of it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from delayq import Client, Filter, InvalidMessage, Message
from delayq.client.looking.counting import Counted
from delayq.store import commands
from delayq.store.commands import BUCKETS, Census, Command, Slice, Tally, bucket_edges
from delayq.store.keys import KEYS
from delayq.testing import ManualClock
from tests.support.policies import put_policy
from tests.support.queues import EPOCH, NEW_EPOCH, Queue, row, taken
from tests.support.servers import ServerUnderTest
from workers.queue.census import CensusTaker
from workers.queue.queue_context import Pace

MINUTE = 60_000
BEGAN = 4_000_000_000_000
QUEUES = 2
LATER = 2_000_000_000_000


def keep(client: Client, valkey: ServerUnderTest, *counted: Census) -> None:
    """A census of each queue, in which there is something."""
    for queue, census in enumerate(counted):
        valkey.admin.hset(KEYS.queue(queue).pool, "x", "y")
        client.store.run(commands.keep_census(KEYS.queue(queue), EPOCH, census))


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were too many messages to look at each of them when somebody asks."""
    monkeypatch.setattr("delayq.client.looking.counting.LIVE", -1)


def walked(q: Queue, look: int, now: int) -> list[Slice]:
    slices = [q.run(commands.census_slice(q.keys, "0", look, None, now=now))]
    while slices[-1].cursor != "0":
        slices.append(q.run(commands.census_slice(q.keys, slices[-1].cursor, look, now, now=now)))
    return slices


def test_a_slice_counts_by_topic_state_and_due(q: Queue) -> None:
    q.given(
        *(row(id, at=5_000, topic="orders") for id in ("dead", "parked", "retrying", "sent")),
        row("held", at=5_000, topic="news"),
        now=4_000,
    )
    messages = {one.id: one for one in q.take(now=5_000)}
    q.bury(messages["dead"])
    q.park("t:kafka", messages["parked"])
    q.park("h:news", messages["held"])
    q.retry((messages["retrying"], 90_000))
    q.given(row("due", at=6_000, topic="mail"), row("a", at=6_001, topic="mail"), row("b", at=6_002, topic="mail"))
    (told,) = walked(q, 100, now=6_000)
    assert told.looked == 8
    kinds = [
        ("orders", "dead", 0, 1), ("orders", "parked", 0, 1), ("orders", "retrying", 2, 1), ("orders", "inFlight", 0, 1),
        ("news", "held", 0, 1), ("mail", "due", 0, 1), ("mail", "scheduled", 1, 2),
    ]  # fmt: skip
    sizes = {
        topic: len(q.admin.hget(q.keys.pool, id)) for topic, id in (("orders", "sent"), ("news", "held"), ("mail", "a"))
    }
    assert sorted(told.groups) == sorted((*kind, kind[3] * sizes[kind[0]], kind[3], 0) for kind in kinds)


def test_slices_count_everything_and_a_bucket_ends_where_the_next_begins(q: Queue) -> None:
    dues = [edge + more for first, _ in bucket_edges(10_000) for edge, more in ((first, 1), (first, 0))]
    q.given(*(row(f"m-{n}", at=due) for n, due in enumerate(dues)))
    slices = walked(q, 7, now=10_000)
    assert sum(one.looked for one in slices) == len(dues)
    buckets = [0] * BUCKETS
    for one in slices:
        for _, _, bucket, count, *_ in one.groups:
            buckets[bucket] += count
    assert buckets == [1, *[2] * (BUCKETS - 2), 1]


def test_it_is_kept_whole_and_by_no_older_owner(q: Queue) -> None:
    counted = Census(10_000, {f"t{n}": {"due": Tally(n, 10 * n, [n], 2, 1)} for n in range(1_200)}, "7.0")
    assert q.run(commands.keep_census(q.keys, NEW_EPOCH, counted))
    assert q.run(commands.census(q.keys)) == counted
    assert q.run(commands.census(q.keys, "t7")) == Census(10_000, {"t7": counted.topics["t7"]}, "7.0")
    assert not q.run(commands.keep_census(q.keys, EPOCH, Census(20_000, {})))
    assert q.run(commands.keep_census(q.keys, NEW_EPOCH, Census(20_000, {})))
    assert q.run(commands.census(q.keys, "t7")) == q.run(commands.census(q.keys)) == Census(20_000, {})


@pytest.mark.usefixtures("many")
def test_counts_and_forecasts_by_topic_are_as_of_the_census(client: Client, valkey: ServerUnderTest) -> None:
    assert client.count(Filter(topic="a*")) == client.count() == Counted(0, exact=True)
    valkey.admin.hset(KEYS.queue(0).pool, "x", "y")
    assert client.count(Filter(topic="a*")).messages is None
    assert client.forecast(BEGAN, BEGAN + MINUTE, 15_000, Filter(topic="a")).messages is None
    topics = {
        "aa": {"scheduled": Tally(66, 0, [0, 60, 6]), "due": Tally(5, 0, [5])},
        "ab": {"dead": Tally(2, 0, [2])},
        "b": {"parked": Tally(7, 0, [7])},
    }
    keep(client, valkey, Census(BEGAN, topics), Census(BEGAN + 1, {}))
    for wanted, count in {
        Filter(topic="aa"): 71,
        Filter(topic="a*"): 73,
        Filter(topic="a*", states=("due", "dead")): 7,
        Filter(topic="?"): 7,
        Filter(topic="*"): 80,
        Filter(states=("scheduled",)): 66,
        Filter(topic="aa", due_from=BEGAN + 1, due_to=BEGAN + MINUTE // 2): 30,
        Filter(topic="aa", due_to=BEGAN + 2 * MINUTE): 68,
        Filter(among=("ab", "b")): 9,
    }.items():
        assert (client.count(wanted).messages, client.count(wanted).as_of) == (count, BEGAN), wanted
    found = client.forecast(BEGAN, BEGAN + 2 * MINUTE, MINUTE // 2, Filter(topic="a*"))
    assert (found.messages, found.exact, found.as_of) == ([30, 30, 2, 1], False, BEGAN)


@pytest.mark.usefixtures("many")
def test_what_a_census_has_not_counted_by_its_topic_is_not_known(client: Client, valkey: ServerUnderTest) -> None:
    topics = {
        "aa": {"scheduled": Tally(60, 0, [0, 60]), "due": Tally(5, 0, [5])},
        "b": {"parked": Tally(7, 0, [7])},
        "*": {"scheduled": Tally(100, 0, [0, 0, 0, 100])},
    }
    keep(client, valkey, Census(BEGAN, topics), Census(BEGAN, {"aa": {"scheduled": Tally(1, 0, [0, 1])}}))
    for wanted, count in {
        Filter(topic="aa"): 66,
        Filter(topic="c"): None,  # it may be among those of '*'
        Filter(topic="a*"): None,
        Filter(among=("aa", "c")): None,
        Filter(topic="a*", states=("due",)): 5,  # of '*' none are due
        Filter(topic="a?", due_from=BEGAN, due_to=BEGAN + MINUTE): 61,
        Filter(among=("aa", "b")): 73,
        Filter(topic="*"): 173,
        Filter(topic="**", states=("scheduled",)): 161,
        Filter(topic="*", among=("*a*",)): None,
    }.items():
        assert client.count(wanted) == Counted(count, exact=False, as_of=BEGAN), wanted
    assert client.forecast(BEGAN, BEGAN + 2 * MINUTE, MINUTE, Filter(topic="c")).messages == [0, 0]
    unknown = client.forecast(BEGAN, BEGAN + 4 * MINUTE, MINUTE, Filter(topic="c"))
    assert (unknown.messages, unknown.as_of) == (None, BEGAN)


@pytest.mark.usefixtures("many")
def test_since_when_something_is_due_is_not_known_by_a_census(client: Client, valkey: ServerUnderTest) -> None:
    topics = {"a": {"due": Tally(3, 0, [3]), "dead": Tally(5, 0, [5]), "scheduled": Tally(8, 0, [0, 8])}}
    keep(client, valkey, Census(BEGAN, topics))
    for (first, last), count in {
        (None, None): 16,
        (None, BEGAN + MINUTE): 16,
        (BEGAN, None): 8,
        (BEGAN + MINUTE // 2, None): 4,
        (BEGAN - 1, None): None,
        (BEGAN - 9, BEGAN - 1): None,
        (None, BEGAN - 1): None,
    }.items():
        every, dead, scheduled = (
            client.count(Filter(topic="a", states=states, due_from=first, due_to=last)).messages
            for states in ((), ("dead",), ("scheduled",))
        )
        assert (every, dead) == (count, None if count is None else 0 if first else 5), (first, last)
        assert scheduled is not None


@pytest.mark.usefixtures("many")
def test_what_a_policy_has_indexed_is_counted_exactly_once_a_census_has_met_nothing_else(
    client: Client, valkey: ServerUnderTest
) -> None:
    def scheduled(count: int, topic: str = "t", tags: str = "") -> None:
        client.schedule_many([Message(topic=topic, tags=tags, delay_time=60_000) for _ in range(count)])

    def take_census(version: str) -> None:
        valkey.admin.delete(*(KEYS.queue(queue).census for queue in range(2)))
        for queue in range(2):
            clock = ManualClock()
            taker = CensusTaker(KEYS.queue(queue), EPOCH, clock, Pace(clock))
            while client.store.run(commands.census(KEYS.queue(queue))) is None:
                clock.advance(1_000)
                if (command := taker.ask(version=version)) is not None:
                    taker.take(client.store.run(cast("Command[Any]", command)))

    client.schedule_many([Message(topic="t", id=f"old-{n}", delay_time=60_000) for n in range(3)])
    version = put_policy(client, "indexed", match="t", index=["topic", "tags"])
    scheduled(10, tags="a b")
    scheduled(20)
    scheduled(5, topic="other", tags="x")
    assert client.count(Filter(topic="t")) == Counted(None, exact=False)
    take_census(version)
    counted = client.count(Filter(topic="t"))
    assert (counted.messages, counted.exact) == (33, False)
    assert client.count(Filter(topic="t", tags="a b")) == Counted(10, exact=True)
    client.cancel_many(["old-0", "old-1", "old-2"])
    assert client.count(Filter(topic="t")).exact is False  # nobody has looked since
    take_census(version)
    assert client.count(Filter(topic="t")) == Counted(30, exact=True)
    scheduled(1)
    assert client.count(Filter(topic="t")) == Counted(31, exact=True)
    put_policy(client, "another", match="else")  # who knows by what they were scheduled meanwhile
    assert client.count(Filter(topic="t")).exact is False
    assert client.count(Filter(topic="t", tags="a b")).exact is False
    for wanted in (Filter(topic="other", tags="x"), Filter(topic="t*", tags="x"), Filter(tags="x")):
        with pytest.raises(InvalidMessage, match="tags"):
            client.count(wanted)


def test_an_invalid_forecast_or_count_is_refused(client: Client) -> None:
    senseless: list[tuple[str, Any]] = [
        ("dueFrom", (-1, 5, 1)), ("dueTo", (0, 10**13, 1)), ("dueTo", (5, 5, 1)), ("step", (0, 5, 0)),
        ("step", (0, 501_000, 1_000)), ("tags", Filter(tags="x")), ("idPrefix", Filter(id_prefix="x")),
    ]  # fmt: skip
    for field, asked in senseless:
        with pytest.raises(InvalidMessage) as refused:
            client.count(asked) if isinstance(asked, Filter) else client.forecast(*asked)
        assert refused.value.field == field


def test_few_messages_are_counted_when_somebody_asks(client: Client, valkey: ServerUnderTest) -> None:
    put_policy(client, "indexed", match="tagged", index=["tags"])
    for topic, tags in (("a", ""), ("ab", ""), ("tagged", "x")):
        some = [
            Message(topic=topic, tags=tags, expect_date=LATER + n * MINUTE, id=f"{topic}-{n}") for n in range(1_000)
        ]
        client.schedule_many(some)
    client.schedule(Message(topic="a", delay_time=0, id="due"))
    client.cancel_many([f"a-{n}" for n in range(100)])
    wanted = {
        Filter(topic="a"): 901,
        Filter(topic="a*"): 1_901,
        Filter(topic="a", states=("due",)): 1,
        Filter(states=("scheduled",)): 2_900,
        Filter(topic="a", due_from=LATER + 200 * MINUTE, due_to=LATER + 300 * MINUTE + 1): 101,
        Filter(topic="tagged", tags="x"): 1_000,
        Filter(topic="nobody"): 0,
    }
    for one, count in wanted.items():
        assert client.count(one) == Counted(count, exact=True), one
    found = client.forecast(LATER, LATER + 300 * MINUTE, 100 * MINUTE, Filter(topic="a*"))
    assert (found.messages, found.exact, found.as_of) == ([100, 200, 200], True, None)
    topics = {one.topic: one for one in client.topics()}
    assert {name: one.counts for name, one in topics.items()} == {
        "a": {"due": 1, "scheduled": 900}, "ab": {"scheduled": 1_000}, "tagged": {"scheduled": 1_000}
    }  # fmt: skip
    assert client.topic("a").counts == topics["a"].counts
    now = client.store.run(commands.redis_now())
    assert all(one.as_of is not None and abs(now - one.as_of) < 600_000 for one in topics.values())
    # Whoever may know of some topics only is not told how many messages there are in all.
    assert client.count(Filter(among=("a",))).exact is False
    assert [(one.topic, one.counts) for one in client.topics(live=False)] == [("tagged", None)]


def test_who_counts_few_messages_knows_held_from_parked_ones(client: Client, valkey: ServerUnderTest) -> None:
    q = Queue(client.store, valkey, 0)
    for id in ("h", "p"):
        client.schedule(Message(topic="a", delay_time=0, id=f"{id}.0000"))
    pulled = client.store.run(commands.pull(q.keys, EPOCH, offset=0, room=100))
    for one, name in zip(sorted(taken(pulled), key=lambda one: one.id), ("h:a", "t:x"), strict=True):
        client.store.run(commands.park(q.keys, EPOCH, name, [one]))
    for state in ("held", "parked"):
        assert client.count(Filter(states=(state,))) == Counted(1, exact=True)
        assert client.count(Filter(topic="a", states=(state,))) == Counted(1, exact=True)
