"""What waits in a worker's memory is looked at again before it is sent."""

from __future__ import annotations

import pytest

from delayq.targets import OK
from tests.workers.conftest import Desks
from tests.workers.desk import held
from tests.workers.one_queue import Hand, OneQueue
from workers.queue.pull_job import OUTDATED_WAIT
from workers.sending.message import LOOK_AGAIN
from workers.sending.sender import OLDEST

#: How far a clock is set back, in ms.
SET_BACK = 60_000
ROOM = 40  # of a sender that is moved by hand


# -- behind an ordering key ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waited", [200, LOOK_AGAIN + 1])
def test_one_that_is_cancelled_while_it_waits_behind_its_key_is_not_sent(world: OneQueue, waited: int) -> None:
    """F1: A message that a worker held for half a second behind an ordering key or for room is looked up again before
    it is sent.

    Nor one that has expired, even where it has not waited for so long that it is looked at again.
    """
    for number, id in enumerate(("first", "old", "gone", "next")):
        world.add(id, at=number, ordering_key="k", expire_after=200 if id == "old" else None)
    world.advance(3)
    hand = world.take_over()
    assert hand.settle() == ["first"]
    if waited > LOOK_AGAIN:
        assert world.cancel("gone") == "inFlight"
    world.advance(waited)
    hand.answer("first")
    assert hand.settle() == ["next" if waited > LOOK_AGAIN else "gone"]
    assert {id: one.reason for id, one in world.dead().items()} == {"old": "expired"}


@pytest.mark.parametrize("waited", [1, LOOK_AGAIN + 1])
def test_one_that_is_not_due_any_more_by_a_clock_that_was_set_back_waits_for_its_due(
    world: OneQueue, waited: int
) -> None:
    """G2: A message in a worker's memory waits for its due time again when a clock is set back."""
    world.add("first", ordering_key="k")
    world.add("second", at=50, ordering_key="k")
    world.advance(50)
    hand = world.take_over()
    assert hand.settle() == ["first"]
    world.advance(waited)
    world.now -= SET_BACK
    hand.answer("first")
    assert hand.run(SET_BACK - waited - 1) == []
    assert hand.run(2) == ["second"]


