"""What fails, hangs or floods holds up nothing else."""

from __future__ import annotations

import pytest

from delayq.targets import OK, Result
from tests.protocol.world import NoTarget
from tests.workers.conftest import Worlds
from tests.workers.one_queue import Hand, OneQueue
from workers.queue.queue_context import Bounds
from workers.sending.backoff import Backoff

AWAY = Result.unavailable("the broker is away")


def opened(world: OneQueue, hand: Hand, count: int = 6) -> None:
    """Messages m0, m1, … that find their target away, until its circuit is open and they are parked."""
    world.add_many((f"m{i}" for i in range(count)), every=1)
    world.advance(count)
    hand.settle()
    hand.answer_all(AWAY)
    hand.settle()
    assert hand.senders["general"].circuit.open
    hand.run(300, lambda held: AWAY)  # the back-off of those that failed before it opened


@pytest.mark.parametrize(("count", "keys"), [(250, 0), (600, 40)], ids=["plain", "keyed"])
def test_a_target_that_hangs_on_more_than_its_share_leaves_others_untouched(
    world: OneQueue, count: int, keys: int
) -> None:
    hand = world.take_over()
    ids = [f"hung{i:03}" for i in range(count)]
    for i, id in enumerate(ids):
        world.add(id, ordering_key=f"key{i % keys}" if keys else "")
    hand.run(50)
    assert len(hand.senders["general"].outbox) == 40  # the room of the sender, less than its share
    hand.run(150)
    assert keys or world.stats().parked == 210
    for i in range(30):
        world.add(f"other{i}", topic="o.t", at=200)
        world.add(f"stream{i}", topic="s.t", at=200)
    hand.settle()
    assert sorted(hand.senders["other"].ids) == sorted(f"other{i}" for i in range(30))
    assert len(world.stream("s.t")) == 30
    hand.run(20_000, lambda held: OK)
    assert world.records() == {}
    hung = [id for id in hand.sent if id.startswith("hung")]
    assert sorted(hung) == ids
    for key in range(keys):
        of_key = [id for id in hung if int(id[4:]) % keys == key]
        assert of_key == sorted(of_key)


def test_no_target_may_hold_more_than_its_share_of_the_window(worlds: Worlds) -> None:
    """E2 (broker slow (5 s/send)): A route fills only its share of the window.

    The rest is parked, and other topics stay on time.

    E2: The share bounds messages and bytes. The other messages of the route are parked and return as there is room.
    """
    world = worlds(bounds=Bounds(window=30, look=50, backoff=Backoff(100, 1_000)))
    hand = world.take_over()
    world.add_many(f"m{i:02}" for i in range(50))
    hand.settle()
    assert len(hand.sending) == 10  # a third of the window: two targets, and what must go on beside them
    hand.run(150)
    assert world.stats().parked == 40
    world.add("other", topic="o.t", at=150)
    assert hand.settle() == ["other"]


KB = 1_000


@pytest.mark.parametrize(
    ("size", "count", "keyed"), [(990 * KB, 60, False), (50 * KB, 800, True)], ids=["1-mb", "50-kb-keyed"]
)
def test_large_messages_of_a_target_that_hangs_fill_no_more_than_its_share_of_the_windows_bytes(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, size: int, count: int, keyed: bool
) -> None:
    monkeypatch.setattr(NoTarget, "max_batch", 500)  # the sender has room for all of them
    world = worlds(bounds=Bounds(backoff=Backoff(100, 1_000)))
    hand = world.take_over()
    for i in range(count):
        world.add(f"hung{i:03}", body="x" * size, ordering_key=f"key{i % 70}" if keyed else "")
    world.add("before", topic="o.t")
    hand.run(150)
    share = world.bounds.window_bytes // 3  # two targets, and what must go on beside them
    sent = [batch[0] for _, batch in hand.senders["general"].outbox]
    assert 0 < sum(held.size for held in sent) <= share
    assert world.stats().parked >= count - share // size
    hand.answer("before")
    for i in range(5):
        world.add(f"other{i}", topic="o.t", at=150, body="x" * size)
        world.add(f"stream{i}", topic="s.t", at=150)
    assert hand.settle() == [f"other{i}" for i in range(5)]
    assert len(world.stream("s.t")) == 5
    hand.run(60_000, lambda held: OK)
    assert world.records() == {}
    ids = [id for id in hand.sent if id.startswith("hung")]
    assert sorted(ids) == [f"hung{i:03}" for i in range(count)]


def test_large_messages_that_find_no_room_are_not_fetched_again_and_again_and_one_larger_than_the_share_goes_alone(
    worlds: Worlds,
) -> None:
    world = worlds(bounds=Bounds(window_bytes=300 * KB, backoff=Backoff(100, 1_000)))
    hand = world.take_over()
    sizes = [60 * KB, KB] * 20
    sizes[20] = 150 * KB  # larger than the share
    for i, size in enumerate(sizes):
        world.add(f"m{i:02}", at=i, body="x" * size, ordering_key=f"key{i}" if i % 4 == 0 else "")
    for _ in range(2_000):
        hand.settle()  # raises if it never comes to rest
        if not world.records():
            break
        if hand.sending:
            assert "m20" not in hand.sending or hand.sending == ["m20"]
            hand.answer(hand.sending[0])
        world.advance(20)
    assert world.records() == {}
    assert sorted(hand.sent) == [f"m{i:02}" for i in range(40)]


