"""What has ended is found by its business key as long as by its id, and no longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delayq.store import commands
from delayq.store.commands import Known, Retention
from delayq.store.commands.reading import Carriers
from tests.support.queues import Queue, row

STREAM = Known("orders", "orders")
#: How a message ends that is due at 20,000, and what is said of it from then on.
ENDINGS: dict[str, tuple[Callable[[Queue], object], str]] = {
    "acked": (lambda q: q.ack(q.take_one(now=20_000)), "delivered"),
    "appended to a stream": (lambda q: q.pull(now=20_000, known=[STREAM]), "delivered"),
    "cancelled": (lambda q: q.cancel("a", now=19_999), "cancelled"),
    "cancelled in flight": (lambda q: (q.take(now=20_000), q.cancel("a")), "inFlight"),
    "discarded": (lambda q: (q.bury(q.take_one(now=20_000)), q.discard("a")), "discarded"),
    "redriven and acked": (
        lambda q: (q.bury(q.take_one(now=20_000)), q.redrive("a"), q.ack(q.take_one(now=20_001))),
        "delivered",
    ),
}  # fmt: skip
WINDOW = Retention().window


def carriers(q: Queue, key: str, now: int | None = None, limit: int = 100, look: int = 5_000) -> Carriers:
    found = q.run(
        commands.find_by_key(
            q.keys, key, limit, ended=100, look=look, now=q.now if now is None else now, retention=q.retention
        )
    )
    assert isinstance(found, Carriers)
    return found


def known(q: Queue, key: str, now: int | None = None) -> tuple[list[str], list[str]]:
    found = carriers(q, key, now)
    return list(found), found.ended


def nothing_is_kept(q: Queue) -> bool:
    return not any(map(q.admin.exists, (q.keys.index, q.keys.final, q.keys.ended)))


@pytest.mark.parametrize("given", [False, True], ids=["id made here", "id given"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_key_leads_to_what_has_ended_as_long_as_its_id_is_remembered(q: Queue, ending: str, given: bool) -> None:
    end, result = ENDINGS[ending]
    q.given(row("a", at=20_000, keys=("k1", "k2"), given=given, reserved=("delayq:topic:orders",)), now=-WINDOW)
    assert known(q, "k1") == (["a"], [])
    end(q)
    at = q.now
    for key in ("k1", "k2"):
        assert known(q, key) == ([], ["a"])
        assert known(q, key, at + WINDOW) == ([], ["a"])
        assert known(q, key, at + WINDOW + 1) == ([], [])  # as its id, though nothing has forgotten it yet
    assert q.state().ended == {"a": ["k1", "k2"]}
    assert q.cancel("a", now=at + WINDOW) == [result]
    assert q.cancel("a", now=at + WINDOW + 1) == ["notFound"]
    q.pull(now=at + WINDOW + 2)
    assert nothing_is_kept(q)


def test_ids_of_which_there_are_too_many_are_forgotten_with_their_keys(q: Queue) -> None:
    q.retention = Retention(most=2)
    endings: list[Callable[[], object]] = [
        lambda: q.ack(*q.take(now=20_000)),
        lambda: q.pull(now=20_001, known=[STREAM]),
        lambda: q.cancel("c.1a2b", now=19_000),
        lambda: (q.bury(q.take_one(now=20_003)), q.discard("d")),
    ]
    for number, end in enumerate(endings):
        id = ("a.1a2b", "b", "c.1a2b", "d")[number]
        q.given(row(id, at=20_000 + number, keys=("k", f"own-{number}"), given=True, ordering_key="o"), now=10_000)
        end()
    state = q.state()
    assert len(state.final) == 2 and state.ended.keys() == state.final.keys()
    assert len(q.admin.zrange(q.keys.index, 0, -1)) == 3 * 2  # two keys each, and the id that was given


def test_an_id_that_is_made_anew_is_found_by_its_new_keys_alone(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("old", "both"), given=True))
    q.cancel("a", now=15_000)
    later = 15_000 + WINDOW + 1  # nothing has forgotten it yet
    q.given(row("a", at=later + 9, keys=("new", "both"), given=True), now=later)
    assert (known(q, "old"), known(q, "both"), known(q, "new")) == (([], []), (["a"], []), (["a"], []))
    assert q.state().final == {} == q.state().ended
    q.ack(q.take_one(now=later + 9))
    assert (known(q, "old"), known(q, "both"), known(q, "new")) == (([], []), ([], ["a"]), ([], ["a"]))
    q.pull(now=later + WINDOW + 10)
    assert nothing_is_kept(q)


def test_a_look_is_bounded_whatever_has_ended_and_the_next_one_goes_on(q: Queue) -> None:
    ids = [f"m{number:02}" for number in range(30)]
    q.given(*(row(id, at=20_000 + number, keys=("k",)) for number, id in enumerate(ids)), row("n", at=1, keys=("kk",)))
    q.cancel(*ids[:29], now=19_000)
    first = carriers(q, "k", look=20)
    assert (list(first), first.ended, first.behind) == ([], ids[:20], "m19")
    rest = q.run(commands.find_by_key(q.keys, "k", 100, first.behind, ended=4, look=20, now=q.now))
    assert (list(rest), rest.ended, rest.behind) == ([], ids[20:24], "m23")
    rest = q.run(commands.find_by_key(q.keys, "k", 100, rest.behind, look=20, now=q.now))
    assert (list(rest), rest.ended, rest.behind) == (["m29"], [], "")
    assert carriers(q, "k", limit=1).behind == "m29"


def test_what_a_digest_compares_is_the_callers_id_not_the_key(q: Queue) -> None:
    q.given(row("given", at=20_000, keys=("k",), given=True), row("made", at=90_000, keys=("k",)), now=10_000)
    q.ack(*q.take(now=90_000))
    assert q.schedule(row("given", at=20_000, keys=("k",), given=True)).others == {0: ("delivered", None)}
    assert q.schedule(row("given", at=20_000, keys=("l",), given=True)).others == {0: ("conflict", None)}
    # Nobody repeats the call of an id that was made for it once the message may be due, so nothing is compared.
    assert q.schedule(row("made", at=90_000, keys=("k",), given=True)).others == {0: ("conflict", None)}


def test_a_damaged_record_ends_without_keys(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)), row("b", at=20_000, keys=("k",)))
    record = q.admin.hget(q.keys.pool, "a")
    q.admin.hset(q.keys.pool, "a", record[: record.index(b"orders") + 3])
    assert q.cancel("a", "b", now=15_000) == ["cancelled", "cancelled"]
    assert q.state().ended == {"a": [], "b": ["k"]}
    (found,) = q.get("a")
    assert found is not None and found.known_topic is None, "a topic that is cut short may be that of another tenant"


def test_the_topic_of_a_cancelled_or_discarded_id_is_remembered_with_the_name_of_the_key_that_ended_it(
    q: Queue,
) -> None:
    q.given(
        *(row(id, at=20_000, keys=keys, topic="t.x") for id, keys in (("a", ("k1", "k2")), ("b", ()), ("c", ("k1",))))
    )
    q.cancel("a", by="shop of Müller & Söhne", now=15_000)
    q.cancel("b", now=15_000)
    q.bury(*q.take(now=20_000))
    q.discard("c", by="press", now=21_000)
    told = [(one.state, one.known_topic, one.ended_by, one.ended) for one in q.get("a", "b", "c", now=21_000) if one]
    assert told == [
        ("cancelled", "t.x", "shop of Müller & Söhne", 15_000),
        ("cancelled", "t.x", None, 15_000),
        ("discarded", "t.x", "press", 21_000),
    ]
    assert q.cancel("a", by="another", now=22_000) == ["cancelled"]
    (again,) = q.get("a", now=22_000)
    assert again is not None and (again.ended_by, again.ended) == ("shop of Müller & Söhne", 15_000), "who was first"


@pytest.mark.parametrize("ending", ["acked", "appended to a stream"])
def test_the_topic_of_a_delivered_message_is_remembered_if_it_has_business_keys(q: Queue, ending: str) -> None:
    q.given(*(row(id, at=20_000, keys=keys, given=True) for id, keys in (("a", ("k1", "k2")), ("b", ()))))
    if ending == "acked":
        q.ack(*q.take(now=20_000))
    else:
        q.pull(now=20_000, known=[STREAM])
    told = {one.id: (one.state, one.known_topic, one.ended_by) for one in q.get("a", "b", now=20_000) if one}
    assert told == {"a": ("delivered", "orders", None), "b": ("delivered", None, None)}


def test_what_a_former_version_remembers_of_an_id_is_read_and_forgotten_as_before(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k1", "k2"), given=True))
    q.cancel("a", by="shop", now=15_000)
    q.admin.hset(q.keys.ended, "a", "k1 k2")  # as a former version writes it
    (found,) = q.get("a", now=15_000)
    assert found is not None and (found.state, found.known_topic, found.ended_by) == ("cancelled", None, None)
    assert known(q, "k2", 15_000) == ([], ["a"])
    q.pull(now=15_000 + WINDOW + 1)
    assert nothing_is_kept(q)


def test_a_former_version_that_forgets_an_id_finds_its_keys_in_what_is_remembered_now(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k1", "k2"), given=True))
    q.cancel("a", by="the shop", now=15_000)
    words = q.admin.hget(q.keys.ended, "a").split(b" ")  # a former version takes them for keys
    assert q.admin.zrem(q.keys.index, *(word + b"\0a" for word in words if word)) == 2
    assert not q.admin.exists(q.keys.index)