def test_a_long_backlog_of_a_key_whose_target_is_slow_keeps_its_order_and_comes_once(world: OneQueue) -> None:
    ids = [f"m{number:03}" for number in range(60)]
    world.add_many(ids, every=1, ordering_key="k")
    world.advance(60)
    hand = world.take_over()
    hand.settle()
    while world.records():
        (id,) = hand.sending
        world.advance(LOOK_AGAIN // 3)
        hand.answer(id)
        hand.settle()
    assert hand.sent == ids


# -- for room ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waited", [100, LOOK_AGAIN + 1], ids=["shortly", "while-the-owner-was-held-up"])
def test_one_that_is_cancelled_or_expires_while_it_waits_for_room_is_not_sent(world: OneQueue, waited: int) -> None:
    world.add_many((f"m{number:02}" for number in range(ROOM)), every=1)
    world.add("gone", at=ROOM)
    world.add("old", at=ROOM, expire_after=min(waited, LOOK_AGAIN))
    world.add("rest", at=ROOM)
    world.advance(ROOM)
    hand = world.take_over()
    hand.settle()
    assert len(hand.sending) == ROOM
    if waited > LOOK_AGAIN:
        assert world.cancel("gone") == "inFlight"
    world.advance(waited)
    hand.answer_all()
    assert hand.settle() == (["rest"] if waited > LOOK_AGAIN else ["gone", "rest"])
    assert {id: one.reason for id, one in world.dead().items()} == {"old": "expired"}


def late(world: OneQueue, wait: int, *add: str, error: int = 0, **options: int) -> Hand:
    """An owner that takes the answer to the pull of these messages so many ms late, by a clock with an error."""
    world.add("known")  # so that it knows the topic
    hand = world.take_over()
    hand.settle()
    hand.answer_all()
    hand.settle()
    for id in add:
        world.add(id, expire_after=options.get(id))
    answers = world.store.run_many(hand.job.ask())
    world.advance(wait)  # another packet is worked on
    hand.senders["general"]._clock.error = error  # type: ignore[attr-defined]  # the node's own
    hand.job.take(answers)
    return hand


@pytest.mark.parametrize(("error", "sent"), [(0, ["good"]), (-1, ["good", "old"])], ids=["by-both-clocks", "by-one"])
def test_one_that_expires_while_the_answer_to_its_pull_lies_unread_is_sent_only_if_a_clock_says_it_may(
    world: OneQueue, error: int, sent: list[str]
) -> None:
    hand = late(world, 50, "old", "good", error=error, old=50, good=51)
    assert hand.sending == sent
    hand.settle()
    assert {id: one.reason for id, one in world.dead().items()} == dict.fromkeys({"old"} - {*sent}, "expired")


def test_what_waits_for_room_is_looked_at_again_in_time_however_long_its_answer_lay_unread(world: OneQueue) -> None:
    hand = late(world, LOOK_AGAIN, *(f"m{number:02}" for number in range(ROOM)), "waits")
    assert len(hand.sending) == ROOM
    assert world.cancel("waits") == "inFlight"
    world.advance(1)
    hand.answer_all()
    hand.settle()
    assert "waits" not in hand.sent


def test_one_that_waits_for_room_while_a_clock_is_set_back_waits_for_its_due(world: OneQueue) -> None:
    world.add_many((f"m{number:02}" for number in range(ROOM + 1)), every=1)
    world.advance(ROOM)
    hand = world.take_over()
    hand.settle()
    world.now -= SET_BACK
    hand.tick()  # tells it
    hand.answer_all()
    assert hand.run(SET_BACK - 1) == []
    assert hand.run(2) == [f"m{ROOM}"]


# -- for a thread of the sender ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waited", "stepped", "told"),
    [
        (LOOK_AGAIN, 0, {"plain": OK.outcome, "expires": OK.outcome}),
        (LOOK_AGAIN + 1, 0, {"plain": OK.outcome, "expires": None}),
        (OLDEST, 0, {"plain": OK.outcome, "expires": None}),
        (OLDEST + 1, 0, {"plain": None, "expires": None}),
        (LOOK_AGAIN + 1, -SET_BACK, {"plain": None, "expires": None}),
    ],
    ids=["at once", "expired", "long", "too long", "set back"],
)
def test_one_that_has_waited_for_a_thread_is_sent_only_if_it_may_still_go(
    desks: Desks, waited: int, stepped: int, told: dict[str, str | None]
) -> None:
    """F1: A message that waited 10 s for a thread is looked up again before it is sent."""
    desk = desks()
    desk.hang("busy")
    desk.submit("plain")
    desk.submit(held("expires", expire_after=LOOK_AGAIN + 1))
    desk.clock.advance(waited)
    desk.clock.set_now(desk.clock.now() + stepped)
    desk.target.release()
    assert desk.wait_for_reports(3) == {id: [outcome] for id, outcome in told.items()} | {"busy": ["ok"]}
    assert sorted(desk.target.ids) == sorted(["busy", *(id for id, outcome in told.items() if outcome)])


@pytest.mark.parametrize(("waited", "told"), [(99, OK.outcome), (100, None)])
def test_one_that_expires_while_it_waits_for_a_thread_is_not_sent_however_short_the_wait_was(
    desks: Desks, waited: int, told: str | None
) -> None:
    desk = desks()
    desk.hang("busy")
    desk.submit(held("expires", expire_after=100))
    desk.clock.advance(waited)
    desk.target.release()
    assert desk.wait_for_reports(2) == {"busy": ["ok"], "expires": [told]}


def test_one_that_waits_for_a_thread_while_others_may_not_know_of_this_worker_is_not_sent(desks: Desks) -> None:
    known = True
    desk = desks(may_send=lambda: known)
    desk.hang("busy")
    desk.submit("waits")
    known = False
    desk.target.release()
    assert desk.wait_for_reports(2) == {"busy": ["ok"], "waits": [None]}
    known = True
    desk.submit("again")
    assert desk.wait_for_reports(3)["again"] == ["ok"]


def test_an_owner_pulls_nothing_while_others_may_not_know_of_its_worker(world: OneQueue) -> None:
    known = False
    hand = world.take_over(may_send=lambda: known)
    world.add("a")
    for _ in range(3):
        hand.tick()
        assert (hand.sending, hand.pause) == ([], OUTDATED_WAIT), "it does not look again and again"
    known = True
    hand.settle()
    assert hand.sending == ["a"]
    known = False
    world.add("b")
    hand.answer("a")
    hand.settle()
    assert sorted(world.records()) == ["b"], "what was sent is settled all the same"
