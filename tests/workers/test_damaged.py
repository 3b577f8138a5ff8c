"""A record of which any one byte is another: that message alone becomes a dead letter, or goes as what it says now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delayq.answers.messages import dead_letter_out, state_out
from delayq.domain.codec import MOST_PROPERTIES, CorruptRecord, Record, due_head, encode
from delayq.domain.message import Message
from delayq.domain.routes import Route
from delayq.store import commands
from delayq.targets import OK
from tests.protocol.world import RETENTION
from tests.workers.conftest import Worlds
from tests.workers.one_queue import START, STREAMS, OneQueue
from workers.queue.queue_context import Bounds
from workers.sending.backoff import Backoff

#: Topics that a changed byte leads to have a way, too.
TABLE = (STREAMS, Route(name="rest", target="manual:"))
BOUNDS = Bounds(window=2_000, look=500, max_attempts=3, backoff=Backoff(100, 1_000))
GENERATION = range(7)

PLAIN: dict[str, Any] = {
    "body": "text ☃", "keys": ("order-1", "käse"), "tags": "täg", "properties": {"näme": "ü", "traceparent": "x"},
}  # fmt: skip
BARE: dict[str, Any] = {"body": {"a": [1]}}
KEYED: dict[str, Any] = {"ordering_key": "schlüssel", "max_attempts": 12, "expire_after": 9_000_000, "tags": "t"}


def others(byte: int) -> set[int]:
    """Bytes that may stand instead: the neighbour, a digit, controls, and beginnings and ends of UTF-8."""
    return {byte ^ 1, byte ^ 0x80, (byte + 1) % 256, 0, 10, 48, 57, 0xC3, 0xED, 0xF5, 0xFF} - {byte}


def damages(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Records with one other byte: where, and the record."""
    for place, byte in enumerate(raw):
        for other in sorted(others(byte)):
            yield place, raw[:place] + bytes([other]) + raw[place + 1 :]


def readable(raw: bytes) -> bool:
    try:
        Record(raw)
    except CorruptRecord:
        return False
    return True


def record_of(world: OneQueue, id: str) -> bytes:
    return world.store.run(commands.plain("HGET", world.keys.pool, id, read=lambda reply: bytes(reply)))


def given(world: OneQueue, topic: str, options: dict[str, Any], at: int = 0) -> dict[str, tuple[int, bytes]]:
    """Messages with one damaged byte each, and a good one behind each: the damaged ones by id."""
    world.add("pattern", topic, at, **options)
    count = sum(1 for _ in damages(record_of(world, "pattern")))
    limits, ids = world.limits, [f"m{number:05}" for number in range(2 * count)]
    message = Message(topic=topic, expect_date=START + at, **options)
    good = Message(topic=topic, expect_date=START + at, body="good")
    for start in range(0, len(ids), 400):
        some = ids[start : start + 400]
        bodies = [encode(good if n % 2 else message, limits, due_head(START + at)) for n in range(len(some))]
        made = commands.schedule(world.keys, "A" * len(some), some, bodies, now=world.now, retention=RETENTION)
        assert not world.store.run(made).others
    damaged: dict[str, tuple[int, bytes]] = {}
    writes = []
    for id in ids[::2]:
        whole = record_of(world, id)
        place, raw = list(damages(whole))[len(damaged)]
        damaged[id] = place, raw
        writes.append(commands.plain("HSET", world.keys.pool, id, raw, read=lambda _: None))
    world.store.run_all(writes)
    return damaged


