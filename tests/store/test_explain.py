"""What explain says of a message in each state, and that it is what happens then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import Client, Message
from delayq.client.consuming.giving_up import Letter, give_up
from delayq.client.looking.explain import Explanation
from delayq.config import load_settings
from delayq.domain.message import GROUP_PROPERTY
from delayq.domain.nodes import LINE_AGE
from delayq.store import commands
from delayq.store.commands import Change, GroupRecord, PoliciesSet
from delayq.store.keys import KEYS, Layout, ParkedSet, QueueKeys, dead_id
from tests.support.queues import EPOCH, Taken, taken
from tests.support.servers import ServerUnderTest

HOUR = 3_600_000
MAKER = "0000000001"


class World:
    """A client, and what a worker does by hand. `now` is the time of Redis as it began."""

    def __init__(self, server: ServerUnderTest) -> None:
        self.client = Client(settings=load_settings(redis_url=server.url))
        self.run = self.client.store.run
        self.now = self.run(commands.redis_now())
        self.version = ""

    def keys(self, id: str) -> QueueKeys:
        return KEYS.queue(Layout(16).queue_of(id))

    def add(self, id: str, after: int = -1_000, **more: Any) -> str:
        return self.client.schedule(Message(topic="orders", expect_date=self.now + after, id=id, **more)).id

    def owned(self, id: str, seen: int = 0, circuit: dict[str, Any] | None = None, **more: Any) -> None:
        """By the line of a node."""
        route = {"name": "kafka", "match": "ord*", "target": "kafka", "circuit": circuit, **more}
        queue = self.keys(id).number
        line = {"seen": self.now + seen, "queues": {queue: {"epoch": EPOCH}}, "routes": [route]}
        self.run(commands.claim(self.keys(id), EPOCH))
        self.run(commands.publish_node(KEYS, "node-1", json.dumps(line).encode()))

    def pull(self, id: str, now: int | str = "") -> dict[str, Taken]:
        """By id what its queue hands out, in order."""
        pulled = self.run(commands.pull(self.keys(id), EPOCH, offset=0, room=9, now=now, version=self.version))
        return {one.id: one for one in taken(pulled)}

    def park(self, id: str, name: str) -> None:
        self.run(commands.park(self.keys(id), EPOCH, name, list(self.pull(id).values())))

    def release(self, id: str, name: str, most: int = 9) -> list[str]:
        """What comes back."""
        if ParkedSet.is_of_topic(name) and (topic := ParkedSet.topic(name)) is not None:
            known, keys = commands.KnownTopics((), (topic, "", "")), self.keys(id)
            released = self.run(
                commands.release(keys, EPOCH, {topic: most}, known=known, upto=None, version=self.version)
            )
            return [one.id for one in taken(released)]
        released = self.run(commands.release_set(self.keys(id), EPOCH, name, most, version=self.version))
        return [one.id for one in taken(released)]

    def put(self, id: str, field: str, value: str, *paused: str) -> None:
        """A policy or a pause, brought to the queue of a message."""
        made = self.run(commands.set_policies(KEYS, [Change(field, value)], maker=MAKER))
        assert isinstance(made, PoliciesSet)
        self.version = made.version
        self.run(commands.apply_policies(self.keys(id), made.version, paused))

    def explained(self, id: str) -> Explanation:
        found = self.client.get(id)
        assert found is not None
        return self.client.explain(found)


@pytest.fixture
def world(valkey: ServerUnderTest) -> Iterator[World]:
    made = World(valkey)
    yield made
    made.client.close()


def test_a_message_goes_when_it_is_due_its_queue_has_an_owner_and_its_turn_has_come(world: World) -> None:
    due = ["a.0000", "b.0000", "c.0000"]
    for n, id in enumerate(due):
        world.add(id, after=n - 1_000)
    world.add("later.0000", after=HOUR)
    assert world.explained("c.0000").text.startswith("its queue ")
    world.owned("c.0000", seen=-LINE_AGE - 1_000)
    told = world.explained("c.0000")
    assert (told.waits_for, told.since, told.owner) == ("owner", world.now - LINE_AGE - 1_000, None)
    assert "node-1 reported last" in told.text
    world.owned("c.0000")
    told, found = world.explained("c.0000"), world.client.get("c.0000")
    assert found is not None
    assert (told.waits_for, told.since) == ("pull", found.due)
    assert "behind 2 others" in told.text
    assert list(world.pull("c.0000")) == due
    assert world.explained("c.0000").waits_for == "answer"
    told = world.explained("later.0000")
    assert (told.waits_for, told.owner, told.until) == ("due", "node-1", world.now + HOUR)
    assert list(world.pull("c.0000", world.now + HOUR - 1)) == due
    assert list(world.pull("c.0000", world.now + HOUR)) == [*due, "later.0000"]


def test_a_message_that_no_route_of_its_owner_takes_says_so_before_it_is_due(world: World) -> None:
    id = world.add("a", after=HOUR)
    world.owned(id, match="news")
    assert world.explained(id).text.endswith("; no route of node-1 matches its topic now")
    world.owned(id)
    assert "no route" not in world.explained(id).text


def test_one_that_was_tried_is_tried_again_as_often_as_it_says_or_else_its_worker(world: World) -> None:
    own, other, keyed = world.add("a", max_attempts=3), world.add("b"), world.add("c", ordering_key="k")
    failed = {"at": world.now - 7_000, "reason": "connection refused"}
    for id, again in ((own, world.now + HOUR), (other, world.now + HOUR), (keyed, None)):
        world.owned(id, max_attempts=16, failed=failed)
        world.run(commands.retry(world.keys(id), EPOCH, [(world.pull(id)[id], again)]))
    told = world.explained(own)
    assert (told.waits_for, told.until) == ("attempt", world.now + HOUR)
    assert told.text.startswith("attempt 2 of 3 is at ")
    world.owned(other, max_attempts=16, failed=failed)
    text = world.explained(other).text
    assert text.startswith("attempt 2 of 16 is at ")
    assert "; the last failed send to route kafka was at " in text
    assert text.endswith(" (connection refused)")
    assert world.pull(own, world.now + HOUR)[own].attempts == 1
    world.owned(keyed, max_attempts=16, failed=failed)
    world.pull(keyed)
    text = world.explained(keyed).text
    assert "waits for attempt 2 of 16, and later messages" in text
    assert text.endswith(" (connection refused)")


@pytest.mark.parametrize("open", [True, False], ids=["open", "closed"])
def test_one_that_is_parked_comes_back_when_its_target_takes_something(world: World, open: bool) -> None:
    world.add("a")
    circuit = {"since": world.now - 5_000, "probe": world.now + 8_000, "reason": "refused"} if open else None
    world.owned("a", circuit=circuit)
    world.park("a", "t:kafka")
    told = world.explained("a")
    assert told.waits_for == "target"
    assert (told.since, told.until) == ((world.now - 5_000, world.now + 8_000) if open else (None, None))
    assert (
        "kafka has refused messages since " in told.text and ": refused; the next probe is at " in told.text
    ) == open
    world.put("a", "pause:orders", "{}", "orders")
    assert "; when it returns, it is held: its topic is paused by orders since " in world.explained("a").text
    world.put("a", "pause:orders", "")
    assert world.release("a", "t:kafka") == ["a"]
    world.park("a", "t:*")
    assert world.explained("a").waits_for == "route"
    assert world.release("a", "t:*") == ["a"]
    world.put("a", "pause:orders", "{}", "orders")
    assert "; if it is not being sent yet, it is held: " in world.explained("a").text


def test_one_behind_its_ordering_key_waits_for_those_that_are_told(world: World) -> None:
    first, second = world.add("a", ordering_key="k"), world.add("b", ordering_key="k")
    world.owned(first)
    world.park(first, "k:/orders/k")
    told = world.explained(second)
    assert told.waits_for == "key"
    assert "on the way to route" in told.text and told.text.endswith(", behind 1 other")
    assert world.release(second, "k:/orders/k", most=1) == [first]
    assert world.release(second, "k:/orders/k", most=1) == [second]
    assert "waits for earlier messages of its ordering key" in world.explained(second).text
    world.run(commands.retry(world.keys(first), EPOCH, [(world.pull(first)[first], world.now - 1)]))
    assert world.pull(first)[first].attempts == 1
    assert "waits for attempt 2, and later messages" in world.explained(first).text


def test_one_that_a_pause_holds_goes_once_it_is_resumed_and_is_surely_cancelled_until_then(world: World) -> None:
    until = world.now + HOUR
    world.owned("a")
    world.put("a", "pause:ord*", json.dumps({"reason": "down", "until": until}), "ord*")
    world.add("a", after=60_000)
    world.add("b.0000", after=HOUR)
    assert world.pull("a", world.now + 60_000) == {}
    found = world.client.get("a")
    assert found is not None and found.state == "held"
    told = world.explained("a")
    assert (told.waits_for, told.until) == ("pause", until)
    assert "paused by ord* since " in told.text
    assert told.text.endswith(": down")
    assert "will be held if its topic is paused by ord*" in world.explained("b.0000").text
    assert world.explained("b.0000").text.endswith(" is still in force (down)")
    assert world.client.cancel("a").result == "cancelled"
    world.put("b.0000", "policy:none", '{"match": "x"}', "ord*")
    refused = world.client.deliver_now("b.0000")
    assert (refused.result, refused.reason is not None and "paused by ord*" in refused.reason) == ("held", True)


def test_what_is_set_aside_comes_back_when_its_pause_is_over_as_its_limit_says(world: World) -> None:
    world.add("a.0000", after=-2_000)
    world.add("b.0000")
    world.owned("b.0000")
    world.park("b.0000", "h:orders")
    ids = [world.add(f"m{n}", after=HOUR + n) for n in range(40)]
    assert len({world.keys(id).number for id in ids}) > 8
    for id in ids:
        world.owned(id)
        for one in world.pull(id, world.now + 2 * HOUR).values():
            world.run(commands.park(world.keys(id), EPOCH, "h:orders", [one]))
    world.owned("b.0000")
    told = world.explained("b.0000")
    assert (told.waits_for, told.text) == (
        "return",
        "the cause of its wait has ended, and it returns to the queue, behind 1 other",
    )
    world.put("b.0000", "policy:slow", '{"match": "orders", "rate": 50}')
    told = world.explained("b.0000")
    assert (told.waits_for, "50 messages per second, and 1 go before it" in told.text) == ("limit", True)
    world.put("b.0000", "policy:slow", '{"match": "orders", "maxInFlight": 8}')
    told = world.explained("b.0000")
    assert (told.waits_for, "its topic or policy has 8 sends at a time, and 1 go before it" in told.text) == (
        "limit",
        True,
    )
    assert world.client.reschedule("b.0000", delay_time=5).result == "held"
    for id, before in ((ids[39], 41), ("a.0000", 0)):  # in all queues
        world.owned(id)
        assert f"and {before} go before it" in world.explained(id).text
    assert world.release("b.0000", "h:orders", most=1) == ["a.0000"]
    assert world.release("b.0000", "h:orders", most=1) == ["b.0000"]


def test_one_that_is_forced_is_not_said_to_be_held(world: World) -> None:
    first, second = world.add("a", ordering_key="k"), world.add("b", after=-500, ordering_key="k")
    world.owned(first)
    world.park(first, "h:orders")
    world.put(first, "pause:orders", "{}", "orders")
    assert world.explained(second).waits_for == "pause"
    assert world.client.deliver_now(second, force=True).result == "scheduled"
    assert "is held" not in world.explained(second).text
    world.park(second, "k:/orders/k")
    told = world.explained(second)
    assert (told.waits_for, "it is parked: earlier messages" in told.text) == ("key", True)


def test_one_that_is_dead_is_redriven_and_of_one_that_has_ended_it_is_told_how(world: World) -> None:
    for id in ("a", "b"):
        world.add(id)
        world.owned(id)
        world.run(commands.bury(world.keys(id), EPOCH, [(world.pull(id)[id], 1, "no such table")]))
    assert world.explained("a").waits_for == "redrive"
    assert ": no such table; redrive or discard it" in world.explained("a").text
    assert world.client.redrive(["a"]) == ["scheduled"]
    world.owned("a")
    world.run(commands.ack(world.keys("a"), EPOCH, [world.pull("a")["a"]]))
    world.client.discard("b")
    world.add("c", after=HOUR)
    world.client.cancel("c")
    world.add("d")
    world.client.cancel("d")
    texts = [world.explained(id).text.rpartition(" at ")[0] for id in "abcd"]
    assert texts == [
        "it was delivered",
        "it was deleted as a dead letter",
        "it was cancelled, and never delivered,",
        "it was cancelled when it may have been delivered,",
    ]
    assert {world.explained(id).waits_for for id in "abcd"} == {None}


def test_one_that_died_in_a_consumer_group_leads_to_the_dead_letter_of_the_group(world: World) -> None:
    """Also beside letters that only look like it: of another topic, of another group, and one that was redriven."""
    client = world.client
    for id in ("a", "b"):
        world.add(id)
        world.run(commands.ack(world.keys(id), EPOCH, list(world.pull(id).values())))
    assert [found.reason for id in "ab" if (found := client.get(id))] == [None, None]
    groups = {"mail": "orders", "sms": "orders", "stock": "orders", "press": "reviews"}
    for group, topic in groups.items():
        world.run(commands.record_group(KEYS, GroupRecord(topic=topic, group=group, stream="stream")))
    made = [
        ("mail", "orders", "mail"),
        ("press", "reviews", "press"),
        ("sms", "orders", "mail"),
        ("stock", "orders", "stock"),
    ]
    letters = [
        Message(
            id=dead_id("a", group), topic=topic, properties={GROUP_PROPERTY: by}, keys=("k",), expect_date=world.now
        )
        for group, topic, by in made
    ]
    marks = [Letter(letter, 3, "no stock", GROUP_PROPERTY) for letter in letters]
    assert client.run(lambda context: give_up(context, marks)) == ["dead"] * 4
    assert client.redrive(["a:stock"]) == ["scheduled"]
    world.client.store.run(commands.plain("HSET", world.keys("a").ended, "a", " \1orders\0", read=int))  # as with a key
    found, other = client.get_many(["a"])[0], client.get("b")
    assert found is not None
    assert other is not None
    assert (found.state, found.reason) == ("delivered", "the consumer group mail gave it up: its dead letter is a:mail")
    assert client.explain(found).text.endswith("; the consumer group mail gave it up: its dead letter is a:mail")
    assert (other.state, other.reason) == ("delivered", None)
