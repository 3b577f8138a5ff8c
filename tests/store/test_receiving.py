"""What `receive`, `ack`, `extend` and `hand_back` of the client do with the messages in a topic's stream."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from delayq import (
    AsyncClient,
    Client,
    Conflict,
    InvalidMessage,
    Message,
    OtherFilter,
    StoreFull,
    StoreUnavailable,
    TooManyPending,
)
from delayq.base.times import LATEST
from delayq.client import consumer as consuming
from delayq.client.consuming import receiving, settling
from delayq.client.consuming.entries import Leased
from delayq.client.consuming.groups import given_consumer
from delayq.client.consuming.settling import Settlement
from delayq.client.known_policies import READ_EVERY
from delayq.client.plan import Context, Plan
from delayq.config import load_settings
from delayq.domain.codec import DUE_HEAD_LENGTH, due_head, encode
from delayq.domain.message import Limits
from delayq.domain.routes import Route, Routes
from delayq.received import Received
from delayq.store import commands
from delayq.store.commands import Command, ReceivedEntries
from delayq.store.keys import KEYS, Layout
from delayq.testing import ManualClock
from tests.support.amounts import amount
from tests.support.policies import put_policy
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

TOPIC = "orders.paid"
DAY = 86_400_000


def append(server: ServerUnderTest, id: str, stream: str = TOPIC, **fields: str | bytes) -> None:
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


def lease_of(received: Leased) -> str:
    """The entry id in a lease."""
    return received.lease.split(".")[1]


@pytest.fixture
def other(valkey: ServerUnderTest) -> Iterator[Client]:
    with Client(valkey.url) as made:
        yield made


def receive(client: Client, **options: Any) -> list[Leased]:
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


def test_messages_are_the_same_whether_all_have_the_same_fields_or_not(client: Client, valkey: ServerUnderTest) -> None:
    for id, color in (("a", b"red"), ("b\n", b"\xff"), ("c", b"\n")):
        properties: dict[str, str | bytes] = {"p:color": color, "p:size": "1"}
        append(valkey, id, TOPIC, tags="new", **properties)
    alike = receive(client, group="one")
    assert [one.id for one in alike] == ["a", "b\n", "c"]
    assert [one.properties for one in alike] == [{"color": color, "size": "1"} for color in ("red", "\ufffd", "\n")]
    valkey.admin.xadd(TOPIC, {"id": "d", "topic": TOPIC, "body": b"\xff", "due": "0", "attempt": "1"})
    *others, last = receive(client, group="two")
    assert [replace(one, group="one", lease="") for one in others] == [replace(one, lease="") for one in alike]
    assert (last.id, last.topic, last.body, last.due, last.keys, last.properties) == ("d", TOPIC, b"\xff", 0, (), {})


#: Entries that delayq did not write: the fields that differ, and what is wrong with them.
FOREIGN: dict[str, tuple[dict[str | bytes, str | bytes | None], str]] = {
    "no id": ({"id": None}, "it has no id"),
    "no topic": ({"topic": None}, "it has no topic"),
    "nothing that delayq writes": (
        dict.fromkeys(("id", "topic", "tags", "keys", "body", "due", "attempt")),
        "it has no id",
    ),
    "an empty id": ({"id": ""}, "its id is empty"),
    "an id that is not UTF-8": ({"id": b"\xff"}, "its id is not UTF-8"),
    "a topic that is not UTF-8": ({"topic": b"\xff"}, "its topic is not UTF-8"),
    "a name that is not UTF-8": ({b"p:\xff": "1"}, "the name of a field is not UTF-8"),
    "a due time that is a word": ({"due": "tomorrow"}, "its due is no number of delayq"),
    "a due time that is empty": ({"due": ""}, "its due is no number of delayq"),
    "a due time of other digits": ({"due": "\u0661"}, "its due is no number of delayq"),
    "a due time before 1970": ({"due": "-1"}, "its due is no number of delayq"),
    "a due time after 9999": ({"due": "253402300800000"}, "its due is no number of delayq"),
    "a due time of thousands of digits": ({"due": "9" * 5_000}, "its due is no number of delayq"),
    "an attempt that is no number": ({"attempt": "1.5"}, "its attempt is no number of delayq"),
    "a topic that is too long": ({"topic": "\u00e9" * 128}, "its topic is too long"),
    "tags that are too long": ({"tags": "t" * 256}, "its tags is too long"),
    "tags that are too long as text": ({"tags": b"\xff" * 86}, "its tags is too long"),
    "an ordering key that is too long": ({"orderingKey": "k" * 256}, "its orderingKey is too long"),
    "keys that are too long": ({"keys": "k" * 70_000}, "its keys is too long"),
    "a property that is too long": ({"p:color": "r" * 70_000}, "its p:color is too long"),
    "a name of a property that is too long": ({"p:" + "c" * 70_000: "red"}, "the name of a property is too long"),
}


def append_foreign(server: ServerUnderTest, what: str) -> str:
    entry: dict[Any, Any] = {
        "id": "f",
        "topic": TOPIC,
        "tags": "",
        "keys": "",
        "body": "x",
        "due": "1000",
        "attempt": "1",
    }
    entry = {name: value for name, value in (entry | FOREIGN[what][0]).items() if value is not None}
    id: bytes = server.admin.xadd(TOPIC, entry or {"note": "hello"})
    return id.decode()


def test_an_entry_of_an_id_and_a_topic_is_a_message(client: Client, valkey: ServerUnderTest) -> None:
    valkey.admin.xadd(TOPIC, {"id": "a", "topic": TOPIC}, id="5-1")
    (alone,) = receive(client)
    append(valkey, "b")
    beside, _ = receive(client, group="two")
    for one in (alone, beside):
        assert (one.id, one.body, one.due, one.attempt, one.tags, one.keys) == ("a", b"", 5, 1, "", ())
    assert client.ack(alone)[0].result == "acknowledged"


def test_ids_and_due_times_of_entries_after_the_year_9999_are_read_as_its_end(
    client: Client, valkey: ServerUnderTest
) -> None:
    receive(client)
    valkey.admin.xadd(TOPIC, {"id": "a", "topic": TOPIC, "due": "9" * 5_000}, id=f"{2**63}-1")
    (group,) = client.consumers()
    assert group.oldest is not None
    assert (group.oldest.due, group.oldest.delivered, group.ready) == (LATEST, LATEST, LATEST)
    assert receive(client) == []
    valkey.admin.xadd(TOPIC, {"id": "b", "topic": TOPIC}, id=f"{2**63}-2")
    (got,) = receive(client)
    assert (got.id, got.due) == ("b", LATEST)


@pytest.mark.parametrize("what", FOREIGN)
def test_an_entry_that_delayq_did_not_write_is_skip_and_the_others_are_delivered(
    client: Client, valkey: ServerUnderTest, what: str
) -> None:
    append(valkey, "a")
    append_foreign(valkey, what)
    append(valkey, "b", orderingKey="k")
    entry = append_foreign(valkey, what)
    assert [one.id for one in receive(client)] == ["a", "b"]
    assert receive(client) == []
    (group,) = client.consumers()
    assert (group.leased, group.waiting) == (2, 0), "they count as acknowledged"
    (found,) = [one for one in client.status() if one.code == "foreignEntries"]
    assert f"group mail of topic {TOPIC} has skipped 2 entries of the stream {TOPIC}" in found.text
    assert f"the last one {entry}: {FOREIGN[what][1]}" in found.text


def test_a_call_for_one_message_passes_entries_that_delayq_did_not_write(
    client: Client, valkey: ServerUnderTest
) -> None:
    for _ in range(3):
        append_foreign(valkey, "no id")
    append(valkey, "a")
    assert [one.id for one in receive(client, max=1)] == ["a"]


def test_a_consumer_goes_on_behind_an_entry_that_delayq_did_not_write(client: Client, valkey: ServerUnderTest) -> None:
    append_foreign(valkey, "a due time that is a word")
    append(valkey, "a")
    handled = list[str]()
    with client.consume(TOPIC, group="mail") as consumer:

        def handle(message: Leased) -> None:
            handled.append(message.id)
            consumer.stop()

        consumer.run(handle)
    assert handled == ["a"]


def test_each_group_receives_every_message_and_each_message_one_consumer_of_it(
    client: Client, other: Client, valkey: ServerUnderTest
) -> None:
    for id in "abc":
        append(valkey, id)
    assert [one.id for one in receive(client, max=2) + receive(other) + receive(client)] == ["a", "b", "c"]
    assert [one.id for one in receive(other, group="audit")] == ["a", "b", "c"]


def test_a_message_arrives_while_a_consumer_waits(client: Client, valkey: ServerUnderTest) -> None:
    got: list[Leased] = []
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
    monkeypatch.setattr(settling, "MOST_HAND_BACKS", 1)
    append(valkey, "a.00ff")
    for reason, result in (("first\n\x1bline", "handedBack"), ("second\ud800", "dead")):
        (got,) = receive(client, wait="60s")
        assert client.hand_back(got, reason=reason, delay_time=0).result == result
    assert receive(client) == []
    (letter,) = client.dead_letters().letters
    assert (letter.id, letter.reason) == ("a:mail.00ff", "first line; second?")
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
        _, _, call, _ = got.lease.split(".")
        assert valkey.admin.zadd(key, {f"call:{call}": 0}, xx=True, ch=True)  # the lease has ended
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
    monkeypatch.setattr(
        *(settling, "MOST_HAND_BACKS") if ends == "by hand-backs" else (receiving, "MOST_ENDED_LEASES"), 0
    )
    client.schedule(Message(topic=TOPIC, id="a:mail", body="the id of the dead letter is taken", delay_time="1h"))
    append(valkey, "a")
    if ends == "by hand-backs":
        (got,) = receive(client)
        with pytest.raises(Conflict, match="id a:mail belongs to a message with other content"):
            client.hand_back(got)
        assert client.extend(got, "1m").result == "extended"
        client.cancel("a:mail")
        assert client.hand_back(got).result == "dead"
    else:
        (got,) = receive(client)
        assert (got.id, got.deliveries) == ("a", 1), "no other way leads to it"
        client.cancel("a:mail")
        assert client.extend(got, 0).result == "released"
        assert receive(client) == []
        assert [one.id for one in client.dead_letters().letters] == ["a:mail"]


def test_a_message_whose_dead_letter_has_the_id_of_another_is_received_in_its_place(
    client: Client, valkey: ServerUnderTest
) -> None:
    client.schedule(Message(topic=TOPIC, id="b:mail", body="the id of the dead letter is taken", delay_time="1h"))
    for id in "abcd":
        append(valkey, id, orderingKey="k")
    valkey.admin.xgroup_create(TOPIC, "mail", "0")
    entries = [entry for entry, _ in valkey.admin.xreadgroup("mail", "other", {TOPIC: ">"})[0][1]]
    valkey.admin.xclaim(TOPIC, "mail", "other", 0, entries[1:3], retrycount=16)
    assert [(one.id, one.deliveries) for one in receive(client)] == [("a", 2), ("b", 17), ("d", 2)]
    assert [one.id for one in client.dead_letters().letters] == ["c:mail"]


@pytest.mark.parametrize("body", ["é" * 600_000, b"\xff" * 1_200_000], ids=["text", "bytes"])
def test_a_message_that_is_longer_than_the_limit_becomes_a_dead_letter(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, body: str | bytes
) -> None:
    monkeypatch.setattr(receiving, "MOST_ENDED_LEASES", 0)
    append(valkey, "a", body=body)
    assert receive(client) == []
    (letter,) = client.dead_letters().letters
    assert (letter.id, valkey.admin.xpending(TOPIC, "mail")["pending"]) == ("a:mail", 0)


def test_a_dead_letter_of_another_message_with_this_id_is_not_taken_for_this_one(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "MOST_HAND_BACKS", 0)
    append(valkey, "a:mail")
    append(valkey, "a", body="another body")
    whole, own = receive(client)
    assert client.hand_back(whole).result == "dead"
    assert [one.id for one in client.dead_letters().letters] == ["a:mail:mail"]
    for topic, properties in (
        ("other", {"delayq-group": "mail"}),
        (TOPIC, {"body": "delayq-group\0\4mail"}),
        (TOPIC, {}),
    ):
        message = Message(
            topic=topic, properties={} if "body" in properties else properties, body=str(properties), expect_date=1
        )
        content = encode(message, Limits(), due_head(1))[DUE_HEAD_LENGTH:]
        keys = KEYS.queue(Layout(16).queue_of("a:mail"))
        assert client.store.run(commands.give_up(keys, [("a:mail", content, 1, "other", b"")])) == ["dead"]
        with pytest.raises(Conflict):
            client.hand_back(own)
        client.discard("a:mail")
    assert client.hand_back(own).result == "dead"
    assert client.hand_back(own).result == "lost", "it was acknowledged"


def test_a_dead_letter_that_was_redriven_before_its_message_was_acknowledged_waits_and_is_not_made_again(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "MOST_HAND_BACKS", 0)
    append(valkey, "a")
    (got,) = receive(client)
    run_many = client.store.run_many

    def losing(wanted: Any) -> list[Any]:
        if any(one.script == "settle_received" and "ack" in one.args for one in wanted):
            return [StoreUnavailable()]  # the acknowledgement does not reach Redis
        return list(run_many(wanted))

    with monkeypatch.context() as patch:
        patch.setattr(client.store, "run_many", losing)
        with pytest.raises(StoreUnavailable):
            client.hand_back(got)
    assert client.redrive(["a:mail"]) == ["scheduled"]
    assert client.hand_back(got).result == "dead"
    assert client.dead_letters().letters == []
    assert valkey.admin.xpending(TOPIC, "mail")["pending"] == 0


def test_a_last_hand_back_while_redis_is_full_keeps_the_lease_and_the_reason(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "MOST_HAND_BACKS", 0)
    append(valkey, "a")
    (got,) = receive(client)
    valkey.admin.config_set("maxmemory", 1)
    try:
        for _ in range(2):
            with pytest.raises(StoreFull):
                client.hand_back(got, reason="stock API 503")
        assert receive(client) == []
        assert client.extend(got, 1_000).result == "extended"
    finally:
        valkey.admin.config_set("maxmemory", 0)
    again: list[Leased] = []

    def is_received() -> bool:
        again.extend(receive(client))
        return again != []

    eventually(is_received, "the lease has ended, as of a consumer that died")
    assert client.hand_back(again[0], reason="second") == Settlement("dead")
    (letter,) = client.dead_letters().letters
    assert letter.reason == "stock API 503; second"


@pytest.mark.parametrize("fails", ["XRANGE", "give_up", "settle_received"])
def test_when_a_part_of_the_last_hand_back_fails_the_answer_is_its_error_and_a_repeat_completes_it(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr(settling, "MOST_HAND_BACKS", 0)
    append(valkey, "a")
    (got,) = receive(client)
    run_many, seen = client.store.run_many, Counter[str]()

    def losing(wanted: Any) -> list[Any]:
        answers = list(run_many(wanted))
        for at, one in enumerate(wanted):
            name = one.script or one.args[0]
            seen[name] += 1
            if name == fails and seen[name] == (2 if fails == "settle_received" else 1):
                answers[at] = StoreUnavailable()
        return answers

    monkeypatch.setattr(client.store, "run_many", losing)
    with pytest.raises(StoreUnavailable):
        client.hand_back(got, reason="stock API 503")
    if fails != "settle_received":  # its reply was lost
        assert client.hand_back(got, reason="stock API 503") == Settlement("dead")
    (letter,) = client.dead_letters().letters
    assert (letter.id, letter.reason) == ("a:mail", "stock API 503")
    assert receive(client, group="mail", lease=1_000) == []
    assert valkey.admin.xpending(TOPIC, "mail")["pending"] == 0


@pytest.mark.parametrize("how", ["lease", "leases that ended", "of any target"])
def test_dead_letters_that_consumers_make_count_for_the_bound_of_their_topic(
    client: Client, other: Client, valkey: ServerUnderTest, how: str
) -> None:
    put_policy(client, pending=1, index=["tags"], maxHandBacks=0, maxDeliveries=1)
    if how == "of any target":
        assert other.hand_back(Received(id="a", topic=TOPIC, due=1, body=b"", tags="new")).result == "dead"
    else:
        append(valkey, "a", tags="new")
        (got,) = receive(other, lease=1_000)
        if how == "lease":
            assert other.hand_back(got).result == "dead"
        else:
            eventually(lambda: receive(other) == [] and other.dead_letters().letters, "it has become a dead letter")
    (letter,) = other.dead_letters().letters
    assert letter.record is not None
    assert letter.record.keys == (() if how == "of any target" else ("k1", "k2")), "only delayq counts by the others"
    assert letter.record.index_keys[-2:] == (f"delayq:topic:{TOPIC}", f"delayq:tag:{TOPIC}:new")
    with pytest.raises(TooManyPending):
        client.schedule(Message(topic=TOPIC, delay_time="1h"))
    client.discard(letter.id)
    with Client(valkey.url) as later:  # it counts anew
        later.schedule(Message(topic=TOPIC, delay_time="1h"))


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


def test_streams_of_each_queue_are_received_equally_often(valkey: ServerUnderTest) -> None:
    routes, names = Routes([Route(name="own", per_queue=True)]), random.Random(1)
    with Client(settings=load_settings(redis_url=valkey.url, queues=16), routes=routes) as client:
        client.schedule(Message(topic=TOPIC, delay_time="1h"))
        for number in range(16):
            for n in range(50):
                append(valkey, f"m{n}", f"delayq:{{{number}}}:stream:{TOPIC}")
        consumer = given_consumer(TOPIC, "mail", "beginning", ())
        calls = [f"{names.getrandbits(128):032x}" for _ in range(320)]
        pages = [
            client.run(partial(receiving.receive, consumer=consumer, most=1, lease=30_000, call=one)) for one in calls
        ]
    by_stream = Counter(page.messages[0].lease.partition(".")[0] for page in pages)
    assert len(by_stream) == 16
    assert min(by_stream.values()) >= 8, "of 20, if all were equal"


@pytest.fixture
def queues(valkey: ServerUnderTest) -> Iterator[Client]:
    """A client of a topic with a stream for each of 16 queues."""
    routes = Routes([Route(name="own", per_queue=True)])
    with Client(settings=load_settings(redis_url=valkey.url, queues=16), routes=routes) as client:
        client.schedule(Message(topic=TOPIC, delay_time="1h"))
        yield client


def own_stream(number: int) -> str:
    return f"delayq:{{{number}}}:stream:{TOPIC}"


def take(client: Client, most: int, call: str | None = None, ack: Sequence[str] = ()) -> list[Leased]:
    consumer = given_consumer(TOPIC, "mail", "beginning", ())
    return client.run(
        partial(receiving.receive, consumer=consumer, most=most, lease=60_000, call=call, ack=ack)
    ).messages


def asked(_context: Context, command: Command[Any]) -> Plan[list[Any]]:
    """The answer to one command."""
    return (yield [command])


@pytest.mark.parametrize("most", [1, 10, 16, 17, 100])
def test_a_call_receives_at_most_max_of_all_streams_of_queues(
    queues: Client, valkey: ServerUnderTest, most: int
) -> None:
    for number in range(16):
        for n in range(10):
            append(valkey, f"{number} {n}", own_stream(number))
    got = take(queues, most)
    assert len(got) == most
    assert len({one.id for one in got + take(queues, most)}) == min(2 * most, 160)


def test_a_call_that_is_repeated_gets_its_messages_of_all_streams_of_queues_and_no_others(
    queues: Client, valkey: ServerUnderTest
) -> None:
    for number in (3, 7, 11):
        append(valkey, f"m{number}", own_stream(number))
    first = take(queues, 5, "lost")
    assert len(first) == 3
    for number in range(16):
        append(valkey, f"later {number}", own_stream(number))
    again = take(queues, 5, "lost")
    assert {one.lease for one in again} == {one.lease for one in first}
    assert take(queues, 5, "lost", [one.lease for one in again[1:]]) == again[:1]
    assert len(take(queues, 5, "lost", [again[0].lease])) == 5, "it holds nothing any more, so it is a new call"


@pytest.mark.parametrize("seed", range(amount(3, 100)))
def test_random_calls_of_streams_of_queues_hold_what_they_were_answered(
    queues: Client, valkey: ServerUnderTest, seed: int
) -> None:
    """Calls whose answers are lost, some after a part of the streams, are repeated. Messages have small and large bodies."""
    drawn, count, held = random.Random(seed), 0, dict[str, set[str]]()
    acknowledged = set[str]()
    for step in range(60):
        for _ in range(drawn.randint(0, 6)):
            size = drawn.choice([10, 10, 400_000, 1_200_000])
            append(valkey, f"m{count}", own_stream(drawn.randrange(16)), body="x" * size)
            count += 1
        call, most = drawn.choice([*held, f"c{step}"]), drawn.choice([1, 3, 20])
        before = held.get(call, set())
        if not before and drawn.random() < 0.3:  # it ends after some of its streams
            for number in drawn.sample(range(16), 3):
                keys = KEYS.consumers(own_stream(number), "mail")
                command = commands.receive(keys, "mail", call, 1, 60_000)
                (part,) = queues.run(partial(asked, command=command))
                assert isinstance(part, ReceivedEntries)
                before = before | {one.fields["id"].decode() for one in part.entries}
        got = take(queues, most, call)
        ids = {one.id for one in got}
        assert len(ids) == len(got) <= max(most, len(before))
        assert before or sum(len(one.body) for one in got) <= 2_300_000
        assert not ids & acknowledged
        if before:
            assert ids == before
        else:
            assert not any(ids & others for others in held.values())
        held[call] = ids
        done = [one for one in got if drawn.random() < 0.5]
        queues.ack(*done)
        acknowledged |= {one.id for one in done}
        held = {name: left for name, ids in held.items() if (left := ids - acknowledged)}
    while len(acknowledged) < count:  # everything arrives
        call = next(iter(held), f"c{len(acknowledged)}")
        got = take(queues, 20, call)
        queues.ack(*got)
        acknowledged |= {one.id for one in got}
        held.pop(call, None)


def test_large_messages_of_streams_of_queues_arrive_in_bounded_answers_and_do_not_wait_behind_small_ones(
    queues: Client, valkey: ServerUnderTest
) -> None:
    for number in range(16):
        append(valkey, f"large {number}", own_stream(number), body="x" * 1_500_000)
    ids = list[str]()
    while len(ids) < 16:
        got = take(queues, 1_000)
        assert sum(len(one.body) for one in got) <= 2_000_000
        ids += [one.id for one in got]
    append(valkey, "large", own_stream(5), body="x" * 1_500_000)
    while "large" not in ids:
        for number in range(16):
            append(valkey, "small", own_stream(number))
        ids += [one.id for one in take(queues, 1_000)]


def test_consumers_share_the_streams_of_queues_evenly_also_if_each_message_has_an_ordering_key(
    valkey: ServerUnderTest,
) -> None:
    routes = Routes([Route(name="own", per_queue=True)])
    with Client(settings=load_settings(redis_url=valkey.url, queues=4), routes=routes) as client:
        client.schedule(Message(topic=TOPIC, delay_time="1h"))
        for n in range(120):
            append(valkey, f"m{n}", f"delayq:{{{n % 4}}}:stream:{TOPIC}", orderingKey=f"key {n % 20}")
        holding: list[list[Leased]] = [[], [], []]
        shares, order = [0, 0, 0], dict[str, list[int]]()
        for turn in range(90):  # each consumer acknowledges what it has when it asks for more
            own = turn % 3
            client.ack(*holding[own])
            holding[own] = receive(client, max=2)
            shares[own] += len(holding[own])
            for one in holding[own]:
                order.setdefault(one.ordering_key, []).append(int(one.id[1:]))
    assert sum(shares) == 120
    assert min(shares) >= 30, "of 40, if all were equal"
    assert all(numbers == sorted(numbers) for numbers in order.values())


def test_wrong_arguments_and_other_routes_are_refused(client: Client, valkey: ServerUnderTest) -> None:
    wrong: list[dict[str, Any]] = [
        {"group": "two words"}, {"max": 0}, {"max": 1_001}, {"lease": 1}, {"start": "soon"}, {"start": ""}, {"wait": -1},
        {"tags": ["x" * 4_097]},
        {"tags": [f"t{n}" for n in range(101)]},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(InvalidMessage):
            receive(client, **options)
    with pytest.raises(InvalidMessage, match="must be one topic"):
        client.receive("orders.*", group="mail")
    append(valkey, "a")
    (got,) = receive(client)
    for longer in (1, "999ms", "12h1ms"):
        with pytest.raises(InvalidMessage, match="from 1 s to 12 h"):
            client.extend(got, longer)
    with pytest.raises(InvalidMessage, match="from 0 to"):
        client.hand_back(got, delay_time=-1)
    for lease in ("", "x", got.lease + "!", got.lease.replace(".", ".1-0 ", 1), "9" * 5_000 + got.lease):
        with pytest.raises(InvalidMessage, match="is no lease"):
            client.ack(got, Leased(id="a", topic=TOPIC, group="mail", lease=lease, body=b"", due=0))
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


@pytest.mark.parametrize(
    ("start", "expected"),
    [("beginning", ["a", "b", "c"]), ("end", ["c"]), ("1970-01-01T00:00:02Z", ["b", "c"]), (2_001, ["c"])],
)
def test_a_new_group_begins_where_its_consumer_starts(
    client: Client, valkey: ServerUnderTest, start: str | int, expected: list[str]
) -> None:
    for id, time in (("a", 1_000), ("b", 2_000)):
        valkey.admin.xadd(TOPIC, {"id": id, "topic": TOPIC, "body": id, "due": "1"}, id=f"{time}-5")
    received = [one.id for one in receive(client, start=start, max=1_000, lease="1m")]
    append(valkey, "c")
    assert received + [one[b"id"].decode() for one in unread(valkey)] == expected


def pending(server: ServerUnderTest) -> list[dict[bytes, bytes]]:
    found = server.admin.xpending_range(TOPIC, "mail", "-", "+", 100)
    return [server.admin.xrange(TOPIC, one["message_id"], one["message_id"])[0][1] for one in found]


def unread(server: ServerUnderTest) -> list[dict[bytes, bytes]]:
    (group,) = server.admin.xinfo_groups(TOPIC)
    last = group["last-delivered-id"].decode()
    return [fields for _, fields in server.admin.xrange(TOPIC, f"({last}")]


def test_handlers_run_at_once_and_one_that_raises_hands_its_message_back(
    client: Client, other: Client, valkey: ServerUnderTest
) -> None:
    for id in "abcdef":
        append(valkey, id)
    together, seen = threading.Barrier(3), list[str]()

    def handle(message: Leased) -> None:
        together.wait(PATIENCE)
        seen.append(message.id)
        if len(seen) == 6:
            consumer.stop()
        if message.id == "b":
            raise RuntimeError("no stock")

    consumer = client.consume(TOPIC, group="mail", prefetch=1)
    consumer.run(handle, concurrency=3)
    assert sorted(seen) == [*"abcdef"]
    assert [fields[b"id"] for fields in pending(valkey)] == [b"b"], "the others are acknowledged"
    assert receive(other) == [], "it is received again later"


def test_handlers_of_one_ordering_key_run_one_after_another(client: Client, valkey: ServerUnderTest) -> None:
    for n in range(30):
        append(valkey, f"{n:02}", orderingKey=f"key {n % 2}")
    running, seen = Counter[str](), dict[str, list[str]]()

    def handle(message: Leased) -> None:
        running[message.ordering_key] += 1
        assert running[message.ordering_key] == 1
        seen.setdefault(message.ordering_key, []).append(message.id)
        running[message.ordering_key] -= 1
        if sum(map(len, seen.values())) == 30:
            consumer.stop()

    consumer = client.consume(TOPIC, group="mail", prefetch=7)
    consumer.run(handle, concurrency=4)
    assert {key: ids == sorted(ids) for key, ids in seen.items()} == {"key 0": True, "key 1": True}
    assert pending(valkey) == []


def test_a_consumer_that_stops_gives_back_what_no_handler_has(
    client: Client, other: Client, valkey: ServerUnderTest
) -> None:
    for id in "abc":
        append(valkey, id)
    consumer = client.consume(TOPIC, group="mail")
    consumer.run(lambda _: consumer.stop(), concurrency=1)
    assert [(one.id, one.deliveries) for one in receive(other)] == [("b", 1), ("c", 1)]


def test_a_consumer_goes_on_after_redis_was_away(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(valkey, "a")
    real, failures = client.receive, iter([StoreUnavailable("away"), StoreUnavailable("away")])

    def flaky(*args: Any, **options: Any) -> list[Leased]:
        if (error := next(failures, None)) is not None:
            raise error
        return real(*args, **options)

    monkeypatch.setattr(client, "receive", flaky)
    consumer = client.consume(TOPIC, group="mail")
    consumer.run(lambda _: consumer.stop())
    assert pending(valkey) == []
    with pytest.raises(InvalidMessage, match="concurrency"):
        client.consume(TOPIC, group="mail").run(print, concurrency=0)


def test_a_pattern_receives_topics_that_fit_it_also_later_ones_and_none_that_goes_elsewhere(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "FIND_EVERY", 0)
    routes = Routes([Route(name="kafka", match="orders.kafka", target="kafka://k:9092"), Route(name="own")])
    seen: list[str] = []
    with Client(valkey.url, routes=routes) as client:

        def arrive(topic: str) -> None:
            client.schedule(Message(topic=topic, delay_time="1h"))  # so the topic is known
            valkey.admin.xadd(topic, {"id": topic, "topic": topic, "body": "", "due": "1"})

        for topic in ("orders.kafka", "orders.paid", "other", "named"):
            arrive(topic)
        with client.consume(["orders.*", "named"], group="mail") as consumer:
            for message in consumer:
                seen.append(message.id)
                if len(seen) == 2:
                    arrive("orders.void")
                elif len(seen) == 3:
                    consumer.stop()
        assert sorted(seen) == ["named", "orders.paid", "orders.void"]
        with pytest.raises(InvalidMessage, match="A-Z"):
            client.consume("orders *", group="mail")


async def test_the_consumer_of_asyncio_has_the_same_handlers_and_patterns(valkey: ServerUnderTest) -> None:
    together, seen = asyncio.Barrier(3), list[str]()
    async with AsyncClient(valkey.url) as client:
        await client.schedule(Message(topic=TOPIC, delay_time="1h"))
        for id in "abcdef":
            append(valkey, id)

        async def handle(message: Leased) -> None:
            await together.wait()
            seen.append(message.id)
            if len(seen) == 6:
                consumer.stop()
            if message.id == "b":
                raise RuntimeError("no stock")

        consumer = client.consume("orders.*", group="mail", prefetch=1)
        await consumer.run(handle, concurrency=3)
    assert sorted(seen) == [*"abcdef"]
    assert [fields[b"id"] for fields in pending(valkey)] == [b"b"]


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


class Calls:
    """The ids that a client acknowledged and released with each call, while it consumes."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str]] = []
        for name, place in (("ack", None), ("extend_many", 0), ("receive", "ack")):
            monkeypatch.setattr(client, name, partial(self._call, name, place, getattr(client, name)))

    def _call(self, name: str, place: Any, real: Any, *args: Any, **options: Any) -> Any:
        messages = args if place is None else args[place] if name == "extend_many" else options[place]
        self.seen.append((name, "".join(one.id for one in messages)))
        return real(*args, **options)