@pytest.mark.parametrize("topic", ["s.t", "g.t"])
@pytest.mark.parametrize("options", [PLAIN, BARE, KEYED], ids=["plain", "bare", "keyed"])
def test_whatever_byte_it_is_that_message_alone_becomes_a_dead_letter(
    worlds: Worlds, topic: str, options: dict[str, Any]
) -> None:
    """F17 (any one byte of a stored record differs): That message alone becomes a dead letter, or is delivered as the
    record reads now.

    F17: The dead letter has its reason. Its neighbours are on time.
    """
    world = worlds(table=TABLE, bounds=BOUNDS)
    damaged = given(world, topic, options)
    good = {f"m{number:05}" for number in range(1, 2 * len(damaged), 2)} | {"pattern"}
    hand = world.take_over()
    hand.run(1_000, lambda held: OK)
    delivered = set(hand.sent) | {id for stream in streams(world) for id in world.stream(stream)}
    dead = world.dead()
    assert good <= delivered
    assert not good & dead.keys()
    # A record of another generation than its ticket has lost that: the regular look gives it one.
    lost = {id for id, (place, _) in damaged.items() if place in GENERATION}
    assert not lost & (delivered | dead.keys())
    assert world.store.run(commands.repair(world.keys, [], "0", 100_000, now=world.now))[1] == len(lost)
    hand.job.wake(0)
    hand.run(1_000, lambda held: OK)
    delivered = set(hand.sent) | {id for stream in streams(world) for id in world.stream(stream)}
    dead = world.dead()
    for id, (place, raw) in damaged.items():
        if readable(raw):
            assert id in delivered or dead[id].reason == "expired", (place, raw)
        else:
            assert (dead[id].reason or "").startswith("corrupt record: "), (place, raw)
            assert id not in delivered
    assert not world.tickets()


@pytest.mark.parametrize("topic", ["s.t", "g.t"])
@pytest.mark.parametrize("count", [MOST_PROPERTIES, MOST_PROPERTIES + 1, 5_000, 16_000])
def test_a_record_with_more_properties_than_a_script_can_append_does_not_stop_its_neighbors(
    worlds: Worlds, topic: str, count: int
) -> None:
    """As another client may write it."""
    world = worlds(table=TABLE, bounds=BOUNDS)
    for at, id in enumerate(("before", "many", "behind")):
        world.add(id, topic, at, properties={f"{n:x}": "" for n in range(count)} if id == "many" else {})
    hand = world.take_over()
    hand.run(1_000, lambda held: OK)
    delivered = [*hand.sent, *(id for stream in streams(world) for id in world.stream(stream))]
    if count <= MOST_PROPERTIES:
        assert sorted(delivered) == ["before", "behind", "many"]
    else:
        assert sorted(delivered) == ["before", "behind"]
        assert world.dead()["many"].reason == f"corrupt record: it has {count} properties, but at most 1000 are allowed"
    assert not world.tickets()


def streams(world: OneQueue) -> list[str]:
    """The streams that there are."""
    names = world.store.run(commands.plain("KEYS", "*", read=lambda reply: [bytes(name) for name in reply]))
    return [name.decode() for name in names if name.startswith(b"s.")]


@pytest.mark.parametrize("options", [PLAIN, BARE, KEYED], ids=["plain", "bare", "keyed"])
def test_every_look_at_it_and_every_change_of_it_copes_with_a_damaged_record(
    world: OneQueue, options: dict[str, Any]
) -> None:
    damaged = given(world, "g.t", options, at=60_000)
    ids = list(damaged)
    keys, store, now = world.keys, world.store, world.now
    for id, found in world.found(ids).items():
        assert found is not None and (found.record is not None) == readable(damaged[id][1])
        assert state_out(found).id == id
    paged, after = 0, None
    while True:
        page = store.run(commands.page(keys, wanted=commands.Filter(topic="g.t"), after=after, look=100, now=now))
        paged, after = paged + len(page.messages), page.after
        if after is None:
            break
    assert paged >= len(damaged)
    cursor = "0"
    while (searched := store.run(commands.find_by_property(keys, cursor, 100, "traceparent", "x"))).cursor != "0":
        cursor = searched.cursor
    store.run(commands.find_by_key(keys, "order-1", 1_000))
    for id in ids[::3]:
        assert world.reschedule(id, START + 60_000)[0] in ("scheduled", "parked")
        assert (
            world.schedule(Message(topic="g.t", id=id, expect_date=START, body="other"), f"A{START}")[0] == "conflict"
        )
    assert {world.cancel(id) for id in ids[::4]} <= {"cancelled", "inFlight"}
    assert all(one is None or one.record is None for one in world.found(ids[::4]).values())
    store.run(commands.repair(keys, [], "0", 100_000, now=now))
    world.advance(61_000)
    hand = world.take_over()
    hand.run(1_000, lambda held: OK)
    for id, letter in world.dead().items():
        assert dead_letter_out(letter).id == id
        assert world.redrive(id) in ("scheduled", "corrupt")
    hand.run(1_000, lambda held: OK)
    dead = list(world.dead())
    assert dead, "none was damaged so that it could not be sent"
    discarded: list[bool | None] = store.run(commands.discard(keys, dead))
    assert all(discarded)
    assert not world.tickets()
