"""The client of the HTTP API returns what the client of Redis returns."""

from __future__ import annotations

import inspect
import uuid
from typing import Any

import msgspec
import pytest
import redis

import delayq
from delayq import (
    Client,
    ConfigError,
    Conflict,
    Filter,
    InvalidMessage,
    Message,
    NotDevelopment,
    OtherFilter,
    PastDue,
    PoliciesChanged,
    Policy,
    Scheduled,
    StoreUnavailable,
    http,
)
from delayq.answers.messages import state_out
from delayq.client.audit import By, new_act
from delayq.client.consuming.entries import Leased
from delayq.client.consuming.settling import Settlement
from delayq.embedded.processes import LOCALHOST, free_port
from tests.api.test_process import Api

pytestmark = pytest.mark.processes

HOUR = 3_600_000
AT = 2_000_000_000_000
#: What only a client of Redis can do.
OF_REDIS = {
    "context", "facts", "known_routes", "learn_routes", "read", "reading", "run", "warn_without_worker",
}  # fmt: skip


def name() -> str:
    return uuid.uuid4().hex


def test_it_has_the_methods_of_the_client_of_redis_with_their_arguments() -> None:
    for own, other in ((http.Client, Client), (http.AsyncClient, delayq.AsyncClient)):
        methods = {one for one, _ in inspect.getmembers(other, callable) if not one.startswith("_")}
        for method in methods - OF_REDIS:
            wanted = inspect.signature(getattr(other, method)).parameters
            assert list(inspect.signature(getattr(own, method)).parameters) == list(wanted), method
            assert inspect.iscoroutinefunction(getattr(own, method)) == inspect.iscoroutinefunction(
                getattr(other, method)
            )


@pytest.mark.parametrize(
    "body",
    ["text", "", "ü\U0001f600", b"\xff\x00", {"order": 42}, [1, 2.5, None, True], None, 10**30, msgspec.Raw(b"1.10")],
    ids=["text", "empty", "emoji", "bytes", "object", "array", "null", "large number", "raw JSON"],
)
def test_a_message_arrives_as_it_was_given(client: Any, direct: Client, body: Any) -> None:
    given = Message(
        topic="orders.unpaid", body=body, expect_date=AT, keys=("a", "b"), tags="vip", properties={"k": "v ü"}, ordering_key="o",
        max_attempts=3, expire_after=HOUR, id=name(),
    )  # fmt: skip
    scheduled = client.schedule(given)
    assert scheduled == Scheduled(scheduled.id, scheduled.queue, AT)
    found = client.get(scheduled.id)
    other = direct.get(scheduled.id)
    assert other is not None
    assert msgspec.json.encode(state_out(found)) == msgspec.json.encode(state_out(other))
    assert found.message == other.message
    again = direct.schedule(given)
    assert (again.created, again.id) == (False, scheduled.id)


def test_a_message_gets_its_id_before_the_call(client: Any) -> None:
    first, second = (client.schedule(Message(topic="t", delay_time="1h")) for _ in range(2))
    assert first.id != second.id
    assert client.get(first.id).message.topic == "t"
    assert client.get("nobody") is None
    assert client.get_many([first.id, "nobody"])[1] is None


def test_a_batch_of_any_size_has_an_outcome_for_each_message(client: Any) -> None:
    run = name()
    messages: list[Any] = [Message(topic="t", delay_time=HOUR, id=f"{run}-{n}") for n in range(2_100)]
    messages[7] = Message(topic="two words", delay_time=HOUR)
    messages[1_500] = "no message"
    messages[2_000] = Message(topic="t", delay_time=HOUR, body=float("nan"))
    outcomes = client.schedule_many(iter(messages))
    assert len(outcomes) == 2_100
    wrong = {place: outcome for place, outcome in enumerate(outcomes) if not isinstance(outcome, Scheduled)}
    assert {place: (type(error), error.field) for place, error in wrong.items()} == {
        7: (InvalidMessage, "topic"),
        1_500: (InvalidMessage, "message"),
        2_000: (InvalidMessage, "body"),
    }
    assert [one.id for one in outcomes[10:13]] == [f"{run}-{n}" for n in (10, 11, 12)]
    assert client.schedule_many([]) == []