def test_quick_messages_are_acknowledged_together_and_a_slow_one_before_the_next(
    other: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, got = ManualClock(), ""
    for id in "abcdefgh":
        append(valkey, id)
    with Client(valkey.url, clock=clock) as client:
        calls = Calls(client, monkeypatch)
        with client.consume(TOPIC, group="mail", prefetch=5) as consumer:
            for message in consumer:
                got += message.id
                if message.id == "b":
                    clock.advance(consuming.ACK_AFTER)
                elif message.id == "f":
                    consumer.stop()
    assert got == "abcdef"
    assert calls.seen == [("receive", ""), ("ack", "ab"), ("receive", "cde"), ("ack", "f"), ("extend_many", "gh")]
    assert [(one.id, one.deliveries) for one in receive(other)] == [("g", 1), ("h", 1)]


def test_an_acknowledgement_that_failed_is_made_with_the_next_ones(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in "abcde":
        append(valkey, id)
    handled, real, calls = threading.Semaphore(0), (client.ack, client.receive), list[str]()
    others = threading.Event()

    def ack(*messages: Leased) -> Any:
        calls.append("".join(one.id for one in messages))
        if len(calls) == 1:
            assert others.wait(PATIENCE)
            raise StoreUnavailable("the first acknowledgement is lost")
        return real[0](*messages)

    def receive(*args: Any, **options: Any) -> Any:
        if calls and options["ack"]:
            calls.append("".join(one.id for one in options["ack"]))
        return real[1](*args, **options)

    def handle(message: Leased) -> None:
        handled.release()

    monkeypatch.setattr(client, "ack", ack)
    monkeypatch.setattr(client, "receive", receive)
    consumer = client.consume(TOPIC, group="mail", prefetch=5)
    running = threading.Thread(target=consumer.run, args=(handle,), kwargs={"concurrency": 2})
    running.start()
    for _ in range(5):
        assert handled.acquire(timeout=PATIENCE)
    consumer.stop()
    others.set()
    running.join(PATIENCE)
    assert (len(calls[0]), "".join(sorted("".join(calls[1:])))) == (1, "abcde")
    assert pending(valkey) == []


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
    consumer = given_consumer(TOPIC, "mail", "beginning", ())
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


def test_a_wait_that_ends_after_the_client_was_closed_leaves_no_connection(valkey: ServerUnderTest) -> None:
    client = Client(valkey.url)
    got: list[Leased] = []
    waiting = threading.Thread(target=lambda: got.extend(receive(client, wait="60s")))
    waiting.start()
    eventually(lambda: valkey.admin.info("clients")["blocked_clients"] == 1, "the call waits")
    client.close()
    append(valkey, "a")
    waiting.join()
    assert [one.id for one in got] == ["a"]
    assert client._arrivals == []
