"""The records of consumer groups, and how far a group is: compared with what Redis itself lists of its stream."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayq import Client, InvalidMessage
from delayq.client.audit import By
from delayq.client.looking.groups import ConsumerGroup
from delayq.config import load_settings
from delayq.routes import Route, Routes
from delayq.store import commands
from delayq.store.commands import Act, GroupLag, GroupRecord, Lease, OldestEntry, ReceivedEntries, UnknownGroup
from delayq.store.keys import AUDIT, GROUPS, ConsumerKeys
from tests.support.queues import Queue
from tests.support.servers import ServerUnderTest

STREAM, GROUP = "orders", "mail"
KEYS = ConsumerKeys(STREAM, GROUP)
CALLS = (f"call-{n}" for n in count())
RECORD = GroupRecord(topic="orders", group="mail", stream="orders", since=1_000)
SHARED = GroupRecord(topic="orders", group="mail", stream="own orders", queues=(0, 15), since=1_000)
ENTRY = '100 100000 {"actor":"ada","action":"deleteGroup"}'


def append(q: Queue, id: str, at: int) -> None:
    q.server.admin.xadd(STREAM, {"id": id, "due": str(at - 7), "body": "b"}, id=f"{at}-0")


def receive(q: Queue, now: int, most: int = 10, lease: int = 100, start: str = "0") -> list[Lease]:
    found = q.run(commands.receive(KEYS, GROUP, next(CALLS), most, lease, start=start, now=now))
    assert isinstance(found, ReceivedEntries)
    return [one.lease for one in found.entries]


def lag(q: Queue, now: int) -> GroupLag | None:
    (found,) = q.run(commands.group_lags(STREAM, [GROUP], now=now))
    return found


# -- how far a group is --------------------------------------------------------------------------------------------------


def test_a_group_that_the_stream_does_not_have_is_unknown_once_there_are_entries(q: Queue) -> None:
    nothing = GroupLag(waiting=0, pending=0, handed_back=0, filter=(), last_receive=None, ready=None, oldest=None)
    assert q.run(commands.group_lags(STREAM, [GROUP, "other"], now=1)) == [nothing, nothing]
    append(q, "a", 1_000)
    receive(q, 2_000)
    assert [found is None for found in q.run(commands.group_lags(STREAM, ["other", GROUP], now=1))] == [True, False]


def test_what_waits_what_is_leased_and_what_was_handed_back_are_counted(q: Queue) -> None:
    for n, id in enumerate("abcde"):
        append(q, id, 1_000 + n)
    leases = receive(q, 2_000, 4, lease=500)
    acts = [Act("ack", leases[0]), Act("back", leases[1], 900), Act("release", leases[2])]
    for _ in range(2):  # a repeated call counts nothing twice
        q.run(commands.settle_received(KEYS, GROUP, acts, now=2_100))
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
    q.run(commands.receive(KEYS, GROUP, "c", 10, 100, tags=("paid", "void"), now=2_000))
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
            q.run(commands.settle_received(KEYS, GROUP, [Act(name, leases[values[0] % len(leases)], 50)], now=now))
        assert_like_redis(q, now)


def assert_like_redis(q: Queue, now: int) -> None:
    """Compare the lag with the entries of the stream and the pending ones of the group."""
    admin, found = q.server.admin, lag(q, now)
    if not admin.exists(KEYS.consumers):
        assert (found is None) == bool(admin.exists(STREAM) and admin.xlen(STREAM))
        return
    assert found is not None
    last = admin.xinfo_groups(STREAM)[0]["last-delivered-id"].decode()
    entries = [id.decode() for id, _ in admin.xrange(STREAM)]
    waiting = [id.decode() for id, _ in admin.xrange(STREAM, min=f"({last}")]
    pending = [one["message_id"].decode() for one in admin.xpending_range(STREAM, GROUP, "-", "+", 100)]
    states = {id.decode(): text[:1] for id, text in admin.hgetall(KEYS.consumers).items()}
    for name, record in admin.hgetall(KEYS.consumers).items():
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
    assert q.run(commands.consumer_groups()) == []
    for now in (1_000, 2_000):
        assert q.run(commands.record_group(RECORD, now=now))
        assert q.run(commands.record_group(SHARED, now=now))
    assert q.run(commands.consumer_groups()) == [RECORD, SHARED]
    assert RECORD.streams == ["orders"]
    assert SHARED.streams[:2] == ["delayq:{0}:stream:own orders", "delayq:{1}:stream:own orders"]
    assert len(SHARED.streams) == 16


def test_queues_of_an_older_layout_stay_in_the_record(q: Queue) -> None:
    for first, last in ((16, 79), (0, 15), (20, 30)):
        record = GroupRecord(topic="orders", group="mail", stream="orders", queues=(first, last))
        assert q.run(commands.record_group(record, now=1_000))
    (found,) = q.run(commands.consumer_groups())
    assert (found.queues, found.since) == ((0, 79), 1_000)


def test_groups_are_bounded_and_a_recorded_one_is_never_refused(q: Queue) -> None:
    assert q.run(commands.record_group(RECORD, most=1, now=1_000))
    assert not q.run(commands.record_group(SHARED, most=1, now=1_000))
    assert q.run(commands.record_group(RECORD, most=1, now=1_000))
    assert q.run(commands.consumer_groups()) == [RECORD]


def test_a_call_without_a_start_makes_no_group(q: Queue) -> None:
    append(q, "a", 1_000)
    asked = commands.receive(KEYS, GROUP, "c", 10, 100, start="", now=2_000)
    assert q.run(asked) == UnknownGroup()
    assert q.server.admin.xinfo_groups(STREAM) == []
    receive(q, 2_000)
    assert isinstance(q.run(asked), ReceivedEntries)


def test_a_deleted_group_leaves_nothing_but_its_stream_and_an_entry_of_the_audit(q: Queue) -> None:
    append(q, "a", 1_000)
    q.run(commands.record_group(RECORD, now=1_000))
    (lease,) = receive(q, 2_000)
    q.run(commands.settle_received(KEYS, GROUP, [Act("back", lease, 900)], now=2_100))
    for deleted in (True, False):
        assert q.run(commands.destroy_group(KEYS, GROUP)) is deleted
        assert q.run(commands.forget_group([RECORD], entry=ENTRY)) is deleted
    assert set(map(bytes.decode, q.server.admin.scan_iter())) == {STREAM, AUDIT}
    assert [fields[b"on"] for _, fields in q.server.admin.xrange(AUDIT)] == [b"orders mail"]
    assert len(receive(q, 3_000)) == 1


@pytest.mark.parametrize("field", ["orders mail a stream", "orders mail orders"])
def test_a_record_has_topic_group_and_stream(q: Queue, field: str) -> None:
    q.server.admin.hset(GROUPS, field, "1000")
    (found,) = q.run(commands.consumer_groups())
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
        (record,) = client.store.run(commands.consumer_groups())
        assert (record.stream, record.queues) == (TOPIC, (0, 3))
        assert client.delete_group(TOPIC, "mail").changed
        assert [valkey.admin.xinfo_groups(stream) for stream in record.streams] == [[]] * 4


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
