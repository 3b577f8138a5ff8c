"""Messages of any target that consumers hand back: the next message, its delay, and the dead letter at the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import msgspec
import pytest

from delayq import Client, Conflict, InvalidMessage, Message, StoreUnavailable
from delayq.client.consuming.settling import HAND_BACK_DELAYS, Settlement
from delayq.received import Received
from delayq.store import commands
from delayq.store.commands import Found
from delayq.store.keys import KEYS, Layout
from tests.support.amounts import amount
from tests.support.hand_backs import next_id
from tests.support.policies import put_policy
from tests.support.queues import EPOCH, Taken, taken
from tests.support.servers import ServerUnderTest

TOPIC = "orders.unpaid"
HOUR = 3_600_000


def received(id: str = "unpaid-42", **fields: Any) -> Received:
    given: dict[str, Any] = {"id": id, "topic": TOPIC, "due": 1, "body": b"order 42"}
    return Received(**given | fields)


def delivered(client: Client, id: str) -> Received:
    """The message of this id as a target would deliver it."""
    found = client.get(id)
    assert found is not None
    assert found.record is not None
    one = found.record.message(id)
    body = one.body if isinstance(one.body, bytes) else str(one.body).encode()
    return received(
        id, topic=one.topic, body=body, tags=one.tags, keys=one.keys, ordering_key=one.ordering_key,
        properties=dict(one.properties),
    )  # fmt: skip


def look(client: Client, id: str) -> Found:
    found = client.get(id)
    assert found is not None
    return found


def test_a_message_is_scheduled_again_with_everything_under_its_next_id(client: Client) -> None:
    given = received(tags="new", keys=("order-42",), properties={"color": "red"}, ordering_key="42")
    before = client.redis_now()
    result = client.hand_back(given, reason="stock\x1b API\0 503\nagain\ud800")
    assert result.result == "handedBack"
    assert result.until is not None
    assert before + HAND_BACK_DELAYS[0] <= result.until <= client.redis_now() + HAND_BACK_DELAYS[0]
    (found,) = client.find("order-42")
    assert found.record is not None
    message = found.record.message(found.id)
    assert found.id.startswith(next_id("unpaid-42", 1) + ".")
    assert (message.topic, message.body, message.tags, message.ordering_key) == (TOPIC, "order 42", "new", "42")
    assert message.properties == {
        "color": "red", "delayq-hand-backs": "1", "delayq-origin": "unpaid-42", "delayq-reasons": "stock API 503 again?",
    }  # fmt: skip
    assert found.due == result.until


def test_each_hand_back_counts_up_and_keeps_the_first_id_and_all_reasons(client: Client) -> None:
    one = received("a.00ff")
    for count in (1, 2, 3):
        client.hand_back(one, reason=f"reason {count}", delay_time=HOUR)
        one = delivered(client, next_id("a", count, suffix=".00ff"))
        assert one.hand_backs == count
    assert one.properties["delayq-origin"] == "a.00ff"
    assert one.properties["delayq-reasons"] == "reason 1; reason 2; reason 3"


@pytest.mark.parametrize("seed", range(amount(3, 40)))
def test_any_hand_backs_in_any_order_make_one_message_for_each_count(client: Client, seed: int) -> None:
    """The model: of each id and count the first hand-back counts. Above the most it is a dead letter."""
    rng = random.Random(seed)
    put_policy(client, maxHandBacks=3)
    expected: dict[str, tuple[str, int | None]] = {}
    with Client(client.store.url) as other:  # it has not read the policy before
        for _ in range(40):
            origin, count = rng.choice("xyz"), rng.randrange(5)
            given = received(origin if count == 0 else next_id(origin, count), properties={
                "delayq-hand-backs": str(count), "delayq-origin": origin,
            } if count else {})  # fmt: skip
            result = other.hand_back(given, reason=rng.choice("rs"), delay_time=rng.choice((HOUR, 2 * HOUR)))
            id = next_id(origin, count + 1)
            if count >= 3:
                assert result == Settlement("dead")
                expected[id] = "dead", None
            else:
                assert result == Settlement("handedBack", expected.setdefault(id, ("scheduled", result.until))[1])
    assert {id: look(client, id).state for id in expected} == {id: state for id, (state, _) in expected.items()}
    assert sum(one.scheduled for one in client.queues()) == sum(state == "scheduled" for state, _ in expected.values())


class Deliveries:
    """A worker by hand, for messages that are due at once: it delivers them, and counts what arrived of each topic."""

    def __init__(self, client: Client, policies: str) -> None:
        self._client = client
        self._policies = policies
        self._pulled: dict[str, Taken] = {}
        self.arrived: Counter[tuple[str, str]] = Counter()  # by topic and body

    def deliver(self, id: str) -> Received | None:
        """The message as its consumer gets it; None if there is none that waits."""
        if look(self._client, id).state not in ("due", "inFlight"):
            return None
        one = delivered(self._client, id)
        keys = KEYS.queue(Layout(16).queue_of(id))
        pulled = taken(self._client.store.run(commands.pull(keys, EPOCH, offset=0, room=500, version=self._policies)))
        self._pulled |= {each.id: each for each in pulled}
        assert self._client.store.run(commands.ack(keys, EPOCH, [self._pulled.pop(id)])) == (True, 1)
        self.arrived[one.topic, f"{one.body.decode()} {one.hand_backs}"] += 1
        return one


@pytest.mark.parametrize("seed", range(amount(4, 60)))
def test_every_answered_hand_back_is_delivered_once_on_its_topic(client: Client, seed: int) -> None:
    """The model: of each first id, count and topic one message, however often and by whom it is handed back.

    Several groups hand one message back to topics of their own, answers are lost (so calls are repeated, also after the next
    message was delivered), somebody takes ids that look alike, and dead letters are redriven.
    """
    rng, work = random.Random(seed), Deliveries(client, put_policy(client, match="*", maxHandBacks=3))
    topics = (TOPIC, "orders.unpaid.mail", "orders.unpaid.sms")
    copies = [received(id, body=id[:1].encode()) for id in ("x", "y.00ff", "z" * 120)]
    untils: dict[tuple[str, str], int | None] = {}
    expected: dict[tuple[str, str], str] = {}  # the id of the next message by topic and body
    with Client(client.store.url) as other:  # it has not read the policy before
        for at in range(60):
            match rng.randrange(8):
                case 0:
                    first = rng.choice("xyz")
                    alike = next_id(first, rng.randrange(1, 4), "another.topic")
                    for id in (alike, alike.partition("-")[0]):
                        with suppress(Conflict):
                            other.schedule(Message(topic="another.topic", id=id, body=f"{at}", delay_time=0))
                        if rng.random() < 0.5:
                            work.deliver(id)
                case 1 | 2:
                    waiting = [id for id in sorted(expected.values()) if look(client, id).due is not None]
                    if waiting and (arrived := work.deliver(rng.choice(waiting))):
                        copies.append(arrived)
                case _:
                    given = msgspec.structs.replace(rng.choice(copies), topic=rng.choice(topics))
                    result = other.hand_back(given, reason=rng.choice("rs"), delay_time=0)
                    place = given.topic, f"{given.body.decode()} {given.hand_backs + 1}"
                    assert result.result == ("dead" if given.hand_backs >= 3 else "handedBack")
                    assert result.until == untils.setdefault(place, result.until), "a repeat gets the first answer"
                    if place not in expected:
                        first = given.properties.get("delayq-origin", given.id)
                        expected[place] = handed_back_as(client, first, given.hand_backs + 1, given.topic)
    assert len(set(expected.values())) == len(expected)
    client.redrive([id for id in expected.values() if look(client, id).state == "dead"])
    for id in expected.values():
        work.deliver(id)
    assert {place: count for place, count in work.arrived.items() if place[0] in topics} == dict.fromkeys(expected, 1)


def handed_back_as(client: Client, first: str, count: int, topic: str) -> str:
    """The id of the message that a hand-back made. It is there."""
    suffix = first[-5:] if first[-5:] == ".00ff" else ""
    own = first.removesuffix(suffix)
    if len(own) > 100:
        own = f"{own[:64]}-{blake2b(own.encode(), digest_size=16).hexdigest()}"
    return look(client, next_id(own, count, topic, suffix)).id


@pytest.mark.parametrize(("count", "delay"), [(0, 10_000), (1, 30_000), (15, 7_200_000)])
def test_without_a_policy_the_delays_rise(client: Client, count: int, delay: int) -> None:
    before = client.redis_now()
    until = client.hand_back(received(properties={"delayq-hand-backs": str(count)})).until
    assert until is not None
    assert before + delay <= until <= client.redis_now() + delay


def test_the_policy_of_the_topic_sets_delays_and_the_most_hand_backs(client: Client, valkey: ServerUnderTest) -> None:
    put_policy(client, order=1, backoff=[HOUR, 2 * HOUR], maxHandBacks=4)
    put_policy(client, "later", order=2, backoff=[1], maxHandBacks=0)
    with Client(valkey.url) as other:
        for count, hours in ((0, 1), (1, 2), (3, 2)):
            before = other.redis_now()
            until = other.hand_back(received(properties={"delayq-hand-backs": str(count)})).until
            assert until is not None
            assert before + hours * HOUR <= until < before + (hours + 1) * HOUR
        assert other.hand_back(received(properties={"delayq-hand-backs": "4"})).result == "dead"


def test_after_the_last_hand_back_it_is_a_dead_letter_with_all_reasons_that_can_be_redriven(client: Client) -> None:
    properties = {"delayq-hand-backs": "16", "delayq-origin": "a", "delayq-reasons": "first; second"}
    last = next_id("a", 17)
    given = received(next_id("a", 16), properties=properties, keys=("k",), body=b"\xff")
    for _ in range(2):
        assert client.hand_back(given, reason="last") == Settlement("dead")
    (letter,) = client.dead_letters().letters
    assert (letter.id, letter.reason) == (last, "first; second; last")
    assert letter.record is not None
    assert (letter.record.topic, letter.record.keys, letter.record.body) == (TOPIC, ("k",), b"\xff")
    assert client.redrive([last]) == ["scheduled"]
    assert client.hand_back(given, reason="last") == Settlement("handedBack", look(client, last).due), "it waits"
    assert delivered(client, last).hand_backs == 17


def test_a_dead_letter_that_was_discarded_is_not_made_again_by_a_repeat(client: Client) -> None:
    given = received("a", properties={"delayq-hand-backs": "16"})
    assert client.hand_back(given) == Settlement("dead")
    assert client.discard(next_id("a", 17))
    assert client.hand_back(given) == Settlement("discarded")
    assert client.dead_letters().letters == []
    assert client.hand_back(msgspec.structs.replace(given, topic="orders.unpaid.mail")) == Settlement("dead")


def test_the_oldest_reasons_go_if_they_are_too_long_for_a_header(client: Client) -> None:
    one = received("a")
    for count in range(1, 13):
        client.hand_back(one, reason=f"{count} " + "ü" * 190, delay_time=HOUR)
        one = delivered(client, next_id("a", count))
    reasons = one.properties["delayq-reasons"]
    assert reasons.startswith("…; 10 ")
    assert [each.split()[0] for each in reasons.split("; ")] == ["…", "10", "11", "12"]


@pytest.mark.parametrize(
    "own",
    [{f"p{number}": "x" for number in range(64)}, {f"p{number}": "x" * 8_190 for number in range(4)}],
    ids=["many", "large"],
)
def test_a_message_with_all_properties_that_are_allowed_is_handed_back_until_it_is_a_dead_letter(
    client: Client, own: dict[str, str]
) -> None:
    put_policy(client, maxHandBacks=16)
    one = received("a", properties=own)
    for count in range(1, 17):
        assert client.hand_back(one, reason="r" * 200, delay_time=HOUR).result == "handedBack"
        one = delivered(client, next_id("a", count))
    assert client.hand_back(one, reason="last").result == "dead"
    (letter,) = client.dead_letters().letters
    assert letter.record is not None
    assert own.items() <= letter.record.properties.items()
    assert client.redrive([letter.id]) == ["scheduled"]


def test_a_message_that_was_cancelled_after_its_hand_back_stays_cancelled(client: Client) -> None:
    client.hand_back(received(keys=("k",)), delay_time=HOUR)
    (cancelled,) = client.cancel_by_key("k")
    assert cancelled.result == "cancelled"
    assert client.hand_back(received(keys=("k",)), delay_time=HOUR) == Settlement("cancelled")


@pytest.mark.parametrize("end", ["waits", "delivered", "cancelled", "dead"])
def test_another_message_of_this_id_is_a_conflict_also_when_it_has_ended(client: Client, end: str) -> None:
    id, work = next_id("a", 1), Deliveries(client, "")
    client.schedule(Message(topic="another", id=id, body="another", delay_time=HOUR if end == "cancelled" else 0))
    if end == "delivered":
        assert work.deliver(id)
    elif end == "cancelled":
        assert client.cancel(id).result == "cancelled"
    elif end == "dead":
        keys = KEYS.queue(Layout(16).queue_of(id))
        (found,) = taken(client.store.run(commands.pull(keys, EPOCH, offset=0, room=500)))
        assert client.store.run(commands.bury(keys, EPOCH, [(found, 1, "why")])) == ["ok"]
    for reason in ("first", "second"):
        with pytest.raises(Conflict):
            client.hand_back(received("a"), reason=reason)


def test_a_hand_back_that_is_repeated_after_its_delivery_gets_the_first_answer(client: Client) -> None:
    work = Deliveries(client, "")
    first = client.hand_back(received("a"), reason="why", delay_time=0)
    assert first.until is not None
    arrived = work.deliver(next_id("a", 1))
    assert arrived is not None
    for reason in ("why", "another"):
        assert client.hand_back(received("a"), reason=reason, delay_time=HOUR) == first
    second = client.hand_back(arrived, delay_time=HOUR)
    client.cancel(next_id("a", 2))
    assert client.hand_back(arrived, delay_time=HOUR) == Settlement("cancelled")
    assert second.result == "handedBack"


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b'{"n": 1.0}', "application/json; charset=utf-8", {"n": 1.0}),
        (b"{", "application/json", "{"),
        (b"{}", "text/plain", "{}"),
        (b"{}", "", "{}"),
        (b"{}", "application/octet-stream", b"{}"),
        (b"\xff", "", b"\xff"),
    ],
)
def test_a_body_keeps_its_kind(client: Client, body: bytes, content_type: str, expected: object) -> None:
    client.hand_back(received(body=body, content_type=content_type), delay_time=HOUR)
    record = look(client, next_id("unpaid-42", 1)).record
    assert record is not None
    found = record.message(next_id("unpaid-42", 1)).body
    assert (msgspec.json.decode(found) if isinstance(found, msgspec.Raw) else found) == expected


@pytest.mark.parametrize(
    ("fields", "options", "field"),
    [
        ({"id": "two words"}, {}, "id"),
        ({"topic": "two words"}, {}, "topic"),
        ({"properties": {"delayq-hand-backs": "1000000"}}, {}, "handBacks"),
        ({"properties": {"delayq-origin": "two words"}}, {}, "id"),
        ({}, {"delay_time": "soon"}, "delayTime"),
        ({}, {"delay_time": -1}, "delayTime"),
        ({"properties": {"delayq-hand-backs": "99", "a": "\n"}}, {}, "properties"),
    ],
)
def test_wrong_fields_are_named(client: Client, fields: dict[str, Any], options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        client.hand_back(received(**fields), **options)
    assert refused.value.field == field


def test_a_long_id_is_hashed_and_its_queue_stays(client: Client) -> None:
    id = "a" * 123 + ".00ff"
    assert client.hand_back(received(id, keys=("k",)), delay_time=HOUR).result == "handedBack"
    (found,) = client.find("k")
    assert found.id.endswith(next_id("", 1, suffix=".00ff"))
    assert len(found.id) < 128


@pytest.fixture
def away() -> Iterator[Client]:
    with Client("redis://127.0.0.1:1") as made:
        yield made


def test_without_redis_the_outcome_is_an_error(away: Client) -> None:
    with pytest.raises(StoreUnavailable):
        away.hand_back(received())
