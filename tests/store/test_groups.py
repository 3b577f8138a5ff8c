"""The records of consumer groups, and how far a group is: compared with what Redis itself lists of its stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from delayq import Client, InvalidMessage, OtherFilter, StoreError
from delayq.client import known_groups
from delayq.client.audit import By
from delayq.client.consuming import receiving
from delayq.client.consuming.entries import Leased
from delayq.client.consuming.groups import given_consumer
from delayq.client.consuming.settling import Settlement
from delayq.client.looking.groups import ConsumerGroup
from delayq.config import load_settings
from delayq.domain.routes import Route, Routes
from delayq.store import commands
from delayq.store.commands import (
    Act,
    Command,
    Forgotten,
    GroupLag,
    GroupRecord,
    Lease,
    OldestEntry,
    ReceivedEntries,
    UnknownGroup,
)
from delayq.store.keys import KEYS, Layout
from tests.support.queues import Queue
from tests.support.servers import ServerUnderTest

STREAM, GROUP = "orders", "mail"
OWN_KEYS = KEYS.consumers(STREAM, GROUP)
CALLS = (f"call-{n}" for n in count())
RECORD = GroupRecord(topic="orders", group="mail", stream="orders", since=1_000)
SHARED = GroupRecord(topic="orders", group="mail", stream="own orders", queues=(0, 15), since=1_000)
ENTRY = '100 100000 {"actor":"ada","action":"deleteGroup"}'


def append(q: Queue, id: str, at: int) -> None:
    q.server.admin.xadd(STREAM, {"id": id, "due": str(at - 7), "body": "b"}, id=f"{at}-0")


def receive(q: Queue, now: int, most: int = 10, lease: int = 100, start: str = "0") -> list[Lease]:
    found = q.run(commands.receive(OWN_KEYS, GROUP, next(CALLS), most, lease, start=start, now=now))
    assert isinstance(found, ReceivedEntries)
    return [one.lease for one in found.entries]


def lag(q: Queue, now: int) -> GroupLag | None:
    (found,) = q.run(commands.group_lags(KEYS, STREAM, [GROUP], now=now))
    return found


# -- how far a group is --------------------------------------------------------------------------------------------------


def test_a_group_that_the_stream_does_not_have_is_unknown_once_there_are_entries(q: Queue) -> None:
    nothing = GroupLag(waiting=0, pending=0, handed_back=0, filter=(), last_receive=None, ready=None, oldest=None)
    assert q.run(commands.group_lags(KEYS, STREAM, [GROUP, "other"], now=1)) == [nothing, nothing]
    append(q, "a", 1_000)
    receive(q, 2_000)
    assert [found is None for found in q.run(commands.group_lags(KEYS, STREAM, ["other", GROUP], now=1))] == [
        True,
        False,
    ]


def test_what_waits_what_is_leased_and_what_was_handed_back_are_counted(q: Queue) -> None:
    for n, id in enumerate("abcde"):
        append(q, id, 1_000 + n)
    leases = receive(q, 2_000, 4, lease=500)
    acts = [Act("ack", leases[0]), Act("back", leases[1], 900), Act("release", leases[2])]
    for _ in range(2):  # a repeated call counts nothing twice
        q.run(commands.settle_received(OWN_KEYS, GROUP, acts, now=2_100))
    found = lag(q, 2_050)
    assert found is not None
    assert (found.waiting, found.pending, found.handed_back) == (1, 3, 2)
    assert found.oldest == OldestEntry("1001-0", "b", 994, "handedBack")
    assert found.ready == 1_004
    assert len(receive(q, 2_100, 1)) == 1
    after = lag(q, 2_100)
    assert after is not None
    assert (after.waiting, after.pending, after.handed_back) == (1, 3, 1)


def test_a_message_is_ready_from_its_delivery_or_from_the_end_of_its_lease_or_pause(q: Queue) -> None:
    append(q, "a", 1_000)
    receive(q, 2_000, lease=500)

    def ready(now: int) -> int | None:
        found = lag(q, now)
        assert found is not None
        return found.ready

    assert [ready(now) for now in (2_000, 2_499, 2_500, 9_000)] == [None, None, 2_500, 2_500]
    append(q, "b", 2_400)
    assert ready(2_400) == 2_400


def test_the_filter_of_the_group_and_when_it_received_are_shown(q: Queue) -> None:
    append(q, "a", 1_000)
    before = q.run(commands.redis_now())
    q.run(commands.receive(OWN_KEYS, GROUP, "c", 10, 100, tags=("paid", "void"), now=2_000))
    found = lag(q, 2_000)
    assert found is not None
    assert found.filter == ("paid", "void")
    assert found.last_receive is not None
    assert before - 1 <= found.last_receive <= q.run(commands.redis_now())


def test_a_number_that_redis_has_lost_is_counted_or_unknown_and_never_zero(q: Queue) -> None:
    """A group that began in the middle of its stream: Redis does not know how many entries are behind it."""
    for n in range(120):
        append(q, f"m{n}", 1_000 + n)
    receive(q, 2_000, 1, start="1009-0")
    info = q.server.admin.xinfo_groups(STREAM)[0]
    assert info["lag"] is None
    found = lag(q, 2_000)
    assert found is not None
    assert found.waiting is None
    receive(q, 2_000, 10)
    found = lag(q, 2_000)
    assert found is not None
    assert found.waiting == 99


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append")),
        st.tuples(st.just("receive"), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.sampled_from([1, 100, 500])),
        st.tuples(st.sampled_from(["ack", "extend", "back", "release"]), st.integers(0, 9)),
        st.tuples(st.just("trim"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 9)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, start=st.sampled_from(["0", "$", "10002-0"]))
def test_the_lag_of_a_random_life_is_what_redis_lists(q: Queue, steps: list[tuple[Any, ...]], start: str) -> None:
    q.server.flush()
    admin, now, leases = q.server.admin, 10_000, list[Lease]()
    for name, *values in steps:
        now += 1
        if name == "append":
            append(q, f"m{now}", now)
        elif name == "receive":
            leases += receive(q, now, values[0], start=start)
        elif name == "wait":
            now += values[0]
        elif name == "trim":
            admin.xtrim(STREAM, maxlen=values[0], approximate=False)
        elif name == "delete" and (entries := admin.xrange(STREAM)):
            admin.xdel(STREAM, entries[values[0] % len(entries)][0])
        elif name in ("ack", "extend", "back", "release") and leases:
            q.run(commands.settle_received(OWN_KEYS, GROUP, [Act(name, leases[values[0] % len(leases)], 50)], now=now))
        assert_like_redis(q, now)


def assert_like_redis(q: Queue, now: int) -> None:
    """Compare the lag with the entries of the stream and the pending ones of the group."""
    admin, found = q.server.admin, lag(q, now)
    if not admin.exists(OWN_KEYS.consumers):
        assert (found is None) == bool(admin.exists(STREAM) and admin.xlen(STREAM))
        return
    assert found is not None
    last = admin.xinfo_groups(STREAM)[0]["last-delivered-id"].decode()
    entries = [id.decode() for id, _ in admin.xrange(STREAM)]
    waiting = [id.decode() for id, _ in admin.xrange(STREAM, min=f"({last}")]
    pending = [one["message_id"].decode() for one in admin.xpending_range(STREAM, GROUP, "-", "+", 100)]
    states = {id.decode(): text[:1] for id, text in admin.hgetall(OWN_KEYS.consumers).items()}
    for name, record in admin.hgetall(OWN_KEYS.consumers).items():
        if name.startswith(b"call:"):  # Redis knows only the first entry of a call as pending
            _, *ids = record.decode().split()
            assert ids[0] in pending
            states |= dict.fromkeys(ids, b"L")
            pending += ids[1:]
    assert (found.waiting, found.pending) == (len(waiting), len(pending))
    assert found.handed_back == sum(text == b"H" for text in states.values())
    left = [id for id in entries if id in pending or id in waiting]
    if not left:
        assert found.oldest is None
        return
    assert found.oldest is not None
    state = {b"L": "leased", b"H": "handedBack"}[states[left[0]]] if left[0] in pending else "waiting"
    assert (found.oldest.entry, found.oldest.state) == (left[0], state)
    assert found.oldest.id == f"m{found.oldest.place[0]}"


# -- the records ---------------------------------------------------------------------------------------------------------


def test_a_group_is_recorded_once_and_keeps_the_time_of_its_first_record(q: Queue) -> None:
    assert q.run(commands.consumer_groups(KEYS)) == []
    for now in (1_000, 2_000):
        assert q.run(commands.record_group(KEYS, RECORD, now=now))
        assert q.run(commands.record_group(KEYS, SHARED, now=now))
    assert q.run(commands.consumer_groups(KEYS)) == [RECORD, SHARED]
    assert RECORD.streams(KEYS) == ["orders"]
    assert SHARED.streams(KEYS)[:2] == ["delayq:{0}:stream:own orders", "delayq:{1}:stream:own orders"]
    assert len(SHARED.streams(KEYS)) == 16


FOREIGN = ["notanumber", "1 2", "9" * 400, "9" * 15, "1 0 999999999", "1 9 2", "1 -2 3", "", "\xff", "１"]


@pytest.mark.parametrize("value", FOREIGN)
def test_a_record_that_somebody_else_wrote_names_a_group_and_is_replaced_or_forgotten(q: Queue, value: str) -> None:
    for field in ("junk", "a b", b"\xff \xff \xff", "a  b", "a b ", "a/b c d"):
        q.server.admin.hset(KEYS.groups, field, "1")
    q.run(commands.record_group(KEYS, RECORD, now=1_000))
    q.server.admin.hset(KEYS.groups, "orders sms orders", value)
    other = replace(RECORD, group="sms", since=0, foreign=value.encode())
    assert [(one.field, one.since) for one in q.run(commands.consumer_groups(KEYS))] == [
        (RECORD.field, 1_000),
        (other.field, 0),
    ]
    assert q.run(commands.group_queues(KEYS, other.field)) is None
    q.server.admin.hset(KEYS.makings, other.field, "junk")
    assert q.run(commands.record_group(KEYS, other, "name", now=2_000)) == "made"
    _, found = q.run(commands.consumer_groups(KEYS))
    assert found == replace(RECORD, group="sms", since=found.since)
    assert found.since in (1, 2_000), "the time of the record if it has one, else now"
    q.server.admin.hset(KEYS.groups, other.field, value)
    (found,) = [one for one in q.run(commands.consumer_groups(KEYS)) if one.group == "sms"]
    assert q.run(commands.forget_group(KEYS, [found], ["junk"])) == Forgotten(1, 0)


@pytest.mark.parametrize("value", [b"x", b"1 2 3", b"\xff", b"1 2 3-0 \xff"])
def test_fields_of_a_group_that_somebody_else_wrote_keep_no_lag_from_being_read(q: Queue, value: bytes) -> None:
    append(q, "a", 1_000)
    receive(q, 2_000)
    for name in ("foreign", "filter", "handedBack", "inCalls"):
        q.server.admin.hset(OWN_KEYS.consumers, name, value)
    found = lag(q, 3_000)
    assert found is not None
    assert (found.waiting, found.pending) == (0, 1)


def test_queues_of_an_older_layout_stay_in_the_record(q: Queue) -> None:
    for first, last in ((16, 79), (0, 15), (20, 30)):
        record = GroupRecord(topic="orders", group="mail", stream="orders", queues=(first, last))
        assert q.run(commands.record_group(KEYS, record, now=1_000))
    (found,) = q.run(commands.consumer_groups(KEYS))
    assert (found.queues, found.since) == ((0, 79), 1_000)


def test_groups_are_bounded_and_a_recorded_one_is_never_refused(q: Queue) -> None:
    assert q.run(commands.record_group(KEYS, RECORD, most=1, now=1_000))
    other = GroupRecord(topic="orders", group="sms", stream="orders")
    assert q.run(commands.record_group(KEYS, other, most=1, now=1_000)) == "full"
    assert q.run(commands.record_group(KEYS, RECORD, most=1, now=1_000))
    assert q.run(commands.consumer_groups(KEYS)) == [RECORD]


def test_a_call_without_a_start_makes_no_group(q: Queue) -> None:
    append(q, "a", 1_000)
    asked = commands.receive(OWN_KEYS, GROUP, "c", 10, 100, start="", now=2_000)
    assert q.run(asked) == UnknownGroup("1000-0")
    assert q.server.admin.xinfo_groups(STREAM) == []
    receive(q, 2_000)
    assert isinstance(q.run(asked), ReceivedEntries)


def test_a_deleted_group_leaves_nothing_but_its_stream_and_an_entry_of_the_audit(q: Queue) -> None:
    append(q, "a", 1_000)
    q.run(commands.record_group(KEYS, RECORD, now=1_000))
    (lease,) = receive(q, 2_000)
    q.run(commands.settle_received(OWN_KEYS, GROUP, [Act("back", lease, 900)], now=2_100))
    for deleted in (True, False):
        assert q.run(commands.destroy_group(OWN_KEYS, GROUP)) is deleted
        making = q.run(commands.group_making(KEYS, RECORD.field))
        assert q.run(commands.forget_group(KEYS, [RECORD], [making], entry=ENTRY)) == Forgotten(deleted, 0)
    assert set(map(bytes.decode, q.server.admin.scan_iter())) == {STREAM, KEYS.audit}
    assert [fields[b"on"] for _, fields in q.server.admin.xrange(KEYS.audit)] == [b"orders mail"]
    assert len(receive(q, 3_000)) == 1


@pytest.mark.parametrize("field", ["orders mail a stream", "orders mail orders"])
def test_a_record_has_topic_group_and_stream(q: Queue, field: str) -> None:
    q.server.admin.hset(KEYS.groups, field, "1000")
    (found,) = q.run(commands.consumer_groups(KEYS))
    assert (found.topic, found.group, found.stream) == tuple(field.split(" ", 2))


# -- the calls of a client -----------------------------------------------------------------------------------------------

TOPIC = "orders.paid"


def entry(server: ServerUnderTest, id: str, stream: str = TOPIC) -> None:
    server.admin.xadd(stream, {"id": id, "topic": TOPIC, "tags": "", "body": id, "due": "1000"})


def one_group(client: Client, **options: Any) -> ConsumerGroup:
    (found,) = client.consumers(**options)
    return found


def test_the_first_call_records_its_group_and_later_ones_send_no_more_than_before(
    client: Client, valkey: ServerUnderTest
) -> None:
    entry(valkey, "a")
    entry(valkey, "b")
    assert client.consumers() == []
    (got,) = client.receive(TOPIC, group="mail", max=1)
    found = one_group(client)
    assert (found.topic, found.group, found.lag, found.waiting, found.leased) == (TOPIC, "mail", 2, 1, 1)
    assert found.oldest is not None
    assert (found.oldest.id, found.oldest.due, found.oldest.state) == ("a", 1_000, "leased")
    client.ack(got)
    before = valkey.admin.info("commandstats")["cmdstat_evalsha"]["calls"]
    client.receive(TOPIC, group="mail", max=1)
    assert valkey.admin.info("commandstats")["cmdstat_evalsha"]["calls"] == before + 1


def test_groups_are_listed_by_topic_and_name_and_chosen_by_a_pattern(client: Client) -> None:
    for topic, group in (("orders.b", "mail"), ("orders.a", "sms"), ("bills", "mail"), ("orders.a", "mail")):
        client.receive(topic, group=group)
    named = [(one.topic, one.group) for one in client.consumers()]
    assert named == [("bills", "mail"), ("orders.a", "mail"), ("orders.a", "sms"), ("orders.b", "mail")]
    assert [one.topic for one in client.consumers(match="orders.b*")] == ["orders.b"]
    assert [one.lag for one in client.consumers()] == [0, 0, 0, 0]


def test_groups_are_listed_deleted_and_received_beside_records_that_somebody_else_wrote(
    client: Client, valkey: ServerUnderTest
) -> None:
    entry(valkey, "a")
    client.receive(TOPIC, group="mail")
    valkey.admin.hset(
        KEYS.groups, mapping={"junk": "1", f"{TOPIC} sms {TOPIC}": "junk", f"{TOPIC} fax {TOPIC}": "junk"}
    )
    assert [one.group for one in client.consumers()] == ["fax", "mail", "sms"]
    assert [one.id for one in client.receive(TOPIC, group="sms")] == ["a"]
    assert client.delete_group(TOPIC, "fax").changed
    assert client.delete_group(TOPIC, "mail").changed
    assert [(one.group, one.since > 0) for one in client.consumers()] == [("sms", True)]


def test_a_group_of_the_streams_of_queues_is_one_group(valkey: ServerUnderTest) -> None:
    routes = Routes([Route(name="own", per_queue=True)])
    with Client(settings=load_settings(redis_url=valkey.url, queues=4), routes=routes) as client:
        for number in range(4):
            entry(valkey, f"m{number}", f"delayq:{{{number}}}:stream:{TOPIC}")
        got = client.receive(TOPIC, group="mail", max=8)
        assert len(got) == 4
        client.hand_back(got[0], delay_time="1h")
        client.ack(got[1])
        found = one_group(client)
        assert (found.waiting, found.leased, found.handed_back, found.lag) == (0, 2, 1, 3)
        entry(valkey, "new", f"delayq:{{2}}:stream:{TOPIC}")
        assert one_group(client).waiting == 1
        (record,) = client.store.run(commands.consumer_groups(KEYS))
        assert (record.stream, record.queues) == (TOPIC, (0, 3))
        assert client.delete_group(TOPIC, "mail").changed
        assert [valkey.admin.xinfo_groups(stream) for stream in record.streams(KEYS)] == [[]] * 4


def test_a_stream_that_the_group_cannot_read_yet_makes_its_lag_unknown(client: Client, valkey: ServerUnderTest) -> None:
    client.receive(TOPIC, group="mail")
    assert one_group(client).lag == 0
    valkey.admin.xgroup_destroy(TOPIC, "mail")
    entry(valkey, "a")
    assert one_group(client).lag is None


def test_a_deleted_group_is_new_at_its_next_call(client: Client, valkey: ServerUnderTest) -> None:
    entry(valkey, "a")
    client.ack(*client.receive(TOPIC, group="mail"))
    by = By(actor="ada", reason="unused")
    assert [client.delete_group(TOPIC, "mail", by=by).changed for _ in range(2)] == [True, False]
    assert client.consumers() == []
    (entry_of_audit,) = client.audit().entries
    assert (entry_of_audit.change.action, entry_of_audit.change.detail) == ("deleteGroup", f"{TOPIC} mail")
    assert [one.id for one in client.receive(TOPIC, group="mail")] == ["a"]
    assert one_group(client).lag == 1


def test_a_group_that_is_one_too_many_is_refused_and_not_made(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.receive(TOPIC, group="mail")
    monkeypatch.setattr(commands, "record_group", partial(commands.record_group, most=1))
    with pytest.raises(InvalidMessage, match="delete one"):
        client.receive(TOPIC, group="sms")
    client.receive(TOPIC, group="mail")
    assert [one["name"] for one in valkey.admin.xinfo_groups(TOPIC)] == [b"mail"]


# -- several streams, groups that are gone, deletes -----------------------------------------------------------------------

PER_QUEUE = Routes([Route(name="own", per_queue=True)])


def own_stream(number: int) -> str:
    return f"delayq:{{{number}}}:stream:{TOPIC}"


@pytest.fixture
def queues(valkey: ServerUnderTest) -> Iterator[Client]:
    """A client of streams of four queues."""
    with Client(settings=load_settings(redis_url=valkey.url, queues=4), routes=PER_QUEUE) as made:
        made.context()
        yield made


def received(client: Client, **options: Any) -> list[str]:
    given: dict[str, Any] = {"group": "mail", "max": 100} | options
    return sorted(one.id for one in client.receive(TOPIC, **given))


def reshard(client: Client, to: int) -> None:
    layouts = client.context().layouts
    first = layouts.known[-1].first + layouts.known[-1].queues
    (listed,) = client.store.run_many([commands.layouts(KEYS)])
    assert not isinstance(listed, StoreError)
    newer = (*listed, Layout(to, first))
    assert client.store.run(commands.set_layouts(KEYS, listed, newer))
    layouts.take(newer)


@pytest.mark.parametrize("start", ["beginning", "end"])
def test_the_first_call_makes_the_group_in_all_streams_however_few_messages_it_receives(
    queues: Client, valkey: ServerUnderTest, start: str
) -> None:
    for number in range(4):
        entry(valkey, f"old {number}", own_stream(number))
    first = received(queues, max=1, start=start)
    assert [len(valkey.admin.xinfo_groups(own_stream(number))) for number in range(4)] == [1] * 4
    for number in range(4):
        entry(valkey, f"new {number}", own_stream(number))
    old = [f"old {number}" for number in range(4)] if start == "beginning" else []
    assert sorted(first + received(queues, start=start)) == sorted(old + [f"new {number}" for number in range(4)])


@pytest.mark.parametrize("start", ["end", "2100-01-01T00:00:00Z"])
def test_a_known_group_begins_at_the_beginning_of_the_streams_of_a_reshard(
    queues: Client, valkey: ServerUnderTest, start: str
) -> None:
    assert received(queues, start=start) == []
    for to in (8, 16):
        reshard(queues, to)
        last = queues.context().layouts.known[-1]
        for number in last.numbers:
            entry(valkey, f"m{number}", own_stream(number))
        assert received(queues, start=start) == sorted(f"m{number}" for number in last.numbers)
    (record,) = queues.store.run(commands.consumer_groups(KEYS))
    assert record.queues == (0, 27)


def test_messages_in_the_streams_of_a_layout_that_was_removed_are_received_and_acknowledged(
    queues: Client, valkey: ServerUnderTest
) -> None:
    assert received(queues) == []
    for number in range(4):
        entry(valkey, f"m{number}", own_stream(number))
    reshard(queues, 8)
    listed = queues.context().layouts.known
    assert queues.store.run(commands.set_layouts(KEYS, listed, listed[1:]))
    settings = load_settings(redis_url=valkey.url, queues=8)
    with Client(settings=settings, routes=PER_QUEUE) as later:
        got = later.receive(TOPIC, group="mail", max=100)
        assert sorted(one.id for one in got) == ["m0", "m1", "m2", "m3"]
        assert {one.result for one in later.ack(*got)} == {"acknowledged"}
        assert one_group(later).lag == 0


def test_a_topic_whose_route_has_another_stream_keeps_its_groups(valkey: ServerUnderTest) -> None:
    with Client(valkey.url) as before:
        assert received(before, start="end") == []
    with Client(valkey.url, routes=Routes([Route(name="other", stream="new.{topic}")])) as client:
        entry(valkey, "a", f"new.{TOPIC}")
        assert received(client, start="end") == ["a"]


@pytest.mark.parametrize("how", ["destroyed", "deleted", "renamed", "expired"])
@pytest.mark.parametrize("start", ["beginning", "end"])
def test_a_group_that_is_gone_from_its_stream_is_made_again_and_receives_what_is_there(
    client: Client, valkey: ServerUnderTest, how: str, start: str
) -> None:
    received(client, start=start)
    entry(valkey, "a")
    (held,) = client.receive(TOPIC, group="mail", start=start)
    admin = valkey.admin
    {
        "destroyed": lambda: admin.xgroup_destroy(TOPIC, "mail"),
        "deleted": lambda: admin.delete(TOPIC),
        "renamed": lambda: admin.rename(TOPIC, "elsewhere"),
        "expired": lambda: admin.pexpire(TOPIC, 0),
    }[how]()
    entry(valkey, "b")
    assert [one.result for one in (*client.ack(held), client.extend(held), client.hand_back(held))] == ["lost"] * 3
    expected = ["a", "b"] if how == "destroyed" else ["b"]
    got = client.receive(TOPIC, group="mail", start=start)
    assert [one.id for one in got] == expected
    assert [one.result for one in client.ack(held)] == ["lost"]
    assert {one.result for one in client.ack(*got)} == {"acknowledged"}
    assert one_group(client).lag == 0
    assert client.delete_group(TOPIC, "mail").changed


def test_a_group_is_made_again_though_one_of_its_leases_has_ended_or_a_call_is_repeated(
    client: Client, valkey: ServerUnderTest
) -> None:
    entry(valkey, "a")
    keys = KEYS.consumers(TOPIC, "mail")
    consumer = given_consumer(TOPIC, "mail", "beginning", ())
    client.run(lambda context: receiving.receive(context, consumer, 10, 1_000, "again"))
    valkey.admin.zadd(keys.leases, {"call:again": 1}, xx=True)
    valkey.admin.xgroup_destroy(TOPIC, "mail")
    page = client.run(lambda context: receiving.receive(context, consumer, 10, 1_000, "other"))
    assert [one.id for one in page.messages] == ["a"]
    assert page.messages[0].deliveries == 1


def test_a_key_of_another_type_in_place_of_the_stream_is_named(client: Client, valkey: ServerUnderTest) -> None:
    entry(valkey, "a")
    (held,) = client.receive(TOPIC, group="mail")
    client.receive("bills", group="mail")
    valkey.admin.delete(TOPIC)
    valkey.admin.set(TOPIC, "a text")
    for group in ("mail", "new"):
        with pytest.raises(InvalidMessage, match=f"'{TOPIC}'.*is no stream; rename or delete the key"):
            client.receive(TOPIC, group=group)
    assert [one.result for one in (*client.ack(held), client.extend(held))] == ["lost"] * 2
    assert [(one.topic, one.lag) for one in client.consumers()] == [("bills", 0), (TOPIC, None)]
    assert client.delete_group(TOPIC, "mail").changed
    assert [one.topic for one in client.consumers()] == ["bills"]


def test_a_group_whose_record_is_lost_is_recorded_again(client: Client, valkey: ServerUnderTest) -> None:
    assert received(client, start="end") == []
    valkey.admin.delete(KEYS.groups, KEYS.makings)
    entry(valkey, "a")
    with Client(valkey.url) as other:
        assert received(other, start="end") == ["a"]
    assert one_group(client).lag == 1


def test_a_client_looks_for_the_record_of_its_group_once_a_minute(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    received(client)
    valkey.admin.delete(KEYS.groups)
    received(client)
    assert client.consumers() == []
    monkeypatch.setattr(known_groups, "LOOK_EVERY", 0)
    received(client)
    assert one_group(client).lag == 0


def test_first_calls_at_once_with_different_filters_make_one_group_with_one_filter(
    queues: Client, valkey: ServerUnderTest
) -> None:
    record = GroupRecord(topic=TOPIC, group="mail", stream=TOPIC, queues=(0, 3))
    queues.store.run(commands.record_group(KEYS, record, "other", tags=("paid",)))  # another call has come so far
    with pytest.raises(OtherFilter, match="paid"):
        received(queues, tags=("void",))
    assert [valkey.admin.exists(own_stream(number)) for number in range(4)] == [0] * 4
    assert received(queues, tags=("paid",)) == []


class Between:
    """Runs a function once before a script of a store, as if another process had come in between."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch, script: str, act: Callable[[], object]) -> None:
        self._script, self._act, self._real = script, act, store.run_many
        self._done = False
        monkeypatch.setattr(store, "run_many", self._run)

    def _run(self, asked: Iterable[Command[Any]]) -> Any:
        wanted = list(asked)
        if not self._done and any(one.script == self._script for one in wanted):
            self._done = True
            self._act()
        return self._real(wanted)


