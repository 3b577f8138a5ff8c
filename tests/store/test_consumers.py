"""What a consumer group receives of a stream, and what becomes of its leases, against a plain model."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayq.store import commands
from delayq.store.commands import Act, FilterOfGroup, Lease, ReceivedEntries, StreamEntry
from delayq.store.keys import KEYS, slot_tag
from tests.support.amounts import amount
from tests.support.queues import Queue

STREAM, GROUP = "orders", "mail"
OWN_KEYS = KEYS.consumers(STREAM, GROUP)
CALLS = (f"call-{n}" for n in count())


def append(q: Queue, body: str, tags: str = "") -> str:
    id: bytes = q.server.admin.xadd(STREAM, {"id": body, "topic": STREAM, "tags": tags, "body": body})
    return id.decode()


def receive(q: Queue, now: int, most: int = 10, **options: Any) -> ReceivedEntries:
    given: dict[str, Any] = {"lease": 30_000, "call": next(CALLS)} | options
    call, lease = given.pop("call"), given.pop("lease")
    found = q.run(commands.receive(OWN_KEYS, GROUP, call, most, lease, now=now, **given))
    assert isinstance(found, ReceivedEntries)
    return found


def bodies(found: ReceivedEntries) -> list[str]:
    return [one.fields["body"].decode() for one in found.entries]


def settle(q: Queue, now: int, *acts: Act, **options: Any) -> list[str]:
    return [one.result for one in q.run(commands.settle_received(OWN_KEYS, GROUP, acts, now=now, **options))]


def pending(q: Queue) -> int:
    (lag,) = q.run(commands.group_lags(KEYS, STREAM, [GROUP]))
    assert lag is not None
    return lag.pending


def test_a_message_is_received_once_and_again_when_its_lease_has_ended(q: Queue) -> None:
    append(q, "a")
    append(q, "b")
    first = receive(q, 1_000, 1)
    assert bodies(first) == ["a"]
    assert first.next == 31_000
    assert bodies(receive(q, 2_000)) == ["b"]
    assert bodies(receive(q, 30_999)) == []
    again = receive(q, 31_000)
    assert bodies(again) == ["a"]
    assert [(one.deliveries, one.hand_backs) for one in again.entries] == [(2, 0)]


def test_a_repeated_call_receives_the_same_messages_and_takes_no_others(q: Queue) -> None:
    for body in "abc":
        append(q, body)
    first = receive(q, 1_000, 2, call="lost")
    again = receive(q, 1_500, 2, call="lost")
    assert bodies(again) == bodies(first) == ["a", "b"]
    assert [one.deliveries for one in again.entries] == [1, 1]
    settle(q, 2_000, Act("ack", first.entries[0].lease))
    assert bodies(receive(q, 2_500, 2, call="lost")) == ["b"]


def test_a_repeated_call_that_lost_a_part_receives_the_rest(q: Queue) -> None:
    for body in "abc":
        append(q, body)
    first = receive(q, 1_000, 2, call="lost")
    assert settle(q, 2_000, Act("extend", first.entries[0].lease, 90_000)) == ["ok"]
    assert bodies(receive(q, 31_000, 1)) == ["b"]
    assert bodies(receive(q, 32_000, 2, call="lost")) == ["a"]


def test_a_repeated_call_receives_nothing_that_another_call_has_or_that_was_handed_back(q: Queue) -> None:
    for body in "abc":
        append(q, body)
    first = receive(q, 1_000, 2, call="lost")
    assert settle(q, 2_000, Act("back", first.entries[0].lease, 90_000)) == ["ok"]
    assert bodies(receive(q, 31_000, 1)) == ["b"]
    assert bodies(receive(q, 32_000, 2, call="lost")) == ["c"], "it holds nothing any more, so it is a new call"
    assert bodies(receive(q, 60_999, 3)) == [], "the others still have their leases"


@pytest.mark.parametrize("ordering_key", [{}, {"orderingKey": "k"}])
def test_a_message_that_a_call_of_the_same_name_receives_again_is_handed_back_again(
    q: Queue, ordering_key: dict[str, str]
) -> None:
    q.server.admin.xadd(STREAM, {"id": "a", "topic": STREAM, "body": "a"} | ordering_key)
    for backs in range(3):
        now = 1_000 + backs * 10_000
        (entry,) = receive(q, now, call="same").entries
        assert (entry.deliveries, entry.hand_backs) == (backs + 1, backs)
        back = Act("back", entry.lease, 5_000, f"r{backs}")
        answers = q.run(commands.settle_received(OWN_KEYS, GROUP, [back, back], now=now))
        assert [(one.result, one.until) for one in answers] == [("ok", now + 5_000)] * 2
    for now in (40_000, 41_000):
        (entry,) = receive(q, now, call="same").entries
        assert entry.reasons == "r0\nr1\nr2"
        answers = q.run(commands.settle_received(OWN_KEYS, GROUP, [Act("release", entry.lease)], now=now))
        assert [(one.result, one.until) for one in answers] == [("ok", now)]
    assert bodies(receive(q, 42_000)) == ["a"], "it is free"


def test_a_released_message_is_received_at_once_and_its_lease_does_not_count(q: Queue) -> None:
    append(q, "a")
    for _ in range(3):
        (entry,) = receive(q, 1_000, most_deliveries=1).entries
        assert (entry.deliveries, entry.hand_backs, entry.exhausted) == (1, 0, False)
        assert settle(q, 1_000, *2 * [Act("release", entry.lease)]) == ["ok", "ok"]
    assert settle(q, 1_000, Act("ack", entry.lease)) == ["lost"]


def test_an_acknowledged_message_is_gone_and_the_same_acknowledgement_is_ok(q: Queue) -> None:
    append(q, "a")
    (entry,) = receive(q, 1_000).entries
    assert settle(q, 2_000, Act("ack", entry.lease), Act("ack", entry.lease)) == ["ok", "ok"]
    assert bodies(receive(q, 99_000)) == []
    assert settle(q, 99_000, Act("ack", entry.lease)) == ["ok"]
    assert settle(q, 99_000, Act("extend", entry.lease, 1), Act("back", entry.lease, 1)) == ["lost", "lost"]
    assert pending(q) == q.server.admin.xpending(STREAM, GROUP)["pending"] == 0


def test_who_lost_the_lease_changes_nothing(q: Queue) -> None:
    append(q, "a")
    (first,) = receive(q, 1_000).entries
    (second,) = receive(q, 31_000).entries
    acts = [Act("ack", first.lease), Act("extend", first.lease, 90_000), Act("back", first.lease, 5)]
    assert settle(q, 32_000, *acts) == ["lost", "lost", "lost"]
    assert settle(q, 32_000, Act("extend", second.lease, 60_000)) == ["ok"]
    assert bodies(receive(q, 91_999)) == []
    assert bodies(receive(q, 92_000)) == ["a"]


def test_a_message_that_is_handed_back_comes_again_after_its_pause_with_all_reasons(q: Queue) -> None:
    append(q, "a")
    (entry,) = receive(q, 1_000).entries
    back = Act("back", entry.lease, 10_000, "stock API 503")
    answers = q.run(commands.settle_received(OWN_KEYS, GROUP, [back, back], now=2_000))
    assert [(one.result, one.until) for one in answers] == [("ok", 12_000), ("ok", 12_000)]
    assert settle(q, 2_000, Act("ack", entry.lease)) == ["lost"]
    assert bodies(receive(q, 11_999)) == []
    (entry,) = receive(q, 12_000).entries
    assert (entry.deliveries, entry.hand_backs, entry.reasons) == (2, 1, "stock API 503")
    last = Act("back", entry.lease, 10_000, "again")
    (exhausted,) = q.run(commands.settle_received(OWN_KEYS, GROUP, [last], now=13_000, most_hand_backs=1))
    assert (exhausted.result, exhausted.reasons) == ("exhausted", "stock API 503\nagain")
    assert settle(q, 13_000, Act("ack", entry.lease)) == ["ok"], "who made it a dead letter acknowledges it"


def test_a_last_hand_back_that_made_no_dead_letter_keeps_its_lease_and_its_reason(q: Queue) -> None:
    append(q, "a")
    (first,) = receive(q, 1_000).entries

    def back(entry: StreamEntry, now: int, reason: str) -> tuple[str, str]:
        acts = [Act("back", entry.lease, 5, reason)]
        (found,) = q.run(commands.settle_received(OWN_KEYS, GROUP, acts, now=now, most_hand_backs=0))
        return found.result, found.reasons

    for now in (2_000, 3_000):
        assert back(first, now, "first") == ("exhausted", "first"), "a repeat adds nothing"
    assert bodies(receive(q, 30_999)) == []
    (second,) = receive(q, 31_000).entries
    assert (second.reasons, second.deliveries - second.hand_backs) == ("first", 1), "this lease is not one that ended"
    assert back(first, 32_000, "first") == ("lost", ""), "another call has it"
    for now in (32_000, 33_000):
        assert back(second, now, "second") == ("exhausted", "first\nsecond")
    reasons = ["first", "second"]
    for n in range(12):
        now = 61_000 + n * 30_000
        (last,) = receive(q, now).entries
        reasons = [*reasons, f"r{n}"][-10:]
        assert back(last, now, f"r{n}") == ("exhausted", "\n".join(reasons)), "as many as are kept"
    assert settle(q, now, Act("ack", last.lease)) == ["ok"]


@settings(max_examples=amount(30, 400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["receive", "back", "release", "repeat", "wait"]), st.integers(0, 3)), max_size=30
    )
)
@pytest.mark.parametrize("ordering_key", ["", "k"])
def test_a_repeated_hand_back_gets_the_first_answer(q: Queue, ordering_key: str, steps: list[tuple[str, int]]) -> None:
    """The model: the answer of a hand-back is that of its first copy, until the entry is handed back by a later call.

    Copies of calls come at any time: during the pause, after it, and when another call has the entry.
    """
    q.server.flush()
    for body in "ab":
        fields = {"id": body, "topic": STREAM, "tags": "", "body": body, "orderingKey": ordering_key}
        q.server.admin.xadd(STREAM, {name: value for name, value in fields.items() if value})
    now, held, answers = 1_000, list[Lease](), dict[str, tuple[Act, int | None]]()  # by entry, its last hand-back
    for what, n in steps:
        match what:
            case "receive":
                held += [one.lease for one in receive(q, now, 1 + n % 2, lease=10_000).entries]
            case "wait":
                now += (1, 4_000, 5_000, 12_000)[n]
            case "repeat":
                for act, until in answers.values():
                    (found,) = q.run(commands.settle_received(OWN_KEYS, GROUP, [act], now=now))
                    assert (found.result, found.until) == ("ok", until)
            case _ if held:
                lease = held.pop(n % len(held))
                act = Act("back", lease, 5_000, "why") if what == "back" else Act("release", lease)
                (found,) = q.run(commands.settle_received(OWN_KEYS, GROUP, [act], now=now))
                if found.result == "ok":
                    assert found.until == (now + 5_000 if what == "back" else now)
                    answers[lease.entries] = act, found.until


def test_a_message_whose_leases_end_too_often_is_marked_and_hand_backs_do_not_count(q: Queue) -> None:
    append(q, "a")
    now = 0
    (entry,) = receive(q, now, most_deliveries=2).entries
    settle(q, now, Act("back", entry.lease, 0))
    for exhausted in (False, False, True):
        (entry,) = receive(q, now, most_deliveries=2).entries
        assert entry.exhausted is exhausted
        now += 30_000


def test_the_filter_belongs_to_the_group_and_what_does_not_match_is_acknowledged_unseen(q: Queue) -> None:
    for n in range(25):
        append(q, f"m{n}", "paid" if n % 10 == 9 else "new")
    assert bodies(receive(q, 1_000, 2, tags=("paid", "void"))) == ["m9", "m19"]
    other = q.run(commands.receive(OWN_KEYS, GROUP, "c", 2, 30_000, tags=("new",), now=1_000))
    assert other == FilterOfGroup(("paid", "void"))
    assert pending(q) == 2


@pytest.mark.parametrize(("start", "expected"), [("0", ["a", "b"]), ("$", ["b"]), ("0-1", ["a", "b"])])
def test_a_new_group_begins_where_it_wants(q: Queue, start: str, expected: list[str]) -> None:
    append(q, "a")
    began = bodies(receive(q, 1_000, start=start))
    append(q, "b")
    assert began + bodies(receive(q, 1_000, start=start)) == expected


def test_an_entry_that_was_trimmed_is_forgotten(q: Queue) -> None:
    append(q, "a")
    receive(q, 1_000)
    q.server.admin.xtrim(STREAM, maxlen=0)
    found = receive(q, 40_000)
    assert (bodies(found), found.next) == ([], None)
    assert records(q) == ([], [], [])


def test_other_keys_of_a_group_lie_in_the_slot_of_its_stream() -> None:
    for stream in ("orders", "delayq:{3}:stream:orders", "{shop}:orders"):
        assert slot_tag(KEYS.consumers(stream, "g").leases) == slot_tag(stream)
    with pytest.raises(ValueError, match="braces"):
        slot_tag("a}b")


def all_of(found: ReceivedEntries) -> Lease:
    return Lease(" ".join(one.lease.entries for one in found.entries), found.call)


def records(q: Queue) -> tuple[list[str], list[str], list[str]]:
    """The fields and the leases of the group, and what Redis knows as pending."""
    admin = q.server.admin
    fields = sorted(
        name.decode() for name in admin.hkeys(OWN_KEYS.consumers) if name not in (b"filter", b"making", b"inCalls")
    )
    waiting = [one["message_id"].decode() for one in admin.xpending_range(STREAM, GROUP, "-", "+", 100)]
    return fields, [one.decode() for one in admin.zrange(OWN_KEYS.leases, 0, -1)], waiting


def test_new_messages_of_a_call_have_one_record_until_something_happens_to_a_part_of_them(q: Queue) -> None:
    ids = [append(q, body) for body in "abcd"]
    whole, part = receive(q, 1_000, 2), receive(q, 1_000, 2)
    calls = sorted(f"call:{one.call}" for one in (whole, part))
    assert records(q) == (calls, calls, [ids[0], ids[2]])
    assert pending(q) == 4
    assert settle(q, 1_000, Act("ack", all_of(whole))) == ["ok", "ok"]
    assert settle(q, 1_000, Act("extend", part.entries[0].lease, 60_000)) == ["ok"]
    kept = [f"left:{part.call}", f"received:{part.call}"]
    assert records(q) == ([*ids[2:], *kept], [ids[3], ids[2]], ids[2:])
    assert pending(q) == 2
    assert settle(q, 1_000, Act("ack", all_of(part)), Act("ack", all_of(whole))) == ["ok"] * 4
    assert records(q) == ([], [], [])
    assert pending(q) == 0


def test_a_repeated_call_receives_its_messages_as_long_as_it_holds_one_and_then_others(q: Queue) -> None:
    for body in "abcde":
        append(q, body)
    first = receive(q, 1_000, 2, call="long")
    for entry in first.entries:
        assert settle(q, 2_000, Act("extend", entry.lease, 12 * 3_600_000)) == ["ok"]
    hours = 11 * 3_600_000
    assert bodies(receive(q, hours, 2, call="long")) == ["a", "b"], "long after its first lease"
    assert bodies(receive(q, hours + 31_000, 2, call="long")) == ["a", "b"], "no other call took them at the end"
    assert settle(q, hours, Act("ack", first.entries[1].lease)) == ["ok"]
    assert bodies(receive(q, hours + 31_000, 2, call="long")) == ["a"]
    assert settle(q, hours, Act("ack", first.entries[0].lease)) == ["ok"]
    assert records(q) == ([], [], [])
    assert bodies(receive(q, hours, 2, call="long")) == ["c", "d"]


@pytest.mark.parametrize("ends", ["ack", "ack one by one", "release", "back", "another call"])
def test_a_call_that_holds_nothing_any_more_leaves_nothing_in_redis(q: Queue, ends: str) -> None:
    for body in "abc":
        append(q, body)
    found = receive(q, 1_000, lease=12 * 3_600_000, call="long")
    if ends == "ack":
        settle(q, 1_000, Act("ack", all_of(found)))
    elif ends == "another call":
        settle(q, 50_000_000, Act("ack", all_of(receive(q, 50_000_000))))
    else:
        act: Any = ends.split()[0]
        settle(q, 1_000, *(Act(act, one.lease, 1) for one in found.entries))
    assert not [name for name in records(q)[0] if "long" in name]
    assert not list(q.server.admin.scan_iter("*long*"))


def test_a_call_whose_entries_were_deleted_from_the_stream_receives_others(q: Queue) -> None:
    ids = [append(q, body) for body in "abc"]
    receive(q, 1_000, 2, call="again")
    q.server.admin.xdel(STREAM, *ids[:2])
    assert bodies(receive(q, 1_000, 2, call="again")) == ["c"]
    assert bodies(receive(q, 1_500, 2, call="again")) == ["c"]
    assert bodies(receive(q, 31_500)) == ["c"]
    assert pending(q) == 1


def append_many(q: Queue, sizes: list[int]) -> None:
    with q.server.admin.pipeline(transaction=False) as many:
        for n, size in enumerate(sizes):
            many.xadd(STREAM, {"id": f"m{n}", "topic": STREAM, "body": f"m{n}".ljust(size, ".")})
        many.execute()


@pytest.mark.parametrize(
    "sizes", [[100_000] * 60, [10] * 100 + [900_000] * 6, [900_000, 10, 3_000_000, 10]], ids=["large", "later", "huge"]
)
def test_an_answer_stops_at_two_megabytes_and_the_rest_comes_with_the_next_calls(q: Queue, sizes: list[int]) -> None:
    append_many(q, sizes)
    got, calls = list[str](), 0
    while len(got) < len(sizes):
        found = receive(q, 1_000, 1_000)
        size = sum(len(one.fields["body"]) for one in found.entries)
        assert size <= 2_000_000 or len(found.entries) == 1
        got += [one.fields["id"].decode() for one in found.entries]
        assert {one.deliveries for one in found.entries} == {1}
        assert len(got) == len(sizes) or (found.next is not None and found.next <= 1_000), "the next call finds more"
        assert bodies(receive(q, 1_000, 1_000, call=found.call)) == bodies(found)
        calls += 1
    assert sorted(got, key=lambda id: int(id[1:])) == [f"m{n}" for n in range(len(sizes))]
    assert calls <= 2 + sum(sizes) // 1_000_000
    assert bodies(receive(q, 1_000)) == []


def test_a_call_reads_only_a_few_messages_that_are_too_large_for_its_answer(q: Queue) -> None:
    append_many(q, [500_000] * 60)
    assert len(receive(q, 1_000, 1_000).entries) == 4
    assert q.server.admin.xinfo_groups(STREAM)[0]["entries-read"] <= 10


def test_messages_whose_leases_ended_are_bounded_in_bytes_too(q: Queue) -> None:
    append_many(q, [300_000] * 20)
    first = [receive(q, 1_000).entries for _ in range(4)]
    again = [receive(q, 31_000, 1_000).entries for _ in range(4)]
    assert [len(one) for one in again] == [len(one) for one in first] == [6, 6, 6, 2]
    assert {one.deliveries for some in again for one in some} == {2}


def test_a_share_of_one_message_at_least_has_a_message_that_is_larger_than_the_share(q: Queue) -> None:
    append_many(q, [3_000, 10])
    share = receive(q, 1_000, share=(1_000, False))
    assert (bodies(share), share.next) == ([], 1_000)
    assert len(receive(q, 1_000, share=(1_000, True)).entries) == 1
    assert len(receive(q, 1_000, share=(1_000, False)).entries) == 1


def test_hundreds_of_messages_of_a_call_are_settled_in_parts(q: Queue) -> None:
    with q.server.admin.pipeline(transaction=False) as many:
        for n in range(1_000):
            many.xadd(STREAM, {"id": f"m{n}", "topic": STREAM, "body": f"m{n}"})
        many.execute()
    found = receive(q, 1_000, 1_000)
    ids = all_of(found).entries.split()
    twice = Lease(" ".join(ids[1:] + ids[1:]), found.call)
    assert settle(q, 2_000, Act("ack", twice)) == ["ok"] * 1_998
    assert pending(q) == 1
    assert bodies(receive(q, 30_999, 1_000)) == []
    assert bodies(receive(q, 31_000, 1_000)) == ["m0"]


def test_messages_that_a_version_without_records_of_calls_has_leased_are_kept(q: Queue) -> None:
    admin = q.server.admin
    ids = [append(q, body) for body in "abc"]
    admin.xgroup_create(STREAM, GROUP, "0")
    admin.xreadgroup(GROUP, commands.CONSUMER, {STREAM: ">"}, count=3)
    admin.hset(OWN_KEYS.consumers, mapping={"filter": "", **dict.fromkeys(ids, "L old 1 0 ")})
    admin.zadd(OWN_KEYS.leases, dict.fromkeys(ids, 31_000))
    assert bodies(receive(q, 1_000)) == []
    assert settle(q, 1_000, Act("ack", Lease(" ".join(ids[:2]), "old"))) == ["ok", "ok"]
    assert bodies(receive(q, 31_000)) == ["c"]
    assert pending(q) == 1


def read_before(q: Queue, most: int) -> list[str]:
    """A consumer of Redis makes the group, and reads entries that it does not acknowledge."""
    q.server.admin.xgroup_create(STREAM, GROUP, "0", mkstream=True)
    read = q.server.admin.xreadgroup(GROUP, "other", {STREAM: ">"}, count=most)
    return [id.decode() for id, _ in read[0][1]]


def test_what_consumers_of_redis_left_pending_is_received_with_its_deliveries_before_new_messages(q: Queue) -> None:
    for body in "abcdef":
        append(q, body)
    ids = read_before(q, 5)
    q.server.admin.xack(STREAM, GROUP, ids[1])
    q.server.admin.xclaim(STREAM, GROUP, "third", 0, [ids[2]], retrycount=2**62)
    q.server.admin.xdel(STREAM, ids[3])
    found = receive(q, 1_000, 3)
    assert [(one.fields["body"], one.deliveries, one.exhausted) for one in found.entries] == [
        (b"a", 2, False),
        (b"c", 1_000_001, True),
        (b"e", 2, False),
    ]
    assert bodies(receive(q, 1_000, 3, call=found.call)) == ["a", "c", "e"]
    assert bodies(receive(q, 2_000)) == ["f"]
    assert settle(q, 3_000, *(Act("ack", one.lease) for one in found.entries)) == ["ok"] * 3
    assert bodies(receive(q, 32_000)) == ["f"]
    assert pending(q) == 1
    assert not q.server.admin.hexists(OWN_KEYS.consumers, "adopted")


def test_thousands_of_entries_that_consumers_of_redis_left_are_received_in_bounded_calls(q: Queue) -> None:
    with q.server.admin.pipeline() as pipe:
        for n in range(5_001):
            pipe.xadd(STREAM, {"id": f"m{n}", "topic": STREAM, "tags": "b" if n % 1_000 == 0 else "a", "body": f"m{n}"})
        pipe.execute()
    read_before(q, 5_000)
    calls = [bodies(receive(q, 1_000, 1_000, tags=("b",))) for _ in range(3)]
    assert all(len(one) < 4 for one in calls), "a call looks at 2,000 entries"
    assert [body for one in calls for body in one] == ["m0", "m1000", "m2000", "m3000", "m4000", "m5000"]
    assert pending(q) == 6


def test_large_entries_that_consumers_of_redis_left_are_bounded_in_bytes(q: Queue) -> None:
    append_many(q, [300_000] * 12)
    read_before(q, 12)
    calls = [bodies(receive(q, 1_000, 100)) for _ in range(3)]
    assert [len(one) for one in calls] == [6, 6, 0]
    assert [one.deliveries for one in receive(q, 31_000, 3).entries] == [3, 3, 3]


def test_messages_of_one_ordering_key_that_consumers_of_redis_left_stay_with_one_call(q: Queue) -> None:
    for body in "abcd":
        q.server.admin.xadd(STREAM, {"id": body, "topic": STREAM, "body": body, "orderingKey": "k"})
    read_before(q, 3)
    first = receive(q, 1_000, 1)
    assert [(one.fields["body"], one.deliveries) for one in first.entries] == [(b"a", 2)]
    assert bodies(receive(q, 1_000)) == []
    assert settle(q, 2_000, Act("ack", first.entries[0].lease)) == ["ok"]
    rest = receive(q, 3_000)
    assert [(one.fields["body"], one.deliveries) for one in rest.entries] == [(b"b", 2), (b"c", 2), (b"d", 1)]


@dataclass
class Message:
    """What the model knows of a message: who holds it until when, or when it comes back."""

    body: str
    free_at: int = 0
    holder: str = ""
    lease: Lease | None = None
    handed_back: bool = False
    done: bool = False
    leases: list[Lease] = field(default_factory=list)
    before: int = 0  # how often consumers of Redis received it before delayq


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append")),
        st.tuples(st.just("receive"), st.integers(1, 4), st.sampled_from([100, 1_000])),
        st.tuples(st.just("repeat")),
        st.tuples(st.just("wait"), st.sampled_from([1, 99, 100, 1_000])),
        st.tuples(st.sampled_from(["ack", "extend", "back"]), st.integers(0, 9)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, before=st.lists(st.integers(0, 3), max_size=5))
def test_a_random_life_of_a_group_is_that_of_the_model(
    q: Queue, steps: list[tuple[Any, ...]], before: list[int]
) -> None:
    q.server.flush()
    now, messages, leases, last = 10_000, list[Message](), list[Lease](), None
    for reads in before:  # consumers of Redis received these, and acknowledged those with 0
        messages.append(Message(f"m{len(messages)}", done=reads == 0, before=reads))
        append(q, messages[-1].body)
    if before:
        for one, id in zip(messages, read_before(q, len(before)), strict=True):
            if one.done:
                q.server.admin.xack(STREAM, GROUP, id)
            else:
                q.server.admin.xclaim(STREAM, GROUP, "third", 0, [id], retrycount=one.before)
    for name, *values in [*steps, ("wait", 5_000), ("receive", 100, 100)]:
        if name == "append":
            messages.append(Message(f"m{len(messages)}"))
            append(q, messages[-1].body)
        elif name == "wait":
            now += values[0]
        elif name == "receive":
            most, life = values
            free = [one for one in messages if one.leases and not one.done and one.free_at <= now]
            waiting = sorted(free, key=lambda one: one.free_at)
            new = [one for one in messages if not one.leases and not one.done]
            expected = (waiting + new)[:most]
            found = receive(q, now, most, lease=life)
            assert sorted(bodies(found)) == sorted(one.body for one in expected)
            by_body = {one.body: one for one in messages}
            for entry in found.entries:
                one = by_body[entry.fields["body"].decode()]
                one.lease, one.free_at, one.handed_back = entry.lease, now + life, False
                one.leases.append(entry.lease)
                leases.append(entry.lease)
                assert entry.deliveries == one.before + len(one.leases)
            last = (found, most, life) if found.entries else last
        elif name == "repeat" and last is not None:
            found, most, life = last
            held = [one.lease for one in messages if not one.done and not one.handed_back]
            still = [entry for entry in found.entries if entry.lease in held]
            if not still:
                continue
            again = receive(q, now, most, lease=life, call=found.entries[0].lease.call)
            assert sorted(bodies(again)) == sorted(e.fields["body"].decode() for e in still)
            for one in messages:
                if one.lease in [e.lease for e in still]:
                    one.free_at = now + life
        elif name in ("ack", "extend", "back") and leases:
            lease = leases[values[0] % len(leases)]
            one = next(one for one in messages if lease in one.leases)
            holds = one.lease == lease and not one.done and not one.handed_back
            repeated = one.lease == lease and (one.done if name == "ack" else one.handed_back and name == "back")
            gone = one.done and name == "ack"
            (result,) = settle(q, now, Act(name, lease, 500))
            assert result == ("ok" if holds or repeated or gone else "lost")
            if holds:
                one.done, one.handed_back = name == "ack", name == "back"
                one.free_at = now + 500