def test_a_batch_of_large_messages_is_split(client: Any) -> None:
    outcomes = client.schedule_many([Message(topic="t", delay_time=HOUR, body="x" * 900_000) for _ in range(9)])
    assert all(isinstance(one, Scheduled) for one in outcomes), outcomes


def test_it_raises_the_errors_of_the_client_of_redis(client: Any, direct: Client) -> None:
    id = name()
    direct.schedule(Message(topic="t", delay_time=HOUR, id=id))
    for wrong in (
        Message(topic="delayq:t", delay_time=HOUR),
        Message(topic="t"),
        Message(topic="t", delay_time=HOUR, body="x" * 2_000_000),
        Message(topic="t", delay_time=HOUR, keys=("a b",)),
        Message(topic="t", delay_time=HOUR, id=id, body="other"),
    ):
        errors = []
        for one in (client, direct):
            with pytest.raises(delayq.DelayqError) as caught:
                one.schedule(wrong)
            errors.append(caught.value)
        assert type(errors[0]) is type(errors[1])
        assert str(errors[0]) == str(errors[1])
        assert {**vars(errors[0])} == {**vars(errors[1])}
    with pytest.raises(NotDevelopment):
        client.advance("1h")
    with pytest.raises(InvalidMessage, match="id: "):
        client.cancel("a/b")


def test_cancel_says_what_became_of_each(client: Any, direct: Client) -> None:
    key = name()
    for n in range(3):
        client.schedule(Message(topic="t", delay_time=HOUR, id=f"{key}-{n}", keys=(key,)))
    assert client.cancel(f"{key}-0").result == "cancelled"
    assert client.cancel(f"{key}-nobody").result == "notFound"
    both = client.cancel_many([f"{key}-0", f"{key}-1"])
    assert both == direct.cancel_many([f"{key}-0", f"{key}-1"])
    by_key = client.cancel_by_key(key)
    assert sorted(one.id for one in by_key if one.result == "cancelled") == [f"{key}-{n}" for n in range(3)]
    assert client.cancel_by_key(name()) == []
    with pytest.raises(Conflict) as caught:
        client.schedule(Message(topic="t", delay_time=HOUR, id=f"{key}-0", keys=(key,)))
    assert caught.value.state == "cancelled"


def test_messages_are_moved_and_delivered_now(client: Any, direct: Client) -> None:
    id = client.schedule(Message(topic="t", delay_time=HOUR, keys=(key := name(),))).id
    moved = client.reschedule(id, expect_date="2033-01-01T00:00:00Z")
    assert (moved.id, moved.result, moved.due) == (id, "scheduled", direct.get(id).due)  # type: ignore[union-attr]
    assert client.reschedule("nobody", delay_time="1h").result == "notFound"
    now = client.deliver_now(id)
    assert now.result == "scheduled"
    assert [one.result for one in client.deliver_now_many([id, "nobody"])] == ["scheduled", "notFound"]
    assert [one.result for one in client.deliver_now_by_key(key)] == ["scheduled"]
    late = client.reschedule(id, delay_time="1h")
    assert (late.result, late.refusal) == ("inFlight", direct.reschedule(id, delay_time="1h").refusal)