def test_a_group_that_consumers_make_again_during_its_delete_has_a_record(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry(valkey, "a")
    received(client)
    with Client(valkey.url) as other:
        Between(client.store, monkeypatch, "forget_group", lambda: received(other))
        assert client.delete_group(TOPIC, "mail").changed
        assert client.consumers() == [], "the second try has deleted the group that was made meanwhile"
        assert valkey.admin.xinfo_groups(TOPIC) == []
        assert received(other) == ["a"]
        assert one_group(client).lag == 1


def test_two_deletes_at_once_leave_no_group_without_a_record(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    received(client)
    with Client(valkey.url) as other:

        def delete_and_receive() -> None:
            assert other.delete_group(TOPIC, "mail").changed
            received(other)

        Between(client.store, monkeypatch, "destroy_group", delete_and_receive)
        client.delete_group(TOPIC, "mail")
        groups = [one["name"] for one in valkey.admin.xinfo_groups(TOPIC)]
        assert (groups == []) == (client.consumers() == [])
        entry(valkey, "a")
        assert received(other) == ["a"]
        assert one_group(client).lag == 1


def test_a_delete_while_a_first_call_makes_the_group_leaves_a_group_with_its_record(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry(valkey, "a")
    with Client(valkey.url) as other:
        calls = count(1)

        def delete() -> None:
            other.delete_group(TOPIC, "mail")

        real = client.store.run_many

        def run(asked: Iterable[Command[Any]]) -> Any:
            wanted = list(asked)
            if any(one.script == "record_group" for one in wanted) and next(calls) == 2:
                delete()  # between the group and its second record
            return real(wanted)

        monkeypatch.setattr(client.store, "run_many", run)
        assert received(client) == ["a"]
    assert one_group(client).lag == 1


def test_one_api_key_makes_a_bounded_number_of_groups_and_others_still_make_theirs(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "record_group", partial(commands.record_group, most_of_key=2))

    def receive_by(key: str, group: str) -> None:
        consumer = replace(given_consumer(TOPIC, group, "beginning", ()), key=key)
        client.run(lambda context: receiving.receive(context, consumer, 1, 30_000))

    for group in ("one", "two"):
        receive_by("ada", group)
    with pytest.raises(InvalidMessage, match="this API key has made 100 consumer groups"):
        receive_by("ada", "three")
    receive_by("bob", "three")
    receive_by("ada", "one")
    client.delete_group(TOPIC, "one")
    receive_by("ada", "four")
    receive_by("", "five")
    assert sorted(one.group for one in client.consumers()) == ["five", "four", "three", "two"]


# -- leases that never were ----------------------------------------------------------------------------------------------


def settled(client: Client, message: Leased) -> list[str]:
    return [one.result for one in (*client.ack(message), client.extend(message), client.hand_back(message))]


def test_a_lease_of_no_group_is_not_found_and_one_that_never_was_is_lost(
    client: Client, valkey: ServerUnderTest
) -> None:
    for id in "abc":
        entry(valkey, id)
    (a, b) = client.receive(TOPIC, group="mail", max=2)
    client.receive(TOPIC, group="sms", max=3)
    client.receive("bills", group="mail")
    place, at, call, mark = a.lease.split(".")
    assert settled(client, replace(a, group="mial")) == ["notFound"] * 3
    assert settled(client, replace(a, topic="orders.none")) == ["notFound"] * 3
    assert settled(client, replace(a, topic="bills")) == ["lost"] * 3
    assert settled(client, replace(a, group="sms")) == ["lost"] * 3
    for lease in (
        ".1-1.nobody",
        f"{place}.{at}.nobody.{mark}",
        f"{place}.{at}.nobody",
        f"7.{at}.{call}.{mark}",
    ):
        assert settled(client, replace(a, lease=lease)) == ["lost"] * 3
    for _ in range(2):
        assert [one.result for one in client.ack(a, b)] == ["acknowledged"] * 2
    assert settled(client, replace(a, group="sms")) == ["lost"] * 3
    client.ack(*client.receive(TOPIC, group="sms"))
    assert client.ack(replace(a, group="sms")) == [Settlement("lost")], "it is the lease of another group"


def test_a_lease_from_before_its_group_was_deleted_acknowledges_nothing(
    client: Client, valkey: ServerUnderTest
) -> None:
    for id in "abc":
        entry(valkey, id)
    before = client.receive(TOPIC, group="mail")
    client.delete_group(TOPIC, "mail")
    assert settled(client, before[0]) == ["notFound"] * 3
    (again,) = client.receive(TOPIC, group="mail", max=1)
    assert [one.result for one in client.ack(*before)] == ["lost"] * 3
    client.ack(again)
    assert [one.result for one in client.ack(*before)] == ["lost"] * 3
    assert received(client) == ["b", "c"]
    assert settled(client, before[1]) == ["lost"] * 3


def test_a_lease_of_a_former_version_is_settled_by_its_record(client: Client, valkey: ServerUnderTest) -> None:
    for id in "ab":
        entry(valkey, id)
    got = client.receive(TOPIC, group="mail")
    former = [replace(one, lease=one.lease.rpartition(".")[0]) for one in got]
    assert client.extend(former[0], "1m").result == "extended"
    assert [one.result for one in client.ack(*former)] == ["acknowledged"] * 2
