"""Policies and pauses: one version for all of them, which each queue demands of who pulls from it."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.store import commands
from delayq.store.commands import ANY, Applied, Change, Outdated, PoliciesFull, PoliciesSet, Pulled
from delayq.store.keys import KEYS
from tests.support.queues import EPOCH, NEW_EPOCH, Queue, ids, row

ME, YOU = "0000000001", "0000000002"
FIRST, SECOND, THIRD = (f"000000000{number}.{ME}" for number in (1, 2, 3))
NOW = 20_000
PAUSE = Change("pause:orders.*", '{"reason":"down"}')
RESUME = Change("pause:orders.*", "")


def put(
    q: Queue, *changes: Change, maker: str = ME, seen: int | None = None, beyond: str = "", **bounds: Any
) -> PoliciesSet | PoliciesFull | None:
    return q.run(commands.set_policies(KEYS, changes, maker=maker, seen=seen, beyond=beyond, now=q.now, **bounds))


def applied(q: Queue, version: str, *paused: str, now: int = NOW) -> Applied:
    return q.run(commands.apply_policies(q.keys, version, paused, now=now))


def pulled(q: Queue, version: str, epoch: str = EPOCH, now: int = NOW) -> Pulled | Outdated | None:
    return q.run(commands.pull(q.keys, epoch, offset=0, room=10, now=now, version=version))


# -- set -----------------------------------------------------------------------------------------------------------------


def test_a_change_stands_there_under_the_next_version_and_since_when(q: Queue) -> None:
    assert q.run(commands.policies(KEYS)) == {}
    sms, lasting = Change("policy:sms", "{}"), Change(PAUSE.field, '{"reason":"still down"}', lasts=True)
    new, order = Change("pause:new", "{}", lasts=True), Change("policy:sms", '{"order":1}')
    for step, (maker, changes, made, changed) in enumerate((
        (ME, (PAUSE, sms), PoliciesSet(FIRST, True, (NOW, NOW)), 0),
        (ME, (PAUSE,), PoliciesSet(FIRST, False, (NOW,)), 0),  # it stands there already, and keeps its time
        (ME, (Change("pause:other", ""),), PoliciesSet(FIRST, False, (None,)), 0),
        (ME, (lasting, order, new), PoliciesSet(SECOND, True, (NOW, NOW + 3, NOW + 3)), 3),
        (YOU, (RESUME,), PoliciesSet(f"0000000003.{YOU}", True, (None,)), 4),
        (YOU, (RESUME,), PoliciesSet(f"0000000003.{YOU}", False, (None,)), 4),
    )):  # fmt: skip
        q.now = NOW + step
        assert put(q, *changes, maker=maker) == made
        stands = q.run(commands.policies(KEYS))
        assert (stands["version"], stands["changed"]) == (made.version, str(NOW + changed))
        if lasting in changes:
            assert stands[PAUSE.field] == f"{NOW} {lasting.value}"
    assert stands.keys() == {"version", "changed", "policy:sms", "pause:new"}
    assert stands["policy:sms"] == f'{NOW + 3} {{"order":1}}'


def test_a_change_of_an_outdated_value_or_version_changes_nothing(q: Queue) -> None:
    put(q, PAUSE)
    stands = q.run(commands.policies(KEYS))
    for before in ("", '{"reason":"other"}'):
        assert put(q, Change("policy:sms", "{}"), Change(PAUSE.field, "", before=before)) is None
    assert put(q, RESUME, seen=2) is None
    assert q.run(commands.policies(KEYS)) == stands
    assert put(q, Change(PAUSE.field, "", before=PAUSE.value), seen=1) == PoliciesSet(SECOND, True, (None,))


def test_a_version_gets_beyond_that_of_a_queue_which_knows_a_later_one(q: Queue) -> None:
    assert put(q, beyond=f"0000000000.{YOU}") == PoliciesSet(FIRST, True, ())
    assert put(q, PAUSE, beyond=f"0000000001.{YOU}") == PoliciesSet(SECOND, True, (q.now,))
    for changed in (True, False):
        assert put(q, beyond=f"0000000007.{YOU}") == PoliciesSet(f"0000000008.{ME}", changed, ())
    assert PAUSE.field in q.run(commands.policies(KEYS))
    assert Change("a", "b").before == ANY


@pytest.mark.parametrize("lost", ["0000000002.0000000000", "0000000002.9999999999"])
def test_a_change_that_follows_a_lost_one_has_digits_of_its_own_and_then_a_greater_number(q: Queue, lost: str) -> None:
    put(q, PAUSE)
    applied(q, lost)  # by a change that the server of the policies has lost
    made = [q.run(commands.set_policies(KEYS, [RESUME if n % 2 else PAUSE], now=NOW)) for n in range(4)]
    versions = [one.version for one in made if isinstance(one, PoliciesSet)]
    assert [version[:11] for version in versions] == [f"000000000{number}." for number in (1, 2, 3, 4)]
    assert len({version[11:] for version in versions}) == 4, "no two changes have the same digits"
    assert applied(q, versions[1]).version == lost, "another change with its number"
    assert put(q, beyond=lost) == PoliciesSet(versions[3], False, ())
    q.admin.hset(KEYS.policies, "version", versions[1])
    assert put(q, beyond=lost) == PoliciesSet(f"0000000003.{ME}", True, ())
    assert applied(q, f"0000000003.{ME}").version == f"0000000003.{ME}"


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (Change("pause:orders.1", "{}"), Change("pause:orders.*", "{}")),
        (Change("policy:a", '{"match":"orders.1","rate":1.0}'), Change("policy:b", '{"match":"orders.?","rate":1.0}')),
    ],
)
def test_there_are_so_many_in_all_and_on_the_topics_of_a_key(q: Queue, one: Change, another: Change) -> None:
    kind = one.field.partition(":")[0]
    elsewhere = [Change(f"pause:news.{n}", "{}") for n in range(3)]
    elsewhere += [Change(f"policy:news{n}", '{"match":"news.*","order":1}') for n in range(3)]
    put(q, *elsewhere)
    stands = q.run(commands.policies(KEYS))
    assert put(q, one, another, most=4) == PoliciesFull(kind, 4, False)
    assert put(q, one, another, most_of_key=1, patterns=["orders.*", "x*"]) == PoliciesFull(kind, 1, True)
    assert put(q, one, most_of_key=0, patterns=["orders.*"], seen=7) is None  # it was changed, which comes first
    assert q.run(commands.policies(KEYS)) == stands  # nothing is done by halves
    assert isinstance(put(q, one, most=4, most_of_key=1, patterns=["o*", "news.?x"]), PoliciesSet)
    assert put(q, another, most_of_key=1, patterns=["orders.*"]) == PoliciesFull(kind, 1, True)
    # What stands there already is no more, nor is what takes its place.
    full: dict[str, Any] = {"most": 4, "most_of_key": 1, "patterns": ["orders.*"]}
    assert put(q, one, **full) == PoliciesSet(SECOND, False, (q.now,))
    other = Change(one.field, one.value.replace("}", ',"order":3}').replace("{,", "{"))
    assert isinstance(put(q, other, **full), PoliciesSet)
    assert isinstance(put(q, Change(one.field, ""), another, **full), PoliciesSet)
    assert isinstance(put(q, Change(another.field, ""), **full), PoliciesSet)


def test_a_limit_that_a_resume_leaves_counts_as_the_pause_that_it_was(q: Queue) -> None:
    put(q, Change("pause:a", "{}"))
    assert isinstance(put(q, Change("pause:a", ""), Change("limit:a", '{"rate":1.0}'), most=1), PoliciesSet)
    assert put(q, Change("pause:b", "{}"), most=1) == PoliciesFull("pause", 1, False)
    assert isinstance(put(q, Change("pause:a", "{}"), Change("limit:a", ""), most=1), PoliciesSet)


# -- applied -------------------------------------------------------------------------------------------------------------


def test_a_mark_is_the_later_of_now_and_every_watermark(q: Queue) -> None:
    assert applied(q, FIRST, "orders.*") == Applied(FIRST, {"orders.*": NOW})
    q.given(row("a", at=NOW + 5_000))
    assert isinstance(q.pull(now=NOW + 5_000, version=FIRST), Pulled)
    assert applied(q, SECOND, "sms.?") == Applied(SECOND, {"sms.?": NOW + 5_000})
    hour = 3_600_000
    q.given(row("b", at=NOW + hour), now=NOW)
    assert ids(q.pull(now=NOW + hour, version=SECOND)) == ["a", "b"]
    q.pull(now=NOW, version=SECOND)
    assert q.field("watermark") == str(NOW)  # it has come down
    assert applied(q, THIRD, "orders.*").marks == {"orders.*": NOW + hour}


def test_a_pause_keeps_its_mark_for_as_long_as_it_lasts_and_an_earlier_version_changes_nothing(q: Queue) -> None:
    applied(q, FIRST, "orders.*")
    both = Applied(SECOND, {"orders.*": NOW, "sms.*": NOW + 1})
    assert applied(q, SECOND, "orders.*", "sms.*", now=NOW + 1) == both
    for version in (FIRST, SECOND):
        assert applied(q, version, now=NOW + 2) == both
    assert applied(q, THIRD, "sms.*", now=NOW + 2).marks == {"sms.*": NOW + 1}
    again = f"0000000004.{ME}"
    assert applied(q, again, "orders.*", now=NOW + 3) == Applied(again, {"orders.*": NOW + 3})
    last = f"0000000005.{ME}"
    assert applied(q, last) == Applied(last, {})
    assert q.field("paused") is None


# -- a pull --------------------------------------------------------------------------------------------------------------


def test_a_pull_that_goes_by_other_policies_changes_nothing_and_an_older_owner_is_fenced_first(q: Queue) -> None:
    q.given(row("a", at=NOW))
    assert pulled(q, FIRST) == Outdated("")  # the queue knows none yet
    assert isinstance(pulled(q, ""), Pulled)
    applied(q, SECOND, "orders.*")
    q.run(commands.claim(q.keys, EPOCH))
    before = q.state(), q.fields()
    known = commands.KnownTopics.of(q.keys, [commands.Known("orders", "orders", per_queue=True)])
    for version in ("", FIRST, THIRD):
        asked = commands.pull(q.keys, EPOCH, offset=0, room=10, now=NOW, known=known, version=version)
        assert q.run(asked) == Outdated(SECOND)
    assert (q.state(), q.fields()) == before
    assert q.admin.exists(q.keys.stream("orders")) == 0
    answer = pulled(q, SECOND)
    assert isinstance(answer, Pulled)
    assert ids(answer) == ["a"]
    q.run(commands.claim(q.keys, NEW_EPOCH))
    assert pulled(q, "") is None
