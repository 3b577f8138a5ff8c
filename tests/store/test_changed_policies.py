"""Pauses and policies as clients set them: in one place, then in every queue, and what may arrive yet."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from msgspec import UNSET

from delayq import Client, InvalidMessage, NotReady, PoliciesChanged, Policy, StoreUnavailable
from delayq.base.clock import SystemClock
from delayq.base.errors import NotDone, StoreError, StoreRefused
from delayq.care.resharding import reshard
from delayq.client.audit import By
from delayq.client.changing import policies as plans
from delayq.client.looking import topics as reading
from delayq.config import load_settings
from delayq.domain.nodes import LINE_AGE
from delayq.domain.policies import Pause
from delayq.store import commands
from delayq.store.commands import Change
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, Layout
from tests.support.proxy import FaultProxy
from tests.support.queues import EPOCH, Queue, row, taken
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT

HOUR = 3_600_000
DAY = 24 * HOUR
BOTH = (Layout(2), Layout(3, 2))


@pytest.fixture
def client(valkey: ServerUnderTest) -> Iterator[Client]:
    with Client(settings=load_settings(redis_url=valkey.url, queues=2, redis_timeout=REDIS_TIMEOUT)) as made:
        made.context()
        yield made


def state(store: Store, queue: int, field: str) -> str:
    return store.run(commands.plain("HGET", KEYS.queue(queue).state, field, read=lambda one: (one or b"").decode()))


def finish(client: Client, plan: Any, asked: Any) -> None:
    """Go on with a plan that has asked this."""
    with suppress(StopIteration):
        while True:
            asked = list(plan.send(client.store.run_many(list(asked))))


def line(client: Client, node: str, *, age: int = 0, **more: Any) -> None:
    seen = client.store.run(commands.redis_now()) - age
    client.store.run(commands.publish_node(KEYS, node, json.dumps({"seen": seen} | more).encode()))


# -- pause and resume ----------------------------------------------------------------------------------------------------


def test_a_pause_is_in_every_queue_when_it_is_answered_and_the_same_again_changes_nothing(client: Client) -> None:
    first = client.pause("orders.*", reason="down")
    assert (first.state, first.version, first.in_flight, first.changed) == ("paused", 1, 0, True)
    assert [state(client.store, queue, "policies") for queue in (0, 1)] == [first.stored] * 2
    assert state(client.store, 1, "paused").endswith(" orders.*")
    again = client.pause("orders.*", reason="down")
    assert (again.version, again.since, again.changed) == (1, first.since, False)
    other = client.pause("orders.*", reason="still down", until=first.since + HOUR)
    assert (other.version, other.changed) == (2, True)


def test_a_pause_again_keeps_what_is_not_given_and_when_it_began(client: Client) -> None:
    first = client.pause("orders.*", reason="down")
    end = first.since + 2 * HOUR
    told: list[tuple[str, int | None, bool]] = []
    again: list[dict[str, Any]] = [
        {"until": end}, {}, {"until": end}, {"reason": "still down"}, {"reason": None}, {"until": None}
    ]  # fmt: skip
    for given in again:
        paused = client.pause("orders.*", **given)
        there = client.policies().pauses["orders.*"]
        assert paused.since == there.since == first.since
        told.append((there.reason, there.until, paused.changed))
    assert told == [
        ("down", end, True), ("down", end, False), ("down", end, False), ("still down", end, True), ("", end, True),
        ("", None, True),
    ]  # fmt: skip


def test_a_pause_whose_time_has_passed_is_no_pause_though_nobody_has_ended_it(client: Client) -> None:
    over = Change("pause:orders.*", '{"reason":"down","until":2000}')
    client.store.run(commands.set_policies(KEYS, [over], maker="0000000001", now=1_000))
    paused = client.pause("orders.*")
    there = client.policies().pauses["orders.*"]
    assert (there.reason, there.until, paused.changed) == ("", None, True)
    assert there.since == paused.since > 2_000


@pytest.mark.parametrize("others", ["resume", "pause"])
def test_what_others_do_between_a_look_and_a_pause_is_looked_at_again(client: Client, others: str) -> None:
    first = client.pause("orders.*", reason="down", until=client.store.run(commands.redis_now()) + HOUR)
    plan = plans.pause(client.context(), "orders.*", "mine", UNSET)
    asked = plan.send(client.store.run_many(list(next(plan))))
    if others == "resume":
        client.resume("orders.*")
    else:
        client.pause("orders.*", until=first.since + 2 * HOUR)
    finish(client, plan, asked)
    there = client.policies().pauses["orders.*"]
    assert (there.reason, there.until) == ("mine", None if others == "resume" else first.since + 2 * HOUR)


def test_a_resume_ends_its_own_pause_and_no_other(client: Client) -> None:
    client.pause("orders.*")
    client.pause("orders.eu")
    assert (client.resume("orders.*").changed, client.policies().paused) == (True, ("orders.eu",))
    assert state(client.store, 0, "paused").endswith(" orders.eu")
    again = client.resume("orders.*")
    assert (again.changed, again.held, again.version) == (False, 0, 3)


def test_who_changed_something_is_written_down_where_something_was_changed(client: Client) -> None:
    by = By(actor="me", reason="it burns")
    for _ in range(2):
        client.pause("a", by=by)
        client.resume("b", by=by)
    client.put_policy(Policy(name="p", match="a", pending=9), by=by)
    client.delete_policy("p", by=by)
    entries = [one.change for one in client.audit().entries]
    assert [one.action for one in entries] == ["deletePolicy", "putPolicy", "pause"]
    assert {(one.actor, one.reason) for one in entries} == {("me", "it burns")}
    assert entries[1].detail == 'policy:p {"match":"a","pending":9}'


def test_a_rate_lasts_beside_no_pause_and_limits_only_what_was_paused(client: Client) -> None:
    client.pause("orders.eu")
    resumed = client.resume("orders.*", rate=500)
    assert (resumed.changed, resumed.version, client.policies().limits) == (False, 1, {})
    assert client.topic("orders.us").bucket is None
    client.pause("orders.*")
    assert client.resume("orders.*", rate=500).changed
    client.put_policy(Policy(name="slow", match="orders.slow", rate=5))
    topic, slow = client.topic("orders.us"), client.topic("orders.slow")
    assert slow.bucket is not None
    assert (slow.bucket.rate, slow.limit) == (5, None)
    assert topic.bucket is not None
    assert topic.limit is not None
    assert (topic.bucket.rate, topic.limit.match, topic.granted_last_second) == (500, "orders.*", 0)
    assert not client.resume("orders.*", rate=500).changed
    client.pause("orders.*")
    assert client.policies().limits == {}


def test_what_a_resume_has_left_of_a_limit_gets_another_rate_by_the_next_or_ends(client: Client) -> None:
    client.pause("orders.*")
    rates: list[float | None] = [500, 7, None, 7]
    told = [(client.resume("orders.*", rate=rate).changed, client.policies().limit("orders.x")) for rate in rates]
    assert [(changed, limit and limit.rate) for changed, limit in told] == [
        (True, 500), (True, 7), (True, None), (False, None)
    ]  # fmt: skip


def test_a_pause_that_others_make_while_a_resume_looks_is_ended_by_it(client: Client) -> None:
    plan = plans.resume(client.context(), "orders.*", 500)
    asked, done = list(next(plan)), 0
    with suppress(StopIteration):
        while True:
            if any(one.script == "set_policies" for one in asked) and not done:
                done = client.pause("orders.*").version
            asked = list(plan.send(client.store.run_many(asked)))
    # It had seen nothing that it could end, so it is as if it had come first.
    assert (client.policies().paused, client.policies().limits) == (("orders.*",), {})


def test_what_is_held_is_told_of_each_topic_and_by_a_resume(client: Client, valkey: ServerUnderTest) -> None:
    q = Queue(client.store, valkey, number=1)
    q.given(*(row(topic, topic=topic, at=1) for topic in ("orders.eu", "orders.us", "sms")))
    for one in taken(q.pull()):
        client.store.run(commands.park(q.keys, EPOCH, f"h:{one.record.topic}", [one]))
    client.pause("orders.*")
    client.pause("idle")
    assert [(one.topic, one.held, one.pause is not None) for one in client.topics()] == [
        ("idle", 0, True), ("orders.eu", 1, True), ("orders.us", 1, True), ("sms", 1, False)
    ]  # fmt: skip
    assert client.topic("sms").held == 1
    assert client.resume("orders.*").held == 2


def test_a_resume_counts_thousands_of_topics_in_packets_that_are_small(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "HELD_AT_ONCE", 200)
    queues, topics = [Queue(client.store, valkey, number=number) for number in (0, 1)], range(600)
    for q in queues:
        q.given(*(row(f"{q.keys.number}-{one}", topic=f"user.{one}", at=1) for one in topics))
        while messages := taken(q.pull()):
            for message in messages:
                client.store.run(commands.park(q.keys, EPOCH, f"h:{message.record.topic}", [message]))
    assert [len(client.topics(match="user.*")), client.topic("user.7").held] == [len(topics), len(queues)]
    plan = plans.resume(client.context(), "user.*", None)
    asked, looks = list(next(plan)), list[int]()

    def run() -> None:
        nonlocal asked
        while True:
            found = client.store.run_many(asked)
            pages = [one for one in found if isinstance(one, commands.HeldTopics)]
            looks.extend([sum(len(one.counts) for one in pages)] if pages else [])
            asked = list(plan.send(found))

    with pytest.raises(StopIteration) as ended:
        run()
    assert ended.value.value.held == len(queues) * len(topics)
    assert len(looks) > 5
    assert max(looks) < 600  # a page may have some topics more than it looks for


@pytest.mark.parametrize("steps", [1, 2])
def test_what_a_caller_has_left_half_done_the_next_one_ends(client: Client, steps: int) -> None:
    plan = plans.pause(client.context(), "orders.*", "", None)
    wanted = list(next(plan))
    for _ in range(steps):
        wanted = list(plan.send(client.store.run_many(wanted)))
    client.store.run_many(wanted[: len(wanted) // 2] if steps == 2 else wanted)
    plan.close()
    again = client.pause("orders.*")
    assert (again.changed, again.state) == (False, "paused")
    assert {state(client.store, queue, "policies") for queue in (0, 1)} == {again.stored}


def test_queues_that_are_listed_meanwhile_have_it_too(client: Client) -> None:
    plan = plans.pause(client.context(), "orders.*", "", None)
    asked = plan.send(client.store.run_many(list(next(plan))))
    client.store.run(commands.set_layouts(KEYS, BOTH[:1], BOTH))
    finish(client, plan, asked)  # it is set; what follows reads the list
    assert {state(client.store, queue, "policies") for queue in range(5)} == {client.policies().version}


@pytest.mark.parametrize("when", ["", "list", "own", "policies", "close"])
def test_what_is_paused_stays_so_in_new_queues_whenever_that_is(client: Client, when: str) -> None:
    """I4 (a reshard while topics are paused): New queues are paused before use; otherwise no old queue is closed.

    I4: This holds in either order of pause and reshard.
    """
    client.put_policy(Policy(name="p", match="*", pending=9))
    assert "policies" in [one.step for one in reshard(client.store, 3, SystemClock(), dry_run=True)]
    steps = reshard(client.store, 3, SystemClock())
    told = [next(one.step for one in steps)] if when else []
    while when and told[-1] != when:
        told.append(next(one.step for one in steps))
    paused = client.pause("orders.*")
    told += [one.step for one in steps]
    assert told == ["list", "own", "policies", "close", "keep"]
    assert {state(client.store, queue, "policies") for queue in range(5)} == {paused.stored}
    assert state(client.store, 4, "paused").endswith(" orders.*")


def test_while_the_new_queues_have_not_the_policies_no_queue_is_closed(valkey: ServerUnderTest) -> None:
    with (
        FaultProxy(valkey.port) as proxy,
        Client(settings=load_settings(redis_url=proxy.url, queues=2, redis_timeout=REDIS_TIMEOUT)) as client,
    ):
        client.context()
        proxy.drop_reply("apply_policies", times=4)
        with pytest.raises(StoreUnavailable):
            client.pause("orders.*")
        proxy.heal()
        again = client.pause("orders.*")
        assert (again.changed, again.state) == (False, "paused")
        proxy.drop_reply("apply_policies", times=10)
        with pytest.raises(StoreUnavailable):
            list(reshard(client.store, 3, SystemClock()))
        proxy.heal()
        assert not any(one.closed for one in client.queues())
        told = [one.step for one in reshard(client.store, 3, SystemClock())]
    assert told == ["own", "policies", "close", "keep"]


def test_policies_that_have_lost_their_last_changes_get_beyond_what_a_queue_knows(client: Client) -> None:
    """I5: In a cluster the policies get a version beyond the one that a queue has."""
    for match in ("a", "b", "c"):
        client.pause(match)
    client.store.run(commands.plain("DEL", KEYS.policies, read=int))
    paused = client.pause("orders.*")
    assert paused.version == 4
    assert client.policies().paused == ("orders.*",)
    assert {state(client.store, queue, "policies") for queue in (0, 1)} == {paused.stored}


WRONG_PAUSES: list[tuple[dict[str, Any], str]] = [
    ({"match": "orders.[ab]"}, "match"), ({"match": ""}, "match"), ({"match": 7}, "match"),
    ({"match": "a", "reason": "x" * 201}, "reason"), ({"match": "a", "reason": 7}, "reason"),
    *(({"match": "a", "wait": wait}, "wait") for wait in (-1, 60_001, 1.5)),
    *(({"match": "a", "until": until}, "until")
      for until in (1, 10**13, 2e12, float("nan"), "2035-01-01", datetime(2035, 1, 1), True)),  # noqa: DTZ001  # a naive one is wrong
]  # fmt: skip


def test_a_wrong_pause_and_a_resume_at_no_rate_at_all_are_refused(client: Client) -> None:
    for fields, field in WRONG_PAUSES:
        with pytest.raises(InvalidMessage) as refused:
            client.pause(**fields)
        assert refused.value.field == field, fields
    with pytest.raises(InvalidMessage, match=r"^until: .*\(seconds\? 1896119200000\)"):
        client.pause("a", until=1_896_119_200)
    assert client.policies().version == ""
    client.pause("a")
    rates: list[Any] = [0, 0.5, -1, float("nan"), float("inf"), "5", True]
    for rate in rates:
        with pytest.raises(InvalidMessage, match=r"^rate: "):
            client.resume("a", rate=rate)
    assert client.policies().paused == ("a",)


# -- what may arrive yet -------------------------------------------------------------------------------------------------

LATER = "9999999999.0000000000"


@pytest.mark.parametrize(
    ("told", "in_flight"),
    [
        ([{"policies": LATER, "held": {"orders.eu": 2, "sms": 7}}, {"policies": LATER, "held": {"*": 1}}], 3),
        ([{"policies": LATER}, {"policies": ""}], None),
        ([{"policies": LATER}, {"policies": "", "age": LINE_AGE + 1}], None),
        ([{"policies": LATER, "held": {"orders.eu": 2}, "age": LINE_AGE + 1}], 2),
        ([{"policies": "", "age": 2 * LINE_AGE + 31_000}], 0),
        ([{"policies": "", "age": 2 * LINE_AGE + 31_000, "longest_send": 61_000}], None),
        ([{"policies": "", "age": 3 * LINE_AGE, "longest_send": 1_000}], 0),
        ([{"policies": LATER}, {"age": LINE_AGE + 60_000}], 0),
    ],
    ids=[
        "all have told",
        "one has not",
        "one is silent",
        "one is silent that knew",
        "one is gone",
        "one is silent whose sends are long",
        "one is gone whose sends are short",
        "an old one is gone",
    ],
)
def test_what_may_arrive_is_what_nodes_tell(client: Client, told: list[dict[str, Any]], in_flight: int | None) -> None:
    for number, one in enumerate(told):
        line(client, f"node-{number}", **one)
    paused = client.pause("orders.*", wait=0)
    assert paused.in_flight == in_flight
    assert paused.state == ("paused" if in_flight == 0 else "pausing")
    arriving = client.topic("orders.eu").arriving
    assert [one.in_flight for one in arriving if one.in_flight is None] == ([None] if in_flight is None else [])


# -- policies ------------------------------------------------------------------------------------------------------------


def test_while_a_worker_is_too_old_nothing_is_paused_and_it_is_given_no_policy_that_it_would_not_act_on(
    client: Client,
) -> None:
    line(client, "node-1")
    with pytest.raises(NotReady, match=r"^node-1 cannot pause topics"):
        client.pause("orders.*")
    assert client.policies().version == ""
    said: list[dict[str, Any]] = [{"rate": 5}, {"max_in_flight": 3}, {"max_attempts": 3}, {"backoff": (10,)}]
    for one in said:
        with pytest.raises(NotReady, match=r"^node-1 cannot act on policies"):
            client.put_policy(Policy(name="p", match="webhooks", **one))
    assert client.policies().policies == {}
    client.put_policy(Policy(name="p", match="webhooks", pending=3))
    assert "p" in client.policies().policies


#: Each could not be read again.
UNREADABLE: list[tuple[str, Any]] = [
    ("order", 1.5), ("order", None), ("rate", "5"), ("rate", True), ("rate", float("inf")), ("burst", 2.5), ("per", "node"),
    ("max_in_flight", 2.0), ("window", "soon"), ("window", 2.5), ("max_attempts", 2.5), ("backoff", ("soon",)),
    ("backoff", 10), ("expire_after", "later"), ("pending", 1.5), ("index", "topic"), ("redact", "$.card"),
    ("min_replicas", "1"), ("fsync", True), ("retention_age", "soon"), ("retention_length", 1.5), ("retention_force", 1),
]  # fmt: skip


def test_a_policy_is_found_by_its_name_and_holds_in_place_of_another(client: Client) -> None:
    policy = Policy(name="sms", match="sms.*", rate=50, backoff=(10_000, 60_000), index=("topic",))
    assert client.put_policy(policy).changed
    assert not client.put_policy(policy).changed
    for found in (client.topic("sms.de").policy, client.policy("sms")):
        assert found is not None
        assert (found.match, found.rate, found.backoff, found.text) == ("sms.*", 50, (10_000, 60_000), policy.text)
    assert client.policy("mail") is None
    # A policy of lists is the same as one of tuples.
    fields: dict[str, Any] = {"backoff": [10, 20], "index": ["topic"], "redact": ["$.card"]}
    client.put_policy(Policy(name="lists", match="a", **fields))
    there = client.policies().policies["lists"]
    assert (there.backoff, there.index, there.redact) == ((10, 20), ("topic",), ("$.card",))
    none: dict[str, Any] = {field: [] for field in fields}
    with pytest.raises(InvalidMessage, match="the policy is empty"):
        client.put_policy(Policy(name="lists", match="a", **none))
    assert client.delete_policy("lists").version == 3
    with pytest.raises(InvalidMessage, match=r"^name: "):
        client.policy("a b")
    with pytest.raises(PoliciesChanged):  # it is changed only under the version that was seen
        client.put_policy(Policy(name="sms", match="sms.*", rate=5), if_version=7)
    with pytest.raises(PoliciesChanged):
        client.delete_policy("sms", if_version=0)
    assert client.policies().policies["sms"].text == policy.text
    assert client.put_policy(Policy(name="sms", match="sms.*", max_attempts=3), if_version=3).version == 4
    assert client.policies().policies["sms"].rate is None
    assert [client.delete_policy("sms").changed for _ in range(2)] == [True, False]


WRONG_POLICIES: list[tuple[str, Any, str]] = [
    ("rate", 0, "pause the topics"), ("rate", 0.001, "between 0.01"), ("rate", float("nan"), "between"),
    ("burst", 0, "between 1"), ("burst", 5, "needs a rate"), ("max_in_flight", 0, "between 1"),
    ("max_in_flight", 8, "maxBacklog"), ("window", DAY + 1, "between"), ("max_attempts", 0, "between"),
    ("backoff", (0,), "between"), ("backoff", (1,) * 65, "more than 64"), ("expire_after", -1, "between"),
    ("expire_after", 0, "between 1"),    ("per", "policy", "^per: needs a rate"),
    ("pending", 0, "between"), ("index", ("body",), "topic"), ("index", ("tags", "tags"), "once"),
    ("redact", ("card",), "JSON path"), ("min_replicas", 101, "between"), ("fsync", "never", "always"),
    ("match", "[a]", "characters"), ("name", "a b", "characters"), ("name", "..", "characters"), ("order", -1, "between"),
    ("per", "topic", "the policy is empty"), ("retention_age", 999, "between 1000"), ("retention_length", 0, "between 1"),
    ("retention_force", True, "^retentionForce: needs a retentionAge"),
]  # fmt: skip


def test_a_wrong_policy_and_one_that_could_not_be_read_again_are_refused(client: Client) -> None:
    for field, value, told in WRONG_POLICIES:
        with pytest.raises(InvalidMessage, match=told):
            client.put_policy(Policy(**({"name": "p", "match": "sms.*"} | {field: value})))
    for field, value in UNREADABLE:
        camel = re.sub("_(.)", lambda match: match.group(1).upper(), field)
        with pytest.raises(InvalidMessage, match=f"^{camel}: "):
            client.put_policy(Policy(**({"name": "p", "match": "a", "rate": 5, field: value})))
    assert client.policies().version == ""


def test_what_is_in_flight_is_bounded_only_where_something_is(valkey: ServerUnderTest) -> None:
    routes = [{"name": "hooks", "match": "hook.*", "target": "https://h.example"}, {"name": "streams", "match": "*"}]
    settings = load_settings(redis_url=valkey.url, routes=json.dumps(routes))
    with Client(settings=settings) as client:
        assert client.put_policy(Policy(name="a", match="hook.eu.*", max_in_flight=8)).changed
        with pytest.raises(InvalidMessage, match="route streams"):
            client.put_policy(Policy(name="b", match="hook*", max_in_flight=8))


def test_what_stands_in_redis_is_the_same_text_for_the_same() -> None:
    assert Pause(match="a", reason="x", until=5, since=7, stored="y").text == '{"reason":"x","until":5}'
    assert Policy(name="p", match="a", rate=1, since=7).text == '{"match":"a","rate":1.0}'
    assert Change(Policy(name="p").field, "").field == "policy:p"


@pytest.mark.parametrize("refused", [StoreRefused("no HMGET"), NotDone("READONLY"), StoreUnavailable("away")])
@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.pause("orders.*"),
        lambda client: client.resume("sms", rate=1.0),
        lambda client: client.put_policy(Policy(name="few", match="orders.*", rate=5.0)),
        lambda client: client.delete_policy("old"),
    ],
)
def test_no_error_behind_a_change_says_that_nothing_was_done(
    client: Client, monkeypatch: pytest.MonkeyPatch, change: Callable[[Client], Any], refused: StoreError
) -> None:
    client.pause("sms")
    client.put_policy(Policy(name="old", match="sms", rate=5.0))
    run_many = client.store.run_many

    def refusing(wanted: Any) -> Any:
        return [refused if one.script == "apply_policies" else run_many([one])[0] for one in wanted]

    before = client.policies()
    with monkeypatch.context() as patched:
        patched.setattr(client.store, "run_many", refusing)
        with pytest.raises(StoreUnavailable) as told:
            change(client)
    assert (type(told.value), str(told.value)) == (StoreUnavailable, str(refused))
    assert client.policies() != before
    change(client)
    assert state(client.store, 0, "policies") == state(client.store, 1, "policies") == client.policies().version


@pytest.mark.parametrize("unread", ["get", "ZSCORE", "HGETALL"])
def test_a_change_of_a_held_message_is_answered_where_nobody_can_read_what_holds_it(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, unread: str
) -> None:
    q = Queue(client.store, valkey, number=1)
    id = next(id for id in map(str, range(40)) if Layout(2).queue_of(id) == 1)
    q.given(row(id, topic="sms", at=1))
    client.store.run(commands.park(q.keys, EPOCH, "h:sms", taken(q.pull())))
    client.pause("sms")
    run_many = client.store.run_many
    past = partial(client.reschedule, id, expect_date=1_700_000_000_000)
    assert (told := past()).result == "held" and "paused by sms" in str(told.reason)

    def refusing(wanted: Any) -> Any:
        return [NotDone() if unread in (one.script, *one.args[:1]) else run_many([one])[0] for one in wanted]

    monkeypatch.setattr(client.store, "run_many", refusing)
    assert past().result in ("parked", "held")
    if unread != "get":
        assert client.deliver_now(id).result == "held"
