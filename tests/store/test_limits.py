"""A rate that many share, against a plain bucket."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayq.store import commands
from delayq.store.commands import SlotRequest
from delayq.store.keys import KEYS
from tests.support.amounts import amount
from tests.support.queues import Queue

RATES = st.sampled_from([0.01, 0.5, 1, 3, 7.3, 50, 999, 5_000, 33_333])
ASKS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3_000), st.integers(1, 400)), min_size=1, max_size=25)


class Bucket:
    """As anybody would write it down; a clock that goes back stands still."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = Fraction(rate), burst
        self.level, self.at = Fraction(burst), 0

    def see(self, now: int) -> Fraction:
        passed = max(0, now - self.at) if self.at else 0
        self.level, self.at = min(Fraction(self.burst), self.level + self.rate * passed / 1000), now
        return self.level


@settings(max_examples=amount(50, 200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rate=RATES, burst=st.integers(1, 300), asks=ASKS, steps=st.lists(st.integers(-90_000, 90_000), max_size=2))
def test_no_more_is_granted_than_a_plain_bucket_has_and_no_less_while_no_clock_goes_back(
    q: Queue, rate: float, burst: int, asks: list[tuple[int, int, int]], steps: list[int]
) -> None:
    q.admin.delete("delayq:rate:x")
    plain, now, back = Bucket(rate, burst), 1_000_000, False
    slack = Fraction(len(asks)) * Fraction(rate) / 1_000_000  # a µs for each
    for place, (kind, later, wanted) in enumerate(asks):
        now += later if kind else 0
        if place and place <= len(steps):
            now += steps[place - 1]
            back = back or steps[place - 1] < 0
        there = plain.see(now)
        granted = q.run(commands.spend(KEYS, "x", rate, burst, wanted, now=now))
        assert 0 <= granted.count <= wanted
        assert granted.count <= there + slack
        assert back or granted.count >= min(wanted, int(there - slack))
        plain.level -= granted.count
        if granted.count < wanted:
            assert granted.wait > 0
            q.admin.set("delayq:rate:y", q.admin.get("delayq:rate:x"))
            assert q.run(commands.spend(KEYS, "y", rate, burst, 1, now=now + granted.wait)).count == 1, (
                "the wait was enough"
            )


def test_a_job_gets_whole_batches_and_what_was_not_spent_is_not_saved_up(q: Queue) -> None:
    def spend(count: int, now: int) -> tuple[int, int]:
        granted = q.run(commands.spend(KEYS, "{0}job", 1_000, count, count, whole=True, now=now))
        return granted.count, granted.wait

    assert [spend(100, 10_000), spend(50, 10_000), spend(50, 10_099), spend(50, 10_100)] == [
        (100, 0),
        (0, 100),
        (0, 1),
        (50, 0),
    ]
    assert [spend(10, 99_000), spend(10, 99_000)] == [(10, 0), (0, 10)]
    assert q.admin.pttl("delayq:rate:{0}job") > 0


def test_a_higher_rate_counts_at_once_the_last_second_is_told_and_who_asks_too_late_is_granted_none(q: Queue) -> None:
    assert q.run(commands.spend(KEYS, "x", 0.01, 1, 5, now=10_000)).count == 1
    assert q.run(commands.spend(KEYS, "x", 1_000, 10, 5, now=10_000)) == commands.Granted(0, 1, 10_000)
    assert q.run(commands.spend(KEYS, "x", 1_000, 10, 5, now=10_005)).count == 5
    assert q.run(commands.spend(KEYS, "x", 1_000, 10, 9, now=11_500)).count == 9
    spent = q.run(commands.spent(KEYS, "x"))
    assert [spent.last_second(now) for now in (11_999, 12_000, 12_999, 13_000)] == [6, 9, 9, 0]
    for until, count in ((10_000, 0), (10_001, 8)):
        granted = q.run(commands.spend(KEYS, "late", 10, 8, 8, until=until, now=10_001))
        assert granted == commands.Granted(count, 0, 10_001)


LIFE = 1_000_000  # ms: the key itself expires by the clock of the machine
TAKES = st.lists(
    st.tuples(st.integers(0, LIFE * 9 // 10), st.integers(0, 5), st.integers(0, 3), st.booleans()),
    min_size=1,
    max_size=25,
)


@settings(max_examples=amount(50, 200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(most=st.integers(1, 6), takes=TAKES)
def test_no_more_slots_are_taken_than_there_are_and_none_is_lost(
    q: Queue, most: int, takes: list[tuple[int, int, int, bool]]
) -> None:
    q.admin.delete("delayq:slots:x")
    now, plain = 1_000_000, dict[str, int]()  # names, and when they expire
    for call, (later, wanted, returned, twice) in enumerate(takes):
        now += later
        back = list(plain)[:returned]
        plain = {name: expires for name, expires in plain.items() if name not in back and expires > now}
        ask = commands.take_slots(KEYS, [SlotRequest("x", most, LIFE, wanted, str(call), back)], now=now)
        (taken,) = q.run(ask)
        assert taken == min(wanted, most - len(plain))
        assert not twice or q.run(ask) == [taken]
        plain |= dict.fromkeys(commands.taken_slots(LIFE, str(call), taken), now + LIFE)
        assert {name.decode(): at for name, at in q.admin.zrange("delayq:slots:x", 0, -1, withscores=True)} == plain


def test_a_clock_that_was_set_back_keeps_no_slot_for_longer_than_it_was_taken_for(q: Queue) -> None:
    def take(now: int, life: int, call: str) -> int:
        return q.run(commands.take_slots(KEYS, [SlotRequest("x", 2, life, 1, call)], now=now))[0]

    assert [take(900_000, 1_000, "a"), take(900_000, 500, "b"), take(10_000, 1_000, "c")] == [1, 1, 0]
    assert [take(10_500, 1_000, "d"), take(10_999, 1_000, "e"), take(11_000, 1_000, "f")] == [1, 0, 1]
    assert 0 < q.admin.pttl("delayq:slots:x") <= 1_000


def test_one_call_takes_and_returns_slots_of_several_limits(q: Queue) -> None:
    def take(call: str, *wanted: tuple[str, int, list[str]], now: int) -> list[int]:
        return q.run(
            commands.take_slots(
                KEYS, [SlotRequest(name, 2, LIFE, n, call, given) for name, n, given in wanted], now=now
            )
        )

    assert take("a", ("x", 1, []), ("y", 5, []), now=1_000) == [1, 2]
    assert take("b", ("y", 1, []), ("x", 5, []), ("z", 0, []), now=1_001) == [0, 1, 0]
    assert take(
        "c", ("x", 1, commands.taken_slots(LIFE, "a", 1)), ("y", 0, commands.taken_slots(LIFE, "a", 2)), now=1_002
    ) == [1, 0]
    assert (q.admin.zcard("delayq:slots:x"), q.admin.exists("delayq:slots:y", "delayq:slots:z")) == (2, 0)
    assert 0 < q.admin.pttl("delayq:slots:x") <= LIFE


def test_a_request_by_former_policies_is_granted_nothing_and_changes_nothing(q: Queue) -> None:
    def spend(rate: float, version: str, now: int) -> commands.Granted:
        return q.run(commands.spend(KEYS, "v", rate, 10, 5, version=version, now=now))

    old, new = "0000000001-0", "0000000002-0"
    assert spend(10, old, 10_000).count == 5
    assert spend(1, new, 10_000).count == 5
    before = q.admin.get("delayq:rate:v")
    assert spend(1_000, old, 11_000) == commands.Granted(0, 0, 11_000, new)
    assert q.admin.get("delayq:rate:v") == before
    assert spend(1, new, 11_000).count == 5
    assert spend(1, "", 12_000).count == 1, "a job goes by no policies"


def test_a_bucket_that_a_former_version_wrote_is_replaced(q: Queue) -> None:
    q.admin.hset("delayq:rate:x", mapping={"free": 11_000_000, "second": 10, "spent": 5, "before": 0, "version": ""})
    assert q.run(commands.spent(KEYS, "x")) == commands.Spent(0, 0, 0)
    assert q.run(commands.spend(KEYS, "x", 10, 5, 9, now=10_000)) == commands.Granted(5, 100, 10_000)
    assert q.run(commands.spend(KEYS, "x", 10, 5, 9, now=10_100)).count == 1
    assert q.run(commands.spent(KEYS, "x")) == commands.Spent(10, 6, 0)
