"""What `receive`, `ack`, `extend` and `hand_back` of the client do with the messages in a topic's stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import Client, InvalidMessage, Message, OtherFilter
from delayq.client.consuming import receiving
from delayq.client.consuming.receiving import Received, Settlement
from delayq.client.known_policies import READ_EVERY
from delayq.config import load_settings
from delayq.routes import Route, Routes
from delayq.testing import ManualClock
from tests.support.policies import put_policy
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually

TOPIC = "orders.paid"
DAY = 86_400_000


def append(server: ServerUnderTest, id: str, stream: str = TOPIC, **fields: str) -> None:
    """An entry as a worker appends it."""
    entry = {
        "id": id,
        "topic": TOPIC,
        "tags": "",
        "keys": "k1 k2",
        "body": f"body of {id}",
        "due": "1000",
        "attempt": "1",
    }
    server.admin.xadd(stream, entry | fields)


def lease_of(received: Received) -> str:
    """The entry id in a lease."""
    return received.lease.split(".")[1]


@pytest.fixture
def other(valkey: ServerUnderTest) -> Iterator[Client]:
    with Client(valkey.url) as made:
        yield made


def receive(client: Client, **options: Any) -> list[Received]:
    return client.receive(TOPIC, **{"group": "mail"} | options)


def test_a_message_has_everything_that_was_scheduled(client: Client, valkey: ServerUnderTest) -> None:
    append(valkey, "a", tags="new", orderingKey="order-42", **{"p:color": "red"})
    (got,) = receive(client)
    assert (got.id, got.topic, got.tags, got.keys, got.properties) == (
        "a",
        TOPIC,
        "new",
        ("k1", "k2"),
        {"color": "red"},
    )
    assert got.ordering_key == "order-42"
    assert (got.body, got.due, got.attempt, got.deliveries, got.hand_backs) == (b"body of a", 1000, 1, 1, 0)
    assert client.ack(got, got) == [Settlement("acknowledged"), Settlement("acknowledged")]
    assert receive(client) == []


def test_each_group_receives_every_message_and_each_message_one_consumer_of_it(
    client: Client, other: Client, valkey: ServerUnderTest
) -> None:
    for id in "abc":
        append(valkey, id)
    assert [one.id for one in receive(client, max=2) + receive(other) + receive(client)] == ["a", "b", "c"]
    assert [one.id for one in receive(other, group="audit")] == ["a", "b", "c"]


def test_a_message_arrives_while_a_consumer_waits(client: Client, valkey: ServerUnderTest) -> None:
    got: list[Received] = []
    waiting = threading.Thread(target=lambda: got.extend(receive(client, wait="60s")))
    waiting.start()
    eventually(lambda: valkey.admin.info("clients")["blocked_clients"] == 1, "the consumer waits")
    append(valkey, "a")
    waiting.join()
    assert [one.id for one in got] == ["a"]


def test_a_message_that_is_handed_back_is_waited_for(client: Client, valkey: ServerUnderTest) -> None:
    append(valkey, "a")
    (got,) = receive(client)
    assert client.hand_back(got, reason="stock API 503", delay_time=50).result == "handedBack"
    (again,) = receive(client, wait="60s")
    assert (again.id, again.hand_backs, again.deliveries) == ("a", 1, 2)
    assert client.extend(got, "1m") == Settlement("lost")
    assert client.extend(again, "1m").result == "extended"


def test_after_too_many_hand_backs_it_is_a_dead_letter_of_its_group_with_all_reasons(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MOST_HAND_BACKS", 1)
    append(valkey, "a.00ff")
    for reason, result in (("first\nline", "handedBack"), ("second", "dead")):
        (got,) = receive(client, wait="60s")
        assert client.hand_back(got, reason=reason, delay_time=0).result == result
    assert receive(client) == []
    (letter,) = client.dead_letters().letters
    assert (letter.id, letter.reason) == ("a:mail.00ff", "first line; second")
    assert letter.record is not None
    assert (letter.record.topic, letter.record.keys) == (TOPIC, ("k1", "k2"))
    assert client.redrive(["a:mail.00ff"]) == ["scheduled"]
    append(valkey, "a:mail.00ff", **{"p:delayq-group": "mail"})  # as a worker delivers it
    assert receive(client, group="audit", start="beginning") != []
    assert [one.id for one in receive(client, group="audit")] == []
    (again,) = receive(client)
    assert client.hand_back(again, delay_time=0).result == "handedBack"


def test_after_too_many_leases_that_ended_it_is_a_dead_letter(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MOST_ENDED_LEASES", 1)
    append(valkey, "a")
    receive(client, lease=1_000)
    eventually(lambda: receive(client) == [] and client.dead_letters().letters, "it has become a dead letter")
    (letter,) = client.dead_letters().letters
    assert (letter.id, letter.reason) == ("a:mail", "the lease of a consumer of group mail ended 1 times")


def test_the_policy_of_the_topic_bounds_and_delays_hand_backs_and_bounds_ended_leases(
    other: Client, valkey: ServerUnderTest
) -> None:
    clock = ManualClock()
    with Client(valkey.url, clock=clock) as client:
        append(valkey, "a")
        (got,) = receive(client)  # it knows that there is no policy
        put_policy(other, order=1, backoff=[DAY, 2 * DAY], maxHandBacks=2, maxDeliveries=1)
        put_policy(other, "later", order=2, backoff=[1], maxHandBacks=0, maxDeliveries=9)
        clock.advance(READ_EVERY)
        for delays in (1, 2):
            before = other.redis_now()
            handed = client.hand_back(got)
            assert handed.result == "handedBack"
            assert handed.until is not None
            assert before + delays * DAY <= handed.until < before + (delays + 1) * DAY
            (key,) = valkey.admin.keys("delayq:consumers:*:leases")
            valkey.admin.zadd(key, {lease_of(got): 0})  # the pause is over
            (got,) = receive(client)
        assert client.hand_back(got).result == "dead"
        append(valkey, "b")
        (got,) = receive(client)
        valkey.admin.zadd(key, {lease_of(got): 0})  # the lease has ended
        assert receive(client) == []
        reasons = {one.id: one.reason for one in client.dead_letters().letters}
        assert reasons["b:mail"] == "the lease of a consumer of group mail ended 1 times"


def test_a_policy_without_hand_backs_makes_the_first_one_a_dead_letter(client: Client, valkey: ServerUnderTest) -> None:
    put_policy(client, maxHandBacks=0)
    with Client(valkey.url) as consumer:
        append(valkey, "a")
        (got,) = receive(consumer)
        assert consumer.hand_back(got).result == "dead"


@pytest.mark.parametrize("ends", ["by hand-backs", "by leases"])
def test_what_cannot_be_stored_as_a_dead_letter_stays_with_its_group(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(receiving, "MOST_HAND_BACKS" if ends == "by hand-backs" else "MOST_ENDED_LEASES", 0)
    client.schedule(Message(topic=TOPIC, id="a:mail", body="the id of the dead letter is taken", delay_time="1h"))
    append(valkey, "a")
    if ends == "by hand-backs":
        (got,) = receive(client)
        assert client.hand_back(got).result == "lost"
    else:
        assert receive(client) == []
    assert valkey.admin.xpending(TOPIC, "mail")["pending"] == 1


def test_a_filter_belongs_to_its_group(client: Client, valkey: ServerUnderTest) -> None:
    append(valkey, "a", tags="new")
    append(valkey, "b", tags="paid")
    assert [one.id for one in receive(client, tags="paid || void")] == ["b"]
    with pytest.raises(OtherFilter, match=r"paid \|\| void"):
        receive(client)


def test_streams_of_each_queue_are_received_together(valkey: ServerUnderTest) -> None:
    routes = Routes([Route(name="own", per_queue=True)])
    with Client(settings=load_settings(redis_url=valkey.url, queues=4), routes=routes) as client:
        client.schedule(Message(topic=TOPIC, delay_time="1h"))
        for number in range(4):
            append(valkey, f"m{number}", f"delayq:{{{number}}}:stream:{TOPIC}")
        got = receive(client, max=3) + receive(client, max=3)
        assert sorted(one.id for one in got) == ["m0", "m1", "m2", "m3"]
        assert [one.result for one in client.ack(*got)] == ["acknowledged"] * 4


def test_wrong_arguments_and_other_routes_are_refused(client: Client, valkey: ServerUnderTest) -> None:
    wrong: list[dict[str, Any]] = [
        {"group": "two words"}, {"max": 0}, {"max": 1_001}, {"lease": 1}, {"start": "soon"},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(InvalidMessage):
            receive(client, **options)
    append(valkey, "a")
    (got,) = receive(client)
    for lease in ("", "x", got.lease + "!"):
        with pytest.raises(InvalidMessage, match="lease"):
            client.ack(Received(id="a", topic=TOPIC, group="mail", lease=lease, body=b"", due=0))
    with (
        Client(valkey.url, routes=Routes([Route(name="kafka", target="kafka://k:9092")])) as elsewhere,
        pytest.raises(InvalidMessage, match=r"route 'kafka' sends to kafka://k:9092"),
    ):
        receive(elsewhere)


def test_a_consumer_acknowledges_by_going_on_and_hands_back_what_raised(
    client: Client, valkey: ServerUnderTest
) -> None:
    for id in "abcd":
        append(valkey, id)
    seen: list[str] = []

    def run() -> None:
        with client.consume(TOPIC, group="mail", prefetch=3) as consumer:
            for message in consumer:
                seen.append(message.id)
                if message.id == "b":
                    raise RuntimeError("no stock")

    with pytest.raises(RuntimeError, match="no stock"):
        run()
    assert seen == ["a", "b"]
    left = receive(client)
    assert [(one.id, one.deliveries, one.hand_backs) for one in left] == [("c", 1, 0), ("d", 1, 0)]
    assert valkey.admin.xpending(TOPIC, "mail")["pending"] == 3, "a is acknowledged"


def test_a_consumer_that_is_stopped_ends_and_gives_back_what_it_has_not_handled(
    client: Client, other: Client, valkey: ServerUnderTest
) -> None:
    append(valkey, "a")
    append(valkey, "b")
    with client.consume(TOPIC, group="mail") as consumer:
        got = next(consumer)
        consumer.stop()
        assert list(consumer) == []
    assert got.id == "a"
    assert [(one.id, one.deliveries) for one in receive(other)] == [("b", 1)]


def test_a_call_acknowledges_before_it_receives(client: Client, valkey: ServerUnderTest) -> None:
    for id in "abc":
        append(valkey, id)
    first = receive(client, max=2)
    assert [one.id for one in receive(client, ack=first)] == ["c"]
    assert client.ack(*first) == [Settlement("acknowledged")] * 2
    assert valkey.admin.xpending(TOPIC, "mail")["pending"] == 1


def test_a_call_that_acknowledges_a_lost_lease_reports_it(
    client: Client, other: Client, valkey: ServerUnderTest
) -> None:
    append(valkey, "a")
    (lost,) = receive(client)
    client.extend(lost, 0)
    (got,) = receive(other)
    consumer = receiving.given_consumer(TOPIC, "mail", "beginning", ())
    elsewhere = "99" + lost.lease
    page = client.run(
        lambda context: receiving.receive(context, consumer, 1, 30_000, ack=[lost.lease, elsewhere, got.lease])
    )
    assert set(page.lost) == {lost.lease, elsewhere}
    with pytest.raises(InvalidMessage, match="another topic or group"):
        receive(client, group="bills", ack=[got])


def test_a_wait_survives_that_the_server_closed_its_idle_connection(client: Client, valkey: ServerUnderTest) -> None:
    receive(client, wait=1)
    valkey.admin.client_kill_filter(_type="normal", skipme=True)
    append(valkey, "a")
    assert [one.id for one in receive(client, wait="30s")] == ["a"]
    late = threading.Timer(0.05, append, (valkey, "b"))
    valkey.admin.client_kill_filter(_type="normal", skipme=True)
    late.start()
    assert [one.id for one in receive(client, wait="30s")] == ["b"]
    late.join()