def test_what_it_reads_is_what_the_client_of_redis_reads(client: Any, direct: Client) -> None:
    topic = f"orders.{name()}"
    for n in range(5):
        direct.schedule(Message(topic=topic, expect_date=AT + n, keys=(topic,), body={"n": n}, properties={"a:b": "c"}))
    wanted = Filter(topic=topic, property=("a:b", "c"), due_from=AT, due_to=AT + 4)
    page = client.search(wanted, 2)
    assert page.next_token is not None
    pages = [*page.messages, *client.search(wanted, 100, page.next_token).messages]
    shown = [msgspec.json.encode(state_out(one)) for one in pages]
    assert shown == [msgspec.json.encode(state_out(one)) for one in direct.search(wanted).messages]
    assert [one.id for one in client.find(topic)] == [one.id for one in direct.find(topic)]
    assert client.count(Filter(topic=topic)) == direct.count(Filter(topic=topic))
    assert client.forecast(AT, AT + 10, 5, Filter(topic=topic)) == direct.forecast(AT, AT + 10, 5, Filter(topic=topic))
    found = client.get(pages[0].id)
    assert client.explain(found).waits_for == direct.explain(direct.get(found.id)).waits_for  # type: ignore[arg-type]
    assert client.topic(topic).counts == direct.topic(topic).counts
    assert topic in [one.topic for one in client.topics(match="orders.*")]
    figures = [(one.queue, one.scheduled, one.dead, one.parked, one.remembered) for one in client.queues()]
    assert figures == [(one.queue, one.scheduled, one.dead, one.parked, one.remembered) for one in direct.queues()]
    assert client.stats()[0].queue == 0
    assert sum(one.counters["scheduled"] for one in client.queues()) == sum(
        one.counters["scheduled"] for one in direct.queues()
    )
    assert {one.code for one in client.status()} == {one.code for one in direct.status()}
    assert client.overview().queues == direct.overview().queues
    assert (client.nodes(), client.routes()) == (direct.nodes(), direct.routes())
    assert client.dead_letters().letters == []
    assert client.dead_groups().groups == []
    assert client.redrive(["nobody"]) == direct.redrive(["nobody"])
    assert client.discard("nobody") is False
    assert client.me()["version"]
    with pytest.raises(InvalidMessage, match="state"):
        client.search(Filter(states=("nowhere",)))


def test_pauses_and_policies(client: Any, direct: Client) -> None:
    match = f"{name()}.*"
    by = By(actor="me", reason="why", act=new_act())
    paused = client.pause(match, reason="down", until=AT, wait=0, by=by)
    assert (paused.changed, paused.state) == (True, "paused")
    policies = client.policies()
    assert policies.pauses[match].reason == direct.policies().pauses[match].reason == "down"
    assert policies.pauses[match].until == AT
    client.pause(match, until=None, wait=0)
    assert client.policies().pauses[match].until is None
    assert client.arriving(match) == direct.arriving(match)
    assert client.resume(match, rate=5, by=by).changed
    id = name()
    policy = Policy(name=id, match=match, rate=5, backoff=("10s", 60_000), index=("topic",), max_attempts=3)
    changed = client.put_policy(policy, by=by)
    read = client.policy(id)
    other = direct.policy(id)
    assert other is not None
    assert msgspec.structs.replace(read, since=0) == msgspec.structs.replace(other, since=0, stored="")
    assert client.policies().number == direct.policies().number == changed.version
    with pytest.raises(PoliciesChanged):
        client.put_policy(msgspec.structs.replace(policy, rate=6), if_version=changed.version - 1)
    assert client.delete_policy(id, if_version=changed.version).changed
    assert client.policy(id) is None
    entries = client.audit(topic=match, limit=10).entries or client.audit(limit=10).entries
    assert {"pause", "putPolicy"} <= {one.change.action for one in entries}
    assert "why" in {one.change.reason for one in entries}


def test_a_date_in_the_past_is_refused_if_the_caller_says_so(client: Any) -> None:
    id = name()
    known = Message(topic="t", expect_date=1_600_000_000_000, id=id)
    assert isinstance(client.schedule_many([known], refuse_past=True)[0], PastDue)
    client.schedule(known)
    other = Message(topic="t", expect_date=1_600_000_000_000, id=name())
    first, second = client.schedule_many([known, other], refuse_past=True)
    assert (first.created, type(second)) == (False, PastDue)


def test_without_an_api_the_outcome_is_unknown(redis_url: str) -> None:
    with http.Client(f"http://{LOCALHOST}:{free_port()}", give_up_after=1) as client:
        with pytest.raises(StoreUnavailable) as caught:
            client.schedule(Message(topic="t", delay_time=1, id="mine"))
        assert caught.value.id == "mine"
        (one,) = client.schedule_many([Message(topic="t", delay_time=1, id="mine")])
        assert isinstance(one, StoreUnavailable)
        assert one.id == "mine"


@pytest.mark.parametrize(
    "url", ["ftp://a", "http://", "http://a:b@c", "http://a:port", "localhost:8080", "http://a?b=c"]
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="URL"):
        http.Client(url)


