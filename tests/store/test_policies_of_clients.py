"""Who schedules follows the policies that the queues have, whatever he knew before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from delayq import Client, Message, Scheduled, StoreUnavailable, TooManyPending
from delayq.client.known_policies import COUNT_EVERY
from delayq.client.looking.messages import count
from delayq.config import load_settings
from delayq.domain.message import tag_key, topic_key
from delayq.store import commands
from delayq.store.keys import KEYS, Layout, spread
from delayq.testing import ManualClock
from tests.support.policies import put_policy
from tests.support.servers import ServerUnderTest

AT, WINDOW = 2_000_000_000_000, 600_000
order = partial(Message, topic="orders")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(AT - 1_000_000_000)


@pytest.fixture
def client(valkey: ServerUnderTest, clock: ManualClock) -> Iterator[Client]:
    with Client(settings=load_settings(redis_url=valkey.url, queues=4), clock=clock) as made:
        made.context()
        yield made


def scheduled(client: Client, messages: list[Message]) -> list[Scheduled]:
    outcomes = client.schedule_many(messages)
    assert all(isinstance(one, Scheduled) for one in outcomes), outcomes
    return outcomes  # type: ignore[return-value]


MESSAGES = [
    order(expect_date=AT, id="plain", tags="vip guest"),
    order(expect_date=AT),
    order(expect_date=AT, ordering_key="k", keys=("mine",)),
    order(delay_time=1_000, id="relative"),
    order(expect_date=AT, id="own", window=7, expire_after=8),
    Message(topic="other", expect_date=AT, id="other"),
]


def test_a_client_that_does_not_know_them_yet_follows_them_with_this_very_call(client: Client) -> None:
    put_policy(client, window=WINDOW, expireAfter=5_000, index=["topic", "tags"])
    done = scheduled(client, MESSAGES)
    assert [one.window for one in done] == [WINDOW, WINDOW, WINDOW, WINDOW, 7, None]
    records = [found.record for one in done if (found := client.get(one.id)) is not None and found.record is not None]
    windows = zip(done[:3] + done[4:], (WINDOW, WINDOW, WINDOW, 7, 1), strict=True)
    assert [one.due for one in done[:3] + done[4:]] == [AT + spread(one.id, window) for one, window in windows]
    assert [one.asked for one in records] == [one.due for one in done]
    assert [one.expire_after for one in records] == [5_000, 5_000, 5_000, 5_000, 8, None]
    assert [one.keys for one in records] == [(), (), ("mine",), (), (), ()]
    indexed = [topic_key("orders"), tag_key("orders", "vip guest"), topic_key("other")]
    assert [client.read(partial(count, key=key)) for key in indexed] == [5, 1, 0]
    put_policy(client)  # takes it away
    ids = [one.id for one in done]
    again = scheduled(client, [given for given, id in zip(MESSAGES, ids, strict=True) if given.id is not None])
    assert [(one.created, one.window) for one in again] == [(False, None), (False, None), (False, 7), (False, None)]


def test_a_policy_that_was_lost_while_a_queue_has_it_stops_nobody(client: Client, valkey: ServerUnderTest) -> None:
    put_policy(client, window=WINDOW)
    valkey.admin.delete(KEYS.policies)
    assert [one.due for one in scheduled(client, MESSAGES[:1])] == [AT]
    put_policy(client, window=WINDOW)  # under a version that the queues think is old
    assert [one.due for one in scheduled(client, [order(expect_date=AT, id="b")])] == [AT]


def test_what_a_closed_queue_sends_on_follows_the_policies_of_the_next_layout(client: Client) -> None:
    layouts = (Layout(4), Layout(2, 4))
    assert client.store.run(commands.set_layouts(KEYS, client.context().layouts.known, layouts))
    for queue in range(4):
        client.store.run(commands.close(KEYS.queue(queue)))
    version = put_policy(client, window=WINDOW, apply=False)
    for queue in (4, 5):
        client.store.run(commands.apply_policies(KEYS.queue(queue), version, ()))
    (done,) = scheduled(client, [order(expect_date=AT, id="a")])
    assert (done.queue >= 4, done.due, done.window) == (True, AT + spread("a", WINDOW), WINDOW)


def test_no_more_may_wait_than_a_policy_says(client: Client, clock: ManualClock) -> None:
    put_policy(client, pending=3)
    given = [order(expect_date=AT, id=f"m{number}") for number in range(5)]
    outcomes = client.schedule_many([*given, Message(topic="other", expect_date=AT)])
    assert [type(one) for one in outcomes] == [Scheduled] * 3 + [TooManyPending] * 2 + [Scheduled]
    assert str(outcomes[3]) == "the topic orders has its maximum of 3 waiting messages and dead letters"
    assert client.cancel("m0").result == "cancelled"
    with pytest.raises(TooManyPending):  # it is counted once a second at most
        client.schedule(given[3])
    clock.advance(COUNT_EVERY)
    assert client.schedule(given[3]).created
    with pytest.raises(TooManyPending):
        client.schedule(given[4])
    put_policy(client, pending=10)
    clock.advance(COUNT_EVERY)
    assert client.schedule(given[4]).created


@pytest.mark.parametrize("away", ["HGETALL", "ZLEXCOUNT"])
def test_when_they_cannot_be_read_each_message_is_told_with_its_id(
    client: Client, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    put_policy(client, pending=3)
    run_many = client.store.run_many

    def losing(wanted: Any) -> Any:
        return [StoreUnavailable() if away in one.args else run_many([one])[0] for one in wanted]

    monkeypatch.setattr(client.store, "run_many", losing)
    outcomes: list[Any] = client.schedule_many([order(expect_date=AT), order(expect_date=AT, id="a")])
    assert [type(one) for one in outcomes] == [StoreUnavailable] * 2
    assert outcomes[0].id and outcomes[1].id == "a"


def test_a_change_that_follows_a_lost_one_has_a_greater_number_so_nobody_takes_it_for_the_lost_one(
    client: Client, valkey: ServerUnderTest
) -> None:
    client.pause("x.*")
    kept = {KEYS.policies: valkey.admin.dump(KEYS.policies)}
    kept |= {keys.state: valkey.admin.dump(keys.state) for keys in map(KEYS.queue, client.context().layouts.queues)}
    lost = client.pause("a.*").version
    for key, value in kept.items():  # as after a fail-over
        valkey.admin.restore(key, 0, value, replace=True)
    made = client.pause("b.*")
    assert (made.changed, made.version, sorted(client.policies().pauses)) == (True, lost + 1, ["b.*", "x.*"])
