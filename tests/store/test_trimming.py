"""Which entries of a stream a trim removes, against a plain model of its consumer groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayq.base.errors import StoreError
from delayq.store import commands
from delayq.store.commands import Act, Lease, ReceivedEntries, Trimmed
from delayq.store.keys import KEYS
from tests.support.amounts import amount
from tests.support.queues import Queue

STREAM = "orders"
NOW = 1_000_000
#: More than fits into one node of a stream.
MANY = 130


def append(q: Queue, *ids: str) -> None:
    pipeline = q.server.admin.pipeline(transaction=False)
    for id in ids:
        pipeline.xadd(STREAM, {"id": id, "topic": STREAM, "body": "x"}, id=id)
    pipeline.execute()


def left(q: Queue) -> list[str]:
    return [id.decode() for id, _ in q.server.admin.xrange(STREAM)]


def read(q: Queue, group: str, count: int) -> list[str]:
    """Read entries without acknowledging them."""
    found = q.server.admin.xreadgroup(group, "one", {STREAM: ">"}, count=count)
    return [id.decode() for id, _ in found[0][1]] if found else []


def trim(
    q: Queue,
    age: int | None = None,
    length: int | None = None,
    *,
    force: bool = False,
    most: int = 1_000,
    now: int = NOW,
    **known: Any,
) -> Trimmed:
    return q.run(commands.trim(STREAM, age, length, most, force=force, now=now, **known))


def test_only_entries_that_every_group_has_acknowledged_are_removed(q: Queue) -> None:
    append(q, "1-0", "2-0", "3-0", "4-0")
    for group in ("mail", "bills"):
        q.server.admin.xgroup_create(STREAM, group, "0")
    first = read(q, "mail", 3)
    q.server.admin.xack(STREAM, "mail", *first)
    assert trim(q, length=1) == Trimmed(0, False), "bills has read nothing"
    read(q, "bills", 3)
    assert trim(q, length=1) == Trimmed(0, False), "bills has acknowledged nothing"
    q.server.admin.xack(STREAM, "bills", "1-0", "3-0")
    assert (trim(q, length=1), left(q)) == (Trimmed(1, False), ["2-0", "3-0", "4-0"]), "the entry 2-0 is pending"
    q.server.admin.xack(STREAM, "bills", "2-0")
    assert (trim(q, age=0), left(q)) == (Trimmed(2, False), ["4-0"]), "nobody has read the last one"


def test_a_recorded_group_that_the_stream_does_not_have_has_acknowledged_nothing(q: Queue) -> None:
    append(q, "1-0", "2-0")
    q.server.admin.xgroup_create(STREAM, "mail", "2-0")
    assert trim(q, length=0, groups=["bills", "mail"]) == Trimmed(0, False)
    q.server.admin.xgroup_create(STREAM, "bills", "1-0")
    assert (trim(q, length=0, groups=["bills", "mail"]), left(q)) == (Trimmed(1, False), ["2-0"])
    assert (trim(q, length=0, groups=["audit"], force=True), left(q)) == (Trimmed(1, False), [])


def test_no_entry_is_removed_that_was_appended_after_the_groups_were_read(q: Queue) -> None:
    append(q, "1-0", "2-0", "3-0")
    q.server.admin.xgroup_create(STREAM, "mail", "3-0")
    assert trim(q, most=0) == Trimmed(0, False, last="3-0")
    assert (trim(q, age=0, upto="2-0"), left(q)) == (Trimmed(2, False), ["3-0"])
    assert trim(q, length=0, upto="2-0") == Trimmed(0, False)


def test_an_entry_that_was_handed_back_stays(q: Queue) -> None:
    append(q, "1-0", "2-0")
    keys = KEYS.consumers(STREAM, "mail")
    found = q.run(commands.receive(keys, "mail", "c", 10, 1_000, now=NOW))
    assert isinstance(found, ReceivedEntries)
    one, other = (entry.lease for entry in found.entries)
    q.run(commands.settle_received(keys, "mail", [Act("back", one, 5_000), Act("ack", other)], now=NOW))
    assert (trim(q, age=0), left(q)) == (Trimmed(0, False), ["1-0", "2-0"])
    found = q.run(commands.receive(keys, "mail", "d", 10, 1_000, now=NOW + 5_000))
    assert isinstance(found, ReceivedEntries)
    q.run(commands.settle_received(keys, "mail", [Act("ack", found.entries[0].lease)], now=NOW + 5_000))
    assert (trim(q, age=0), left(q)) == (Trimmed(2, False), [])


def test_all_messages_that_a_call_has_received_stay_until_they_are_acknowledged(q: Queue) -> None:
    append(q, "1-0", "2-0", "3-0", "4-0")
    keys = KEYS.consumers(STREAM, "mail")
    first = q.run(commands.receive(keys, "mail", "c", 1, 1_000, now=NOW))
    q.run(commands.receive(keys, "mail", "d", 3, 1_000, now=NOW))
    assert isinstance(first, ReceivedEntries)
    q.run(commands.settle_received(keys, "mail", [Act("ack", first.entries[0].lease)], now=NOW))
    assert (trim(q, age=0), left(q)) == (Trimmed(1, False), ["2-0", "3-0", "4-0"])
    q.run(commands.settle_received(keys, "mail", [Act("ack", Lease("2-0 4-0", "d"))], now=NOW))
    assert (trim(q, age=0), left(q)) == (Trimmed(1, False), ["3-0", "4-0"])


@pytest.mark.parametrize(("force", "remaining"), [(False, ["1-0", "2-0", "3-0"]), (True, ["3-0"])])
def test_without_groups_nothing_is_acknowledged_so_only_force_trims(
    q: Queue, force: bool, remaining: list[str]
) -> None:
    append(q, "1-0", "2-0", "3-0")
    trim(q, length=1, force=force)
    assert left(q) == remaining


def test_the_time_in_an_id_counts_as_the_age_of_its_entry(q: Queue) -> None:
    append(q, f"{NOW - 1_001}-7", f"{NOW - 1_000}-0", f"{NOW}-0")
    trim(q, age=1_000, force=True)
    assert left(q) == [f"{NOW - 1_000}-0", f"{NOW}-0"]
    append(q, *(f"{NOW}-{n}" for n in range(1, MANY)))
    trim(q, age=1_000, force=True, now=NOW + 1_001)
    assert left(q) == []


def test_without_a_time_the_clock_of_redis_counts(q: Queue) -> None:
    append(q, "1-0")
    old, new = (q.server.admin.xadd(STREAM, {"id": "x"}) for _ in range(2))
    q.run(commands.trim(STREAM, 3_600_000, None, 1_000, force=True))
    assert left(q) == [old.decode(), new.decode()]


def test_a_step_is_bounded_and_says_whether_there_is_more(q: Queue) -> None:
    append(q, *(f"{n}-0" for n in range(1, 1_001)))
    removed = []
    while (step := trim(q, length=5, force=True, most=150)).more:
        assert 0 < step.removed <= 150
        removed.append(step.removed)
    assert sum(removed) + step.removed == 995
    assert trim(q, length=5, force=True) == Trimmed(0, False)
    assert left(q) == [f"{n}-0" for n in range(996, 1_001)]


def test_ids_beyond_the_numbers_of_lua_are_compared_exactly(q: Queue) -> None:
    huge = 2**63
    append(q, f"{huge}-{huge - 1}", f"{huge}-{huge}", f"{huge}-{huge + 1}", f"{huge + 1}-0")
    q.server.admin.xgroup_create(STREAM, "a", "0")
    q.server.admin.xgroup_create(STREAM, "b", "0")
    q.server.admin.xack(STREAM, "a", *read(q, "a", 4))
    q.server.admin.xack(STREAM, "b", *read(q, "b", 2))
    trim(q, length=0)
    # The sequence number behind the last one is no number of Lua: the last acknowledged entry stays.
    assert left(q) == [f"{huge}-{huge}", f"{huge}-{huge + 1}", f"{huge + 1}-0"]


def test_a_stream_that_does_not_exist_and_an_empty_one_are_told_apart(q: Queue) -> None:
    assert trim(q, age=1) == Trimmed(0, False, exists=False)
    append(q, "1-0")
    assert trim(q, age=1, force=True) == Trimmed(1, False)
    assert trim(q, age=1, force=True) == Trimmed(0, False)


def test_a_key_of_another_type_is_refused(q: Queue) -> None:
    q.server.admin.set(STREAM, "text")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        trim(q, age=1, length=1)


def test_remembered_topics_are_read_page_by_page_and_forgotten(q: Queue) -> None:
    topics = {f"t{n}": n for n in range(600)}
    q.run(commands.remember_trimmed(KEYS, topics))
    q.run(commands.forget_trimmed(KEYS, ["t1", "t2"]))
    found, cursor, pages = set[str](), "0", 0
    while pages == 0 or cursor != "0":
        cursor, names = q.run(commands.trimmed_topics(KEYS, cursor, 100))
        found, pages = found | set(names), pages + 1
    assert found == topics.keys() - {"t1", "t2"}
    assert pages > 1


@dataclass
class Group:
    """What the model knows of a group: the number of entries that it was given, and which of them are pending."""

    given: int = 0
    pending: set[int] = field(default_factory=set)

    @property
    def first_open(self) -> int:
        """The first entry that it has yet to acknowledge."""
        return min(self.pending, default=self.given + 1)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([1, 3, MANY]), st.sampled_from([0, 1, 50])),
        st.tuples(st.just("group"), st.sampled_from("abc"), st.booleans()),
        st.tuples(st.just("read"), st.sampled_from("abc"), st.sampled_from([1, 2, 2 * MANY])),
        st.tuples(st.just("ack"), st.sampled_from("abc"), st.integers(0, 3), st.sampled_from([1, 2 * MANY])),
        st.tuples(st.just("destroy"), st.sampled_from("abc")),
        st.tuples(
            st.just("trim"),
            st.sampled_from([None, 0, 10, 60]),
            st.sampled_from([None, 0, 1, 100]),
            st.sampled_from([False, False, True]),
            st.sampled_from([1, 7, 1_000]),
        ),
    ),
    max_size=30,
)


class Life:
    """A stream and its groups, in Redis and in the model. Entry n is the n-th appended one."""

    def __init__(self, q: Queue) -> None:
        self.q = q
        self.now = 1_000
        self.times: dict[int, int] = {}  # of the entries that are left
        self.appended = 0
        self.groups: dict[str, Group] = {}

    def append(self, count: int, after: int) -> None:
        self.now += after
        new = range(self.appended + 1, self.appended + count + 1)
        append(self.q, *(f"{self.now}-{n}" for n in new))
        self.times |= dict.fromkeys(new, self.now)
        self.appended = new[-1]

    def group(self, name: str, at_end: bool) -> None:
        if name not in self.groups:
            self.q.server.admin.xgroup_create(STREAM, name, "$" if at_end else "0", mkstream=True)
            self.groups[name] = Group(self.appended if at_end else 0)

    def read(self, name: str, count: int) -> None:
        if name in self.groups:
            one = self.groups[name]
            new = [n for n in sorted(self.times) if n > one.given][:count]
            assert [int(id.partition("-")[2]) for id in read(self.q, name, count)] == new
            one.pending |= set(new)
            one.given = max([one.given, *new])

    def ack(self, name: str, skip: int, count: int) -> None:
        if name in self.groups:
            acked = [n for n in sorted(self.groups[name].pending) if n in self.times][skip : skip + count]
            if acked:
                self.q.server.admin.xack(STREAM, name, *(f"{self.times[n]}-{n}" for n in acked))
            self.groups[name].pending -= set(acked)

    def destroy(self, name: str) -> None:
        if self.groups.pop(name, None):
            self.q.server.admin.xgroup_destroy(STREAM, name)

    def trim(self, age: int | None, length: int | None, force: bool, most: int) -> None:
        most = most if len(self.times) < MANY else 1_000
        entries = sorted(self.times)
        first_open = min((one.first_open for one in self.groups.values()), default=0)
        too_many = len(entries) - length if length is not None else 0
        expected = [
            n
            for at, n in enumerate(entries)
            if not (
                (force or n < first_open) and (at < too_many or (age is not None and self.times[n] < self.now - age))
            )
        ]
        for _ in range(len(entries) + 1):
            step = trim(self.q, age, length, force=force, most=most, now=self.now)
            assert step.removed <= most
            if not step.more:
                break
            assert step.removed > 0
        self.times = {n: self.times[n] for n in expected}
        assert [int(id.partition("-")[2]) for id in left(self.q)] == expected


def run_life(q: Queue, steps: list[tuple[Any, ...]]) -> None:
    q.server.flush()
    life = Life(q)
    for name, *values in [*steps, ("trim", 0, 0, False, 1_000)]:
        getattr(life, name)(*values)


@settings(deadline=None, max_examples=amount(60, 2_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_random_life_of_a_stream_is_that_of_the_model(q: Queue, steps: list[tuple[Any, ...]]) -> None:
    run_life(q, steps)
