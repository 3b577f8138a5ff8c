"""Appending by a transaction does what pull.lua does with the same messages, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayq.codec import encode
from delayq.errors import StoreError, StoreFull, StoreUnavailable
from delayq.message import Limits, Message
from delayq.store import commands
from delayq.store.commands import Known
from delayq.store.commands.appending import Streams
from delayq.store.commands.final import FORWARDED, ended
from delayq.store.connect.append_transaction import Appended, Appender, Due
from delayq.store.connect.store import Store
from tests.support import messages as strategies
from tests.support.proxy import FaultProxy
from tests.support.queues import EPOCH, NEW_EPOCH, OLD_EPOCH, Queue, Row, State, row
from tests.support.servers import ServerUnderTest

ORDERS = Known("orders", "orders")
NEWS = Known("news", "stream-of-news", 1_000)
OWN = Known("own", "own", None, True)
KNOWN = (ORDERS, NEWS, OWN, Known("mail"))
NOW = 1_800_000_000_000
PLENTY = 1 << 30


class Appending:
    """A queue, and what appends its messages step by step."""

    def __init__(self, server: ServerUnderTest, url: str = "", epoch: str = EPOCH) -> None:
        self.store = Store(url or server.url)
        self.q = Queue(self.store, server)
        appender = self.store.appender(self.q.keys, epoch, self.q.retention)
        assert appender is not None
        self.appender: Appender = appender

    def claim(self) -> None:
        self.q.run(commands.claim(self.q.keys, EPOCH))

    def read(self, *, upto: int = NOW, most: int = 200, held: tuple[bytes, ...] = (), most_bytes: int = PLENTY) -> Due:
        self.appender.ask(0, upto, most, NOW)
        return self.appender.read(Streams(self.q.keys, KNOWN), held, most_bytes)

    def append(self, due: Due) -> Appended:
        assert due.batch is not None
        return self.appender.append(due.batch, NOW)

    def ids(self, stream: str = "orders") -> list[str]:
        return [entry["id"] for entry in self.q.stream(stream)]

    def close(self) -> None:
        self.appender.close()
        self.store.close()


@pytest.fixture
def one(real: ServerUnderTest) -> Iterator[Appending]:
    """A queue on each real server."""
    made = Appending(real)
    made.claim()
    yield made
    made.close()


def three(one: Appending, **fields: Any) -> None:
    one.q.given(*(row(id, at=NOW - 100, **fields) for id in "abc"), now=NOW - 100_000)


# -- the same as pull.lua ---------------------------------------------------------------------------------------------


@st.composite
def plain_rows(draw: st.DrawFn) -> tuple[Row, bytes | None]:
    """A message that is due, and its attempts."""
    message: Message = draw(strategies.messages())
    topic = draw(st.sampled_from(["orders", "news", "own"]))
    keyed = Message(
        topic=topic, body=message.body, tags=message.tags, keys=message.keys, properties=message.properties,
        ordering_key=message.ordering_key, max_attempts=message.max_attempts, expect_date=1,
    )  # fmt: skip
    kind, when = draw(st.sampled_from(["a", "A", "r", "R"])), draw(st.integers(0, 100))
    spec = f"{kind}{when if kind in 'rR' else NOW - when}"
    attempts = draw(st.sampled_from([None, None, b"0", b"3", b"many"]))
    return Row(draw(strategies.ids), spec, encode(keyed, Limits())), attempts


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(plain_rows(), min_size=1, max_size=12, unique_by=lambda pair: pair[0].id))
def test_entries_and_what_is_left_are_those_of_a_pull(one: Appending, rows: list[tuple[Row, bytes | None]]) -> None:
    left = []
    for way in (by_pull, by_transaction):
        one.q.server.flush()
        one.claim()
        one.q.given(*(one_row for one_row, _ in rows), now=NOW - 50)
        for message, attempts in rows:
            if attempts is not None:
                one.q.admin.hset(one.q.keys.attempts, message.id, attempts)
        way(one)
        entries = [one.q.stream(name) for name in ("orders", "stream-of-news", one.q.keys.stream("own"))]
        fields = {name: value for name, value in one.q.fields().items() if name not in (b"sleep_until", b"born")}
        watermark = fields.pop(b"watermark")
        assert int(watermark) <= NOW + 100
        left.append((entries, one.q.state(), fields))
    assert left[0] == left[1]


def by_pull(one: Appending) -> None:
    one.q.pull(now=NOW + 100, known=KNOWN, unlisted_general=False)


def by_transaction(one: Appending) -> None:
    one.appender.close()  # what was announced is gone with all the rest
    one.appender.ask(0, NOW + 100, 200, NOW + 100)
    due = one.appender.read(Streams(one.q.keys, KNOWN), (), PLENTY)
    assert due.batch is not None
    if len(due.batch):
        assert one.appender.append(due.batch, NOW + 100) == Appended(len(due.batch), True)
    if len(due.batch) < due.found:  # damaged attempts are left to a pull
        by_pull(one)


def test_the_parts_of_an_entry(one: Appending) -> None:
    one.q.given(
        row("a", at=NOW - 5, body=b"\0\xff\r\n", tags="paid", keys=("k1", "k2"), properties={"n": "v", "": ""}),
        row("later", at=NOW + 1, keys=("k1",)),
        now=NOW - 10,
    )
    assert one.append(one.read()) == Appended(1, True)
    assert list(one.q.stream("orders")[0].items()) == [
        ("id", "a"), ("topic", "orders"), ("tags", "paid"), ("keys", "k1 k2"), ("body", "\0\udcff\r\n"),
        ("due", str(NOW - 5)), ("attempt", "1"), ("p:", ""), ("p:n", "v"),
    ]  # fmt: skip
    assert one.q.state() == State(queue={"later": NOW + 1}, keys={"k1": ["later"]}, final={"a": ("forwarded", NOW)})
    assert (one.q.field("forwarded"), one.q.field("watermark")) == ("1", str(NOW))


def test_two_hundred_messages_with_many_keys_of_two_streams_go_at_once(one: Appending) -> None:
    keys = tuple(f"key-{number}" for number in range(16))
    for start in range(0, 200, 50):
        one.q.given(
            *(row(f"m{start + i:03}", at=NOW - 50, topic=("orders", "news")[i % 2], keys=keys) for i in range(50)),
            now=NOW - 100_000,
        )
    assert one.append(one.read()) == Appended(200, True)
    assert one.q.state() == State()
    assert one.ids() == [f"m{number:03}" for number in range(0, 200, 2)]


def test_the_next_question_may_go_along(one: Appending) -> None:
    three(one)
    first = one.read(most=2)
    assert first.batch is not None
    assert one.appender.append(first.batch, NOW, (0, NOW, 2)) == Appended(2, True)
    second = one.appender.read(Streams(one.q.keys, KNOWN), (), PLENTY)
    assert one.append(second) == Appended(1, True)
    assert one.ids() == ["a", "b", "c"]


def test_what_was_read_before_a_connection_was_closed_or_asked_anew_is_not_appended(one: Appending) -> None:
    three(one)
    due = one.read()
    one.appender.close()
    assert one.append(due) == Appended(0, False)
    due = one.read()
    one.appender.ask(0, NOW, 200, NOW)
    assert one.append(due) == Appended(0, False)
    assert (one.ids(), sorted(one.q.state().queue)) == ([], ["a", "b", "c"])


# -- what is left to a pull --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        row("b", at=NOW - 90, expire_after=10_000),
        row("b", at=NOW - 90, topic="mail"),
        row("b", at=NOW - 90, topic="unheard-of"),
    ],
    ids=["expires", "general", "unknown"],
)
def test_what_is_not_plain_ends_a_batch(one: Appending, other: Row) -> None:
    one.q.given(row("a", at=NOW - 100), other, row("c", at=NOW - 80), now=NOW - 200)
    due = one.read()
    assert due.found == 3
    assert one.append(due) == Appended(1, True)
    assert one.q.state().queue == {"b": NOW - 90, "c": NOW - 80}


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda raw: raw[:-1],
    "longer than it says": lambda raw: raw + b"x",
    "no header": lambda raw: raw[:20],
    "another generation": lambda raw: b"9999999" + raw[7:],
    "a due that is none": lambda raw: raw[:7] + b"      1000000" + raw[20:],
    "a mark that is none": lambda raw: raw[:20] + b"9" + raw[21:],
    "properties that are none": lambda raw: raw.replace(b"\0\1n\0\1v", b"\0\xffn\0\1v"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_ends_a_batch(one: Appending, damage: str) -> None:
    three(one, properties={"n": "v"})
    raw = one.q.admin.hget(one.q.keys.pool, "b")
    damaged = DAMAGE[damage](raw)
    assert damaged != raw
    one.q.admin.hset(one.q.keys.pool, "b", damaged)
    assert one.append(one.read()) == Appended(1, True)
    assert one.ids() == ["a"]


def test_a_ticket_without_its_record_ends_a_batch(one: Appending) -> None:
    three(one)
    one.q.admin.hdel(one.q.keys.pool, "a")
    due = one.read()
    assert (due.found, len(due.batch or ())) == (3, 0)


def test_what_is_held_ends_a_batch(one: Appending) -> None:
    three(one)
    ticket = one.q.admin.zrange(one.q.keys.queue, 1, 1)[0]
    assert one.append(one.read(held=(ticket,))) == Appended(1, True)


def test_a_batch_has_only_so_many_bytes_but_at_least_one_message(one: Appending) -> None:
    three(one, body="x" * 1_000)
    assert len(one.read(most_bytes=2_500).batch or ()) == 2
    assert len(one.read(most_bytes=10).batch or ()) == 1


# -- clocks and epochs ---------------------------------------------------------------------------------------------------


def test_nothing_is_read_that_is_not_due_by_the_clock_of_redis(one: Appending) -> None:
    three(one)
    assert one.read(upto=NOW + 1) == Due()
    assert one.q.field("watermark") is None


def test_an_older_epoch_is_fenced_before_it_reads(one: Appending, real: ServerUnderTest) -> None:
    three(one)
    assert one.read().batch is not None
    old = Appending(real, epoch=OLD_EPOCH)
    assert old.read() == Due(fenced=True)
    old.close()


def test_a_redis_that_lost_what_was_announced_is_told_anew(one: Appending) -> None:
    three(one)
    assert one.append(one.read(most=1)) == Appended(1, True)
    one.q.admin.hdel(one.q.keys.state, "watermark")
    assert one.read() == Due()
    assert one.append(one.read()) == Appended(2, True)
    assert one.q.field("watermark") == str(NOW)


def test_announcing_makes_a_cancel_of_what_is_due_uncertain_even_if_the_clock_steps_back(one: Appending) -> None:
    three(one)
    due = one.read()
    assert one.q.cancel("b", now=NOW - 150) == ["in_flight"]
    assert one.append(due) == Appended(0, False)
    assert one.ids() == []


# -- what comes between ----------------------------------------------------------------------------------------------------

SPOILS: dict[str, Callable[[Queue], object]] = {
    "cancel": lambda q: q.cancel("b"),
    "ack": lambda q: q.ack(q.take(now=NOW)[1]),
    "ack by an older epoch": lambda q: q.ack(q.take(now=NOW)[1], epoch=OLD_EPOCH),
    "retry": lambda q: q.retry((q.take(now=NOW)[1], NOW + 1_000)),
    "a retry that keeps the due": lambda q: q.retry((q.take(now=NOW)[1], None)),
    "bury": lambda q: q.bury(q.take(now=NOW)[1]),
    "park": lambda q: q.park("t:x", q.take(now=NOW)[1]),
    "pull": lambda q: q.pull(now=NOW, known=[ORDERS], look=1),
    "claim": lambda q: q.run(commands.claim(q.keys, NEW_EPOCH)),
    "unpark": lambda q: (q.park("t:x", q.take(now=NOW)[1]), q.unpark("t:x")),
    "a pull of a newer epoch": lambda q: q.pull(now=NOW, epoch=NEW_EPOCH),
    "an unpark of a newer epoch": lambda q: q.unpark("t:x", epoch=NEW_EPOCH),
}


@pytest.mark.parametrize("spoils", SPOILS)
def test_what_takes_changes_or_fences_between_reading_and_appending_stops_it(one: Appending, spoils: str) -> None:
    three(one)
    due = one.read()
    SPOILS[spoils](one.q)
    before = one.q.state(), one.q.stream("orders")
    assert one.append(due) == Appended(0, False)
    assert (one.q.state(), one.q.stream("orders")) == before


def test_a_transaction_that_comes_late_does_nothing_after_another_one(one: Appending, real: ServerUnderTest) -> None:
    """As one whose sender has given it up while it lay in the server's buffer."""
    three(one)
    late = Appending(real)
    due = late.read()
    assert one.append(one.read()) == Appended(3, True)
    assert late.append(due) == Appended(0, False)
    assert one.ids() == ["a", "b", "c"]
    late.close()