def test_what_a_target_rejects_is_buried_at_once_in_its_words_and_others_go_on(world: OneQueue) -> None:
    hand = world.take_over()
    bad, good = [[f"{name}{i:02}" for i in range(20)] for name in ("bad", "good")]
    world.add_many(bad, keys=("order-7",))
    world.add_many(good, topic="o.t")
    reason = "MESSAGE_TOO_LARGE: 1048577 > 1048576"
    hand.run(50, lambda held: Result.rejected(reason) if held.topic == "g.t" else OK)
    dead = world.dead()
    assert {id: (one.reason, one.attempts, world.state_of(id)) for id, one in dead.items()} == dict.fromkeys(
        bad, (reason, 1, "dead")
    )
    assert hand.run(2_000) == []
    assert sorted(hand.sent) == bad + good
    assert not hand.senders["general"].circuit.open  # the target answers: it is not broken


@pytest.mark.parametrize("outcome", [AWAY, Result.unknown("timed out")], ids=["unavailable", "unknown"])
def test_behind_an_open_circuit_messages_are_parked_and_burn_no_attempts(world: OneQueue, outcome: Result) -> None:
    """E1 (broker down 10 min): Three failed sends open the circuit: messages are parked without attempts and return
    in due order.

    (Over seconds, and ten minutes by a manual clock.)

    E1: Other topics continue. When the target is back, messages return in due order, as there is room.
    """
    hand = world.take_over()
    world.add_many((f"m{i}" for i in range(10)), every=1, max_attempts=3)
    world.advance(10)
    hand.settle()
    for i in range(10):
        hand.answer(f"m{i}", outcome)  # after the third the circuit is open, and the others were on their way
    hand.settle()
    world.add("new", at=10)
    hand.settle()
    hand.run(500, lambda held: outcome)
    assert hand.parked == ["t:general"]
    burnt = {id: world.attempts_of(id) for id in [*(f"m{i}" for i in range(10)), "new"]}
    assert {world.state_of(id) for id in burnt} == {"parked"}
    assert world.stats().parked == 11
    hand.run(600_000, lambda held: outcome)
    assert {id: world.attempts_of(id) for id in burnt} == burnt
    assert all(attempts <= 1 for attempts in burnt.values())
    assert (burnt["m9"], burnt["new"]) == (0, 0)
    assert world.dead() == {}


def test_few_probe_an_open_circuit_more_and_more_rarely_and_those_that_never_get_through_do_not_keep_it_open(
    world: OneQueue,
) -> None:
    hand = world.take_over()
    opened(world, hand, 50)
    probes = [len(hand.run(10_000, lambda held: AWAY)) for _ in range(9)]
    assert 0 < sum(probes[6:]) <= sum(probes[:3]) <= 15
    assert world.stats().parked == 50
    poison = {"m0", "m1", "m2", "m3", "m4"}
    hand.run(1_200_000, lambda held: AWAY if held.id in poison else OK)
    assert world.records().keys() <= poison


def test_what_was_parked_comes_back_in_due_order_as_there_is_room_when_the_target_recovers(world: OneQueue) -> None:
    hand = world.take_over()
    opened(world, hand, 200)
    assert world.stats().parked == 200
    sizes = []
    start = len(hand.sent)
    for _ in range(3_000):
        hand.tick()
        if sending := len(hand.sending):
            sizes.append(sending)
            hand.answer_all(OK)
        elif hand.pause:
            world.advance(max(1, round(hand.pause)))
        if not world.records():
            break
    assert world.records() == {}
    back = hand.sent[start:]
    assert back == sorted(back, key=lambda id: int(id[1:]))
    assert sizes[0] <= 3  # the probes
    assert max(sizes) <= 40  # as many as the sender takes at a time
    assert not hand.senders["general"].circuit.open


def test_a_target_that_is_away_is_not_noticed_by_others(world: OneQueue) -> None:
    hand = world.take_over()
    opened(world, hand, 200)
    for i in range(20):
        at = world.now + 1 - 1_800_000_000_000
        world.add(f"o{i}", topic="o.t", at=at)
        world.add(f"s{i}", topic="s.t", at=at)
        world.add(f"g{i}", at=at)
        world.advance(1)
        assert f"o{i}" in hand.settle()
        hand.answer(f"o{i}")
        assert world.stream("s.t")[-1] == f"s{i}"
        hand.answer_all(AWAY)


def test_a_parked_message_cancels_as_in_flight_and_a_new_owner_brings_back_the_others_alone(world: OneQueue) -> None:
    opened(world, world.take_over(node=1), 30)
    assert world.cancel("m7") == "inFlight"
    assert world.state_of("m7") != "parked"
    assert world.stats().parked == 29
    new = world.take_over(node=2)
    assert new.parked == ["t:general"]
    assert new.run(20_000, lambda held: OK) == [f"m{i}" for i in range(30) if i != 7]
    assert world.records() == {}
    assert new.parked == []


def test_a_slow_target_that_makes_progress_does_not_hold_up_the_others(world: OneQueue) -> None:
    hand = world.take_over()
    world.add_many(f"slow{i:03}" for i in range(200))
    hand.settle()
    for step in range(30):  # one message each 10 ms
        world.advance(10)
        hand.answer(hand.senders["general"].ids[0])
        hand.settle()
        if step == 2:
            world.add("other", topic="o.t", at=world.now - 1_800_000_000_000)
            world.add("stream", topic="s.t", at=world.now - 1_800_000_000_000)
        if step == 7:  # 50 ms later
            assert hand.senders["other"].ids == ["other"]
            assert world.stream("s.t") == ["stream"]