def test_connect_takes_urls_of_both_kinds(process: Any, redis_url: str) -> None:
    api = f"http://127.0.0.1:{process.port}"
    with delayq.connect(api) as by_api, delayq.connect(redis_url) as by_redis:
        assert isinstance(by_api, http.Client)
        assert isinstance(by_redis, Client)
        id = by_api.schedule(Message(topic="t", delay_time=HOUR)).id
        assert by_redis.cancel(id).result == "cancelled"
    assert isinstance(delayq.connect_async(api), http.AsyncClient)
    assert isinstance(delayq.connect_async(redis_url), delayq.AsyncClient)
    with pytest.raises(ConfigError, match="scheme"):
        delayq.connect("localhost")


def test_it_receives_and_settles_as_the_client_of_redis(client: Any, direct: Client, redis_url: str) -> None:
    topic = f"t.{name()}"
    with redis.Redis.from_url(redis_url, protocol=2) as server:
        for id, body in (("a", b"text"), ("b", b"\xff")):
            entry: Any = {
                "id": id,
                "topic": topic,
                "tags": "new",
                "keys": "k1 k2",
                "body": body,
                "due": "1000",
                "orderingKey": f"key of {id}",
                "p:x": "1",
            }
            server.xadd(topic, entry)
    first, second = client.receive(topic, group="mail", tags="new || old", wait="1s")
    copies = direct.receive(topic, group="copy")
    plain = [msgspec.structs.replace(one, lease="", group="") for one in (first, second, *copies)]
    assert plain[:2] == plain[2:]
    with pytest.raises(OtherFilter, match=r"new \|\| old"):
        client.receive(topic, group="mail")
    assert client.extend(first, "1m").result == "extended"
    assert client.ack(first) == client.ack(first) == [Settlement("acknowledged")]
    assert client.hand_back(second, reason="no stock", delay_time=0).result == "handedBack"
    (again,) = client.receive(topic, group="mail", tags="new || old")
    assert (again.hand_backs, again.keys, again.properties) == (1, ("k1", "k2"), {"x": "1"})
    assert [one.result for one in client.extend_many([again], 0)] == ["released"]
    assert client.ack(again)[0].result == "lost"


def test_it_lists_and_deletes_consumer_groups_as_the_client_of_redis(
    client: Any, direct: Client, redis_url: str
) -> None:
    topic = f"t.{name()}"
    with redis.Redis.from_url(redis_url, protocol=2) as server:
        for id in "ab":
            server.xadd(topic, {"id": id, "topic": topic, "tags": "new", "body": id, "due": "1000"})
    (got,) = client.receive(topic, group="mail", tags="new || old", max=1)
    (one,) = client.consumers(match=topic)
    assert [one] == direct.consumers(match=topic)
    assert (one.lag, one.filter, one.oldest.id, one.oldest.due) == (2, ("new", "old"), got.id, 1_000)
    assert [client.delete_group(topic, "mail", by=By(actor="ada")).changed for _ in range(2)] == [True, False]
    assert client.consumers(match=topic) == []
    with pytest.raises(InvalidMessage, match="group"):
        client.delete_group(topic, "two words")


def test_a_consumer_receives_several_topics_and_those_that_fit_a_pattern(
    process: Any, direct: Client, redis_url: str
) -> None:
    run, seen = name(), list[str]()
    topics = [f"{run}.first", f"{run}.orders.paid", f"{run}.orders.void"]
    with redis.Redis.from_url(redis_url, protocol=2) as server:
        for topic in topics:
            direct.schedule(Message(topic=topic, delay_time=HOUR))  # so that the topic is known
            server.xadd(topic, {"id": topic, "topic": topic, "body": "", "due": "1"})

    def handle(message: Leased) -> None:
        seen.append(message.id)
        if len(seen) == 3:
            consumer.stop()

    with http.Client(f"http://127.0.0.1:{process.port}") as api:
        named = [f"{run}.first", f"{run}.empty"]
        consumer = api.consume([*named, f"{run}.orders.*"], group="mail")
        consumer.run(handle, concurrency=2)
        assert sorted(seen) == topics
        assert api.receive(named, group="mail") == []


def test_a_wrong_path_in_the_url_is_named_and_is_no_unknown_message(process: Api) -> None:
    with (
        http.Client(f"http://127.0.0.1:{process.port}/other") as client,
        pytest.raises(ConfigError, match="no such path: is this the URL"),
    ):
        client.get(name())