HARMLESS: dict[str, Callable[[Queue], object]] = {
    "schedule before": lambda q: q.given(row("0", at=NOW - 150, topic="mail"), now=NOW - 160),
    "schedule behind": lambda q: q.given(row("d", at=NOW - 10, topic="mail"), now=NOW - 160),
    "certain cancel": lambda q: q.cancel("later", now=NOW),
    "reschedule": lambda q: q.reschedule("later", f"a{NOW - 100}", now=NOW),
    "redrive": lambda q: q.redrive("dead", now=NOW),
    "discard": lambda q: q.discard("dead"),
}


@pytest.mark.parametrize("comes", HARMLESS)
def test_what_only_adds_stops_nothing_and_is_not_taken_along(one: Appending, comes: str) -> None:
    one.q.given(row("dead", at=NOW - 190, topic="mail"), now=NOW - 200)
    one.q.bury(*one.q.take(now=NOW - 190))
    three(one)
    one.q.given(row("later", at=NOW + 1_000, topic="mail"))
    due = one.read()
    HARMLESS[comes](one.q)
    before = one.q.state()
    assert one.append(due) == Appended(3, True)
    one.q.now = NOW
    for id in "abc":
        del before.queue[id]
    assert one.q.state() == before
    assert one.ids() == ["a", "b", "c"]


