"""What a client does while queues are resharded, and after: how it learns of it, and in how many round trips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq.client.client import Client
from delayq.client.scheduling.schedule import Scheduled
from delayq.config import Settings
from delayq.domain.message import Message
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, LOOK_EVERY, Layout
from delayq.testing import ManualClock
from tests.support.queues import EPOCH, taken
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT

HOUR = 3_600_000
PATIENT = Settings(redis_timeout=REDIS_TIMEOUT)


def list_64(store: Store) -> tuple[Layout, Layout]:
    """The reshard of an empty Redis, from 16 to 64 queues."""
    both = (Layout(16), Layout(64, 16))
    assert store.run(commands.set_layouts(KEYS, both[:1], both)) == both
    for queue in both[0].numbers:
        store.run(commands.close(KEYS.queue(queue)))
    return both


def test_a_client_of_long_ago_goes_on_after_the_reshard_and_after_the_drop(valkey: ServerUnderTest) -> None:
    with Client(valkey.url, settings=PATIENT) as old:
        kept = old.schedule(Message(topic="t", body="x", delay_time=HOUR, id="kept", keys=("k",)))
        both = list_64(old.store)
        new = old.schedule(Message(topic="t", body="x", delay_time=HOUR, id="new", keys=("k",)))
        assert (kept.queue, new.queue) == (both[0].queue_of("kept"), both[1].queue_of("new"))
        assert [one.id for one in old.find("k")] == ["kept", "new"]
        with Client(valkey.url, settings=PATIENT) as young:
            assert {one.result for one in young.cancel_many(["kept", "new"])} == {"cancelled"}
        old.store.run(commands.set_layouts(KEYS, both, both[1:]))
        with Client(valkey.url, settings=PATIENT) as last:
            late = last.schedule(Message(topic="t", body="x", delay_time=HOUR, id="late"))
        found = old.get("late")
        assert found is not None
        assert (found.queue, found.due) == (late.queue, late.due)
        assert not old.schedule(Message(topic="t", body="x", delay_time=HOUR, id="late")).created


def test_a_client_learns_after_a_while_which_layouts_are_gone(valkey: ServerUnderTest) -> None:
    clock = ManualClock()
    with Client(valkey.url, settings=PATIENT, clock=clock) as client:
        client.context()
        both = list_64(client.store)
        client.schedule(Message(topic="t", body="x", delay_time=HOUR, id="mine"))
        assert client.context().layouts.known == both
        client.store.run(commands.set_layouts(KEYS, both, both[1:]))
        client.context()
        assert client.context().layouts.known == both
        clock.advance(LOOK_EVERY)
        assert client.context().layouts.known == both[1:]


def bury(client: Client, id: str) -> None:
    """Make a message a dead letter, whenever it is due."""
    there = client.get(id)
    assert there is not None
    keys = KEYS.queue(there.queue)
    later = 4_000_000_000_000
    (found,) = taken(client.store.run(commands.pull(keys, EPOCH, offset=0, room=10, node_now=later, now=later)))
    client.store.run(commands.bury(keys, EPOCH, [(found, 1, "no")]))


def test_a_dead_letter_in_a_newer_queue_is_found_by_who_asks_the_closed_one_before_it(valkey: ServerUnderTest) -> None:
    with Client(valkey.url, settings=PATIENT) as client:
        client.context()
        both = list_64(client.store)
        letter = client.schedule(Message(topic="t", body="x", delay_time=HOUR, id="letter"))
        assert letter.queue == both[1].queue_of("letter")
        bury(client, "letter")
        assert client.redrive(["letter"]) == ["scheduled"]
        bury(client, "letter")
        assert client.discard("letter")


CALLS: dict[str, Callable[[Client], object]] = {
    "schedule": lambda client: client.schedule(Message(topic="t", body="x", delay_time=HOUR, id="new")),
    "get": lambda client: client.get("mine"),
    "cancel": lambda client: client.cancel("mine"),
    "reschedule": lambda client: client.reschedule("mine", delay_time=HOUR),
    "queues": lambda client: client.queues(),
    "redrive": lambda client: client.redrive(["mine"]),
    "discard": lambda client: client.discard("mine"),
}


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each round trip."""
    made: list[int] = []
    run_many = Store.run_many

    def counting(store: Store, wanted: Any) -> Any:
        made.append(1)
        return run_many(store, wanted)

    monkeypatch.setattr(Store, "run_many", counting)
    return made


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_one_round_trip_with_one_layout_and_two_at_most_with_two(
    call: str, valkey: ServerUnderTest, trips: list[int]
) -> None:
    with Client(valkey.url, settings=PATIENT) as client:
        client.schedule(Message(topic="t", body="x", delay_time=HOUR, id="mine"))
        if call in ("redrive", "discard"):
            bury(client, "mine")
        trips.clear()
        CALLS[call](client)
        assert len(trips) == 1
        list_64(client.store)
        client.queues()
        client.context()
        trips.clear()
        CALLS[call](client)
        assert len(trips) <= 2


def test_an_id_made_here_goes_to_the_new_queue_at_once_when_the_old_one_is_known_to_be_closed(
    valkey: ServerUnderTest, trips: list[int]
) -> None:
    with Client(valkey.url, settings=PATIENT) as client:
        client.context()
        list_64(client.store)
        for number in range(200):  # so that every old queue has said it
            client.schedule(Message(topic="t", body="x", delay_time=HOUR, id=f"m{number}"))
        assert client.context().layouts.shut == set(range(16))
        trips.clear()
        made = client.schedule_many([Message(topic="t", body="x", delay_time=HOUR) for _ in range(1_200)])
        assert len(trips) == 1
        assert {isinstance(one, Scheduled) and one.queue >= 16 for one in made} == {True}