def test_what_is_scheduled_among_them_makes_the_next_look_begin_anew(one: Appending) -> None:
    """As only a clock that steps back can bring it about, or one that has not moved since it was read."""
    three(one, keys=("k",), given=True)
    due = one.read()
    one.q.given(row("bb", at=NOW - 100), now=NOW - 160)
    before = one.q.state()
    assert one.append(due) == Appended(0, False)
    assert (one.q.state(), one.ids()) == (before, [])
    assert one.append(one.read()) == Appended(4, True)
    assert one.ids() == ["a", "b", "bb", "c"]


# -- streams that take nothing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "between"])
def test_if_a_key_is_of_another_type_nothing_is_changed_and_a_pull_sorts_it_out(one: Appending, when: str) -> None:
    topics = ("orders", "news", "own")
    one.q.given(
        *(row(f"m{i}", at=NOW - 50, topic=topics[i % 3], keys=("k",), given=True) for i in range(9)), now=NOW - 60
    )
    for i in range(9):
        one.q.admin.hset(one.q.keys.attempts, f"m{i}", "0")
    if when == "before":
        one.q.admin.set("stream-of-news", "a string")
    due = one.read()
    if when == "between":
        one.q.admin.set("stream-of-news", "a string")
    before = one.q.state()
    assert one.append(due) == Appended(0, False)
    assert (one.q.state(), one.ids(), one.q.stream(one.q.keys.stream("own"))) == (before, [], [])
    assert one.q.admin.keys("*:aside") == []
    assert one.q.field("forwarded") is None
    pulled = one.q.pull(now=NOW, known=KNOWN)
    assert (pulled.appended, len(pulled.tickets), set(pulled.refused)) == (6, 3, {"news"})


def test_what_was_in_a_stream_before_is_not_taken_back(one: Appending) -> None:
    one.q.admin.xadd("orders", {"id": "x", "topic": "", "tags": "", "keys": "", "body": "", "due": "1"})
    one.q.given(row("a", at=NOW - 50, given=True), row("b", at=NOW - 40, topic="news", given=True), now=NOW - 60)
    one.q.admin.set("stream-of-news", "a string")
    one.q.admin.zadd(one.q.keys.final, {"other": ended(NOW, FORWARDED)})
    before = one.q.state()
    assert one.append(one.read()) == Appended(0, False)
    assert (one.q.state(), one.ids()) == (before, ["x"])


@pytest.mark.parametrize("last", [f"{2**64 - 1}-{2**64 - 2}", f"{2**64 - 1}-{2**64 - 1}", f"{2**64 - 1}-0"])
def test_a_stream_whose_ids_end_loses_nothing(one: Appending, last: str) -> None:
    fields = {"id": "c", "topic": "", "tags": "", "keys": "", "body": "", "due": "1", "attempt": "1"}
    one.q.admin.xadd("orders", fields, id=last)
    three(one)
    assert one.append(one.read()) == Appended(0, False)
    assert (sorted(one.q.state().queue), one.ids()) == (["a", "b", "c"], ["c"])


def test_without_the_right_to_undo_it_nothing_is_appended(one: Appending) -> None:
    three(one)
    one.q.admin.execute_command("ACL", "SETUSER", "little", "on", ">secret", "~*", "&*", "+@all", "-rename")
    try:
        some = Appending(one.q.server, one.q.server.url.replace("redis://", "redis://little:secret@"))
        assert some.read() == Due()
        some.close()
    finally:
        one.q.admin.execute_command("ACL", "DELUSER", "little")


# -- refused, lost ---------------------------------------------------------------------------------------------------------


def test_a_full_server_refuses_all_of_it_and_a_pull_goes_on(one: Appending) -> None:
    three(one)
    due = one.read()
    one.q.admin.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreFull):
            one.append(due)
        assert (one.ids(), sorted(one.q.state().queue)) == ([], ["a", "b", "c"])
        assert one.q.pull(now=NOW, known=KNOWN).appended == 3
    finally:
        one.q.admin.config_set("maxmemory", "0")


@pytest.mark.parametrize("right", ["-watch", "-multi", "-exec", "-xadd", "-eval", "-zrange", "-hmget", "resetkeys"])
def test_a_user_who_lacks_a_right_changes_nothing(one: Appending, real: ServerUnderTest, right: str) -> None:
    three(one)
    rights = ["on", ">secret", "+@all", "allchannels", "allkeys", right]
    if right == "resetkeys":
        rights += ["~delayq:*"]
    real.admin.execute_command("ACL", "SETUSER", "limited", *rights)
    limited = Appending(real, real.url.replace("redis://", "redis://limited:secret@"))
    try:
        with pytest.raises(StoreError):
            limited.append(limited.read())
    finally:
        limited.close()
        real.admin.execute_command("ACL", "DELUSER", "limited")
    assert (one.ids(), sorted(one.q.state().queue)) == ([], ["a", "b", "c"])


def test_a_server_that_forgets_its_scripts_is_told_them_again(one: Appending) -> None:
    three(one)
    due = one.read(upto=NOW - 1, most=1)
    one.q.admin.script_flush()
    assert one.append(due) == Appended(1, True)
    with pytest.raises(StoreError, match="NOSCRIPT"):
        one.read()
    assert one.append(one.read()) == Appended(2, True)
    assert one.ids() == ["a", "b", "c"]


def test_a_lost_reply_leaves_all_or_nothing_and_the_next_look_shows_it(valkey: ServerUnderTest) -> None:
    with FaultProxy(valkey.port) as proxy:
        one = Appending(valkey, proxy.url)
        one.claim()
        three(one)
        due = one.read(most=2)
        proxy.drop_reply("exec")
        with pytest.raises(StoreUnavailable):
            one.append(due)
        assert one.append(one.read()) == Appended(1, True)
        assert one.ids() == ["a", "b", "c"]
        assert one.q.state() == State()
        one.close()


@pytest.mark.parametrize("count", range(0, 1_500, 131))
def test_a_connection_that_breaks_in_the_middle_loses_nothing(valkey: ServerUnderTest, count: int) -> None:
    with FaultProxy(valkey.port) as proxy:
        one = Appending(valkey, proxy.url)
        one.claim()
        three(one)
        due = one.read()
        proxy.cut_after(count)
        with pytest.raises(StoreUnavailable):
            one.append(due)
        proxy.heal()
        while (due := one.read()).found:
            assert one.append(due).all
        assert one.ids() == ["a", "b", "c"]
        assert one.q.state() == State()
        one.close()


def test_only_where_transactions_are_worth_it_there_is_such_a_way(session_fakeredis: ServerUnderTest) -> None:
    q = Queue(Store(session_fakeredis.url, flags=False), session_fakeredis)
    assert isinstance(q.store, Store)
    assert q.store.appender(q.keys, EPOCH, q.retention) is None
    q.store.close()
    cluster = Store("redis+cluster://127.0.0.1:7000")
    assert cluster.appender(q.keys, EPOCH, q.retention) is None
    cluster.close()
